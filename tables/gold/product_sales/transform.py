"""Order items to products."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(order_items: DataFrame) -> DataFrame:
    """Add up what was ordered of each product."""
    kept, paid = F.col("status") != "cancelled", F.col("status") == "paid"
    return order_items.groupBy("product_id").agg(
        F.max("product").alias("product"),  # all rows of a product say the same
        F.max("category").alias("category"),
        F.count_distinct(F.when(kept, F.col("order_id"))).alias("orders"),
        F.coalesce(F.sum(F.when(kept, F.col("quantity"))), F.lit(0)).cast("bigint").alias("pieces"),
        F.coalesce(F.sum(F.when(paid, F.col("value"))), F.lit(0)).cast("decimal(18,2)").alias("revenue"),
    )


def keys_from(order_items: DataFrame) -> DataFrame:
    """The product of a changed item."""
    return order_items.select("product_id")
