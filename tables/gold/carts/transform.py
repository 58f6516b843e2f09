"""Cart events to carts."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(cart_events: DataFrame) -> DataFrame:
    """Fold the events of each cart: of every product the last event says how many pieces are there."""
    done = cart_events.where("refused is null")
    lines = done.where("quantity is not null").groupBy("cart_id", "product_id")
    left = lines.agg(F.max_by("quantity", F.struct("at", "command_id")).alias("quantity")).where("quantity > 0")
    entries = F.array_sort(F.collect_list(F.struct("product_id", "quantity")))
    held = left.groupBy("cart_id").agg(
        F.count("*").alias("products"),
        F.sum("quantity").alias("pieces"),
        F.to_json(F.map_from_entries(entries)).alias("lines"),
    )
    carts = done.groupBy("cart_id").agg(
        F.max("user_id").alias("user_id"),
        F.min("at").alias("opened_at"),
        F.max("at").alias("changed_at"),
        F.max(F.when(F.col("command") == "check_out", F.col("at"))).alias("checked_out_at"),
    )
    return carts.join(held, "cart_id", "left").select(
        "cart_id",
        "user_id",
        F.coalesce("products", F.lit(0)).cast("bigint").alias("products"),
        F.coalesce("pieces", F.lit(0)).cast("bigint").alias("pieces"),
        F.coalesce("lines", F.lit("{}")).alias("lines"),
        "opened_at",
        "changed_at",
        "checked_out_at",
    )


def keys_from(cart_events: DataFrame) -> DataFrame:
    """The cart of an event."""
    return cart_events.select("cart_id")
