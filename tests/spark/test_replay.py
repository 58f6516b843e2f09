"""The checker where it needs Spark: a replay equals the stream, and what it finds in tables over tables."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.checker import Finding, Picture, check
from deltaworks.engine.checker.replay import replay
from deltaworks.settings import Settings
from tests.intruder import Intruder
from tests.proof.walk import Walk, Walks
from tests.proof.workloads import WORKLOADS

pytestmark = pytest.mark.xdist_group("walks")  # they share lakes that take long to make


@pytest.mark.parametrize("app", [one.app for one in WORKLOADS])
def test_replay_of_bronze_gives_what_the_stream_left(
    spark: SparkSession, walks: Walks, tmp_path: Path, app: str
) -> None:
    """All of bronze at once, by Arrow, against a lake that was filled batch by batch; one of them by Spark."""
    walk = walks.get((app, "spark"), walks[app, "auto"])
    with Picture(walk.catalog, walk.settings.lake) as picture:
        assert not replay(picture, spark, walk.settings.changed(data=tmp_path))


def test_replay_that_gives_other_rows_is_found(spark: SparkSession, walks: Walks, tmp_path: Path) -> None:
    """One number in gold, one reason in quarantine."""
    walk = walks["tiny", "auto"]
    settings = walk.copy("tend")
    Intruder(settings, "gold.members_per_city").update("members", "77", "city = 'A'")
    Intruder(settings, "silver.notes__quarantine").update("reason", "'other'", "topic = 'notes'")

    with Picture(walk.catalog, settings.lake) as picture:
        found = replay(picture, spark, settings.changed(data=tmp_path))

    assert {(one.invariant, one.place) for one in found} == {
        ("I5", "gold.members_per_city"),
        ("I5", "silver.notes__quarantine"),
    }


def test_lost_late_row_and_wrong_count_of_an_aggregate_are_found(walks: Walks) -> None:
    """A row set aside is gone; more rows are said to have been read than the input had."""
    walk, table = walks["tiny", "auto"], "gold.notes_per_day"
    settings = walk.copy("tend")
    late = Intruder(settings, f"{table}__late")
    late.delete(f"_source = '{late.delta.to_pyarrow_table()['_source'][0]}'")
    assert {(one.invariant, one.place) for one in look(walk, settings)} == {("I7", table)}

    books = Intruder(settings, table)
    totals = replace(books.entry.totals, read=books.entry.totals.read + 1, late=books.entry.totals.late + 1)
    books.rewrite(replace(books.entry, totals=totals))

    assert ("I1", table) in {(one.invariant, one.place) for one in look(walk, settings)}


def test_stopped_app_that_is_behind_cannot_be_replayed(spark: SparkSession, walks: Walks, tmp_path: Path) -> None:
    """A replay takes all of bronze: what a table has not taken yet would be told as a difference."""
    walk = walks["web", "auto"]
    settings = walk.copy("tend")
    books = Intruder(settings, "silver.page_views")
    books.rewrite(replace(books.entry, position=replace(books.entry.position, batches={"bronze.web_events": 1})))

    with Picture(walk.catalog, settings.lake) as picture:
        found = replay(picture, spark, settings.changed(data=tmp_path))

    assert [(one.invariant, one.place) for one in found] == [("I5", "silver.page_views")]


def look(walk: Walk, settings: Settings) -> list[Finding]:
    """What the checker says of a lake at rest."""
    with Picture(walk.catalog, settings.lake) as picture:
        return check(picture, at_rest=True)
