"""What the books say of a flow that runs for real."""

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


def test_books_of_orders_that_come_change_and_go(spark: SparkSession, shop: Settings) -> None:
    """What each commit did to its table, which offsets each version of gold contains, and waiting for one of them."""
    owner, log = Owner(spark, shop, "shop"), Log()
    for records in (
        [change("c", order(1), lsn=1), change("c", order(2, day=1), lsn=2)],
        [change("u", order(1, status="paid"), lsn=3), change("d", order(2, day=1), lsn=4)],
    ):
        log.send(records)
        owner.take(log.batch())
    owner.flow.settle()
    lineage = Lineage(shop.lake)

    with connect(shop.lake) as lake:
        rows = lake.sql(ROWS).rows
        arrived = lake.wait("gold.daily_orders", topic="shop.changes", partition=0, offset=3, timeout_seconds=0)
    contains = [lineage.processed_through("gold.daily_orders", version).offsets for version in range(3)]

    assert rows == [
        ("gold.daily_orders", "batch", 0, 0, 0, 2, 0, 0),
        ("gold.daily_orders", "batch", 3, 3, 0, 0, 1, 1),
        ("silver.orders", "batch", 2, 2, 0, 2, 0, 0),
        ("silver.orders", "batch", 2, 2, 0, 0, 1, 1),
    ]
    assert contains == [{}, {"shop.changes": {"0": 2, "1": 0}}, {"shop.changes": {"0": 4, "1": 0}}]
    assert arrived.version == 2


def test_turns_are_told_with_the_way_that_their_transforms_went(spark: SparkSession, shop: Settings) -> None:
    """Each table's turns and rows, what they were spent on, and the micro-batches with what was fetched."""
    asked = """
        select table_name, turns, rows, way, why, read_ms > 0, parse_ms > 0, compute_ms > 0, commit_ms > 0
        from ops.turns where app = 'shop' and epoch = {} order by table_name
    """
    log, told = Log(), {}
    for number, direct in enumerate((True, False)):
        owner = Owner(spark, shop.changed(direct_plans=direct), "shop", epoch=number)
        log.send([change("c", order(number, day=number), lsn=number + 1)])
        owner.take(log.batch())
        owner.flow.settle()
        with connect(shop.lake) as lake:
            told[direct] = lake.sql(asked.format(owner.epoch)).rows

    for direct, rows in told.items():
        way = ("direct", None) if direct else ("ordinary", "direct_plans is off")
        # a view that was never computed takes no changes: it is computed from all that is there
        assert rows[0] == ("gold.daily_orders", 1, 0 if direct else 1, *way, True, False, True, True)
        assert rows[1] == ("micro-batch", 1, 1, "none", None, True, False, False, True)
        assert ("silver.orders", 1, 1, "none", None, True, True, False, True) in rows
