"""Workloads walked in peace: death at the named steps of a micro-batch changes nothing, a replay equals the stream.

The deaths are a sample of what `make proof` walks in full, drawn anew for each commit. One file, because one process
should run all that needs these lakes: they take long to make.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.checker import Finding, Picture, check
from deltaworks.engine.checker.replay import replay
from deltaworks.settings import Settings
from tests.chance import seeded
from tests.intruder import Intruder
from tests.proof.killed import kill
from tests.proof.walk import Death, Walk, Walks
from tests.proof.workloads import WORKLOADS

DEATHS = 3  # of each workload, and one by Spark, where a commit takes a second
ALWAYS = {
    *(f"{act}.{step}" for act in ("create", "fence", "batch") for step in ("before-commit", "after-commit")),
    *(f"checkpoint.{step}" for step in ("before-write", "after-write")),
    "compact.before-commit",
}
"""Points of every table, whatever it is."""
FURTHER = {"compact.after-commit", "settle.before-commit", "batch.before-empty-commit"}
"""Points that depend on the rows: whether there are files to put together, a position alone, a merge of nothing."""
ORDERED = {
    f"{act}.{step}"
    for act in ("replay", "claim", "release", "discard", "late", "vacuum", "publish", "revise")
    for step in ("before-commit", "after-commit")
}
"""Points of tables that somebody orders something about."""
KINDS = {"raw", "append", "latest", "history", "aggregate", "view", "stateful", "quarantine", "deleted", "late", "book"}


@pytest.mark.parametrize("app", [one.app for one in WORKLOADS])
def test_death_at_a_named_step_changes_nothing(walks: Walks, app: str) -> None:
    """Die there, restart, and end with the same rows as in peace; a roll-back of a table beside a table among them."""
    chance, walk = seeded(), walks[app]
    every = list(walk.deaths(chance))
    both = chance.choice([deaths for deaths in every if len(deaths) == 2])

    for deaths in [*chance.sample(every, DEATHS), both]:
        assert not walk.die(deaths), ", then ".join(map(str, deaths))


def test_death_where_spark_commits_changes_nothing(walk_by_spark: Walk) -> None:
    """One death in the walk by Spark; restart, and end with the same rows as in peace."""
    chance = seeded()
    deaths = chance.choice(list(walk_by_spark.deaths(chance)))

    assert not walk_by_spark.die(deaths), f"{walk_by_spark.workload.app}: {', then '.join(map(str, deaths))}"


def test_process_that_is_killed_leaves_a_lake_that_goes_on(walks: Walks) -> None:
    """A real one, by signal 9, at a step of a batch; `make proof` does it for every kind of table on both paths."""
    chance = seeded()
    walk = walks[chance.choice(WORKLOADS).app]
    midst = [deaths[0] for deaths in walk.deaths(chance) if len(deaths) == 1 and ".batch." in deaths[0].point]

    assert not kill(walk, chance.choice(midst))


def test_point_that_is_not_reached_is_told(walks: Walks) -> None:
    """A drill in which nobody died has shown nothing."""
    walk = walks["web"]

    found = walk.die([Death(step="open", point="silver.page_views.batch.after-commit", time=9)])

    assert [one.invariant for one in found] == ["drill"]


def test_every_step_of_every_kind_of_table_is_a_point(walks: Walks) -> None:
    """What the workloads reach is what is known of it: no name is dead, and none is missing."""
    reached: dict[str, set[str]] = defaultdict(set)
    for walk in walks.values():
        for table, points in points_of(walk).items():
            reached[walk.kind(table)] |= points

    assert {kind: points - FURTHER - ORDERED for kind, points in reached.items()} == dict.fromkeys(KINDS, ALWAYS)
    assert set().union(*reached.values()) >= FURTHER | ORDERED


def points_of(walk: Walk) -> dict[str, set[str]]:
    """Acts and steps that each table reached."""
    found: dict[str, set[str]] = defaultdict(set)
    for point in (point for counted in walk.reached.values() for point in counted):
        table, act, step = point.rsplit(".", 2)
        found[table].add(f"{act}.{step}")
    return found


def test_both_paths_reach_the_same_steps_and_leave_the_same_rows(walks: Walks, walk_by_spark: Walk) -> None:
    """One app, drawn anew for each commit, through Arrow and through Spark; the rows after each step."""
    same_app = walks[walk_by_spark.workload.app]
    by_spark, by_arrow = (
        {table: points - FURTHER for table, points in points_of(walk).items()} for walk in (walk_by_spark, same_app)
    )

    assert by_spark
    assert by_spark == by_arrow
    assert any(same_app.after["tend"].values())
    assert walk_by_spark.after == same_app.after


@pytest.mark.parametrize("app", [one.app for one in WORKLOADS])
def test_replay_of_bronze_gives_what_the_stream_left(
    spark: SparkSession, walks: Walks, tmp_path: Path, app: str
) -> None:
    """All of bronze at once, by Arrow, against a lake that was filled batch by batch."""
    walk = walks[app]
    with Picture(walk.catalog, walk.settings.lake) as picture:
        assert not replay(picture, spark, walk.settings.changed(data=tmp_path))


def test_replay_of_bronze_gives_what_spark_left(spark: SparkSession, walk_by_spark: Walk, tmp_path: Path) -> None:
    """The same against a lake that Spark filled."""
    with Picture(walk_by_spark.catalog, walk_by_spark.settings.lake) as picture:
        assert not replay(picture, spark, walk_by_spark.settings.changed(data=tmp_path))


def test_replay_that_gives_other_rows_is_found(spark: SparkSession, walks: Walks, tmp_path: Path) -> None:
    """One number in gold, one reason in quarantine."""
    walk = walks["tiny"]
    settings = walk.copy("tend")
    Intruder(settings, "gold.members_per_city").update("members", "77", "true")
    Intruder(settings, "silver.notes__quarantine").update("reason", "'other'", "topic = 'notes'")

    with Picture(walk.catalog, settings.lake) as picture:
        found = replay(picture, spark, settings.changed(data=tmp_path))

    assert {(one.invariant, one.place) for one in found} == {
        ("I5", "gold.members_per_city"),
        ("I5", "silver.notes__quarantine"),
    }


def test_lost_late_row_and_wrong_count_of_an_aggregate_are_found(walks: Walks) -> None:
    """A row set aside is gone; more rows are said to have been read than the input had."""
    walk, table = walks["tiny"], "gold.notes_per_day"
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
    walk = walks["web"]
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
