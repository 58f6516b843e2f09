"""Clicks to five minutes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(search_clicks: DataFrame) -> DataFrame:
    """Count clicks per URL."""
    windows = F.window("clicked_at", "5 minutes").alias("w")
    return (
        search_clicks.groupBy(windows, "url")
        .agg(F.count("*").alias("clicks"))
        .select("url", F.col("w.start").alias("since"), "clicks")
    )
