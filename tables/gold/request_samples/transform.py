"""Requests to windows with gaps between them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(api_requests: DataFrame) -> DataFrame:
    """Count the requests of the first six of ten minutes; those of the other four belong to no window."""
    windowed = api_requests.withColumn("w", F.window("requested_at", "10 minutes"))
    sampled = windowed.where(F.col("requested_at") < F.col("w.start") + F.expr("interval 6 minutes"))
    return sampled.groupBy("w").agg(F.count("*").alias("requests")).select(F.col("w.start").alias("since"), "requests")
