"""The fused flow: what each way of keeping a table makes of the rows, and that every row is accounted for."""

import json
import shutil
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.broker import Edge
from deltaworks.errors import CommitLostError, ForeignCommitError, SourceError
from deltaworks.settings import Settings
from tests.flows import START, Crash, Log, Owner
from tests.shop_rows import broken, change, customer, order, tombstone, view


def test_views_are_counted_in_their_minute(spark: SparkSession, shop: Settings) -> None:
    """Views of two batches add up in one row per page and minute."""
    owner, log = Owner(spark, shop, "web"), Log()

    for part in (range(3), range(3, 5)):
        log.send(view(number, page="/a") for number in part)
        owner.take(log.batch())

    assert [(r["page"], r["views"]) for r in owner.rows("gold.page_views_per_minute")] == [("/a", 5)]
    assert owner.verdicts() == {"ok"}


def test_late_view_corrects_its_minute(spark: SparkSession, shop: Settings) -> None:
    """A view an hour late changes the row that is there."""
    owner, log = Owner(spark, shop, "web"), Log()

    for at in (START - timedelta(hours=1), START, START - timedelta(hours=1)):
        log.send([view(len(log.rows), at=at)])
        owner.take(log.batch())

    assert sorted(r["views"] for r in owner.rows("gold.page_views_per_minute")) == [1, 2]


def test_copies_of_an_event_count_once_across_batches_and_restarts(spark: SparkSession, shop: Settings) -> None:
    """The first copy counts, in the same batch, in a later one, and after a restart."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send([view(1), view(1), view(2)])
    owner.take(log.batch())
    log.send([view(2)])
    owner.take(log.batch())
    owner.start()

    log.send([view(1), view(3)])
    owner.take(log.batch())

    assert [r["event_id"] for r in owner.rows("silver.page_views")] == ["e1", "e2", "e3"]
    sheet = next(s for s in owner.ledger().sheets() if s.table == "silver.page_views")
    assert (sheet.read, sheet.taken, sheet.duplicate) == (6, 3, 3)


def test_copy_beyond_the_horizon_is_an_event_of_its_own(spark: SparkSession, shop: Settings) -> None:
    """`within` is an hour of the broker's time: exactly an hour apart is a copy, more is not."""
    owner, log = Owner(spark, shop, "web"), Log()
    for after in (timedelta(0), timedelta(hours=1), timedelta(hours=1, microseconds=1)):
        record = view(1)
        record.at = START + timedelta(seconds=1) + after
        log.send([record])
        owner.take(log.batch())

    assert len(owner.rows("silver.page_views")) == 2


def test_malformed_bytes_are_kept_and_set_aside(spark: SparkSession, shop: Settings) -> None:
    """Bronze has the bytes as they came, silver's quarantine has them with a reason, the rest goes on."""
    owner, log = Owner(spark, shop, "web"), Log()
    bad = [b"", b"{", b"\xff\xfe", b'{"event_id": 7}']

    log.send([view(1), *(broken(value) for value in bad), view(2)])
    owner.take(log.batch())

    assert len(owner.rows("silver.page_views")) == 2
    aside = owner.rows("silver.page_views__quarantine")
    assert sorted(bytes(r["value"]) for r in aside) == sorted(bad)
    assert all(r["reason"] for r in aside)
    assert {bytes(r["value"]) for r in owner.rows("bronze.web_events")} >= set(bad)
    assert owner.verdicts() == {"ok"}


def test_orders_follow_their_changes(spark: SparkSession, shop: Settings) -> None:
    """Insert, update, delete and insert again end in the source's state; days are recomputed, empty days go."""
    owner, log = Owner(spark, shop, "shop"), Log()
    log.send([change("r", order(1), lsn=5, snapshot=True), change("c", order(2, day=1), lsn=5)])
    owner.take(log.batch())
    log.send([change("u", order(1, status="paid"), lsn=6), change("d", order(2, day=1), lsn=7), tombstone(2)])
    owner.take(log.batch())
    log.send([change("c", order(3, day=2), lsn=8), change("u", customer(1, "Ada"), lsn=9, table="customers")])
    owner.take(log.batch())

    assert [(r["order_id"], r["status"]) for r in owner.rows("silver.orders")] == [(1, "paid"), (3, "placed")]
    assert [r["name"] for r in owner.rows("silver.customers")] == ["Ada"]
    days = owner.rows("gold.daily_orders")
    assert [(str(r["day"]), r["orders"], r["paid"], str(r["revenue"])) for r in days] == [
        ("2026-11-20", 1, 1, "10.00"),
        ("2026-11-22", 1, 0, "0.00"),
    ]
    assert owner.verdicts() == {"ok"}


def test_older_change_does_not_overwrite_a_newer_one(spark: SparkSession, shop: Settings) -> None:
    """A change is placed by its sequence, not by when it came."""
    owner, log = Owner(spark, shop, "shop"), Log()
    log.send([change("u", order(1, status="paid"), lsn=9)])
    owner.take(log.batch())

    log.send([change("c", order(1), lsn=3), change("d", order(1), lsn=4)])
    owner.take(log.batch())

    assert [r["status"] for r in owner.rows("silver.orders")] == ["paid"]


def test_truncate_empties_the_table(spark: SparkSession, shop: Settings) -> None:
    """Rows before the truncation go, rows after it stay, days follow."""
    owner, log = Owner(spark, shop, "shop"), Log()
    log.send([change("c", order(1), lsn=1), change("c", order(2, day=1), lsn=2)])
    owner.take(log.batch())
    truncate = change("t", order(0), lsn=3)
    truncate.key = None
    truncate.value = (truncate.value or b"").replace(b'"after": {', b'"after": null, "ignored": {')

    log.send([truncate, change("c", order(5, day=2), lsn=4)])
    owner.take(log.batch())

    assert [r["order_id"] for r in owner.rows("silver.orders")] == [5]
    assert [str(r["day"]) for r in owner.rows("gold.daily_orders")] == ["2026-11-22"]


def test_rows_that_bronze_has_are_not_taken_twice(spark: SparkSession, shop: Settings) -> None:
    """Kafka's rows delivered again, as after a restart of the query, change nothing."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send(view(number) for number in range(4))
    rows = log.batch()
    owner.take(rows)

    owner.take(rows)

    assert len(owner.rows("bronze.web_events")) == 4
    assert owner.verdicts() == {"ok"}


def test_spark_takes_what_is_new_of_a_batch_that_comes_again_larger(spark: SparkSession, shop: Settings) -> None:
    """By Spark as by Arrow: rows are known by their offset, not by their batch."""
    owner, log = Owner(spark, shop, "web"), Log()
    for path in ("auto", "spark"):
        owner.path = path
        owner.start().writers = []  # bronze alone: the others cost time
        log.cut = 0
        log.send([view(len(log.rows))])
        owner.take(log.batch())

    assert [row["offset"] for row in owner.rows("bronze.web_events")] == [0, 1]
    assert {line.verdict for line in owner.ledger().lines()} == {"ok"}


def test_batch_too_large_to_collect_is_committed_by_spark_and_the_next_one_is_not(
    spark: SparkSession, shop: Settings
) -> None:
    """The bound ends the job that collects; the batch comes whole all the same, and what follows is quick again."""
    owner, log = Owner(spark, shop, "web"), Log()
    bounds = spark.sparkContext._jsc.sc().conf()
    usual = bounds.get("spark.driver.maxResultSize")
    bounds.set("spark.driver.maxResultSize", str(2**18))
    committed = []
    try:
        for bad in (bytes(2**20), b"{"):
            log.send([broken(bad)])
            owner.take(log.batch())
            committed.append(owner.flow.inputs["bronze.web_events"].table.delta.history(1)[0])
    finally:
        bounds.set("spark.driver.maxResultSize", usual)

    assert [str(one.get("engineInfo", "")).startswith("Apache-Spark") for one in committed] == [True, False]
    assert [len(bytes(row["value"])) for row in owner.rows("silver.page_views__quarantine")] == [2**20, 1]


def test_session_has_its_bounds(spark: SparkSession) -> None:
    """The JVM that lives was started with them: afterwards they are taken and ignored."""
    assert spark.sparkContext._jvm is not None
    started = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()

    assert {"-XX:+ExitOnOutOfMemoryError", "-Xmx1g"} <= set(started)
    assert spark.conf.get("spark.driver.maxResultSize") == str(64 * 2**20)


def test_foreign_commit_is_noticed_and_named(spark: SparkSession, shop: Settings) -> None:
    """Somebody else's commit stops the owner with the table's name, and again at the next start."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send([view(1)])
    owner.take(log.batch())
    path = str(shop.lake / "silver" / "page_views")
    spark.read.format("delta").load(path).limit(1).write.format("delta").mode("append").save(path)

    log.send([view(2)])
    with pytest.raises(CommitLostError, match=r"^silver\.page_views: version \d+ was taken"):
        owner.take(log.batch())

    with pytest.raises(ForeignCommitError, match="silver.page_views"):
        owner.start()

    readers = ("gold/page_views_per_minute", "gold/user_sessions")
    for folder in ("silver/page_views", *readers):  # the error's next step
        shutil.move(shop.lake / folder, shop.data / folder.replace("/", "."))
    owner.start()
    owner.catch_up(log)
    assert [r["event_id"] for r in owner.rows("silver.page_views")] == ["e1", "e2"]
    assert sum(r["views"] for r in owner.rows("gold.page_views_per_minute")) == 2
    assert owner.verdicts() == {"ok"}


def test_checkpoints_of_the_log_change_nothing(
    spark: SparkSession, shop: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a checkpoint after every batch: same rows, after a restart too, and a foreign commit is still noticed."""
    monkeypatch.setattr("deltaworks.engine.lake.CHECKPOINT_COMMITS", 1)
    owner, log = Owner(spark, shop, "web"), Log()
    for number in range(3):
        log.send([view(number), view(number)])
        owner.take(log.batch())
    path = shop.lake / "silver" / "page_views"
    checkpoint = json.loads((path / "_delta_log" / "_last_checkpoint").read_text())["version"]
    owner.start()
    log.send([view(2), view(3)])
    owner.take(log.batch())

    assert checkpoint == 3
    assert [r["event_id"] for r in owner.rows("silver.page_views")] == ["e0", "e1", "e2", "e3"]
    assert owner.verdicts() == {"ok"}

    spark.read.format("delta").load(str(path)).limit(1).write.format("delta").mode("append").save(str(path))
    log.send([view(4)])
    with pytest.raises(CommitLostError, match=r"^silver\.page_views: version \d+ was taken"):
        owner.take(log.batch())


def test_older_owner_cannot_commit_after_a_newer_one_has_begun(spark: SparkSession, shop: Settings) -> None:
    """The newer owner's first commit in every table fences the older one out."""
    older, log = Owner(spark, shop, "web"), Log()
    log.send([view(1)])
    older.take(log.batch())
    newer = Owner.__new__(Owner)
    newer.__dict__ |= older.__dict__
    newer.start()

    log.send([view(2)])
    with pytest.raises(CommitLostError, match=r"^bronze\.web_events: version \d+ was taken"):
        older.flow.micro_batch(spark.createDataFrame(log.batch()))

    newer.catch_up(log)
    assert len(newer.rows("silver.page_views")) == 2


def test_offsets_that_the_broker_no_longer_has_are_a_red_gap(spark: SparkSession, shop: Settings) -> None:
    """Retention overtook the reader: the ledger says how many offsets are lost, the app goes on."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send([view(1, user=0)])
    owner.take(log.batch())

    owner.start()
    starts = owner.flow.begin({"page_views": {"0": Edge(5, 9), "1": Edge(0, 0)}}, broker=None)
    log.ends["page_views", 0] = 5
    log.send([view(2, user=0)])
    owner.take(log.batch())

    assert starts["page_views"]["0"] == 5
    line = next(line for line in owner.ledger().lines() if line.partition == 0)
    assert line.lost == 4
    assert line.verdict.startswith("RED")


def test_topic_that_was_made_anew_is_refused(spark: SparkSession, shop: Settings) -> None:
    """A topic that ends before the ledger's position is another topic of that name."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send(view(number, user=0) for number in range(5))
    owner.take(log.batch())

    with pytest.raises(SourceError, match="made anew"):
        owner.flow.begin({"page_views": {"0": Edge(0, 2), "1": Edge(0, 0)}}, broker=None)


@pytest.mark.parametrize("path", ["arrow", "spark"])
def test_batch_that_nobody_vouches_for_stays_out_of_bronze(spark: SparkSession, shop: Settings, path: str) -> None:
    """What is asked once a batch has been read is asked before it is committed, by either path."""
    owner, log = Owner(spark, shop, "web", path=path), Log()

    def refuse(_: float) -> None:
        raise SourceError("topic page_views", "it was made anew", "Look")

    for writer in owner.flow.bronze:
        writer.before_commit = refuse
    log.send([view(1)])
    with pytest.raises(SourceError, match="topic page_views: it was made anew"):
        owner.take(log.batch())

    assert owner.rows("bronze.web_events") == []


def test_crash_is_what_it_says(spark: SparkSession, shop: Settings) -> None:
    """The tests' crash really interrupts a batch between two commits."""
    owner, log = Owner(spark, shop, "web"), Log()
    log.send([view(1)])
    owner.crash_at = owner.commits + 1

    with pytest.raises(Crash):
        owner.take(log.batch())

    assert len(owner.rows("bronze.web_events")) == 1
    assert owner.rows("silver.page_views") == []
