"""Orders to days."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(orders: DataFrame) -> DataFrame:
    """Count the orders of each day and add up what was paid."""
    paid, cancelled = F.col("status") == "paid", F.col("status") == "cancelled"
    return orders.groupBy(F.to_date("placed_at").alias("day")).agg(
        F.count("*").alias("orders"),
        F.count_if(paid).alias("paid"),
        F.count_if(cancelled).alias("cancelled"),
        F.coalesce(F.sum(F.when(paid, F.col("amount"))), F.lit(0)).cast("decimal(18,2)").alias("revenue"),
    )


def keys_from(orders: DataFrame) -> DataFrame:
    """The days that a changed order touches."""
    return orders.select(F.to_date("placed_at").alias("day"))
