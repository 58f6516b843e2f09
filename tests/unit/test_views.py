"""How a view reads its inputs."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.view import _changes, _present
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

    present: Any = _present(spark, table, 2**20)
    feed = _changes(spark, table, 1, 2**20, reader="gold.view")

    assert present.rows.sort_by("key").to_pylist() == [{"key": 1, "value": 2}, {"key": 2, "value": 2}]
    assert isinstance(feed, pa.Table)
    assert sorted(feed["value"].to_pylist()) == [1, 2, 2]  # what was there, what is there, what is new
