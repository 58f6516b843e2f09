"""`latest` over JSON states, without a JVM: what a record without a value takes away, and which state counts."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.outlets.feed import Feed
from deltaworks.engine.outlets.publishing import Publishing
from deltaworks.engine.writers import latest
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from deltaworks.words import changelog
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, replay
from tests.chance import seeded
from tests.flows import BY_ARROW, Log, Record
from tests.patching import patch
from tests.shop_rows import change, order
from tests.states import MEMBERS, a_topic, by_definition, cities, counted, in_parts, member, moved, take, through_deaths
from tests.tiny_project import TINY


def owned(folder: Path) -> ArrowOwner:
    """Open the tiny project over a lake of its own."""
    return ArrowOwner(Settings.load(TINY, environment={}, data=folder), "tiny")


def test_a_record_without_a_value_takes_its_row_away(tmp_path: Path) -> None:
    """In the batch of its state, in a later one, after a restart; whoever comes again is there again."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, member(1, "Bath"), member(2, "Cork"), member(3, "Graz"), member(1))
    assert cities(owner) == {2: "Cork", 3: "Graz"}
    owner.start()
    take(owner, log, member(2), member(3), member(9))
    assert cities(owner) == {}
    take(owner, log, member(3, "Linz"))

    assert cities(owner) == {3: "Linz"}
    assert counted(owner) == (7, 1, 0)


def test_a_deletion_that_names_no_row_is_set_aside(tmp_path: Path) -> None:
    """The row stays until somebody says what was meant; the record counts as refused."""
    owner, log, wrong = owned(tmp_path), Log(), member(1)
    wrong.key = b'{"name": "Ada"}'

    take(owner, log, member(1, "Bath"), wrong)

    assert cities(owner) == {1: "Bath"}
    assert owner.rows(f"{MEMBERS}__quarantine")[0]["reason"] == "key: undeclared field"
    assert counted(owner) == (1, 0, 1)


def test_a_death_before_any_commit_loses_no_deletion(tmp_path: Path) -> None:
    """What is remembered of it beside the table is undone with the table's own batch, and comes again."""
    batches = [[member(1, "Bath"), member(2, "Cork")], [member(1), member(2, "Graz")], [member(2), member(1, "Linz")]]
    died = 0
    for owner, _, which in through_deaths(tmp_path, batches, owned):
        assert cities(owner) == {1: "Linz"}, which
        assert counted(owner) == (6, 0, 0), which
        died += 1
    assert died == 8  # three batches: bronze and table, and two deletions beside it


def told(owner: ArrowOwner) -> list[Record]:
    """Give what a changelog of the members says, all of it, as the topic's writer encodes it."""
    declared = owner.catalog[MEMBERS]
    declared = dataclasses.replace(declared, table=dataclasses.replace(declared.table, publishes=changelog("members")))
    feed = Feed(declared, owner.settings.lake / "silver" / "members", bytes_max=2**20)
    newest = feed.newest()
    assert newest is not None
    written = Publishing(declared, feed, bootstrap="")
    found = []
    for version in range(newest):
        changes = feed.changes(version, version + 1)
        assert changes is not None
        for key, value, _ in map(written._message, changes):
            found.append(Record(topic="members", key=key, value=value))
    return found


@pytest.mark.parametrize("at_once", [False, True])
def test_our_own_changelog_is_read_as_the_table_that_it_is_of(tmp_path: Path, at_once: bool) -> None:
    """Another team's app that reads what `publishes=changelog(...)` writes has the same rows, and lets them go."""
    source, log = owned(tmp_path / "source"), Log()
    take(source, log, member(1, "Bath", name="Ada"), member(2, "Cork", joined="2025-01-01"), member(3, "Graz"))
    take(source, log, member(1, "Linz", dues="12.50"), member(2))
    take(source, log, member(3), member(2, "Wien"))
    messages = told(source)
    assert sum(message.value is None for message in messages) == 2

    reader, log = owned(tmp_path / "reader"), Log()
    for batch in [messages] if at_once else [[message] for message in messages]:
        take(reader, log, *batch)

    assert reader.rows(MEMBERS) == source.rows(MEMBERS)
    assert sorted(cities(reader)) == [1, 2]
    assert counted(reader)[2] == 0


def test_a_key_that_moves_to_another_partition_goes_on_there(tmp_path: Path) -> None:
    """Partitions were added, or the sender counts otherwise: lower or higher, at once or later, none is frozen."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, moved(1, "Bath", 1, second=1), moved(2, "Bath", 0, second=1), moved(3, "Bath", 1, second=1))
    take(owner, log, moved(1, "Cork", 0, second=2), moved(2, "Cork", 1, second=2), moved(3, None, 0, second=2))
    assert cities(owner) == {1: "Cork", 2: "Cork"}
    take(
        owner,
        log,
        *(moved(key, "Graz", partition, second=3) for key, partition in ((1, 1), (2, 0), (3, 0))),
        *(moved(key, "Linz", partition, second=4) for key, partition in ((1, 0), (2, 1), (3, 1))),
    )

    assert cities(owner) == {1: "Linz", 2: "Linz", 3: "Linz"}
    assert counted(owner) == (9, 3, 0)


def test_within_a_partition_the_offset_counts_whatever_the_clocks_say(tmp_path: Path) -> None:
    """A broker may hand on its producers' times: one of them a year ahead freezes nobody."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, moved(1, "Bath", 0, second=9), moved(1, "Cork", 0, second=1), moved(1, "Linz", 1, second=5))
    assert cities(owner) == {1: "Cork"}
    take(owner, log, moved(1, "Graz", 0, second=-9))

    assert cities(owner) == {1: "Graz"}
    assert counted(owner) == (2, 2, 0)


@pytest.mark.parametrize("clocks", [False, True])
@pytest.mark.parametrize("run", range(4))
def test_whatever_slices_bronze_is_taken_in_the_table_is_the_same(tmp_path: Path, run: int, clocks: bool) -> None:
    """Batch by batch with a restart, and all of bronze at once, as a rebuild and a proof take it; places included."""
    del run
    chance = seeded()
    batches = in_parts(chance, a_topic(chance, 40, clocks=clocks))
    owner, log = owned(tmp_path), Log()
    for number, batch in enumerate(batches):
        take(owner, log, *batch)
        if number == 2:
            owner.start()
    streamed = places(owner)
    assert cities(owner) == by_definition(batches)
    assert sum(counted(owner)) == 40

    for folder in (owner.settings.lake / "silver").glob("members*"):
        shutil.rmtree(folder)
    owner.start()
    owner.take(Log().batch())

    assert places(owner) == streamed
    assert sum(counted(owner)) == 40


def places(owner: ArrowOwner) -> list[tuple[int, str]]:
    """Give the members and where their states stand."""
    rows = owner.flow.inputs[MEMBERS].table.read(["member_id", "_source"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("run", range(4))
def test_where_the_broker_gives_the_times_no_cut_of_the_reading_makes_a_difference(tmp_path: Path, run: int) -> None:
    """All partitions read equally far: the last state of a key is its row, wherever it has been."""
    del run
    chance = seeded()
    records = a_topic(chance, 40, clocks=False)

    found = []
    for number in range(3):
        owner, log = owned(tmp_path / str(number)), Log()
        for part in in_parts(chance, records) if number else [records]:
            take(owner, log, *part)
        found.append(cities(owner))

    newest = {json.loads(record.key or b"")["member_id"]: record.value for record in records}
    assert found[0] == {key: json.loads(value)["city"] for key, value in newest.items() if value is not None}
    assert found[1] == found[2] == found[0]


def test_a_state_that_was_refused_comes_at_its_place(tmp_path: Path) -> None:
    """Patched and judged again: what came after it in the meantime stays, and it is superseded; else it is the row."""
    owner, log = owned(tmp_path), Log()
    broken = [
        dataclasses.replace(member(key), value=b'{"member_id": %d, "city": 7, "dues": 0}' % key) for key in (1, 2)
    ]
    take(owner, log, member(1, "Bath"), member(2, "Bath"), *broken)
    take(owner, log, member(1, "Cork"))
    refused = sorted(owner.rows(f"{MEMBERS}__quarantine"), key=lambda row: int(row["offset"]))

    for number, row in enumerate(refused):
        patch(owner, MEMBERS, row, member(number + 1, "Graz").value or b"", number=number + 1)
    replay(owner, MEMBERS)
    assert cities(owner) == {1: "Cork", 2: "Graz"}
    assert counted(owner) == (4, 1, 0)

    streamed = places(owner)
    for name in ("members", "members__quarantine", "members__deleted"):
        shutil.rmtree(owner.settings.lake / "silver" / name)
    owner.start()
    owner.take(Log().batch())
    assert places(owner) == streamed


def test_rows_that_were_placed_otherwise_are_not_gone_on_with(tmp_path: Path) -> None:
    """A lake of before has partitions first: a state that comes now would be compared with what it cannot be."""
    owner, log = owned(tmp_path), Log()
    table = owner.flow.inputs[MEMBERS].table
    old = {"member_id": 1, "city": "Bath", "dues": 0, "_seq": 1, "_source": "members/00003/00000000000000000009"}
    BY_ARROW.commit(table, pa.Table.from_pylist([old], schema=table.schema), table.entry.follow("batch"))

    with pytest.raises(LakeError, match="placed by partition, declared is by its arrival.*rebuild silver.members"):
        take(owner, log, member(1, "Cork"))


def test_deletions_that_were_placed_otherwise_are_not_gone_on_with(tmp_path: Path) -> None:
    """Of a table without rows too: what comes now would be older than all of them, or newer, for good."""
    owner, log = owned(tmp_path), Log()
    take(owner, log, member(1, "Bath"), member(1))
    owner.start()
    take(owner, log, member(2))
    deleted = owner.flow.sides[MEMBERS]["deleted"]
    assert deleted.rows() == 2
    BY_ARROW.delete(deleted, "true", deleted.entry.follow("redo"))
    old = {"member_id": 1, "_seq": 1, "_source": "000000/0000000000000000009/1/0000000000000000009"}
    rows = pa.Table.from_pylist([old], schema=deleted.schema)
    BY_ARROW.commit(deleted, rows, deleted.entry.follow("batch"))
    owner.start()

    with pytest.raises(LakeError, match="deletions are placed by its log, declared is by its arrival.*rebuild silver"):
        take(owner, log, member(1, "Cork"))


def test_an_older_change_is_superseded_whichever_batch_it_meets(tmp_path: Path) -> None:
    """Not only in its own: a change of a database that a row has overtaken long ago has not been taken."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "shop"), Log()

    for batch in ([(1, 5), (2, 6)], [(1, 4), (2, 7)], [(1, 3), (1, 8), (2, 2)]):
        log.send(change("u", order(key, amount=f"{lsn}.00"), lsn=lsn) for key, lsn in batch)
        owner.take(log.batch())
        owner.start()

    sheet = next(one for one in owner.ledger().sheets() if one.table == "silver.orders")
    assert (sheet.verdict, sheet.taken, sheet.superseded) == ("ok", 4, 3)
    assert [f"{row['amount']}" for row in owner.rows("silver.orders")] == ["8.00", "7.00"]


def test_of_a_table_nothing_is_read_for_what_is_newer_than_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a snapshot, changes in order and states by arrival: as nearly every batch; after a restart too."""
    looked: list[str] = []

    def noted(table: OwnedTable, rows: pa.Table, keys: Sequence[str]) -> Any:
        looked.append(table.name)
        return newest_of(table, rows, keys)

    newest_of = latest._newest_of
    monkeypatch.setattr(latest, "_newest_of", noted)
    shop, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "shop"), Log()
    tiny, letters = owned(tmp_path / "tiny"), Log()
    for batch in ([("r", 1, 5), ("r", 2, 5)], [("r", 3, 5)], [("u", 1, 6), ("u", 2, 7)], [("u", 1, 8)]):
        log.send(change(op, order(key), lsn=lsn) for op, key, lsn in batch)
        shop.take(log.batch())
        take(tiny, letters, *(member(key, "Bath") for _, key, _ in batch))
        if batch[0][0] == "u":
            shop.start()
            tiny.start()
    assert len(shop.rows("silver.orders")) == len(cities(tiny)) == 3
    assert set(looked) == {"silver.orders__deleted", f"{MEMBERS}__deleted"}

    log.send([change("u", order(1), lsn=7)])
    shop.take(log.batch())

    assert "silver.orders" in looked
