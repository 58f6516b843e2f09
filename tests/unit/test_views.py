"""How a view reads its inputs."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Entry
from deltaworks.engine.feed import changes, shown
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.writer import Input
from tests.handed import Hand

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
UPSERT = (
    Clause(on="matched", act="update", set={"value": "s.value"}),
    Clause(on="not matched", act="insert", set={"key": "s.key", "value": "s.value"}),
)


def test_small_inputs_are_not_read_by_spark(tmp_path: Path) -> None:
    """It would build the state of a table that delta-rs has just committed to anew, for seconds: delta-rs reads it."""
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="silver.things", path=tmp_path / "things", schema=SCHEMA, entry=entry, change_feed=True)
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    for rows in ([{"key": 1, "value": 1}], [{"key": 1, "value": 2}, {"key": 2, "value": 2}]):
        made = pa.Table.from_pylist(rows, schema=SCHEMA)
        committer.commit(table, made, table.entry.follow("batch"), how=Merge(keys=("key",), clauses=UPSERT))
    spark: Any = Hand()

    present: Any = shown(spark, Input(table=table), 2**20)
    feed = changes(spark, Input(table=table), 1, 2**20, reader="gold.view")

    assert present.rows.sort_by("key").to_pylist() == [{"key": 1, "value": 2}, {"key": 2, "value": 2}]
    assert isinstance(feed, pa.Table)
    assert sorted(feed["value"].to_pylist()) == [1, 2, 2]  # what was there, what is there, what is new


def test_views_of_a_turn_share_small_inputs(tmp_path: Path) -> None:
    """Never one of another version or session, nor one that is large or that nobody else reads."""
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="silver.things", path=tmp_path / "things", schema=SCHEMA, entry=entry, change_feed=True)
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    spark: Any = Hand()
    other: Any = Hand()

    def put(value: int) -> None:
        made = pa.Table.from_pylist([{"key": key, "value": value} for key in range(1_000)], schema=SCHEMA)
        committer.commit(table, made, table.entry.follow("batch"), how=Merge(keys=("key",), clauses=UPSERT))

    put(1)
    source, alone, large = (Input(table=table, shared=shared) for shared in (True, False, True))
    first: Any = shown(spark, source, 2**20)
    again: Any = shown(spark, source, 2**20)
    elsewhere: Any = shown(other, source, 2**20)
    put(2)
    newer: Any = shown(other, source, 2**20)
    shown(spark, alone, 2**20)
    shown(spark, large, 16 * first.rows.nbytes - 1)

    assert again is first
    assert elsewhere is not first
    assert [set(one.rows["value"].to_pylist()) for one in (first, newer)] == [{1}, {2}]
    assert source.shown is not None
    assert alone.shown is large.shown is None
