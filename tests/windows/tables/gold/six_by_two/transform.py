"""Ticks to overlapping windows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(ticks: DataFrame) -> DataFrame:
    """Count each tick in the windows that it lies in."""
    windows = F.window("ticked_at", "6 minutes", "2 minutes").alias("w")
    return ticks.groupBy(windows).agg(F.count("*").alias("ticks")).select(F.col("w.start").alias("since"), "ticks")
