"""`latest`: a change is placed by its sequence, whatever was deleted or truncated before it arrives."""

import random
import shutil
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.commit import Committer
from deltaworks.engine.writers.latest import LatestWriter
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from tests.chance import seeded
from tests.flows import Crash, Log, Owner, Record
from tests.shop_rows import change, order
from tests.states import MEMBERS, a_topic, by_definition, highest_by_definition, in_parts, ordered, revisions
from tests.tiny_project import TINY, Project

ORDERS = ("silver.orders",)
PATHS = pytest.mark.parametrize("path", ["auto", "spark"])


def truncation(lsn: int) -> Record:
    """Give a truncation of orders: no key, no row."""
    record = change("t", order(0), lsn=lsn)
    record.key = None
    record.value = (record.value or b"").replace(b'"after": {', b'"after": null, "ignored": {')
    return record


def take(owner: Owner, log: Log, records: Iterable[Record]) -> None:
    """One batch."""
    log.send(records)
    owner.take(log.batch())


def orders(owner: Owner) -> list[tuple[int, str]]:
    """Give what the table says."""
    return [(row["order_id"], row["status"]) for row in owner.rows("silver.orders")]


@PATHS
def test_older_change_does_not_bring_a_deleted_row_back(spark: SparkSession, shop: Settings, path: str) -> None:
    """The deletion came first; after a restart too. A newer insert does bring the key back."""
    owner, log = Owner(spark, shop, "shop", path=path, only=ORDERS), Log()
    take(owner, log, [change("c", order(1), lsn=1), change("c", order(2), lsn=2)])
    take(owner, log, [change("d", order(1), lsn=5), change("d", order(2), lsn=6)])
    owner.start()

    take(owner, log, [change("u", order(1, status="paid"), lsn=4), change("c", order(2, status="paid"), lsn=9)])

    assert orders(owner) == [(2, "paid")]
    sheet = next(one for one in owner.ledger().sheets() if one.table == "silver.orders")
    assert (sheet.verdict, sheet.superseded) == ("ok", 1)


@PATHS
def test_older_change_does_not_come_back_after_a_truncation(spark: SparkSession, shop: Settings, path: str) -> None:
    """The truncation's sequence stays in the position, through a restart."""
    owner, log = Owner(spark, shop, "shop", path=path, only=ORDERS), Log()
    take(owner, log, [change("c", order(1), lsn=1), truncation(5)])
    owner.start()

    take(owner, log, [change("c", order(2), lsn=4), change("c", order(3), lsn=6)])

    assert orders(owner) == [(3, "placed")]
    assert owner.verdicts() == {"ok"}


def history(chance: random.Random) -> list[Record]:
    """Give changes of few keys in commit order: inserts, updates, deletes, now and then a truncation."""
    records: list[Record] = []
    alive: set[int] = set()
    for lsn in range(1, 60):
        key = chance.randrange(1, 6)
        if chance.random() < 0.05:
            records.append(truncation(lsn))
            alive.clear()
        elif key not in alive:
            records.append(change("c", order(key, amount=f"{lsn}.00"), lsn=lsn))
            alive.add(key)
        elif chance.random() < 0.4:
            records.append(change("d", order(key), lsn=lsn))
            alive.discard(key)
        else:
            records.append(change("u", order(key, amount=f"{lsn}.00"), lsn=lsn))
    return [*records, change("c", order(9), lsn=60)]  # so that the table is never empty in the end


@PATHS
def test_order_of_arrival_makes_no_difference(spark: SparkSession, shop: Settings, path: str) -> None:
    """The same changes in commit order in one batch, and shuffled over batches with copies and a restart."""
    chance = seeded()
    records = history(chance)
    calm = Owner(spark, shop.changed(data=shop.data / "calm"), "shop")
    take(calm, Log(), records)
    shuffled = chance.sample(records, len(records)) + chance.sample(records, 10)
    only = ("silver.orders", "gold.daily_orders")
    wild, log = Owner(spark, shop.changed(data=shop.data / "wild"), "shop", path=path, only=only), Log()
    size = 14 if path == "auto" else 24  # a batch by Spark takes seconds
    for start in range(0, len(shuffled), size):
        take(wild, log, shuffled[start : start + size])
        if start == size:
            wild.start()

    assert orders(calm)
    assert wild.rows("silver.orders") == calm.rows("silver.orders")
    assert wild.rows("gold.daily_orders") == calm.rows("gold.daily_orders")
    assert wild.verdicts() == {"ok"}


@PATHS
def test_older_change_is_superseded_whichever_batch_it_meets(spark: SparkSession, shop: Settings, path: str) -> None:
    """A row that came in a batch before has overtaken it: nothing was taken of it."""
    owner, log = Owner(spark, shop, "shop", path=path, only=ORDERS), Log()
    take(owner, log, [change("c", order(1), lsn=5), change("c", order(2), lsn=6)])

    take(owner, log, [change("u", order(1, status="paid"), lsn=4), change("u", order(2, status="paid"), lsn=7)])

    assert orders(owner) == [(1, "placed"), (2, "paid")]
    sheet = next(one for one in owner.ledger().sheets() if one.table == "silver.orders")
    assert (sheet.verdict, sheet.taken, sheet.superseded) == ("ok", 3, 1)


@PATHS
@pytest.mark.parametrize("clocks", [False, True])
def test_states_by_json_are_placed_by_their_arrival(
    spark: SparkSession, tmp_path: Path, path: str, clocks: bool
) -> None:
    """In two partitions between which keys move, with deletions; by the broker's times and by those of producers."""
    chance = seeded()
    batches = in_parts(chance, a_topic(chance, 40, clocks=clocks), cuts=3)
    settings = Settings.load(TINY, environment={}, data=tmp_path)
    owner, log = Owner(spark, settings, "tiny", path=path, only=(MEMBERS,)), Log()

    for batch in batches:
        take(owner, log, batch)

    assert {row["member_id"]: row["city"] for row in owner.rows(MEMBERS)} == by_definition(batches)
    assert owner.verdicts() == {"ok"}


@PATHS
def test_of_states_that_a_column_places_the_highest_counts(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """In any order, with copies, in two partitions, with deletions, which take away what has arrived."""
    chance = seeded()
    batches = in_parts(chance, revisions(chance, 50), cuts=3)
    owner, log = Owner(spark, ordered(tmp_path), "tiny", path=path, only=(MEMBERS,)), Log()

    for batch in batches:
        take(owner, log, batch)

    assert {row["member_id"]: row["city"] for row in owner.rows(MEMBERS)} == highest_by_definition(batches)
    assert owner.verdicts() == {"ok"}
    (sheet,) = (one for one in owner.ledger().sheets() if one.table == MEMBERS)
    assert sheet.taken + sheet.superseded == 50
    assert sheet.superseded > 5


def test_death_between_the_remembered_deletes_and_the_table(spark: SparkSession, shop: Settings) -> None:
    """What is remembered too early goes at the restart, and comes again with its batch."""
    owner, log = Owner(spark, shop, "shop"), Log()
    take(owner, log, [change("c", order(1), lsn=1)])
    side = owner.flow.sides["silver.orders"]["deleted"]
    log.send([change("d", order(1), lsn=5)])
    rows = log.batch()
    owner.crash_at = owner.commits + 2  # bronze, the remembered delete; then the table
    with pytest.raises(Crash):
        owner.take(rows)
    assert side.rows() == 1

    owner.crash_at = -1
    owner.start()
    side = owner.flow.sides["silver.orders"]["deleted"]
    assert side.rows() == 0
    owner.catch_up(log)

    assert orders(owner) == []
    assert side.rows() == 1


def test_deleted_decimal_keys_are_found_again(spark: SparkSession, tmp_path: Path) -> None:
    """delta-rs rounds the statistics of long decimals: files must not be left out by them."""
    copy = Project(tmp_path / "project")
    copy.edit("tables/silver/members/table.py", 'Column("member_id", "bigint"', 'Column("member_id", "decimal(20,0)"')
    settings = Settings.load(copy.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny")
    writer = next(one for one in owner.flow.writers if one.declared.name == "silver.members")
    assert isinstance(writer, LatestWriter)
    key = Decimal(12345678901234567891)
    rows = pa.table(
        {"member_id": pa.array([key], pa.decimal128(20, 0)), "_seq": pa.array([1], pa.int64()), "_source": ["5"]},
        schema=writer.deleted.schema,
    )
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    committer.commit(writer.deleted, rows, writer.deleted.entry.follow("batch"))

    assert writer._remembered(rows) == {(key,): "5"}


@pytest.mark.parametrize("side", ["deleted", "quarantine"])
def test_a_side_table_that_is_gone_is_not_made_anew(spark: SparkSession, shop: Settings, side: str) -> None:
    """What it remembered would be forgotten without a word."""
    owner, log = Owner(spark, shop, "shop"), Log()
    take(owner, log, [change("c", order(1), lsn=1)])
    take(owner, log, [change("d", order(1), lsn=5)])
    shutil.rmtree(shop.lake / "silver" / f"orders__{side}")

    with pytest.raises(LakeError, match=f"silver.orders__{side}: is gone, and silver.orders is not"):
        owner.start()
