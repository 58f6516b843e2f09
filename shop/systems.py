"""What each system of the shop found, in a line with numbers from its own tables.

python -m shop.systems
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from deltaworks.analyst import connect
from deltaworks.cli.show import err, listing
from deltaworks.errors import DeltaworksError
from deltaworks.served import ask
from deltaworks.settings import Settings


@dataclass(frozen=True, kw_only=True)
class System:
    """A query that gives one row with one text.

    `served`: it asks the serving database. `without`: what is said where the tables that it asks for are not there,
    which is no error then.
    """

    name: str
    tables: str
    sql: str
    served: bool = False
    without: str = ""


SYSTEMS = (
    System(
        name="log, read by two apps",
        tables="bronze.web_events, bronze.shop_events",
        sql="""select 'search_clicks: ' || (select count(*) from bronze.web_events where topic = 'search_clicks')
            || ' records in app web, ' || (select count(*) from bronze.shop_events where topic = 'search_clicks')
            || ' in app shop'""",
    ),
    System(
        name="change data capture",
        tables="silver.customers",
        sql="""select count(*) || ' states of ' || count(distinct customer_id) || ' customers, '
            || count(*) filter (is_current) || ' hold' from silver.customers""",
    ),
    System(
        name="event sourcing",
        tables="silver.cart_events, gold.carts",
        sql="""select (select count(*) from silver.cart_events) || ' commands judged, '
            || (select count(*) from silver.cart_commands_refused) || ' refused, make ' || count(*) || ' carts, '
            || count(checked_out_at) || ' checked out' from gold.carts""",
    ),
    System(
        name="several views of one log",
        tables="gold.cart_interest, gold.product_sales",
        sql="""select (select sum(added) from gold.cart_interest) || ' times put into a cart, '
            || (select sum(pieces) from gold.product_sales) || ' pieces sold'""",
    ),
    System(
        name="inventory",
        tables="gold.stock_levels",
        sql="""select sum(in_stock) || ' pieces left, ' || sum(reserved) || ' reserved, ' || count(*) filter (low)
            || ' of ' || count(*) || ' products low' from gold.stock_levels""",
    ),
    System(
        name="daily report",
        tables="gold.daily_orders",
        sql="select sum(orders) || ' orders, revenue ' || sum(revenue) from gold.daily_orders",
    ),
    System(
        name="tumbling window",
        tables="gold.page_views_per_minute, gold.url_clicks_5m",
        sql="""select 'at most ' || max(views) || ' views of all pages in a minute, '
            || (select max(clicks) from gold.url_clicks_5m) || ' clicks on a URL in 5 minutes'
            from (select sum(views) as views from gold.page_views_per_minute group by minute)""",
    ),
    System(
        name="hopping window",
        tables="gold.page_views_hopping, gold.orders_last_8_minutes",
        sql="""select 'at most ' || max(views) || ' views in a window, '
            || (select max(orders) from gold.orders_last_8_minutes) || ' orders in 8 minutes'
            from gold.page_views_hopping""",
    ),
    System(
        name="hopping window with gaps",
        tables="gold.request_samples",
        sql="select sum(requests) || ' requests in ' || count(*) || ' samples' from gold.request_samples",
    ),
    System(
        name="sliding window",
        tables="gold.request_bursts",
        sql="select 'at most ' || max(requests) || ' requests of a client within 5 minutes' from gold.request_bursts",
    ),
    System(
        name="session window",
        tables="gold.user_sessions",
        sql="""select count(*) || ' visits, ' || round(avg(views), 1) || ' views each, '
            || count(*) filter (complete) || ' over' from gold.user_sessions""",
    ),
    System(
        name="analytics",
        tables="gold.response_times",
        sql="""select 'mean response ' || round(sum(total_milliseconds) / sum(requests), 1) || ' ms, '
            || sum(errors) || ' errors' from gold.response_times""",
    ),
    System(
        name="event time and arrival",
        tables="gold.page_views_by_arrival",
        sql="""select 'mean delay of a view ' || round(sum(delay_seconds) / sum(views), 1) || ' s'
            from gold.page_views_by_arrival""",
    ),
    System(
        name="late events, three ways",
        tables="gold.page_views_per_minute, …_in_time, …_set_aside",
        sql="""select (select sum(views) from gold.page_views_per_minute) || ' views corrected, '
            || (select sum(views) from gold.page_views_in_time) || ' in time, '
            || (select sum(views) from gold.page_views_set_aside) || ' with '
            || (select count(*) from gold.page_views_set_aside__late) || ' set aside'""",
    ),
    System(
        name="stream-stream joins",
        tables="gold.search_click_through, gold.ad_click_through, gold.click_to_purchase",
        sql="""select round(100.0 * count(clicked_at) / count(*), 1) || ' % of searches led to a click, '
            || (select round(100.0 * count(clicked_at) / count(*), 1) from gold.ad_click_through) || ' % of ads, '
            || (select count(bought_at) from gold.click_to_purchase) || ' clicks to a purchase'
            from gold.search_click_through""",
    ),
    System(
        name="stream-table join",
        tables="gold.enriched_clicks",
        sql="""select count(*) || ' clicks, ' || count(*) filter (tier = 'premium') || ' by who was premium then'
            from gold.enriched_clicks""",
    ),
    System(
        name="stream-table join, kept",
        tables="gold.clicks_as_known",
        sql="""select count(*) || ' clicks, ' || count(*) filter (now.tier is distinct from known.tier)
            || ' whose tier is another today than was known then'
            from gold.enriched_clicks as now join gold.clicks_as_known as known using (user_id, click_id)""",
    ),
    System(
        name="table-table join",
        tables="gold.orders_with_customers",
        sql="""select count(*) || ' orders of ' || count(distinct customer_id) || ' customers as they are today'
            from gold.orders_with_customers""",
    ),
    System(
        name="materialised views",
        tables="gold.customer_profiles, gold.also_bought",
        sql="""select count(*) || ' profiles, ' || (select count(*) from gold.also_bought) || ' pairs bought together'
            from gold.customer_profiles""",
    ),
    System(
        name="filter, published",
        tables="silver.large_purchases, topic large_purchases, gold.big_spenders",
        sql="""select count(*) || ' purchases above 100 in app web, '
            || (select sum(purchases) || ' of ' || count(distinct user_id) || ' users' from gold.big_spenders)
            || ' read by app shop' from silver.large_purchases""",
    ),
    System(
        name="cache and search",
        tables="gold.customer_profiles, gold.product_search",
        sql="""select count(*) || ' profiles and ' || (select count(*) from gold.product_search)
            || ' products served by Postgres' from gold.customer_profiles""",
        served=True,
    ),
    System(
        name="told to somebody",
        tables="topic order_confirmations",
        sql="""select count(distinct id) || ' confirmations delivered, '
            || (select count(distinct id) from notify.dead_letters) || ' among the dead letters'
            from notify.delivered""",
        served=True,
        without="nobody yet: the programs that do it start with the stack",
    ),
)


_CANNOT = "- ("
"""A line that is not there begins so; the reason follows."""
_MISSING = 'relation "'
"""What Postgres says of a table that is not there begins so."""


def lines(settings: Settings) -> list[dict[str, object]]:
    """A line per system; where a table is not there yet it says so."""
    with connect(settings.lake) as lake:

        def text(system: System) -> object:
            answer = ask(settings.serving_dsn("reader"), system.sql) if system.served else lake.sql(system.sql)
            return answer.rows[0][0]

        return [{"system": one.name, "tables": one.tables, "found": _or_error(text, one)} for one in SYSTEMS]


def silent(told: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Lines that say nothing: the table cannot be asked, or a null among the numbers makes the whole text null."""
    return [line for line in told if not line["found"] or str(line["found"]).startswith(_CANNOT)]


def _or_error(text: Callable[[System], object], system: System) -> object:
    try:
        return text(system)
    except DeltaworksError as error:
        if system.without and error.finding.startswith(_MISSING):
            return system.without
        return f"{_CANNOT}{error.finding})"


def main(*, as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Print the lines. Exit code 1 if one says nothing."""
    told = lines(Settings.load())
    listing(told, title="Systems", as_json=as_json)
    found = silent(told)
    for line in found:
        finding = f"{line['system']}: {line['found'] or 'a number is null'}"
        next_step = f'See with "deltaworks ledger" whether these have rows: {line["tables"]}'
        err.print(f"{finding}. {next_step}", style="red", soft_wrap=True, markup=False)
    raise typer.Exit(1 if found else 0)


if __name__ == "__main__":
    typer.run(main)
