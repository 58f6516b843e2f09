"""A table that fails is suspended and catches up once it is mended; one with a backlog holds up nobody."""

import json
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.parsing.bronze import Chunk
from deltaworks.engine.parsing.json import JsonParser
from deltaworks.engine.suspended import LAST_SECONDS
from deltaworks.errors import CommitLostError
from deltaworks.settings import Settings
from tests.flows import START, Log, Owner, Record
from tests.tiny_project import Project

NOTES_PER_DAY = "tables/gold/notes_per_day/transform.py"
MENDED = 'F.sum("words").alias("words")'
FAILS = 'F.sum(F.when(F.col("words") > 0, F.raise_error("too many words")).otherwise(F.col("words"))).alias("words")'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project."""
    return Project(tmp_path / "project")


@pytest.fixture
def settings(project: Project, tmp_path: Path) -> Settings:
    """Give its settings, with an empty lake."""
    return Settings.load(project.folder, environment={}, data=tmp_path / "data")


def note(number: int, *, words: int = 5) -> Record:
    """A note, well-formed."""
    at = START + timedelta(seconds=number)
    value = {"note_id": f"n{number}", "written_at": int(at.timestamp() * 1000), "member_id": 1, "words": words}
    return Record(topic="notes", value=json.dumps(value).encode(), partition=number % 2)


def member(number: int, *, city: str = "Bath") -> Record:
    """A member's report, well-formed."""
    value = {"member_id": number, "name": "Ada", "city": city, "dues": "1.00", "joined": None}
    return Record(topic="members", value=json.dumps(value).encode())


def take(owner: Owner, log: Log, records: Sequence[Record]) -> None:
    """One micro-batch of these records."""
    log.send(records)
    owner.take(log.batch())


def taken(owner: Owner) -> dict[str, int]:
    """Rows per table."""
    return {name: len(owner.rows(name)) for name in owner.catalog.tables}


def test_failing_transform_sets_its_table_aside_until_it_is_mended(
    spark: SparkSession, settings: Settings, project: Project
) -> None:
    """The others go on; after the mend the table catches up by itself, and every note is counted once."""
    project.edit(NOTES_PER_DAY, MENDED, FAILS)
    owner, log = Owner(spark, settings, "tiny", suspends=True), Log()
    take(owner, log, [note(1), member(1)])
    take(owner, log, [note(2, words=13), member(2)])
    take(owner, log, [note(3), member(3)])
    aside = dict(owner.flow.suspended.tables)
    meanwhile = taken(owner)
    owner.now += LAST_SECONDS
    owner.turn()
    still = owner.flow.suspended.tables["gold.notes_per_day"]

    project.edit(NOTES_PER_DAY, FAILS, MENDED)
    owner.now += LAST_SECONDS
    owner.turn()

    assert list(aside) == ["gold.notes_per_day"]
    told = aside["gold.notes_per_day"].error  # its text may quote values
    assert told.endswith(" of silver.notes: USER_RAISED_EXCEPTION. Mend it; it is tried again.")
    assert still.failures == 2
    assert meanwhile["silver.notes"] == 3
    assert meanwhile["silver.members"] == 3
    assert not owner.flow.suspended.tables
    assert [(day["notes"], day["words"]) for day in owner.rows("gold.notes_per_day")] == [(3, 23)]
    assert owner.verdicts() == {"ok"}


def test_parser_that_crashes_for_all_sets_its_table_aside(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the path without Spark too: the other table over the same bronze goes on."""
    sound = JsonParser.batch

    def batch(self: JsonParser, chunk: Chunk) -> pa.RecordBatch:
        if self.reads.topic == "notes":
            raise ZeroDivisionError
        return sound(self, chunk)

    monkeypatch.setattr(JsonParser, "batch", batch)
    owner, log = Owner(spark, settings, "tiny", suspends=True), Log()
    take(owner, log, [*(note(number) for number in range(40)), member(1)])
    aside, meanwhile = dict(owner.flow.suspended.tables), taken(owner)
    monkeypatch.undo()
    owner.now += LAST_SECONDS
    owner.turn()

    assert list(aside) == ["silver.notes"]
    assert "crashes the parser: ZeroDivisionError" in aside["silver.notes"].error
    assert (meanwhile["silver.notes"], meanwhile["silver.members"]) == (0, 1)
    assert not owner.flow.suspended.tables
    assert taken(owner)["silver.notes"] == 40
    assert owner.verdicts() == {"ok"}


def test_table_whose_group_was_half_committed_catches_up_without_doubles(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Its quarantine was committed, its merge failed for a file that was away: once that is back all is there once."""
    owner, log = Owner(spark, settings, "tiny", suspends=True), Log()
    take(owner, log, [member(1), note(1)])
    (lost,) = (settings.lake / "silver" / "members").glob("*.parquet")
    shutil.move(lost, tmp_path / "away")
    take(owner, log, [member(1, city="Cork"), Record(topic="members", value=b"{"), note(2)])
    aside = set(owner.flow.suspended.tables)
    shutil.move(tmp_path / "away", lost)

    owner.now += LAST_SECONDS
    owner.turn()

    assert "silver.members" in aside
    assert not owner.flow.suspended.tables
    assert [(row["member_id"], row["city"]) for row in owner.rows("silver.members")] == [(1, "Cork")]
    assert len(owner.rows("silver.members__quarantine")) == 1
    assert [row["city"] for row in owner.rows("gold.members_per_city")] == ["Cork"]
    assert len(owner.rows("silver.notes")) == 2
    assert owner.verdicts() == {"ok"}


def test_foreign_commit_is_no_fault_of_the_table(spark: SparkSession, settings: Settings) -> None:
    """Somebody else writes: the whole app stops, as a second owner would go on to write."""
    owner, log = Owner(spark, settings, "tiny", suspends=True), Log()
    take(owner, log, [member(1)])
    path = str(settings.lake / "silver" / "members")
    spark.sql(f"delete from delta.`{path}`")

    with pytest.raises(CommitLostError, match=r"silver\.members: version \d+ was taken"):
        take(owner, log, [member(2)])


def test_new_table_over_old_bronze_takes_slices_after_those_that_are_current(
    spark: SparkSession, settings: Settings, project: Project
) -> None:
    """After a micro-batch the current tables are current and the new one some slices further; in the end it has all."""
    small = settings.changed(arrow_bytes_max=60_000)  # a slice is an eighth of it in files: one ingest batch
    owner, log = Owner(spark, small, "tiny", suspends=True), Log()
    for number in range(4):
        take(owner, log, [note(number), member(number)])
    source = (project.folder / "tables/silver/members/table.py").read_text()
    project.write("tables/silver/members_again/table.py", source)
    shutil.copy(project.folder / "expectations/silver/members.yml", project.folder / "expectations/silver/again.yml")
    (project.folder / "expectations/silver/again.yml").rename(project.folder / "expectations/silver/members_again.yml")
    shutil.copytree(
        project.folder / "tables/silver/members/cases", project.folder / "tables/silver/members_again/cases"
    )
    owner = Owner(spark, small, "tiny", epoch=1, suspends=True)
    order: list[str] = []
    owner.flow.on_commit = lambda writer: order.append(writer.declared.name)
    log.send([note(9), member(9)])
    owner.flow.micro_batch(spark.createDataFrame(log.batch()))
    new = next(one for one in owner.flow.writers if one.declared.name == "silver.members_again")
    halfway = new.behind()
    owner.turn()

    assert order[-1] == "silver.members_again"
    assert halfway
    assert len(owner.rows("silver.members")) == 5
    assert owner.rows("silver.members_again") == owner.rows("silver.members")
    assert owner.verdicts() == {"ok"}
