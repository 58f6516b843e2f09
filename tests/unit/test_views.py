"""How a view reads its inputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine import feed
from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Entry
from deltaworks.engine.feed import changes, shown, snapshot
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.snapshot import Snapshot
from deltaworks.engine.writers.writer import Input
from tests.handed import Hand

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
UPSERT = (
    Clause(on="matched", act="update", set={"value": "s.value"}),
    Clause(on="not matched", act="insert", set={"key": "s.key", "value": "s.value"}),
)


def things(folder: Path) -> OwnedTable:
    """A table without rows, whose commits tell what they changed."""
    entry = Entry(kind="create", app="a", epoch=1)
    return OwnedTable(name="silver.things", path=folder / "things", schema=SCHEMA, entry=entry, change_feed=True)


def put(table: OwnedTable, values: Mapping[int, int]) -> None:
    """Give keys these values in one commit."""
    rows = pa.table({"key": [*values], "value": [*values.values()]}, schema=SCHEMA)
    Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None).commit(
        table, rows, table.entry.follow("batch"), how=Merge(keys=("key",), clauses=UPSERT)
    )


def test_small_inputs_are_not_read_by_spark(tmp_path: Path) -> None:
    """It would build the state of a table that delta-rs has just committed to anew, for seconds: delta-rs reads it."""
    table = things(tmp_path)
    put(table, {1: 1})
    put(table, {1: 2, 2: 2})
    spark: Any = Hand()

    present: Any = shown(spark, Input(table=table), 2**20)
    told = changes(spark, Input(table=table), 1, 2**20, reader="gold.view")

    assert present.rows.sort_by("key").to_pylist() == [{"key": 1, "value": 2}, {"key": 2, "value": 2}]
    assert isinstance(told, pa.Table)
    assert sorted(told["value"].to_pylist()) == [1, 2, 2]  # what was there, what is there, what is new


def test_views_of_a_turn_share_small_inputs(tmp_path: Path) -> None:
    """Never one of another version or session, nor one that is large or that nobody else reads."""
    table = things(tmp_path)
    spark: Any = Hand()
    other: Any = Hand()

    put(table, dict.fromkeys(range(1_000), 1))
    source, alone, large = (Input(table=table, shared=shared) for shared in (True, False, True))
    first: Any = shown(spark, source, 2**20)
    again: Any = shown(spark, source, 2**20)
    elsewhere: Any = shown(other, source, 2**20)
    put(table, dict.fromkeys(range(1_000), 2))
    newer: Any = shown(other, source, 2**20)
    shown(spark, alone, 2**20)
    shown(spark, large, 16 * first.rows.nbytes - 1)

    assert again is first
    assert elsewhere is not first
    assert [set(one.rows["value"].to_pylist()) for one in (first, newer)] == [{1}, {2}]
    assert source.shown is not None
    assert alone.shown is large.shown is None


@pytest.mark.parametrize(("bytes_max", "torn"), [(2**20, False), (2**20, True), (1, False)])
def test_changes_whose_files_are_gone_are_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, bytes_max: int, torn: bool
) -> None:
    """A vacuum may take the file that says what changed, and leave the one that has the new rows; or it is torn.

    Who asks reads the whole input instead. By Spark too, which would find out when it reads.
    """
    table = things(tmp_path)
    source = Input(table=table)
    spark: Any = Hand()
    kept = list[Snapshot | None]()
    for value in (1, 2):
        put(table, {1: value, 2: 7 * value})
        if not kept:
            kept.append(snapshot(spark, source, 2**20))
    told = list((table.path / "_change_data").rglob("*.parquet"))
    assert told
    for file in told:
        if torn:
            file.write_bytes(file.read_bytes()[:40])
        else:
            file.unlink()

    assert changes(spark, Input(table=table), 1, bytes_max, reader="gold.view") is None
    assert "changes of silver.things beyond version 1 cannot be read" in caplog.text
    anew = snapshot(spark, source, 2**20)
    assert anew is not None
    assert anew is not kept[0]
    assert sorted(anew.rows()["value"].to_pylist()) == [2, 14]


def test_an_input_of_which_much_went_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that go are looked for one by one, which costs more than to read all from some number on."""
    monkeypatch.setattr(feed, "REMOVED_MAX", 1)
    table = things(tmp_path)
    source = Input(table=table)
    spark: Any = Hand()
    kept = list[Snapshot]()
    for keys in ([1, 2, 3], [1], [1, 2], []):
        put(table, dict.fromkeys(keys, len(kept)))
        found = snapshot(spark, source, 2**20)
        assert found is not None
        assert found.rows().sort_by("key").equals(table.read().sort_by("key"))
        kept.append(found)

    assert [kept.index(one) for one in kept] == [0, 0, 2, 2]


def test_an_input_that_could_not_be_read_again_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are more than what is read into memory at once, though its rows are there: else its views lost them."""
    monkeypatch.setattr(feed, "REMOVED_MAX", 1)
    table = things(tmp_path)
    source = Input(table=table)
    spark: Any = Hand()
    for value in (1, 2):
        put(table, dict.fromkeys(range(5), value))
        if source.snapshot is None:
            snapshot(spark, source, 2**20)
    kept = source.snapshot

    found = snapshot(spark, source, 15 * table.bytes())

    assert found is not None
    assert found is kept
    assert found.rows().sort_by("key").equals(table.read().sort_by("key"))


def test_too_little_memory_is_not_a_change_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read all of the input would need more of it: the error is told as what it is."""
    table = things(tmp_path)
    put(table, {1: 1})
    spark: Any = Hand()

    def fail(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(feed, "bounded", fail)
    with pytest.raises(MemoryError, match="malloc"):
        changes(spark, Input(table=table), 0, 2**20, reader="gold.view")
