"""Requests to overlapping hours."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(api_requests: DataFrame) -> DataFrame:
    """Add up the requests of each endpoint and window."""
    windows = F.window("requested_at", "1 hour", "5 minutes").alias("w")
    added = api_requests.groupBy(windows, "endpoint").agg(
        F.count("*").alias("requests"),
        F.count_if(F.col("status") >= 500).alias("errors"),
        F.sum("milliseconds").alias("total_milliseconds"),
        F.max("milliseconds").alias("slowest_milliseconds"),
    )
    return added.select(
        "endpoint", F.col("w.end").alias("until"), "requests", "errors", "total_milliseconds", "slowest_milliseconds"
    )
