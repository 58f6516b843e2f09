"""Dates and times at the ends of the calendar, and where it changed: they are what they are on every way through."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Entry
from deltaworks.engine.feed import changes
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.replacing import KEYS_LISTED_MAX, only
from deltaworks.engine.writers.writer import Input

SCHEMA = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
DAYS = (date(1, 1, 1), date(999, 2, 28), date(1582, 10, 10), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31))
ROWS = pa.table([DAYS, [datetime(d.year, d.month, d.day, 23, 59, 59, 999_999, UTC) for d in DAYS]], schema=SCHEMA)


def test_days_and_moments_come_back_from_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Committed by Spark, they are read by delta-rs; in the change feed, they are read by Spark."""
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="gold.days", path=tmp_path / "days", schema=SCHEMA, entry=entry, change_feed=True)
    by_spark = Committer(spark=spark, arrow_bytes_max=0, guard=lambda: None)

    by_spark.commit(table, spark.createDataFrame(ROWS), table.entry.follow("batch"))
    feed = changes(spark, Input(table=table), 0, bytes_max=0, reader="gold.view")

    assert table.delta.history(1)[0]["engineInfo"].startswith("Apache-Spark")
    assert table.read().sort_by("day") == ROWS
    assert isinstance(feed, DataFrame)
    assert feed.toArrow().select(SCHEMA.names).cast(SCHEMA).sort_by("day") == ROWS


def test_days_and_moments_are_found_by_value(spark: SparkSession) -> None:
    """A view that recomputes some keys names them."""
    rows = spark.createDataFrame(ROWS)

    for name in SCHEMA.names:
        assert only(spark, rows, ROWS.select([name])).count() == len(DAYS), name
    assert only(spark, rows, ROWS).count() == len(DAYS)


KEYS = pa.table(
    {
        "text": ["it's", "\\ \n\u0000 ${x} `q`", "", None, "美咲"],
        "number": pa.array([-(2**63), 2**63 - 1, 0, 1, None], pa.int64()),
        "amount": pa.array(
            [Decimal("-9999999999.99"), Decimal("0.01"), Decimal(0), None, Decimal("1.50")], pa.decimal128(12, 2)
        ),
        "measured": pa.array([float("nan"), -0.0, 0.1, None, 1e308], pa.float64()),
        "yes": [True, False, None, True, False],
        "bytes": pa.array([b"\x00\xff", b"", None, b"'", b"x"], pa.binary()),
        "day": pa.array([*DAYS[:4], None], pa.date32()),
    }
)


def test_keys_of_every_type_are_found_by_value(spark: SparkSession) -> None:
    """As few keys as are written into the filter and more than that are found alike, nulls among them."""
    rows, other = spark.createDataFrame(KEYS), KEYS.slice(0, 1).set_column(0, "text", pa.array(["another"]))
    many = pa.concat_tables([KEYS, *[other] * KEYS_LISTED_MAX])

    for names in ([name] for name in KEYS.column_names if name != "yes"):  # which has but three values
        wanted = KEYS.select(names).slice(0, 4)
        assert only(spark, rows, wanted).count() == 4, names
        assert only(spark, rows, wanted, how="left_anti").count() == 1, names
    for keys in (KEYS, many):
        assert only(spark, rows, keys).count() == KEYS.num_rows
        assert only(spark, rows, keys.slice(1), how="left_anti").count() == 1
