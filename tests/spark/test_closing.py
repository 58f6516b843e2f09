"""Which days of a gold table are told to the control store as closed."""

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from deltaworks.control import Store
from deltaworks.engine.closing import Closing
from deltaworks.settings import Settings
from tests.flows import START, Log, Owner
from tests.scratch_postgres import scratch_postgres
from tests.shop_rows import change, order

DAYS = "gold.daily_orders"


@pytest.fixture(scope="module")
def server_dsn() -> Iterator[str]:
    """Give the address of a migrated control store."""
    with scratch_postgres() as server:
        dsn = server.database(f"control_{uuid.uuid4().hex}")
        with Store(dsn) as store:
            store.migrate()
        yield dsn


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_every_day_that_a_batch_passes_is_closed(
    spark: SparkSession, shop: Settings, server_dsn: str, path: str
) -> None:
    """After a weekend's pause one batch brings three days: all but the newest are closed, in either commit path."""
    with Store(server_dsn) as store:
        owner, log = Owner(spark, shop, "shop", path=path, only=("silver.orders", DAYS)), Log()
        closing = Closing(owner.flow, store)
        owner.flow.on_commit = closing.committed
        first = 10 if path == "auto" else 20  # days of this case's own
        log.send([change("c", order(1, day=first), lsn=1)])
        owner.take(log.batch())
        closing.announce()
        before = len(store.closed_partitions(DAYS))

        log.send([change("c", order(number, day=first + number), lsn=number) for number in (3, 4, 6)])
        owner.take(log.batch())
        closing.announce()

        closed = [one.partition for one in store.closed_partitions(DAYS)][before:]
        assert closed == [str(day)[:10] for day in sorted(row["day"] for row in owner.rows(DAYS))[:-1]]
        assert len(closed) == 3


def test_a_row_of_tomorrow_closes_no_day_that_goes_on(spark: SparkSession, shop: Settings, server_dsn: str) -> None:
    """One clock that is ahead must not have today's report written at noon; the day is closed when it has passed."""
    with Store(server_dsn) as store:
        owner, log = Owner(spark, shop, "shop", only=("silver.orders", DAYS)), Log()
        owner.clocks.wall = (START + timedelta(days=40)).timestamp
        closing = Closing(owner.flow, store)
        owner.flow.on_commit = closing.committed
        told = []
        for number, day, today in ((1, 39, 40), (2, 40, 40), (3, 41, 40), (4, 41, 41)):
            owner.clocks.wall = (START + timedelta(days=today)).timestamp
            log.send([change("c", order(number, day=day), lsn=number)])
            owner.take(log.batch())
            closing.announce()
            told.append(len(store.closed_partitions(DAYS)))

        newest = [one.partition for one in store.closed_partitions(DAYS)][-1]
        assert [count - told[0] for count in told] == [0, 1, 1, 2]
        assert newest == str(START + timedelta(days=40))[:10]


def test_a_day_that_waits_for_the_clock_is_closed_without_a_further_commit(
    spark: SparkSession, shop: Settings, server_dsn: str
) -> None:
    """The one commit of a day comes just before midnight, with a row of tomorrow; a table that ends has none later."""
    with Store(server_dsn) as store:
        owner, log = Owner(spark, shop, "shop", only=("silver.orders", DAYS)), Log()
        owner.clocks.wall = (START + timedelta(days=60)).timestamp
        closing = Closing(owner.flow, store)
        owner.flow.on_commit = closing.committed
        before = len(store.closed_partitions(DAYS))
        log.send([change("c", order(number, day=day), lsn=number) for number, day in ((1, 60), (2, 61), (3, 62))])
        owner.take(log.batch())
        told = []
        for today in (60, 61, 61, 62, 63):
            owner.clocks.wall = (START + timedelta(days=today)).timestamp
            closing.look()
            closing.announce()
            told.append([one.partition for one in store.closed_partitions(DAYS)][before:])

        first, second = (str(START + timedelta(days=day))[:10] for day in (60, 61))
        assert told == [[], [first], [first], [first, second], [first, second]]


def test_a_table_whose_days_cannot_be_read_is_suspended_alone(
    spark: SparkSession, shop: Settings, server_dsn: str
) -> None:
    """As where that happens after a commit; of one that is suspended no day is looked for."""
    with Store(server_dsn) as store:
        owner, log = Owner(spark, shop, "shop", only=("silver.orders", DAYS)), Log()
        owner.clocks.wall = (START + timedelta(days=60)).timestamp
        closing = Closing(owner.flow, store)
        log.send([change("c", order(number, day=day), lsn=number) for number, day in ((1, 60), (2, 61))])
        owner.take(log.batch())
        closing.look()
        files = list((shop.lake / "gold/daily_orders").rglob("*.parquet"))
        for file in files:
            file.unlink()
        owner.clocks.wall = (START + timedelta(days=61)).timestamp

        closing.look()
        closing.look()

        assert files
        assert {*owner.flow.suspended.tables} == {DAYS}
        assert owner.flow.suspended.tables[DAYS].failures == 1
