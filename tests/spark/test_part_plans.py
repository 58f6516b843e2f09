"""Transforms of stateful tables in which rows of different parts meet are found from their plan."""

import json
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from deltaworks.engine.part_plans import mixing
from deltaworks.engine.plans import tree

Transform = Callable[[DataFrame], DataFrame]
VIEWS = "user_id bigint, event_time timestamp, page string"


def joined(views: DataFrame, *on: str) -> DataFrame:
    """Join views with the views after them."""
    a, b = views.alias("a"), views.withColumnRenamed("page", "next").alias("b")
    same = [F.col(f"a.{name}") == F.col(f"b.{name}") for name in on]
    near = F.col("b.event_time").between(F.col("a.event_time"), F.col("a.event_time") + F.expr("interval 5 minutes"))
    return a.join(b, [*same, near], "left").select("a.user_id", "a.event_time", "b.next")


APART: dict[str, Transform] = {
    "sessions": lambda v: v.groupBy("user_id", F.session_window("event_time", "10 minutes")).count(),
    "hopping": lambda v: v.groupBy(F.window("event_time", "6 minutes", "2 minutes"), "user_id").count(),
    "last minutes": lambda v: v.withColumn(
        "seen", F.count("*").over(Window.partitionBy("user_id").orderBy("event_time"))
    ).where("seen > 2"),
    "join": lambda v: joined(v, "user_id"),
    "renamed and back": lambda v: v.select(F.col("user_id").alias("u")).distinct().select(F.col("u").alias("user_id")),
    "union": lambda v: v.where("page = '/'").union(v.where("page <> '/'")),
    "copies": lambda v: v.dropDuplicates(["user_id", "page"]),
}
TOGETHER: dict[str, tuple[Transform, str]] = {
    "grouped without": (
        lambda v: v.groupBy("page").agg(F.max("user_id").alias("user_id")),
        "an aggregation without user_id: it puts parts together",
    ),
    "window without": (
        lambda v: v.withColumn("seen", F.count("*").over(Window.partitionBy("page"))),
        "a window without user_id: it looks into other parts",
    ),
    "join without": (joined, "a join that does not compare user_id: it puts parts together"),
    "join by another": (
        lambda v: joined(v, "event_time"),
        "a join that does not compare user_id: it puts parts together",
    ),
    "copies without": (lambda v: v.dropDuplicates(["page"]), "copies are found without user_id: other parts decide"),
    "limit": (lambda v: v.limit(5), "a limit takes rows of some parts"),
    "made up": (
        lambda v: v.select(F.lit(1).cast("bigint").alias("user_id"), "page"),
        "user_id is not the user_id of the rows that it is made from",
    ),
}


def reasons(spark: SparkSession, transform: Transform) -> list[str]:
    """Give what is found in the plan over no rows."""
    frame = transform(spark.createDataFrame([], VIEWS))
    plan = tree(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))  # the only way to the plan
    return [finding for finding, _ in mixing(plan, ("user_id",))]


@pytest.mark.parametrize("name", APART)
def test_parts_stay_apart(spark: SparkSession, name: str) -> None:
    """What computes each part by itself is let through."""
    assert reasons(spark, APART[name]) == []


@pytest.mark.parametrize("name", TOGETHER)
def test_parts_that_meet_are_found(spark: SparkSession, name: str) -> None:
    """The stream gives a transform the touched parts only: what looks at others would differ from a backfill."""
    transform, finding = TOGETHER[name]

    assert reasons(spark, transform) == [finding]
