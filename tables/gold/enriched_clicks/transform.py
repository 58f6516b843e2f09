"""Clicks joined with the customer's state as of the click."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(product_clicks: DataFrame, customers: DataFrame) -> DataFrame:
    """Find the state that held when the click happened."""
    held = (
        (F.col("c.customer_id") == F.col("k.user_id"))
        & (F.col("c.valid_from") <= F.col("k.clicked_at"))
        & (F.col("c.valid_to").isNull() | (F.col("c.valid_to") > F.col("k.clicked_at")))
    )
    # a copy of a click may come after silver has forgotten the first one
    first = F.min(F.struct("clicked_at", "url")).alias("first")
    clicks = product_clicks.groupBy("user_id", "click_id").agg(first).select("user_id", "click_id", "first.*")
    joined = clicks.alias("k").join(customers.alias("c"), held, "left")
    clicked = [f"k.{name}" for name in ("user_id", "click_id", "clicked_at", "url")]
    return joined.select(*clicked, *(f"c.{name}" for name in ("country", "tier", "age")))


def keys_from(product_clicks: DataFrame | None = None, customers: DataFrame | None = None) -> DataFrame:
    """A click touches itself, a state of a customer all her clicks."""
    if product_clicks is not None:
        return product_clicks.select("user_id", "click_id")
    assert customers is not None
    return customers.select(F.col("customer_id").alias("user_id"))
