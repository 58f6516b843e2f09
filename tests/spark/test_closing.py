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
