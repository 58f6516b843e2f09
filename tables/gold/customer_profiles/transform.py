"""Customers, orders, items and clicks to profiles."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def transform(customers: DataFrame, orders: DataFrame, order_items: DataFrame, product_clicks: DataFrame) -> DataFrame:
    """Put together what each customer did."""
    current = customers.where("is_current").select("customer_id", "name", "tier")
    kept = F.col("status") != "cancelled"
    ordered = orders.groupBy("customer_id").agg(
        F.count_if(kept).alias("orders"),
        F.sum(F.when(F.col("status") == "paid", F.col("amount"))).cast("decimal(18,2)").alias("value"),
        F.max("placed_at").alias("ordered_at"),
    )
    clicked = product_clicks.groupBy(F.col("user_id").alias("customer_id")).agg(F.max("clicked_at").alias("clicked_at"))
    bought = order_items.where(kept & F.col("category").isNotNull()).groupBy("customer_id", "category")
    most = Window.partitionBy("customer_id").orderBy(F.desc("pieces"), "category")
    favourite = (
        bought.agg(F.sum("quantity").alias("pieces"))
        .withColumn("place", F.row_number().over(most))
        .where("place = 1")
        .select("customer_id", F.col("category").alias("favourite_category"))
    )
    joined = current
    for beside in (ordered, clicked, favourite):
        joined = joined.join(beside, "customer_id", "left")
    return joined.select(
        "customer_id",
        "name",
        "tier",
        F.coalesce("orders", F.lit(0)).cast("bigint").alias("orders"),
        F.coalesce("value", F.lit(0)).cast("decimal(18,2)").alias("value"),
        "favourite_category",
        F.greatest("ordered_at", "clicked_at").alias("last_seen_at"),
    )


def keys_from(
    customers: DataFrame | None = None,
    orders: DataFrame | None = None,
    order_items: DataFrame | None = None,
    product_clicks: DataFrame | None = None,
) -> DataFrame:
    """The customer of a changed row, whatever it is of."""
    if product_clicks is not None:
        return product_clicks.select(F.col("user_id").alias("customer_id"))
    changed = next(rows for rows in (customers, orders, order_items) if rows is not None)
    return changed.select("customer_id")
