"""Rows that unpack to more than may go to Spark as Arrow are read by Spark itself."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from deltaworks.engine import slices
from tests.unit.test_slices import LONG, ROWS, bronze


def test_one_slice_beyond_the_bound_stays_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Whether it is an ingest batch or a version."""
    source = bronze(tmp_path, 3)
    found = [
        slices.batches(spark, source, after=1, bytes_max=LONG - 1, last=3),
        slices.versions(spark, source, after=1, bytes_max=LONG - 1),
    ]

    for piece in found:
        assert piece is not None
        assert isinstance(piece.rows, DataFrame)
        assert piece.upto == 2
        assert [row["offset"] for row in piece.rows.collect()] == [2] * ROWS
