"""A computed row that breaks a rule stays and is counted; where the suite says so its table is suspended meanwhile."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.control.unmet import Unmet
from deltaworks.engine.suspended import LAST_SECONDS
from deltaworks.quality.planning import identity
from deltaworks.settings import Settings
from tests.flows import START, Log, Owner
from tests.spark.test_suspended import member, note, take
from tests.tiny_project import Project

DAYS, NOTES = "gold.notes_per_day", "silver.notes"
SUITE = "expectations/gold/notes_per_day.yml"
ENOUGH = """expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: words, min_value: 20}
    severity: SEVERITY
    META
  - type: expect_column_mean_to_be_between
    kwargs: {column: notes, max_value: 1000}
    severity: critical
    meta: {then: suspend}
"""

MEAN = """expectations:
  - type: expect_column_mean_to_be_between
    kwargs: {{column: {column}, max_value: 1000}}
    severity: critical
    meta: {{then: suspend}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project."""
    return Project(tmp_path / "project")


def owner_of(
    spark: SparkSession, project: Project, data: Path, *, severity: str, meta: str = "", path: str = "auto"
) -> Owner:
    """An owner of the tables, whose days are to have some words."""
    project.write(SUITE, ENOUGH.replace("SEVERITY", severity).replace("META", meta))
    settings = Settings.load(project.folder, environment={}, data=data)
    return Owner(spark, settings, "tiny", path=path, suspends=True, only=("silver.notes", DAYS))


def words(owner: Owner) -> list[int]:
    """Of each day, as the table has them."""
    return [day["words"] for day in owner.rows(DAYS)]


def broken(owner: Owner) -> list[tuple[str, int, bool]]:
    """What the heartbeat tells once the flow has settled: a rule's column, how many rows break it, severity."""
    owner.flow.settle()
    found = owner.flow.status.broken.get(DAYS, ())
    return [(one.rule.name.partition("(")[2], one.rows, one.rule.critical) for one in found]


@pytest.mark.parametrize(("severity", "path"), [("warning", "auto"), ("critical", "auto"), ("critical", "spark")])
def test_a_row_that_breaks_a_rule_is_counted_as_long_as_it_does(
    spark: SparkSession, project: Project, tmp_path: Path, severity: str, path: str
) -> None:
    """The table equals its inputs all the same, and a driver that starts again counts the same."""
    owner, log = owner_of(spark, project, tmp_path / "data", severity=severity, path=path), Log()
    take(owner, log, [note(1, words=30)])
    well = broken(owner)
    take(owner, log, [note(-90_000, words=13), note(-180_000, words=1)])
    two_days = broken(owner)
    owner.start()
    again = broken(owner)
    take(owner, log, [note(-90_001, words=13)])
    one_day = broken(owner)
    take(owner, log, [note(-180_001, words=19)])

    assert well == []
    assert two_days == again == [("words)", 2, severity == "critical")]
    assert one_day == [("words)", 1, severity == "critical")]
    assert broken(owner) == []
    assert words(owner) == [20, 26, 30]
    assert not owner.flow.suspended.tables
    assert owner.verdicts() == {"ok"}


def test_a_table_is_suspended_as_long_as_a_row_breaks_what_suspends_it(
    spark: SparkSession, project: Project, tmp_path: Path
) -> None:
    """What was committed stands; at each try it takes what there is, and goes on by itself once no row breaks it."""
    owner, log = owner_of(spark, project, tmp_path / "data", severity="critical", meta="meta: {then: suspend}"), Log()
    take(owner, log, [note(1, words=3)])
    first = owner.flow.suspended.tables[DAYS]
    take(owner, log, [note(2, words=1)])
    meanwhile = words(owner)
    owner.now += LAST_SECONDS
    owner.turn()
    still, tried = owner.flow.suspended.tables[DAYS], words(owner)
    owner.start()
    owner.turn()
    take(owner, log, [note(4, words=0)])  # which makes it due
    again = dict(owner.flow.suspended.tables)
    take(owner, log, [note(3, words=20)])
    owner.now += LAST_SECONDS
    owner.turn()

    assert first.error.startswith("1 row breaks expect_column_values_to_be_between(words). Mend what")
    assert meanwhile == [3]
    assert (still.failures, tried) == (2, [4])
    assert list(again) == [DAYS], "a driver that starts again knows it from the rows"
    assert not owner.flow.suspended.tables
    assert words(owner) == [24]
    assert owner.verdicts() == {"ok"}


def test_what_a_validation_found_suspends_the_table_until_another_finds_it_met(
    spark: SparkSession, project: Project, tmp_path: Path
) -> None:
    """Whatever the owner cannot see itself; an expectation that the suite has no longer suspends nothing."""
    owner, log = owner_of(spark, project, tmp_path / "data", severity="warning"), Log()
    mean = owner.catalog.suite(DAYS).expectations[1]
    unmet = Unmet(table_name=DAYS, expectation=identity(mean), reason="the mean failed", since=START)
    other = Unmet(table_name=DAYS, expectation="one of before", reason="gone", since=START)
    owner.flow.learn_unmet([other])
    take(owner, log, [note(1)])
    of_before = dict(owner.flow.suspended.tables)
    owner.flow.learn_unmet([other, unmet])
    take(owner, log, [note(2)])
    suspended = dict(owner.flow.suspended.tables)
    owner.flow.learn_unmet([other])
    owner.now += LAST_SECONDS
    owner.turn()

    assert of_before == {}
    assert list(suspended) == [DAYS]
    assert suspended[DAYS].error.startswith("the mean failed. Mend it")
    assert not owner.flow.suspended.tables
    assert owner.verdicts() == {"ok"}


def test_a_validation_does_not_hold_up_what_the_stream_has_found_right(
    spark: SparkSession, project: Project, tmp_path: Path
) -> None:
    """Of a rule that the stream judges a verdict of the night says nothing about now."""
    owner, log = owner_of(spark, project, tmp_path / "data", severity="critical", meta="meta: {then: suspend}"), Log()
    rule = owner.catalog.suite(DAYS).expectations[0]
    owner.flow.learn_unmet([Unmet(table_name=DAYS, expectation=identity(rule), reason="it failed", since=START)])

    take(owner, log, [note(1, words=30)])

    assert not owner.flow.suspended.tables
    assert owner.flow.suspending[DAYS] == {identity(owner.catalog.suite(DAYS).expectations[1])}


def test_a_slice_that_brings_nothing_is_passed_though_the_table_is_suspended(
    spark: SparkSession, project: Project, tmp_path: Path
) -> None:
    """Its place is only remembered, and a try begins at what is committed: it would come again at each."""
    project.write("expectations/silver/notes.yml", MEAN.format(column="words"))
    owner, log = owner_of(spark, project, tmp_path / "data", severity="warning"), Log()
    (mean,) = owner.catalog.suite(NOTES).expectations
    take(owner, log, [note(1)])
    owner.flow.learn_unmet([Unmet(table_name=NOTES, expectation=identity(mean), reason="it failed", since=START)])
    take(owner, log, [note(2)])
    take(owner, log, [member(1)])
    owner.now += LAST_SECONDS
    owner.turn()
    table = owner.flow.inputs[NOTES].table
    ((bronze, taken),) = table.entry.position.batches.items()

    assert list(owner.flow.suspended.tables) == [NOTES]
    assert taken == owner.flow.inputs[bronze].table.entry.ingest_seq == 3
    assert owner.verdicts() == {"ok"}
