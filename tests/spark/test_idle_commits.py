"""Commits by Spark that change nothing: each leaves its entry, or the batch would be taken again and again."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import OwnedTable

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
NEWER = Merge(
    keys=("key",),
    clauses=(Clause(on="matched", act="update", when="s.value > t.value", set={"value": "s.value"}),),
)


@pytest.mark.parametrize(("how", "rows"), [(None, []), (NEWER, []), (NEWER, [{"key": 1, "value": 1}])])
def test_batch_that_changes_nothing_leaves_its_entry(
    spark: SparkSession, tmp_path: Path, how: Merge | None, rows: list[dict[str, int]]
) -> None:
    """An append of no row; a merge of no row, and of one that is older than what is there.

    Spark commits them for their txn; where it commits nothing, the entry is appended alone.
    """
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="silver.things", path=tmp_path / "things", schema=SCHEMA, entry=entry)
    committer = Committer(spark=spark, arrow_bytes_max=0, guard=lambda: None)
    committer.commit(table, pa.table({"key": [1], "value": [2]}, schema=SCHEMA), table.entry.follow("batch"))
    idle = spark.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA))

    committer.commit(table, idle, table.entry.follow("batch", ingest_seq=7), how=how)

    table.reopen()
    assert (table.version, table.entry.ingest_seq) == (2, 7)
    assert table.read().to_pylist() == [{"key": 1, "value": 2}]
