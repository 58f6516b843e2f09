"""Requests to bursts."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def transform(api_requests: DataFrame) -> DataFrame:
    """Count what the client did in the five minutes before; a request exactly five minutes ago still counts."""
    keys = ("client_id", "requested_at", "request_id")
    requests = api_requests.groupBy(*keys).agg(F.min("status").alias("status"))  # copies may come hours later
    five_minutes = 5 * 60 * 1_000_000
    before = Window.partitionBy("client_id").orderBy(F.unix_micros("requested_at")).rangeBetween(-five_minutes, 0)
    return requests.select(
        *keys,
        F.count("*").over(before).alias("requests"),
        F.count_if(F.col("status") >= 400).over(before).alias("errors"),
    )
