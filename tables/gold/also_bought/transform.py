"""Order items to pairs of products."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(order_items: DataFrame) -> DataFrame:
    """Count the orders that hold both products of a pair."""
    kept = order_items.where("status <> 'cancelled'").select("order_id", "product_id", "placed_at").distinct()
    others = kept.select("order_id", F.col("product_id").alias("other_id"))
    pairs = kept.join(others, "order_id").where("product_id <> other_id")
    return pairs.groupBy("product_id", "other_id").agg(
        F.count("*").alias("orders"), F.max("placed_at").alias("last_at")
    )


def keys_from(order_items: DataFrame) -> tuple[DataFrame, DataFrame]:
    """All pairs with the product of a changed item, on either side."""
    touched = order_items.select("product_id")
    return touched, touched.select(F.col("product_id").alias("other_id"))
