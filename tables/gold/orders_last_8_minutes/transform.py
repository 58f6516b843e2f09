"""Orders to overlapping windows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def _windows() -> Column:
    return F.window("placed_at", "8 minutes", "1 minute")


def transform(orders: DataFrame) -> DataFrame:
    """Count each order in the eight windows that it lies in."""
    gone = F.col("status") == "cancelled"
    counted = orders.groupBy(_windows().alias("w")).agg(
        F.count("*").alias("orders"),
        F.count_if(gone).alias("cancelled"),
        F.coalesce(F.sum(F.when(~gone, F.col("amount"))), F.lit(0)).cast("decimal(18,2)").alias("amount"),
    )
    return counted.select(F.col("w.end").alias("until"), "orders", "cancelled", "amount")


def keys_from(orders: DataFrame) -> DataFrame:
    """The windows that a changed order lies in."""
    return orders.select(_windows().alias("w")).select(F.col("w.end").alias("until"))
