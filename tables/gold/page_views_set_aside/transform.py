"""Page views to minutes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(page_views: DataFrame) -> DataFrame:
    """Count views per page and minute."""
    counted = page_views.groupBy(F.window("event_time", "1 minute").alias("w"), "page").agg(F.count("*").alias("views"))
    return counted.select("page", F.col("w.start").alias("minute"), "views")
