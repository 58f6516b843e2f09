"""Results that are sessions are known as such whatever rows they are made of, and nothing is pushed into them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.spark.sessions import of_sessions, put_together

AT = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
MANY = 40
"""Columns; of more than 25 Spark's texts of plans leave some out."""


def notes(spark: SparkSession, *minutes: int) -> DataFrame:
    """Notes of these minutes."""
    rows = [(1, AT + timedelta(minutes=one)) for one in minutes]
    return spark.createDataFrame(rows, "writer long, at timestamp")


def sittings(notes: DataFrame, *, keys: int = 1) -> DataFrame:
    """Notes of a writer less than ten minutes apart, put together."""
    by = [F.col("writer").alias(f"writer{number}") for number in range(keys)]
    found = notes.groupBy(*by, F.session_window("at", "10 minutes").alias("while")).agg(F.count("*").alias("notes"))
    return found.select("writer0", F.col("while.start").alias("since"), "notes")


@pytest.mark.parametrize(
    "made",
    [
        lambda spark: sittings(notes(spark, 0, 5)),
        lambda spark: sittings(notes(spark)),
        lambda spark: sittings(notes(spark, 0, 5).where("writer = 2")),
        lambda spark: sittings(notes(spark, 0, 5), keys=MANY),
        lambda spark: sittings(notes(spark, 0)).join(notes(spark, 0), F.col("writer0") == F.col("writer")),
    ],
    ids=["rows", "no rows", "filtered", "many columns", "joined"],
)
def test_sessions_are_known_whatever_they_are_made_of(
    spark: SparkSession, made: Callable[[SparkSession], DataFrame]
) -> None:
    """Of no rows Spark would plan nothing, so plans are not what is looked at."""
    assert of_sessions(made(spark))


def test_other_windows_are_no_sessions(spark: SparkSession) -> None:
    """These are told by a row alone."""
    hopping = F.window("at", "10 minutes", "5 minutes")

    assert not of_sessions(notes(spark, 0, 5).groupBy("writer", hopping).count())


def test_nothing_is_asked_of_sessions_before_they_are_put_together(spark: SparkSession) -> None:
    """One that began before goes on: Spark itself gives a part of it, put together it is whole."""
    found, since = sittings(notes(spark, 0, 5, 9)), AT + timedelta(minutes=3)

    asked = F.col("since") >= F.lit(since)

    assert [row["notes"] for row in found.where(asked).collect()] == [2], "Spark is right: put_together is not needed"
    assert put_together(found).where(asked).collect() == []
    assert [row["notes"] for row in put_together(found).collect()] == [3]
    twice = put_together(found)
    assert len(twice.unionByName(twice).collect()) == 2
