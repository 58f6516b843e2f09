"""Large purchases to their sums."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(published_purchases: DataFrame) -> DataFrame:
    """Count and sum per user and day."""
    return published_purchases.groupBy(F.to_date("bought_at").alias("day"), "user_id").agg(
        F.count("*").alias("purchases"), F.sum("amount").cast("decimal(18,2)").alias("amount")
    )
