"""Ticks to minutes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(ticks: DataFrame) -> DataFrame:
    """Count the ticks of each minute."""
    windows = F.window("ticked_at", "1 minute").alias("w")
    return ticks.groupBy(windows).agg(F.count("*").alias("ticks")).select(F.col("w.start").alias("minute"), "ticks")
