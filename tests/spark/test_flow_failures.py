"""Batches and transforms that fail: nothing is confirmed that was not done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.broker import Edge
from deltaworks.engine.closing import Closing
from deltaworks.engine.commit import Committer
from deltaworks.engine.driver import Driver
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import TXN_APP, OwnedTable
from deltaworks.errors import CommitLostError, LakeError
from deltaworks.settings import Settings
from tests.flows import Log, Owner
from tests.shop_rows import change, customer, order, view

EDGE = Edge(0, 10**9)
VIEWS = ("silver.page_views", "gold.page_views_per_minute")


def writer(owner: Owner, table: str) -> Any:
    """Give the writer of a table."""
    return next(one for one in owner.flow.writers if one.declared.name == table)


def computes(table: Any, function: Callable[..., DataFrame]) -> None:
    """Let a writer compute by another function; each is planned as code of its own."""
    table.computing._function = function
    table.computing.planned = replace(table.computing.planned, code=f"made for a test: {next(_codes)}")


_codes = count()


@contextmanager
def failing_commits(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """Let commits to one table fail for a while."""
    real = Committer.commit

    def fails(self: Committer, table: OwnedTable, *rest: Any, **given: Any) -> None:
        if table.name == name:
            raise RuntimeError("disk full")
        real(self, table, *rest, **given)

    with monkeypatch.context() as for_a_while:
        for_a_while.setattr(Committer, "commit", fails)
        yield


def test_settling_after_a_failed_batch_confirms_nothing(
    spark: SparkSession, shop: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge fails while a position is remembered: the rows come again after the restart."""
    owner, log = Owner(spark, shop, "shop"), Log()
    log.send([change("c", order(1), lsn=1)])  # of customers nothing: their position is only remembered
    owner.take(log.batch())
    log.send([change("c", customer(1, "Ada"), lsn=2, table="customers")])
    with failing_commits(monkeypatch, "silver.customers"), pytest.raises(RuntimeError, match="disk full"):
        owner.take(log.batch())
    owner.flow.settle()  # as a driver does that leaves
    owner.start()
    owner.catch_up(log)

    assert [row["name"] for row in owner.rows("silver.customers")] == ["Ada"]
    assert owner.verdicts() == {"ok"}


def test_nothing_is_committed_after_a_failure_between_batches(
    spark: SparkSession, shop: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that waits for the lock meanwhile must not go on from a half-done group of tables."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send([view(1)])
    driver = Driver.__new__(Driver)  # the part that goes between two batches, without a process around it
    driver.flow, driver.lock, driver.failure, driver.stopping = owner.flow, threading.Lock(), None, False
    no_store: Any = None  # no day is told
    closing = Closing(owner.flow, no_store)

    with failing_commits(monkeypatch, "gold.page_views_per_minute"):
        with pytest.raises(RuntimeError, match="disk full"):
            owner.flow.micro_batch(spark.createDataFrame(log.batch()))
        driver._batches_seen = owner.flow.status.batches  # none has come since: tables that are behind go on
        with pytest.raises(RuntimeError, match="disk full"):
            driver._between_batches(spark, closing, asks=True)
    versions = {table.name: table.version for table in owner.flow.tables()}
    log.send([view(2)])
    driver._on_batch(spark.createDataFrame(log.batch()), 2)

    assert {table.name: table.version for table in owner.flow.tables()} == versions


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_keys_given_twice_stop_the_app(spark: SparkSession, shop: Settings, path: str) -> None:
    """Delta would take both rows of a key."""
    owner, log = Owner(spark, shop, "web", path=path, only=VIEWS), Log()
    table = writer(owner, "gold.page_views_per_minute")
    real = table.computing._function

    def twice(**inputs: DataFrame) -> DataFrame:
        rows: DataFrame = real(**inputs)
        return rows.unionByName(rows)

    computes(table, twice)
    log.send([view(1)])
    with pytest.raises(LakeError, match=r"gold.page_views_per_minute: the transform gave 1 row\(s\) more than"):
        owner.take(log.batch())


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_null_where_none_is_declared_stops_the_app(spark: SparkSession, shop: Settings, path: str) -> None:
    """A key that is null would be inserted anew with every batch."""
    owner, log = Owner(spark, shop, "shop", path=path, only=("silver.orders", "gold.daily_orders")), Log()
    table = writer(owner, "gold.daily_orders")
    real = table.computing._function
    computes(table, lambda **inputs: real(**inputs).selectExpr("cast(null as date) as day", "* except (day)"))
    log.send([change("c", order(1), lsn=1)])

    with pytest.raises(LakeError, match=r"gold.daily_orders.day: the transform gave null in 1 row\(s\)"):
        owner.take(log.batch())


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_bytes_that_are_no_text_are_not_committed(spark: SparkSession, shop: Settings, path: str) -> None:
    """A cast inside Spark lets them pass; the table is set aside, and the others go on."""
    owner, log = Owner(spark, shop, "web", path=path, suspends=True, only=VIEWS), Log()
    table = writer(owner, "gold.page_views_per_minute")
    real = table.computing._function
    no_text = F.expr("cast(X'41ff' as string)")
    computes(table, lambda **inputs: real(**inputs).withColumn("page", no_text))
    version = table.table.version
    log.send([view(1)])

    owner.take(log.batch())

    assert owner.flow.suspended.tables["gold.page_views_per_minute"].error.startswith(
        "gold.page_views_per_minute.page: the transform gave bytes that are no text"
    )
    assert table.table.version == version
    assert len(owner.rows("silver.page_views")) == 1


def things(folder: Path, *, txn: int | None = None) -> OwnedTable:
    """Make a table whose first version has the txn of a version that it does not have yet."""
    entry = Entry(kind="create", app="a", epoch=1)
    made = OwnedTable(name="any.things", path=folder, schema=pa.schema([("n", pa.int64())]), entry=entry)
    if txn is not None:
        known = deltalake.CommitProperties(
            custom_metadata={"userMetadata": entry.to_json()},
            app_transactions=[deltalake.Transaction(TXN_APP, txn)],
        )
        deltalake.write_deltalake(made.delta, made.schema.empty_table(), mode="append", commit_properties=known)
        made.reopen()
    return made


def test_rows_that_spark_leaves_out_are_a_lost_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing says that they were taken."""
    table = things(tmp_path / "things", txn=7)
    committer = Committer(spark=spark, arrow_bytes_max=0, guard=lambda: None)

    with pytest.raises(CommitLostError, match="Spark left the rows of version 2 out"):
        committer.commit(table, spark.range(3).toDF("n"), table.entry.follow("batch"))

    assert deltalake.DeltaTable(str(table.path)).version() == 1


def test_empty_append_by_spark_leaves_its_entry(spark: SparkSession, tmp_path: Path) -> None:
    """Spark itself may commit nothing then."""
    table = things(tmp_path / "things")
    committer = Committer(spark=spark, arrow_bytes_max=0, guard=lambda: None)

    committer.commit(table, spark.range(3).toDF("n").where("n > 5"), table.entry.follow("batch", ingest_seq=4))

    table.reopen()
    assert (table.version, table.entry.ingest_seq, table.rows()) == (1, 4, 0)


def test_truncation_alone_reaches_the_view(spark: SparkSession, shop: Settings) -> None:
    """No row follows it, and the days go all the same."""
    owner, log = Owner(spark, shop, "shop"), Log()
    log.send([change("c", order(1), lsn=1)])
    owner.take(log.batch())
    before = {name: len(owner.rows(name)) for name in ("silver.orders", "gold.daily_orders")}
    truncate = change("t", order(0), lsn=3)
    truncate.key = None
    truncate.value = (truncate.value or b"").replace(b'"after": {', b'"after": null, "ignored": {')

    log.send([truncate])
    owner.take(log.batch())

    assert before == {"silver.orders": 1, "gold.daily_orders": 1}
    assert owner.rows("silver.orders") == []
    assert owner.rows("gold.daily_orders") == []


def test_second_table_over_a_topic_gets_it_from_the_start(spark: SparkSession, shop: Settings) -> None:
    """Two raw tables of one app read one topic: the source starts where the slower one stands."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send([view(number) for number in range(3)])
    owner.take(log.batch())
    first = owner.flow.bronze[0]
    behind = Owner(spark, shop.changed(data=shop.data / "other"), "web").flow.bronze[0]
    owner.flow.bronze = [behind, first]

    starts = owner.flow.begin({"page_views": {"0": EDGE, "1": EDGE}}, broker=None)

    assert starts == {"page_views": {"0": 0, "1": 0}}
