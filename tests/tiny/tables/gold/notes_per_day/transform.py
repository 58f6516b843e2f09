"""Notes to days."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame) -> DataFrame:
    """Count notes and words per day."""
    return notes.groupBy(F.to_date("written_at").alias("day")).agg(
        F.count("*").alias("notes"),
        F.sum("words").alias("words"),
        F.min("words").alias("shortest"),
        F.max("written_at").alias("last"),
    )
