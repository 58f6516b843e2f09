"""Clicks joined with the customer's state as of the click, of the states that had come by then."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(product_clicks: DataFrame, customers: DataFrame) -> DataFrame:
    """Find the newest state of before the click among those that came before it. Who left counts as she was last."""
    known = (
        (F.col("c.customer_id") == F.col("k.user_id"))
        & (F.col("c.valid_from") <= F.col("k.clicked_at"))
        & (F.col("c.arrived_at") <= F.col("k.arrived_at"))
    )
    # a copy of a click may come after silver has forgotten the first one
    first = F.min(F.struct("clicked_at", "url", "arrived_at")).alias("first")
    clicks = product_clicks.groupBy("user_id", "click_id").agg(first).select("user_id", "click_id", "first.*")
    joined = clicks.alias("k").join(customers.alias("c"), known, "left")
    # of states that begin at one moment the last has a length; those without can be told apart by what they say only
    end = F.coalesce("c.valid_to", F.lit("9999-12-31").cast("timestamp"))
    says = [f"c.{name}" for name in ("arrived_at", "updated_at", "tier", "country", "age")]
    newest = F.max_by(F.struct("c.*"), F.struct("c.valid_from", end, *says)).alias("c")
    told = joined.groupBy(*(f"k.{name}" for name in ("user_id", "click_id", "clicked_at", "url"))).agg(newest)
    return told.select("*", "c.country", "c.tier", "c.age", F.col("c.arrived_at").alias("known_since")).drop("c")


def keys_from(product_clicks: DataFrame | None = None, customers: DataFrame | None = None) -> DataFrame:
    """A click touches itself; a state all her clicks: it may have come before one that was read before it."""
    if product_clicks is not None:
        return product_clicks.select("user_id", "click_id")
    assert customers is not None
    return customers.select(F.col("customer_id").alias("user_id"))
