"""Dates and times at the ends of the calendar, and where it changed: they are what they are on every way through."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.replacing import _exactly
from deltaworks.engine.writers.view import _changes

SCHEMA = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
DAYS = (date(1, 1, 1), date(999, 2, 28), date(1582, 10, 10), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31))
ROWS = pa.table([DAYS, [datetime(d.year, d.month, d.day, 23, 59, 59, 999_999, UTC) for d in DAYS]], schema=SCHEMA)


def test_days_and_moments_come_back_from_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Committed by Spark, they are read by delta-rs; in the change feed, they are read by Spark."""
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="gold.days", path=tmp_path / "days", schema=SCHEMA, entry=entry, change_feed=True)
    by_spark = Committer(spark=spark, arrow_bytes_max=0, guard=lambda: None)

    by_spark.commit(table, spark.createDataFrame(ROWS), table.entry.follow("batch"))
    feed = _changes(spark, table, 0, bytes_max=0, reader="gold.view")

    assert table.delta.history(1)[0]["engineInfo"].startswith("Apache-Spark")
    assert table.read().sort_by("day") == ROWS
    assert isinstance(feed, DataFrame)
    assert feed.toArrow().cast(SCHEMA).sort_by("day") == ROWS


def test_days_and_moments_are_found_by_value(spark: SparkSession) -> None:
    """A view that recomputes some keys names them."""
    rows = spark.createDataFrame(ROWS)

    for name in SCHEMA.names:
        values = ROWS[name].to_pylist()
        assert rows.where(F.col(name).isin([_exactly(value) for value in values])).count() == len(DAYS), name
