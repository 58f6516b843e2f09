"""Members to cities."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(members: DataFrame) -> DataFrame:
    """Count members and their dues per city."""
    return members.groupBy("city").agg(F.count("*").alias("members"), F.sum("dues").cast("decimal(18,2)").alias("dues"))


def keys_from(members: DataFrame) -> DataFrame:
    """The cities that a changed member touches."""
    return members.select("city")
