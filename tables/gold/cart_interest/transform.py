"""Cart events to days and products."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(cart_events: DataFrame) -> DataFrame:
    """Count what was done with each product."""
    done = cart_events.where("refused is null and quantity is not null")
    return done.groupBy(F.to_date("given_at").alias("day"), "product_id").agg(
        F.count_if(F.col("command") == "add").alias("added"),
        F.count_if(F.col("command") == "remove").alias("removed"),
        F.count_distinct("cart_id").alias("carts"),
    )


def keys_from(cart_events: DataFrame) -> DataFrame:
    """Day and product of an event."""
    return cart_events.where("product_id is not null").select(F.to_date("given_at").alias("day"), "product_id")
