"""Searches to terms."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(search_click_through: DataFrame) -> DataFrame:
    """Count searches and those with a click."""
    counted = search_click_through.groupBy(F.to_date("searched_at").alias("day"), "term").agg(
        F.count("*").alias("searches"), F.count("clicked_at").alias("clicked")
    )
    return counted.withColumn("rate", F.col("clicked") / F.col("searches"))


def keys_from(search_click_through: DataFrame) -> DataFrame:
    """Day and term of a search."""
    return search_click_through.select(F.to_date("searched_at").alias("day"), "term")
