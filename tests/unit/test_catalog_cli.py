"""`deltaworks table`: findings, listings and new tables on the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from deltaworks.cli import context, show, tables
from deltaworks.errors import DeclarationError
from deltaworks.settings import Settings
from tests.arrow_flow import ArrowOwner
from tests.tiny_project import Project

Table = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project."""
    return Project(tmp_path / "project")


@pytest.fixture
def table(project: Project, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Give a function that runs `deltaworks table` and returns what it wrote; expected errors are raised."""
    monkeypatch.setattr(show, "out", Console(width=200))
    context.remember(project.folder)
    main = typer.Typer(pretty_exceptions_enable=False)
    tables.register(main)

    def run(*arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(main, ["table", *arguments])
        if isinstance(result.exception, DeclarationError):
            raise result.exception
        assert result.exit_code == exit_code, result.output
        return result.stdout

    return run


def test_right_project_has_no_findings(table: Table) -> None:
    """The line says how many tables were looked at."""
    assert table("check") == "5 tables, no findings\n"


def test_a_schedule_for_what_cannot_be_replayed_is_a_finding(table: Table, project: Project) -> None:
    """Airflow would have no DAG for any replay until it is mended."""
    file = project.folder / "deltaworks.toml"
    file.write_text(f'{file.read_text()}\n[replays]\n"silver.note" = "0 3 * * *"\n"silver.members" = "0 3 * * *"\n')

    printed = table("check", exit_code=1)

    name, no_range, count = printed.splitlines()
    assert name == "deltaworks.toml [replays]: silver.note: there is no such table. The nearest is silver.notes."
    assert no_range.startswith("deltaworks.toml [replays]: silver.members has no range of event time")
    assert count == "2 findings"


@pytest.mark.parametrize("cron", ["61 3 * * *", "0 3 31 2 *", "0 3 * * x"])
def test_a_schedule_that_never_comes_is_a_finding(table: Table, project: Project, cron: str) -> None:
    """A minute, a day and a word that there are none of."""
    file = project.folder / "deltaworks.toml"
    file.write_text(f'{file.read_text()}\n[replays]\n"silver.notes" = "{cron}"\n')

    finding, _ = table("check", exit_code=1).splitlines()

    assert finding.startswith(f"deltaworks.toml [replays]: silver.notes: '{cron}' never comes. Give minute, hour")


def test_findings_are_printed_and_exit_1(table: Table, project: Project) -> None:
    """Each finding is one line, however long, and the exit code is that of a finding."""
    project.edit("tables/silver/notes/table.py", 'topic="notes"', 'topic="note"')
    project.delete("expectations/gold/notes_per_day.yml")

    printed = table("check", exit_code=1)

    assert printed.splitlines() == [
        "tables/silver/notes/table.py:7: bronze.letters does not read topic note. The nearest is notes.",
        "expectations/gold/notes_per_day.yml: the suite is missing. Write expectations: [...].",
        "2 findings",
    ]


def test_lake_that_is_otherwise_is_told_and_no_mistake(table: Table, project: Project) -> None:
    """The exit code is that of a right project: the table is rebuilt once its app was started."""
    settings = Settings.load(project.folder, environment={})
    ArrowOwner(settings, "tiny")
    before = table("check")
    project.edit("tables/silver/notes/table.py", '"words", "int"', '"words", "bigint"')

    printed, rows = table("check"), json.loads(table("check", "--json"))

    step = 'Declare it as it was, or run "deltaworks rebuild silver.notes" once its app was started'
    assert before == "5 tables, no findings\n"
    assert printed.splitlines() == [
        "5 tables, no findings",
        f"in the lake: silver.notes.words: declared bigint, the table has int. {step}.",
    ]
    assert rows == [
        {
            "place": "silver.notes.words", "finding": "declared bigint, the table has int", "next_step": step,
            "of": "lake",
        }
    ]  # fmt: skip


def test_findings_as_json_have_their_parts(table: Table, project: Project) -> None:
    """A program gets place, finding and next step apart."""
    project.edit("tables/silver/notes/table.py", 'topic="notes"', 'topic="note"')

    printed = table("check", "--json", exit_code=1)

    assert json.loads(printed) == [
        {
            "place": "tables/silver/notes/table.py:7",
            "finding": "bronze.letters does not read topic note",
            "next_step": "The nearest is notes",
            "of": "project",
        }
    ]


def test_tables_are_listed(table: Table) -> None:
    """A line per table, inputs first."""
    rows = json.loads(table("list", "--json"))

    assert rows[0]["table"] == "bronze.letters"
    assert rows[2] == {
        "table": "silver.notes",
        "app": "tiny",
        "reads": "json notes from bronze.letters",
        "kept_as": "append",
        "columns": 4,
        "owner": "tests",
    }
    assert "silver.notes" in table("list")


def test_table_is_shown_with_its_columns(table: Table) -> None:
    """Everything that the folder declares, in words."""
    facts = json.loads(table("show", "gold.notes_per_day", "--json"))

    assert facts["kept_as"] == "aggregate by day: add notes, add words, least shortest, greatest last"
    assert facts["late"] == "corrects, after 1 hour"
    assert facts["columns"][0] == {
        "column": "day",
        "type": "date",
        "null": False,
        "pii": False,
        "wire": None,
        "doc": "Day the notes were written, UTC.",
    }


@pytest.mark.parametrize(
    "name", ["bronze.letters", "silver.notes", "silver.members", "gold.notes_per_day", "gold.members_per_city"]
)
def test_every_kind_of_table_is_shown(table: Table, name: str) -> None:
    """People read the same facts, with the docs of the columns."""
    facts = json.loads(table("show", name, "--json"))

    printed = table("show", name)

    assert facts["doc"] in printed
    assert facts["columns"]
    assert all(column["doc"] in printed for column in facts["columns"])


def test_unknown_table_is_not_shown(table: Table) -> None:
    """The error names the nearest one."""
    with pytest.raises(DeclarationError, match=r"silver.note: there is no such table. The nearest is silver.notes."):
        table("show", "silver.note")


def test_new_table_is_written_and_right(table: Table, project: Project) -> None:
    """The files are told; the check passes."""
    printed = table("new", "gold.counted", "--reads", "silver.notes", "--columns", "day date, notes bigint")

    assert printed.splitlines() == [
        "tables/gold/counted/table.py",
        "tables/gold/counted/transform.py",
        "tables/gold/counted/cases/one_row.yml",
        "expectations/gold/counted.yml",
        'Edit these, then run "deltaworks table check --deep"',
    ]
    assert table("check") == "6 tables, no findings\n"
    assert (project.folder / "tables/gold/counted/transform.py").is_file()
