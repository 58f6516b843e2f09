"""What of the lake is not as the project declares it: told before an app finds it at its start."""

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from deltaworks import catalog
from deltaworks.cli import analyst, in_lake, tables
from deltaworks.engine.as_declared import everything, other_tables, told_undeclared, undeclared_tables
from deltaworks.engine.flow import Flow
from deltaworks.engine.folders import folder_of
from deltaworks.engine.log import newest_version
from deltaworks.engine.turns import Turns
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from tests.arrow_flow import ArrowOwner
from tests.spark.test_suspended import member, note
from tests.tiny_project import Project

NOTES, MEMBERS, DAYS = (f"tables/{name}/table.py" for name in ("silver/notes", "silver/members", "gold/notes_per_day"))

NEWER = json.dumps({"commitInfo": {"userMetadata": json.dumps({"kind": "batch", "epoch": 1, "format": 99})}})
"""A commit as a later version may write it."""
PART = "_part_of_member_id"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project."""
    return Project(tmp_path / "project")


@pytest.fixture
def settings(project: Project, tmp_path: Path) -> Settings:
    """Give its settings, with a lake that has each of its tables."""
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner = ArrowOwner(settings, "tiny")
    owner.log.send([note(1), member(1)])
    owner.bronze()
    owner.silver()
    return settings


def told(settings: Settings) -> list[str]:
    """Place and finding of each of its tables that is otherwise."""
    return [f"{one.place}: {one.finding}" for one in other_tables(catalog.load(settings.project), settings.lake)]


def suspended(settings: Settings) -> set[str]:
    """The tables whose rows the app does not take at its start, or what it does not start for."""
    known = catalog.load(settings.project)
    try:
        opened = Flow(app="tiny", epoch=2, catalog=known, settings=settings, guard=lambda: None)
    except LakeError as error:
        return {error.place}
    return {name for name, source in opened.inputs.items() if source.table.outdated is not None}


@pytest.mark.parametrize(
    ("path", "old", "new", "findings"),
    [
        (NOTES, '"words", "int"', '"words", "bigint"', ["silver.notes.words: declared bigint, the table has int"]),
        (
            MEMBERS, '"decimal(8,2)"', '"decimal(9,2)"',
            ["silver.members.dues: declared decimal(9,2), the table has decimal(8,2)"],
        ),
        (
            MEMBERS, '"dues", "decimal(8,2)"', '"fee", "decimal(8,2)"',
            ["silver.members.fee: declared, but not in the table", "silver.members.dues: in the table, not declared"],
        ),
        (MEMBERS, '"joined", "date"', '"since", "date"', ["silver.members.joined: in the table, not declared"]),
        (
            NOTES, 'Column("words"', 'Column("pages", "int", doc="Its pages."), Column("words"', [],
        ),
        (
            NOTES, 'event_time="written_at"', 'event_time="written_at", partition_by="member_id"',
            [f"silver.notes: declared with partitions by {PART}, the table has none: its app does not start"],
        ),
        (
            MEMBERS, 'latest(keys=("member_id",))', "append()",
            [
                "silver.members._arrived: is not in the table, which was kept in another way",
                "silver.members._late_by: is not in the table, which was kept in another way",
                "silver.members._sent: in the table, not declared",
            ],
        ),
    ],
    ids=["type", "decimal", "renamed", "renamed, may be null", "more", "partition", "kept in another way"],
)  # fmt: skip
def test_what_an_app_finds_at_its_start_is_told_before(
    settings: Settings, project: Project, path: str, old: str, new: str, findings: list[str]
) -> None:
    """Column by column; what the app would add by itself is no finding."""
    before = told(settings)
    project.edit(path, old, new)
    if "append" in new:
        project.edit(path, "import Column, Table, json, latest", "import Column, Table, append, json")

    found = told(settings)

    assert before == []
    assert found == findings
    names = {".".join(one.partition(": ")[0].split(".")[:2]) for one in findings}
    assert suspended(settings) == names


def test_table_that_is_not_declared_any_more_is_told_with_what_lies_beside_it(
    settings: Settings, project: Project
) -> None:
    """Nobody writes it, and nobody deletes it."""
    names = catalog.load(project.folder).tables.keys()
    before = undeclared_tables(names, settings.lake)
    left = names - {"silver.members"}

    found = undeclared_tables(left, settings.lake)

    assert before == {}
    assert found == {"silver.members": ["silver.members", "silver.members__deleted", "silver.members__quarantine"]}
    (one,) = told_undeclared(left, settings.lake)
    assert (one.place, one.finding) == ("silver.members", "lies in the lake, with 2 beside it, and is not declared")


def test_topic_that_is_read_no_more_is_told(settings: Settings, project: Project) -> None:
    """Its rows are in bronze still."""
    for name in ("silver/members", "gold/members_per_city"):
        project.delete(f"tables/{name}")
        project.delete(f"expectations/{name}.yml")
    project.edit("tables/bronze/letters/table.py", 'kafka("notes", "members")', 'kafka("notes")')

    found = everything(catalog.load(project.folder), settings.lake)

    assert "bronze.letters: has rows of topic members, which it does not read any more" in [
        f"{one.place}: {one.finding}" for one in found
    ]


def test_show_tables_leaves_out_what_is_not_declared(
    settings: Settings, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be read by its name all the same; the engine's own tables are declared by nobody."""
    monkeypatch.setattr("deltaworks.cli.analyst.settings", lambda: settings)
    turns = Turns(app="tiny", epoch=1, lake=settings.lake, guard=lambda: None)
    with turns.measure("gold.notes_per_day") as watch:
        watch.rows = 0
    turns.tell()
    main = typer.Typer(pretty_exceptions_enable=False)
    analyst.register(main)

    def sql(query: str) -> list[str]:
        return CliRunner().invoke(main, [query, "--csv"]).stdout.splitlines()[1:]

    before = sql("show tables")
    for name in ("silver/members", "gold/members_per_city"):
        project.delete(f"tables/{name}")
    after = sql("show tables")

    gone = {one for one in before if one.partition("__")[0] in ("silver.members", "gold.members_per_city")}
    assert {"ops.turns", "silver.notes__quarantine", "silver.members__deleted"} <= {*before}
    assert [one for one in before if one not in gone] == after
    assert len(gone) >= 4
    assert sql("select city from silver.members") == ["Bath"]


def test_doctor_names_tables_that_are_otherwise(settings: Settings, project: Project) -> None:
    """A warning each; one row where there is nothing, and none where there is no lake."""
    well = in_lake.look(settings)
    project.edit(NOTES, '"words", "int"', '"words", "bigint"')
    other = in_lake.look(settings)
    shutil.rmtree(settings.lake)

    assert [(row["check"], row["verdict"]) for row in well] == [("lake", "ok")]
    assert [(row["verdict"], row["finding"]) for row in other] == [
        ("warn", "silver.notes.words: declared bigint, the table has int")
    ]
    assert in_lake.look(settings) == []


def test_project_without_a_lake_has_nothing_otherwise(settings: Settings) -> None:
    """It was never started, or its data lie elsewhere."""
    shutil.rmtree(settings.lake)

    assert everything(catalog.load(settings.project), settings.lake) == []


def test_table_whose_log_is_damaged_is_told(settings: Settings) -> None:
    """The others are looked at all the same."""
    folder = settings.lake / "silver/notes"
    whole = newest_version(folder) or 0
    for version in range(whole):
        (folder / f"_delta_log/{version:020d}.json").write_text("{")

    found = told(settings)

    assert len(found) == 1
    assert found[0].startswith("silver.notes: cannot be opened (")


@pytest.mark.parametrize("name", ["bronze.letters", "silver.notes"])
@pytest.mark.parametrize(
    ("text", "finding", "next_step"),
    [
        ("", "its version 1 is not whole, as a power cut leaves it", "Start its app"),
        ('{"commitInfo": {"ti', "its version 1 is not whole, as a power cut leaves it", "Start its app"),
        (NEWER, "was written by a newer Deltaworks", "Run that version again"),
    ],
    ids=["empty", "torn", "newer"],
)
def test_table_whose_last_commit_cannot_be_read_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, text: str, finding: str, next_step: str
) -> None:
    """Who asks what is wrong is answered, once, with what to do; that is no mistake of the project's."""
    folder = folder_of(name, settings.lake)
    version = newest_version(folder)
    assert version == 1
    (folder / f"_delta_log/{version:020d}.json").write_text(text)
    monkeypatch.setattr("deltaworks.cli.tables.settings", lambda: settings)
    main = typer.Typer(pretty_exceptions_enable=False)
    tables.register(main)

    (found,) = everything(catalog.load(settings.project), settings.lake)
    checked = CliRunner().invoke(main, ["table", "check"])
    rows = in_lake.look(settings)

    assert (found.place, found.finding[: len(finding)]) == (name, finding)
    assert found.next_step.startswith(next_step)
    assert f"in the lake: {found}" in checked.stdout
    assert checked.exit_code == 0
    assert [(row["verdict"], row["next step"]) for row in rows] == [("warn", found.next_step)]
