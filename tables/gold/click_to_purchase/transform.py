"""Clicks joined with purchases."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(ad_clicks: DataFrame, purchases: DataFrame) -> DataFrame:
    """Find the first purchase of the visitor, up to an hour after the click."""
    keys = ("user_id", "clicked_at", "click_id")
    once = ad_clicks.groupBy(*keys).agg(F.min("ad_id").alias("ad_id"))  # a copy may come after silver has forgotten it
    until = F.col("k.clicked_at") + F.expr("interval 1 hour")
    near = F.col("p.bought_at").between(F.col("k.clicked_at"), until)
    joined = once.alias("k").join(purchases.alias("p"), (F.col("k.user_id") == F.col("p.user_id")) & near, "left")
    first = F.struct("p.bought_at", "p.purchase_id", "p.amount")  # the id decides between purchases of one moment
    clicked = [f"k.{name}" for name in ("user_id", "clicked_at", "click_id", "ad_id")]
    found = joined.groupBy(*clicked, until.alias("waits_until")).agg(
        F.min(F.when(F.col("p.purchase_id").isNotNull(), first)).alias("first")
    )
    return found.select(
        *("user_id", "clicked_at", "click_id", "ad_id", "first.bought_at", "first.amount", "waits_until")
    )
