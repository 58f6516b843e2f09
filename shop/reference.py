"""What the shop's gold tables must hold, said a second time in DuckDB's SQL: plain batch programs over whole tables.

They share no code with the transforms. The statements read relations of schema `silver`, and of `gold` those that come
before them; times are UTC. Of silver the table that filters is told. `silver.cart_events` is a fold, and is said in
Python.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

_SESSIONS = """
    with apart as (
        select *, coalesce(event_time - lag(event_time) over w > interval 10 minutes, true)::int as begins
        from silver.page_views window w as (partition by user_id order by event_time)
    ), numbered as (
        select *, sum(begins) over (partition by user_id order by event_time) as visit from apart
    )
    select user_id, min(event_time) as session_start, max(event_time) + interval 10 minutes as session_end,
           count(*) as views, count(distinct page) as pages,
           arg_min(page, (event_time, event_id)) as landing_page, arg_max(page, (event_time, event_id)) as exit_page
    from numbered group by user_id, visit
"""

WEB = MappingProxyType(
    {
        "silver.large_purchases": "select * from silver.purchases where amount > 100",
        "gold.page_views_per_minute": """
            select page, time_bucket(interval 1 minute, event_time) as minute, count(*) as views
            from silver.page_views group by all
        """,
        "gold.page_views_by_arrival": """
            select time_bucket(interval 1 minute, arrived_at) as minute, count(*) as views,
                   sum(floor(epoch(arrived_at)) - floor(epoch(event_time)))::bigint as delay_seconds
            from silver.page_views where arrived_at is not null group by all
        """,
        # a window of a minute every thirty seconds holds the halves before and after its middle
        "gold.page_views_hopping": """
            select time_bucket(interval 30 seconds, event_time) + half as until, count(*) as views
            from silver.page_views, (values (interval 30 seconds), (interval 60 seconds)) as halves(half) group by all
        """,
        "gold.user_sessions": _SESSIONS,
        "gold.url_clicks_5m": """
            select url, time_bucket(interval 5 minutes, clicked_at) as since, count(*) as clicks
            from silver.search_clicks group by all
        """,
        "gold.response_times": """
            select endpoint, ends.until, count(*) as requests, count(*) filter (status >= 500) as errors,
                   sum(milliseconds)::bigint as total_milliseconds, max(milliseconds) as slowest_milliseconds
            from silver.api_requests,
                 lateral (select unnest(generate_series(
                     time_bucket(interval 5 minutes, requested_at) + interval 5 minutes,
                     time_bucket(interval 5 minutes, requested_at) + interval 1 hour,
                     interval 5 minutes)) as until) ends
            group by all
        """,
        "gold.request_samples": """
            select time_bucket(interval 10 minutes, requested_at) as since, count(*) as requests
            from silver.api_requests
            where requested_at - time_bucket(interval 10 minutes, requested_at) < interval 6 minutes group by all
        """,
        "gold.request_bursts": """
            select client_id, requested_at, request_id,
                   (select count(*) from silver.api_requests b where b.client_id = a.client_id
                    and b.requested_at between a.requested_at - interval 5 minutes and a.requested_at) as requests,
                   (select count(*) from silver.api_requests b where b.client_id = a.client_id and b.status >= 400
                    and b.requested_at between a.requested_at - interval 5 minutes and a.requested_at) as errors
            from silver.api_requests a
        """,
        "gold.search_click_through": """
            select s.session_id, s.searched_at, s.search_id, min(s.term) as term, count(distinct c.click_id) as clicks,
                   min(c.clicked_at) as clicked_at, arg_min(c.url, (c.clicked_at, c.click_id)) as url,
                   s.searched_at + interval 1 hour as waits_until
            from silver.searches s left join silver.search_clicks c
              on c.session_id = s.session_id and c.search_id = s.search_id
             and c.clicked_at between s.searched_at and s.searched_at + interval 1 hour
            group by s.session_id, s.searched_at, s.search_id
        """,
        "gold.search_terms": """
            select searched_at::date as day, term, count(*) as searches, count(clicked_at) as clicked,
                   count(clicked_at) / count(*) as rate
            from gold.search_click_through group by all
        """,
        "gold.ad_click_through": """
            select i.impression_id, i.shown_at, i.ad_id, i.user_id, min(c.clicked_at) as clicked_at,
                   i.shown_at + interval 10 minutes as waits_until
            from silver.ad_impressions i left join silver.ad_clicks c
              on c.impression_id = i.impression_id
             and c.clicked_at between i.shown_at and i.shown_at + interval 10 minutes
            group by i.impression_id, i.shown_at, i.ad_id, i.user_id
        """,
        "gold.click_to_purchase": """
            select k.user_id, k.clicked_at, k.click_id, k.ad_id, min(p.bought_at) as bought_at,
                   arg_min(p.amount, (p.bought_at, p.purchase_id)) as amount,
                   k.clicked_at + interval 1 hour as waits_until
            from silver.ad_clicks k left join silver.purchases p
              on p.user_id = k.user_id and p.bought_at between k.clicked_at and k.clicked_at + interval 1 hour
            group by k.user_id, k.clicked_at, k.click_id, k.ad_id
        """,
    }
)
"""Tables of app web, in an order in which each finds what it reads."""

SHOP = MappingProxyType(
    {
        "gold.big_spenders": """
            select bought_at::date as day, user_id, count(*) as purchases, sum(amount)::decimal(18, 2) as amount
            from silver.published_purchases group by all
        """,
        "gold.daily_orders": """
            select placed_at::date as day, count(*) as orders, count(*) filter (status = 'paid') as paid,
                   count(*) filter (status = 'cancelled') as cancelled,
                   coalesce(sum(amount) filter (status = 'paid'), 0) as revenue
            from silver.orders group by all
        """,
        "gold.order_items": """
            select l.order_id, l.line_no, l.product_id, o.customer_id, o.status, o.placed_at, p.name as product,
                   p.category, l.quantity, l.quantity * l.price as value
            from silver.order_lines l join silver.orders o using (order_id)
            left join silver.products p using (product_id)
        """,
        "gold.orders_with_customers": """
            select o.customer_id, o.order_id, c.name, c.email, c.country, c.tier, o.status, o.amount, o.placed_at
            from silver.orders o left join silver.customers c on c.customer_id = o.customer_id and c.is_current
        """,
        "gold.product_sales": """
            select product_id, any_value(product) as product, any_value(category) as category,
                   count(distinct order_id) filter (status <> 'cancelled') as orders,
                   coalesce(sum(quantity) filter (status <> 'cancelled'), 0)::bigint as pieces,
                   coalesce(sum(value) filter (status = 'paid'), 0) as revenue
            from gold.order_items group by product_id
        """,
        "gold.stock_levels": """
            select p.product_id, p.name as product, s.quantity::bigint as in_stock,
                   coalesce(sum(i.quantity) filter (i.status = 'placed'), 0)::bigint as reserved,
                   coalesce(sum(i.quantity) filter (i.status = 'paid'), 0)::bigint as sold, s.quantity < 20 as low
            from silver.products p join silver.stock s using (product_id)
            left join gold.order_items i on i.product_id = p.product_id group by p.product_id, p.name, s.quantity
        """,
        "gold.product_search": """
            select p.product_id, p.name, p.category, p.price, coalesce(any_value(s.quantity), 0)::bigint as in_stock,
                   coalesce(sum(i.quantity) filter (i.status = 'paid'), 0)::bigint as sold
            from silver.products p left join silver.stock s using (product_id)
            left join gold.order_items i on i.product_id = p.product_id
            group by p.product_id, p.name, p.category, p.price
        """,
        "gold.order_confirmations": """
            select o.order_id, o.customer_id, c.name, c.email, o.amount, o.placed_at
            from silver.orders o join silver.customers c on c.customer_id = o.customer_id and c.is_current
            where c.email is not null
        """,
        "gold.also_bought": """
            select a.product_id, b.product_id as other_id, count(distinct a.order_id) as orders,
                   max(a.placed_at) as last_at
            from gold.order_items a join gold.order_items b using (order_id)
            where a.product_id <> b.product_id and a.status <> 'cancelled' group by all
        """,
        "gold.orders_last_8_minutes": """
            select ends.until, count(*) as orders, count(*) filter (status = 'cancelled') as cancelled,
                   coalesce(sum(amount) filter (status <> 'cancelled'), 0) as amount
            from silver.orders,
                 lateral (select unnest(generate_series(
                     time_bucket(interval 1 minute, placed_at) + interval 1 minute,
                     time_bucket(interval 1 minute, placed_at) + interval 8 minutes, interval 1 minute)) as until) ends
            group by all
        """,
        "gold.enriched_clicks": """
            select k.user_id, k.click_id, k.clicked_at, k.url, c.country, c.tier, c.age
            from silver.product_clicks k left join silver.customers c
              on c.customer_id = k.user_id and k.clicked_at >= c.valid_from
             and (c.valid_to is null or k.clicked_at < c.valid_to)
        """,
        "gold.clicks_as_known": """
            select k.user_id, k.click_id, k.clicked_at, k.url, c.country, c.tier, c.age, c.arrived_at as known_since
            from silver.product_clicks k left join silver.customers c
              on c.customer_id = k.user_id and k.clicked_at >= c.valid_from and k.arrived_at >= c.arrived_at
            qualify row_number() over (
              partition by k.user_id, k.click_id order by c.valid_from desc, c.valid_to desc nulls first,
              c.arrived_at desc, c.updated_at desc, c.tier desc, c.country desc, c.age desc) = 1
        """,
        "gold.customer_profiles": """
            with pieces as (
                select customer_id, category, sum(quantity) as pieces from gold.order_items
                where status <> 'cancelled' and category is not null group by all
            )
            select c.customer_id, c.name, c.tier,
                   (select count(*) from silver.orders o
                    where o.customer_id = c.customer_id and o.status <> 'cancelled') as orders,
                   coalesce((select sum(amount) from silver.orders o
                             where o.customer_id = c.customer_id and o.status = 'paid'), 0) as value,
                   (select category from pieces p where p.customer_id = c.customer_id
                    order by p.pieces desc, category limit 1) as favourite_category,
                   (select max(seen_at) from (
                        select max(placed_at) as seen_at from silver.orders o where o.customer_id = c.customer_id
                        union all
                        select max(clicked_at) from silver.product_clicks k where k.user_id = c.customer_id
                   )) as last_seen_at
            from silver.customers c where c.is_current
        """,
    }
)
"""Tables of app shop that its database and the clicks decide, in an order in which each finds what it reads."""

CARTS = MappingProxyType(
    {
        "silver.cart_commands_refused": """
            select cart_id, given_at, command_id, user_id, command, product_id, refused from silver.cart_events
            where refused is not null
        """,
        "gold.carts": """
            with events as (
                select * from silver.cart_events qualify since = max(since) over (partition by cart_id)
            ), held as (
                select cart_id, product_id, arg_max(quantity, (given_at, command_id)) as quantity from events
                where refused is null and quantity is not null group by all having quantity > 0
            ), contents as (
                select cart_id, count(*) as products, sum(quantity)::bigint as pieces,
                       '{' || string_agg('"' || product_id || '":' || quantity, ',' order by product_id) || '}' as lines
                from held group by cart_id
            )
            select e.cart_id, max(e.user_id) as user_id, coalesce(any_value(c.products), 0) as products,
                   coalesce(any_value(c.pieces), 0) as pieces, coalesce(any_value(c.lines), '{}') as lines,
                   min(e.given_at) as opened_at, max(e.given_at) as changed_at,
                   max(e.given_at) filter (e.command = 'check_out') as checked_out_at
            from events e left join contents c using (cart_id) where e.refused is null group by e.cart_id
        """,
        "gold.cart_interest": """
            select given_at::date as day, product_id, count(*) filter (command = 'add') as added,
                   count(*) filter (command = 'remove') as removed, count(distinct cart_id) as carts
            from silver.cart_events where refused is null and quantity is not null group by all
        """,
    }
)
"""Tables of app shop that its carts decide: views of `silver.cart_events`."""

_UNTOUCHED_MAX, _PIECES_MAX = timedelta(days=1), 2**31 - 1


class CartCommand(NamedTuple):
    """A row of `silver.cart_commands`."""

    cart_id: str
    given_at: datetime
    command_id: str
    user_id: int
    command: str
    product_id: int | None
    quantity: int | None


class CartEvent(NamedTuple):
    """A row of `silver.cart_events`: as the command, but with the pieces that are there after it."""

    cart_id: str
    given_at: datetime
    since: datetime
    command_id: str
    user_id: int
    command: str
    product_id: int | None
    quantity: int | None
    refused: str | None


def cart_events(commands: Iterable[CartCommand]) -> Iterator[CartEvent]:
    """Say of each command what became of it. They come cart by cart, by `given_at`, then `command_id`, each once."""
    before: CartCommand | None = None
    held: dict[int | None, int] = {}
    closed, since = False, datetime.min.replace(tzinfo=UTC)
    for asked in commands:
        if before is None or before.cart_id != asked.cart_id or asked.given_at - before.given_at > _UNTOUCHED_MAX:
            held, closed, since = {}, False, asked.given_at
        before = asked
        refused = "the cart is checked out" if closed else _refused(asked, held)
        after = None
        if refused is None and asked.command == "check_out":
            closed = True
        elif refused is None and asked.command == "remove":
            del held[asked.product_id]
            after = 0
        elif refused is None:
            there = held.get(asked.product_id, 0) if asked.command == "add" else 0
            after = held[asked.product_id] = there + (asked.quantity or 0)
        yield CartEvent(asked.cart_id, asked.given_at, since, *asked[2:-1], after, refused)


def _refused(asked: CartCommand, held: dict[int | None, int]) -> str | None:
    """Why an open cart that holds so many pieces by product does not do it; the first reason of several."""
    command, product, quantity = asked.command, asked.product_id, asked.quantity or 0
    reasons = {
        "there is no such command": command not in {"add", "remove", "change_quantity", "check_out"},
        "the cart is empty": command == "check_out" and not held,
        "no product is named": command != "check_out" and product is None,
        "the quantity is not above zero": command in {"add", "change_quantity"} and quantity <= 0,
        "the product is not in the cart": command in {"remove", "change_quantity"} and product not in held,
        "so many pieces cannot be counted": command == "add" and held.get(product, 0) + quantity > _PIECES_MAX,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
