"""Rows that unpack to more than may go to Spark as Arrow are read by Spark itself."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltaworks.engine import slices
from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import OwnedTable
from tests.flows import BY_ARROW
from tests.unit.test_slices import LONG, ROWS, bronze


def test_one_slice_beyond_the_bound_stays_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Whether it is an ingest batch or a version."""
    source = bronze(tmp_path, 3)
    found = [
        slices.batches(spark, source, after=1, bytes_max=LONG - 1, last=3),
        slices.versions(spark, source, after=1, bytes_max=LONG - 1, reader="gold.above"),
    ]

    for piece in found:
        assert piece is not None
        assert isinstance(piece.rows, DataFrame)
        assert piece.upto == 2
        assert [row["offset"] for row in piece.rows.collect()] == [2] * ROWS


def test_rows_beyond_the_bound_reach_a_large_table_by_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """A replay of one large ingest batch: made into a DataFrame they would go through the memory of the JVM."""
    schema = pa.schema([("key", pa.int64()), ("value", pa.string())])
    rows = pa.table({"key": range(2_000), "value": [f"{number * 7919 % 10_007:x}" for number in range(2_000)]}, schema)
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="silver.things", path=tmp_path / "things", schema=schema, entry=entry)
    BY_ARROW.commit(table, rows, entry.follow("batch"))
    again = rows.set_column(1, "value", pa.array(["new"] * rows.num_rows))
    own = {"key": "s.key", "value": "s.value"}
    how = Merge(keys=("key",), clauses=(Clause(on="matched", act="update", set=own),))
    bound = table.bytes() - 1
    assert again.nbytes > bound

    Committer(spark=spark, arrow_bytes_max=bound, guard=lambda: None).commit(
        table, again, entry.follow("batch"), how=how
    )

    assert set(table.read()["value"].to_pylist()) == {"new"}
    assert (table.rows(), table.version) == (2_000, 2)
    assert not list((table.path / "_spark").glob("rows-*"))
