"""Loading a project's tables by path."""

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from deltaworks.cases import Batch, Delete, Refused, Wire
from deltaworks.catalog import BRONZE_COLUMNS, check, import_file, load
from deltaworks.errors import DeclarationError
from deltaworks.settings import ROOT
from tests.tiny_project import TINY, Project

PROJECTS = [ROOT, TINY]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project."""
    return Project(tmp_path / "project")


@pytest.mark.parametrize("folder", PROJECTS, ids=["shop", "tiny"])
def test_our_projects_have_no_findings(folder: Path) -> None:
    """What we hand out is right, cases included."""
    assert check(folder) == []
    assert load(folder).tables


@pytest.mark.parametrize("folder", PROJECTS, ids=["shop", "tiny"])
def test_inputs_come_before_their_readers(folder: Path) -> None:
    """Whoever goes through the tables in order has seen the inputs of each."""
    catalog = load(folder)
    seen: set[str] = set()

    for name, declared in catalog.tables.items():
        assert seen.issuperset(declared.inputs)
        seen.add(name)

    assert len(seen) == len(catalog.tables)


def test_loaded_twice_is_equal(project: Project) -> None:
    """Declarations are values: the same files give equal catalogs."""
    assert load(project.folder) == load(project.folder)


def test_edit_of_equal_length_is_seen_at_once(project: Project) -> None:
    """No bytecode is kept that an edit within a second would not change."""
    before = load(project.folder)

    project.edit("tables/silver/notes/table.py", 'owner="tests"', 'owner="stets"')

    assert before["silver.notes"].table.owner == "tests"
    assert load(project.folder)["silver.notes"].table.owner == "stets"
    assert not list(project.folder.rglob("__pycache__"))


def test_loading_leaves_no_module_behind(project: Project) -> None:
    """Tables are known by their path only, so that two projects in one process never mix."""
    modules, path = set(sys.modules), list(sys.path)

    load(project.folder)
    import_file(project.folder / "tables/silver/notes/table.py")

    assert not [name for name in set(sys.modules) - modules if "table" in name]
    assert sys.path == path


def test_declared_table_has_what_stands_beside_it(project: Project) -> None:
    """A table knows its folder's files, its inputs and its keys."""
    catalog = load(project.folder)

    days, letters = catalog["gold.notes_per_day"], catalog["bronze.letters"]

    assert (days.layer, days.inputs, days.topics, days.keys) == ("gold", ("silver.notes",), (), ("day",))
    assert days.doc == "Notes per day. Late notes correct their day."
    assert days.transform == days.folder / "transform.py"
    assert days.suite == project.folder / "expectations/gold/notes_per_day.yml"
    assert [path.name for path in days.cases] == ["days_add_up.yml"]
    assert (letters.inputs, letters.topics, letters.transform) == ((), ("notes", "members"), None)
    assert letters.columns == BRONZE_COLUMNS


def test_catalog_knows_apps_and_readers(project: Project) -> None:
    """An app's tables and a table's readers come in dependency order."""
    catalog = load(project.folder)

    assert catalog.apps == ("tiny",)
    assert [declared.name for declared in catalog.app("tiny")] == list(catalog.tables)
    assert [declared.name for declared in catalog.readers("bronze.letters")] == ["silver.members", "silver.notes"]
    assert catalog.readers("gold.notes_per_day") == ()


def test_unknown_names_get_the_nearest_one(project: Project) -> None:
    """A misspelt table or app is answered with the right one."""
    catalog = load(project.folder)

    with pytest.raises(DeclarationError, match=r"silver.note: there is no such table. The nearest is silver.notes."):
        _ = catalog["silver.note"]
    with pytest.raises(DeclarationError, match=r"app tinny: no table has this app. The nearest is tiny."):
        catalog.app("tinny")


def test_load_raises_the_first_finding(project: Project) -> None:
    """What `check` finds first is what a program that needs the tables is told."""
    project.edit("tables/silver/notes/table.py", 'topic="notes"', 'topic="note"')

    with pytest.raises(DeclarationError) as caught:
        load(project.folder)

    assert str(caught.value) == str(check(project.folder)[0])


def test_wrong_case_stops_no_table(project: Project) -> None:
    """Cases are tests: a table runs without them, and `check` says what is wrong."""
    project.write("tables/gold/notes_per_day/cases/days_add_up.yml", "hello")
    project.delete("tables/silver/notes/cases")

    assert load(project.folder).tables
    assert len(check(project.folder)) == 2


def test_every_mistake_is_told_at_once(project: Project) -> None:
    """A check does not end at its first finding."""
    project.edit("tables/silver/notes/table.py", 'topic="notes"', 'topic="note"')
    project.edit("tables/silver/members/table.py", "TABLE = Table(", "TABLE = Tabel(")
    project.delete("expectations/gold/notes_per_day.yml")

    places = [finding.place for finding in check(project.folder)]

    assert places == [
        "tables/silver/members/table.py:5",
        "tables/silver/notes/table.py:7",
        "expectations/gold/notes_per_day.yml",
    ]


def test_leftover_folders_are_no_tables(project: Project) -> None:
    """Git and Python leave empty folders behind when a table is deleted."""
    (project.folder / "tables/silver/gone/cases").mkdir(parents=True)
    project.write("tables/silver/old/__pycache__/table.cpython-311.pyc", "")

    assert check(project.folder) == []


def test_table_that_ends_the_program_is_a_finding(project: Project) -> None:
    """Not even sys.exit in a table.py ends the check."""
    project.edit("tables/bronze/letters/table.py", "TABLE = ", "raise SystemExit(0)\nTABLE = ")

    (finding,) = [one for one in check(project.folder) if "letters" in one.place]

    assert finding.place == "tables/bronze/letters/table.py:5"


def test_case_is_read_into_typed_values(project: Project) -> None:
    """Values have their column's type, what may be null may be left out, a restart stands between batches."""
    catalog = load(project.folder)

    (days,) = catalog.cases("gold.notes_per_day")
    first, restart, second = days.steps

    assert isinstance(first, Batch)
    assert first.rows["silver.notes"][1] == {
        "note_id": "b",
        "written_at": datetime(2025, 11, 22, tzinfo=UTC),
        "member_id": None,
        "words": 3,
    }
    assert restart == "restart"
    assert isinstance(second, Batch)
    assert days.rows[0]["day"] == date(2025, 11, 21)
    assert (days.name, days.table) == ("days_add_up", "gold.notes_per_day")


def test_case_over_bronze_holds_what_kafka_carries(project: Project) -> None:
    """Documents become the bytes of a record; `bytes:` stands for what is no document, null for a tombstone."""
    project.write(
        "tables/silver/notes/cases/odd.yml",
        'given:\n  bronze.letters: [[{a: 1.50, b: é}, {bytes: "\\xff{"}, null, {key: {id: 7}, value: null}]]\n'
        'then:\n  rows: []\n  refused: [[{bytes: "\\xff{"}, not UTF-8]]\n',
    )

    _, odd = load(project.folder).cases("silver.notes")

    assert odd.steps == (
        Batch(
            rows={
                "bronze.letters": (
                    Wire(key=None, value='{"a":1.5,"b":"é"}'.encode()),
                    Wire(key=None, value=b"\xff{"),
                    Wire(key=None, value=None),
                    Wire(key=b'{"id":7}', value=None),
                )
            }
        ),
    )
    assert odd.refused == (Refused(row=Wire(key=None, value=b"\xff{"), reason="not UTF-8"),)


def test_case_can_delete_rows_of_a_keyed_table(project: Project) -> None:
    """A delete names the keys; decimals keep their scale."""
    (moves,) = load(project.folder).cases("gold.members_per_city")

    last = moves.steps[-1]

    assert isinstance(last, Batch)
    assert last.rows["silver.members"] == (Delete(keys={"member_id": 3}),)
    assert str(moves.rows[0]["dues"]) == "22.50"
    assert moves.rows[0]["dues"] == Decimal("22.5")


def test_suite_is_read(project: Project) -> None:
    """A suite's expectations keep their order, and a waived one its reason."""
    catalog = load(project.folder)

    suite = catalog.suite("silver.notes")

    assert [(one.severity, one.kwargs["column"]) for one in suite.expectations] == [
        ("critical", "words"),
        ("warning", "member_id"),
    ]
    assert catalog.suite("bronze.letters").waived == "raw copy; checked in silver"
