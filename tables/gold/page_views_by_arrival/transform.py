"""Page views to minutes of arrival."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(page_views: DataFrame) -> DataFrame:
    """Count views per minute of the broker's time, which is stored and the same in a replay."""
    delay = F.unix_seconds("arrived_at") - F.unix_seconds("event_time")
    counted = (
        page_views.where("arrived_at is not null")
        .groupBy(F.window("arrived_at", "1 minute").alias("w"))
        .agg(F.count("*").alias("views"), F.sum(delay).alias("delay_seconds"))
    )
    return counted.select(F.col("w.start").alias("minute"), "views", "delay_seconds")
