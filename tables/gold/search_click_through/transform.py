"""Searches joined with clicks."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(searches: DataFrame, search_clicks: DataFrame) -> DataFrame:
    """Find the clicks of the same visit on the search's results, up to an hour after it."""
    keys = ("session_id", "searched_at", "search_id")
    once = searches.groupBy(*keys).agg(F.min("term").alias("term"))  # a copy may come after silver has forgotten it
    until = F.col("s.searched_at") + F.expr("interval 1 hour")
    same = (F.col("s.session_id") == F.col("c.session_id")) & (F.col("s.search_id") == F.col("c.search_id"))
    near = F.col("c.clicked_at").between(F.col("s.searched_at"), until)
    joined = once.alias("s").join(search_clicks.alias("c"), same & near, "left")
    first = F.struct("c.clicked_at", "c.click_id", "c.url")  # the id decides between clicks of one moment
    clicked = joined.groupBy(*(f"s.{name}" for name in (*keys, "term")), until.alias("waits_until")).agg(
        F.count_distinct("c.click_id").alias("clicks"),
        F.min(F.when(F.col("c.click_id").isNotNull(), first)).alias("first"),
    )
    return clicked.select(*keys, "term", "clicks", "first.clicked_at", "first.url", "waits_until")
