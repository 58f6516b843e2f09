"""Cart events to carts."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(cart_events: DataFrame) -> DataFrame:
    """Fold the events of each cart since it began: the last one of a product says how many pieces are there."""
    begun = cart_events.groupBy("cart_id", "since").agg(F.min("given_at").alias("first_at"))
    newest = begun.groupBy("cart_id").agg(
        F.max_by("first_at", "since").alias("first_at"), F.max("since").alias("since")
    )
    # of a cart that began before the oldest event that is kept only a part is known
    lives = newest.where("first_at = since").select("cart_id", "since")
    done = cart_events.where("refused is null").join(lives, ["cart_id", "since"])
    lines = done.where("quantity is not null").groupBy("cart_id", "product_id")
    left = lines.agg(F.max_by("quantity", F.struct("given_at", "command_id")).alias("quantity")).where("quantity > 0")
    entries = F.array_sort(F.collect_list(F.struct("product_id", "quantity")))
    held = left.groupBy("cart_id").agg(
        F.count("*").alias("products"),
        F.sum("quantity").alias("pieces"),
        F.to_json(F.map_from_entries(entries)).alias("lines"),
    )
    carts = done.groupBy("cart_id").agg(
        F.max("user_id").alias("user_id"),
        F.min("given_at").alias("opened_at"),
        F.max("given_at").alias("changed_at"),
        F.max(F.when(F.col("command") == "check_out", F.col("given_at"))).alias("checked_out_at"),
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
