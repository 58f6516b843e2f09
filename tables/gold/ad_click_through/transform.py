"""Impressions joined with clicks."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(ad_impressions: DataFrame, ad_clicks: DataFrame) -> DataFrame:
    """Find the first click on each impression."""
    keys, rest = ("impression_id", "shown_at"), F.struct("ad_id", "user_id")
    once = ad_impressions.groupBy(*keys).agg(F.min(rest).alias("rest"))  # a copy may come after silver has forgotten it
    until = F.col("i.shown_at") + F.expr("interval 10 minutes")
    same = F.col("i.impression_id") == F.col("c.impression_id")
    near = F.col("c.clicked_at").between(F.col("i.shown_at"), until)
    joined = once.select(*keys, "rest.*").alias("i").join(ad_clicks.alias("c"), same & near, "left")
    shown = [f"i.{name}" for name in ("impression_id", "shown_at", "ad_id", "user_id")]
    return joined.groupBy(*shown, until.alias("waits_until")).agg(F.min("c.clicked_at").alias("clicked_at"))
