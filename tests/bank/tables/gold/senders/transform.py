"""Events to senders."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(numbered: DataFrame) -> DataFrame:
    """Count and add up per sender."""
    return numbered.groupBy("sender").agg(
        F.count("*").alias("events"), F.sum("number").alias("total"), F.max("number").alias("last")
    )
