"""A batch for which an owner has no memory as Arrow: one that goes carefully gets through with it, by Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.caution import Caution
from deltaworks.engine.commit import Committer
from deltaworks.engine.lake import OwnedTable
from deltaworks.settings import Settings
from tests.flows import Log, Owner
from tests.shop_rows import view

BRONZE, VIEWS, MINUTES = "bronze.web_events", "silver.page_views", "gold.page_views_per_minute"
TABLES = (BRONZE, VIEWS, MINUTES)


@contextmanager
def no_memory_for_arrow(monkeypatch: pytest.MonkeyPatch, *tables: str) -> Iterator[None]:
    """Let rows of these tables find no memory where they are committed as Arrow."""
    real = Committer._by_arrow

    def meets(self: Committer, table: OwnedTable, rows: pa.Table, *rest: Any) -> None:
        if table.name in tables and rows.num_rows:
            pa.allocate_buffer(2**60)  # raises what Arrow raises
        real(self, table, rows, *rest)

    with monkeypatch.context() as for_a_while:
        for_a_while.setattr(Committer, "_by_arrow", meets)
        yield


def engines(owner: Owner) -> dict[str, str]:
    """Which engine wrote the last version of each table."""
    found = {}
    for name in TABLES:
        last = owner.flow.inputs[name].table.delta.history(1)[0]
        found[name] = "Spark" if "Spark" in str(last.get("engineInfo", "")) else "delta-rs"
    return found


def test_what_there_is_no_memory_for_gets_through_by_spark(
    spark: SparkSession, shop: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary life dies of it, and so does the next; a careful one commits it, then goes on as ever."""
    owner, log = Owner(spark, shop, "web", only=TABLES), Log()
    log.send([view(number) for number in range(4)])
    batch = log.batch()
    with no_memory_for_arrow(monkeypatch, *TABLES):
        for _ in range(2):
            with pytest.raises(MemoryError):
                owner.take(batch)
            owner.start()
        assert owner.flow.inputs[BRONZE].table.entry.totals.read == 0

        owner.caution = Caution(deaths=1, tables=[one.name for one in owner.catalog.app("web")])
        owner.start()
        owner.take(batch)

    assert engines(owner) == dict.fromkeys(TABLES, "Spark")
    assert owner.flow.inputs[VIEWS].table.entry.totals.taken == 4
    assert owner.caution.tables.isdisjoint(TABLES)
    log.send([view(number) for number in (4, 5)])
    owner.take(log.batch())
    assert engines(owner) == dict.fromkeys(TABLES, "delta-rs")
    assert owner.verdicts() == {"ok"}


def test_a_table_that_had_no_memory_is_tried_again_by_spark(
    spark: SparkSession, shop: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner lives, the others have gone on; once the table came through it is as the others are."""
    owner, log = Owner(spark, shop, "web", only=TABLES, suspends=True), Log()
    log.send([view(number) for number in range(4)])
    with no_memory_for_arrow(monkeypatch, VIEWS):
        owner.flow.micro_batch(spark.createDataFrame(log.batch()))
        assert VIEWS in owner.flow.suspended
        assert owner.caution.told() == {"deaths": 0, "tables": [VIEWS]}
        owner.now += 60.0
        owner.turn()

    assert VIEWS not in owner.flow.suspended
    assert owner.caution.told() is None
    assert owner.flow.inputs[VIEWS].table.entry.totals.taken == 4
    assert owner.verdicts() == {"ok"}
