"""What the books say of a flow that runs for real: the same on both commit paths."""

from typing import Any

from pyspark.sql import SparkSession

from deltaworks.analyst import connect
from deltaworks.engine.through import Lineage
from deltaworks.settings import Settings
from tests.flows import Log, Owner
from tests.shop_rows import change, order

ROWS = """
    select table_name, kind, read, taken, superseded, rows_added, rows_updated, rows_deleted
    from ops.ledger where table_name in ('silver.orders', 'gold.daily_orders') and kind = 'batch'
    order by table_name, version
"""


def books(spark: SparkSession, settings: Settings, path: str) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """Orders that come, change and go: the entries of silver and gold, and what each version of gold contains."""
    owner, log = Owner(spark, settings, "shop", path=path), Log()
    for records in (
        [change("c", order(1), lsn=1), change("c", order(2, day=1), lsn=2)],
        [change("u", order(1, status="paid"), lsn=3), change("d", order(2, day=1), lsn=4)],
    ):
        log.send(records)
        owner.take(log.batch())
    owner.flow.settle()
    with connect(settings.lake) as lake:
        rows = lake.sql(ROWS).rows
        lake.wait("gold.daily_orders", topic="shop.changes", partition=0, offset=3, timeout_seconds=0)
    lineage = Lineage(settings.lake)
    versions = range(lineage.newest("gold.daily_orders") + 1)
    return rows, [lineage.processed_through("gold.daily_orders", one).offsets for one in versions]


def test_books_are_the_same_on_both_commit_paths(spark: SparkSession, shop: Settings) -> None:
    """Rows as each library counts them, and offsets by way of the entries, do not depend on who committed."""
    arrow, by_spark = (books(spark, shop.changed(data=shop.data / path), path) for path in ("auto", "spark"))

    assert arrow == by_spark
    assert arrow[0] == [
        ("gold.daily_orders", "batch", 0, 0, 0, 2, 0, 0),
        ("gold.daily_orders", "batch", 3, 3, 0, 0, 1, 1),
        ("silver.orders", "batch", 2, 2, 0, 2, 0, 0),
        ("silver.orders", "batch", 2, 2, 0, 0, 1, 1),
    ]
    assert arrow[1] == [{}, {"shop.changes": {"0": 2, "1": 0}}, {"shop.changes": {"0": 4, "1": 0}}]
