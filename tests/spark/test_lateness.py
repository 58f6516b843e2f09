"""Lateness is decided once, when a row arrives, and each policy acts on what was decided."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.clocks import BY_PRODUCER
from deltaworks.settings import Settings
from tests.flows import START, Crash, Log, Owner, Record
from tests.tiny_project import Project

PATHS = pytest.mark.parametrize("path", ["auto", "spark"])
TABLE = "tables/gold/notes_per_day/table.py"
NOTES = ("silver.notes",)
HOUR = timedelta(hours=1)


def project(folder: Path, late: str = "correct") -> Settings:
    """Give the tiny project with this policy for late notes, and an empty lake."""
    copy = Project(folder / "project")
    copy.edit(TABLE, "late=correct(after=hours(1))", f"late={late}(after=hours(1))")
    copy.edit(TABLE, "aggregate, correct, greatest", f"aggregate, {late}, greatest")
    return Settings.load(copy.folder, environment={}, data=folder / "data")


def note(name: str, at: datetime, *, words: int = 1, arrives: datetime = START) -> Record:
    """Give a note on the wire; all arrive at one time, unless it is said."""
    value = {"note_id": name, "written_at": round(at.timestamp() * 1000), "member_id": 1, "words": words}
    return Record(topic="notes", value=json.dumps(value).encode(), at=arrives)


def take(owner: Owner, log: Log, records: Iterable[Record]) -> None:
    """One ingest batch."""
    log.send(records)
    owner.take(log.batch())


def lateness(owner: Owner) -> dict[str, int]:
    """Give how late each note was, in seconds."""
    notes = owner.flow.inputs["silver.notes"].table
    notes.reopen()
    rows = notes.read(["note_id", "_late_by"]).to_pylist()
    return {row["note_id"]: row["_late_by"] // 10**6 for row in rows}


def days(owner: Owner) -> list[tuple[str, int]]:
    """Give notes per day."""
    return [(str(row["day"]), row["notes"]) for row in owner.rows("gold.notes_per_day")]


@PATHS
def test_a_row_is_late_against_the_batches_before_its_own(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Inside its own batch nothing is late; the mark never falls, not even through a restart; copies do not count."""
    owner, log = Owner(spark, project(tmp_path), "tiny", path=path, only=NOTES), Log()

    take(owner, log, [note("a", START), note("b", START - 5 * HOUR)])
    take(owner, log, [note("c", START - HOUR), note("a", START), note("d", START + HOUR, arrives=START + HOUR)])
    owner.start()
    take(owner, log, [note("e", START), note("f", START + HOUR, arrives=START + HOUR)])

    assert lateness(owner) == {"a": 0, "b": 0, "c": 3600, "d": 0, "e": 3600, "f": 0}
    assert owner.verdicts() == {"ok"}


@PATHS
def test_a_time_that_is_not_believed_is_refused_and_moves_no_mark(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    """A day ahead of the arrival is believed, a millisecond more is not; nobody is late by either."""
    owner, log = Owner(spark, project(tmp_path), "tiny", path=path, only=NOTES), Log()
    day, millisecond = timedelta(days=1), timedelta(milliseconds=1)

    take(owner, log, [note("bound", START + day), note("beyond", START + day + 2 * millisecond)])
    take(owner, log, [note("after", START)])

    assert lateness(owner) == {"bound": 0, "after": 0}
    assert owner.flow.inputs["silver.notes"].table.entry.totals.ahead == 1
    assert [row["reason"] for row in owner.rows("silver.notes__quarantine")] == ["written_at: future"]
    assert owner.verdicts() == {"ok"}


@pytest.mark.parametrize(
    ("policy", "late_day", "late_notes", "missed"),
    [("correct", 2, [], 0), ("drop", 1, [], 1), ("side_output", 1, ["late"], 1)],
)
def test_policies_differ_in_late_rows_alone(
    spark: SparkSession, tmp_path: Path, policy: str, late_day: int, late_notes: list[str], missed: int
) -> None:
    """A row that is late by exactly `after` is used by all three. By Spark: test_late_policies.py."""
    owner, log = Owner(spark, project(tmp_path, policy), "tiny"), Log()
    take(owner, log, [note("new", START)])
    millisecond = timedelta(milliseconds=1)

    take(owner, log, [note("bound", START - HOUR), note("late", START - HOUR - millisecond)])

    assert days(owner) == [("2026-11-20", 1 + late_day)]
    sheet = next(one for one in owner.ledger().sheets() if one.table == "gold.notes_per_day")
    assert (sheet.verdict, sheet.read, sheet.late) == ("ok", 3, missed)
    if policy == "side_output":
        aside = owner.flow.sides["gold.notes_per_day"]["late"].read(["note_id", "_late_by"]).to_pylist()
        assert aside == [{"note_id": "late", "_late_by": 3_600_001_000}]
        assert [row["note_id"] for row in aside] == late_notes


def test_death_between_the_late_rows_and_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """What was set aside too early goes at the restart, and comes again with its batch."""
    owner, log = Owner(spark, project(tmp_path, "side_output"), "tiny"), Log()
    take(owner, log, [note("new", START)])
    log.send([note("late", START - 3 * HOUR), note("newer", START)])
    rows = log.batch()
    owner.crash_at = owner.commits + 3  # bronze, silver, late rows; then the table
    with pytest.raises(Crash):
        owner.take(rows)
    assert owner.flow.sides["gold.notes_per_day"]["late"].rows() == 1

    owner.crash_at = -1
    owner.start()
    assert owner.flow.sides["gold.notes_per_day"]["late"].rows() == 0
    owner.catch_up(log)

    assert owner.flow.sides["gold.notes_per_day"]["late"].rows() == 1
    assert days(owner) == [("2026-11-20", 2)]
    assert owner.verdicts() == {"ok"}


@PATHS
def test_producers_are_believed_up_to_the_time_it_is(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Whose clock is ahead arrives a minute from now, in bronze for good; whose is in 2099 is refused."""
    owner, log = Owner(spark, project(tmp_path), "tiny", path=path, only=NOTES), Log()
    owner.clocks.wall = START.timestamp
    bound, far = START + timedelta(minutes=1, microseconds=1), START.replace(year=2099)

    log.send([note("right", START), note("far", far, arrives=far), note("fast", START + HOUR, arrives=START + HOUR)])
    rows = log.batch()
    owner.take(rows.append_column(BY_PRODUCER, pa.array([True] * rows.num_rows)))
    take(owner, log, [note("next", START)])

    bronze = owner.flow.inputs["bronze.letters"].table
    bronze.reopen()
    kept = bronze.read(["timestamp", "offset"]).sort_by("offset")["timestamp"].to_pylist()
    assert kept[1:3] == [bound, bound]
    assert (bronze.entry.totals.read, bronze.entry.totals.ahead) == (4, 2)
    assert lateness(owner) == {"right": 0, "fast": 0, "next": 60}
    assert [row["reason"] for row in owner.rows("silver.notes__quarantine")] == ["written_at: future"]
    assert owner.verdicts() == {"ok"}
