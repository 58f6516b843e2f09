"""Twenty questions that an analyst asks gold, each by a reader that has nothing in memory yet.

The more commits and small files a table has, the longer its log and its files take to read.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from deltaworks.analyst import connect

QUERIES: Mapping[str, str] = {
    "orders of each day": "select * from gold.daily_orders order by day",
    "the last eight minutes": "select * from gold.orders_last_8_minutes order by until desc limit 10",
    "largest orders": "select * from gold.orders_with_customers order by amount desc limit 20",
    "orders by country": (
        "select country, count(*), sum(amount) from gold.orders_with_customers"
        " group by all order by 2 desc"
    ),
    "what was ordered": "select category, sum(quantity) from gold.order_items group by all order by 2 desc",
    "best sold": "select * from gold.product_sales order by revenue desc limit 20",
    "low stock": "select * from gold.stock_levels where low order by product_id",
    "bought together": "select * from gold.also_bought order by orders desc limit 20",
    "found by name": "select * from gold.product_search where name ilike '%a%' limit 20",
    "customers of worth": "select * from gold.customer_profiles order by value desc nulls last limit 20",
    "open carts": "select count(*), sum(pieces) from gold.carts where checked_out_at is null",
    "interest by day": "select day, sum(added), sum(removed) from gold.cart_interest group by all order by day",
    "big spenders": "select day, count(*), sum(amount) from gold.big_spenders group by all order by day",
    "views of each page": "select page, sum(views) from gold.page_views_per_minute group by all order by 2 desc",
    "views of each minute": (
        "select minute, sum(views) from gold.page_views_per_minute"
        " group by all order by minute desc limit 60"
    ),
    "how long visits are": "select avg(views), avg(session_end - session_start) from gold.user_sessions where complete",
    "terms": "select * from gold.search_terms order by searches desc limit 20",
    "advertisements clicked": (
        "select ad_id, count(*), count(clicked_at) from gold.ad_click_through"
        " group by all order by 2 desc limit 20"
    ),
    "clicks to purchases": (
        "select ad_id, count(*), sum(amount) from gold.click_to_purchase"
        " group by all order by 2 desc limit 20"
    ),
    "slowest endpoints": (
        "select endpoint, max(slowest_milliseconds) from gold.response_times"
        " group by all order by 2 desc"
    ),
}  # fmt: skip
REPEATS = 3


def seconds(lake: Path) -> dict[str, float]:
    """How long each took, the median of some: its table's log and files are read each time."""
    found = dict[str, float]()
    for name, sql in QUERIES.items():
        took = []
        for _ in range(REPEATS):
            with connect(lake) as analyst:
                began = time.perf_counter()
                analyst.sql(sql)
                took.append(time.perf_counter() - began)
        found[name] = median(took)
    return found
