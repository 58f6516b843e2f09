"""Page views to overlapping windows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(page_views: DataFrame) -> DataFrame:
    """Count each view in the windows that it lies in."""
    counted = page_views.groupBy(F.window("event_time", "1 minute", "30 seconds").alias("w")).agg(
        F.count("*").alias("views")
    )
    return counted.select(F.col("w.end").alias("until"), "views")
