"""Stretches of event time found by Spark, where rows are too many to be collected: the same as `stretches`."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def placed(rows: DataFrame, part: Sequence[str], time: str) -> DataFrame:
    """The rows' parts with `_time` in microseconds."""
    return rows.select(*part, F.unix_micros(time).alias("_time"))


def runs(points: DataFrame, part: Sequence[str], length: int) -> DataFrame:
    """Points of a part with no more than `length` from each to the next, as `_low`, `_high`; `_new` if one is."""
    ordered = Window.partitionBy(*part).orderBy("_time")
    begins = F.coalesce(F.col("_time") - F.lag("_time").over(ordered) > length, F.lit(True)).cast("int")
    numbered = points.withColumn("_begins", begins).withColumn("_run", F.sum("_begins").over(ordered))
    return numbered.groupBy(*part, "_run").agg(
        F.min("_time").alias("_low"), F.max("_time").alias("_high"), F.max("_new").alias("_new")
    )


def within(rows: DataFrame, time: str, stretches: DataFrame, part: Sequence[str], *, widened: int = 0) -> DataFrame:
    """The rows that lie in one of the stretches."""
    at = F.unix_micros(F.col(f"r.{time}"))
    inside = at.between(F.col("s._low") - widened, F.col("s._high") + widened)
    return rows.alias("r").join(stretches.alias("s"), same(part, "r", "s") & inside, "left_semi")


def same(columns: Sequence[str], one: str, other: str) -> Column:
    """Equal in all columns, null like a value."""
    return reduce(
        lambda left, right: left & right,
        [F.col(f"{one}.{name}").eqNullSafe(F.col(f"{other}.{name}")) for name in columns],
    )
