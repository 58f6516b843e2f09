"""A table's folder is whole: what its columns mean, what good rows are, and cases that show it."""

import ast
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from deltaworks import catalog
from deltaworks.cases import Case, Wire
from deltaworks.catalog import Declared
from deltaworks.words.keeping import Append
from tests.tidy.repository import ROOT, files, parsed

_CATALOG = catalog.load(ROOT)
_DECLARATIONS = files("tables/*/*/table.py")
_FOLDERS = sorted({Path(*path.parts[:3]) for path in files("tables/**") if len(path.parts) > 3})  # tables/layer/table


def _is_raw(declaration: Path) -> bool:
    """Whether the table keeps Kafka's bytes as they came: it has no columns to explain, no row to judge."""
    return any(_called(node) == "raw" for node in ast.walk(parsed(declaration)))


def _called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


_JUDGED = [path for path in _DECLARATIONS if not _is_raw(path)]


def test_every_folder_is_a_table() -> None:
    """A folder below tables/<layer>/ without table.py is a leftover."""
    leftovers = [str(folder) for folder in _FOLDERS if folder / "table.py" not in _DECLARATIONS]

    assert _FOLDERS
    assert _JUDGED, "only raw tables found"
    assert not leftovers


@pytest.mark.parametrize("declaration", _DECLARATIONS, ids=str)
def test_table_says_what_it_is(declaration: Path) -> None:
    """The docstring of table.py is the table's description for analysts."""
    assert ast.get_docstring(parsed(declaration))


@pytest.mark.parametrize("declaration", _JUDGED, ids=str)
def test_every_column_is_documented(declaration: Path) -> None:
    """Each Column has a doc that is a sentence: it ends with a full stop."""
    columns = [
        node for node in ast.walk(parsed(declaration)) if isinstance(node, ast.Call) and _called(node) == "Column"
    ]

    docs = {
        ast.unparse(column.args[0] if column.args else column): next(
            (ast.literal_eval(given.value) for given in column.keywords if given.arg == "doc"), ""
        )
        for column in columns
    }

    assert docs
    assert not [name for name, doc in docs.items() if not doc.endswith(".")]


@pytest.mark.parametrize("declaration", _JUDGED, ids=str)
def test_table_has_a_suite_of_expectations(declaration: Path) -> None:
    """expectations/<layer>/<table>.yml names at least one expectation."""
    layer, table = declaration.parts[1:3]
    suite = ROOT / "expectations" / layer / f"{table}.yml"

    assert suite.is_file(), f"{suite.relative_to(ROOT)} is missing"
    assert "type:" in suite.read_text()


@pytest.mark.parametrize("declaration", _JUDGED, ids=str)
def test_table_has_cases(declaration: Path) -> None:
    """cases/ shows at least once which rows come out of which rows."""
    cases = [path for path in files("tables/**") if path.parent == declaration.parent / "cases"]

    assert [case for case in cases if case.suffix in {".yml", ".yaml"}]


def _streams(name: str) -> list[tuple[str, Declared]]:
    """Streams of events that a table takes, each with the input whose rows a case gives: a table parses its own."""
    own = _CATALOG[name]
    if isinstance(own.table.kept_as, Append):
        return [(own.inputs[0], own)]
    return [(one, _CATALOG[one]) for one in own.inputs if isinstance(_CATALOG[one].table.kept_as, Append)]


_OVER_EVENTS = [name for name in _CATALOG.tables if _streams(name)]


def test_there_are_tables_over_events() -> None:
    """Else the next test is about nothing."""
    assert len(_OVER_EVENTS) > 20


@pytest.mark.parametrize("name", _OVER_EVENTS)
def test_cases_tell_of_restarts_copies_and_late_events(name: str) -> None:
    """Of a table over events they show what a restart, an event given again and one behind a younger one mean."""
    cases, streams = _CATALOG.cases(name), _streams(name)

    batches = [(stream, list(_batches(case, given))) for case in cases for given, stream in streams]

    assert [case for case in cases if "restart" in case.steps]
    assert [given for stream, given in batches if _is_given_again(stream, given)]
    assert [given for stream, given in batches if _is_late(stream, given)]


def _batches(case: Case, given: str) -> Iterator[list[Mapping[str, Any]]]:
    """What a case gives of an input, batch by batch; of records those that are JSON objects."""
    for step in case.steps:
        if step != "restart":
            rows = [_read(row) if isinstance(row, Wire) else row for row in step.rows[given]]
            yield [row for row in rows if isinstance(row, Mapping)]


def _read(record: Wire) -> object:
    try:
        return json.loads(record.value or b"")
    except ValueError:
        return None


def _is_given_again(stream: Declared, batches: list[list[Mapping[str, Any]]]) -> bool:
    """Is there an event twice, by what silver tells copies by?"""
    kept = stream.table.kept_as
    assert isinstance(kept, Append)
    assert kept.dedupe_by, stream.name
    ids = [tuple(row.get(name) for name in kept.dedupe_by) for rows in batches for row in rows]
    named = [one for one in ids if None not in one]
    return len(set(named)) < len(named)


def _is_late(stream: Declared, batches: list[list[Mapping[str, Any]]]) -> bool:
    """Is there an event that happened before one of an earlier batch?"""
    before: list[datetime] = []
    for rows in batches:
        times = [at for row in rows if (at := _moment(row.get(str(stream.table.event_time)))) is not None]
        if before and any(at < max(before) for at in times):
            return True
        before += times
    return False


def _moment(value: object) -> datetime | None:
    """A time with its zone; None where a case gives something else, which is refused."""
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return at if at.tzinfo else None


def test_every_suite_belongs_to_a_table() -> None:
    """A suite whose table is gone is a leftover."""
    suites = files("expectations/*/*.yml")

    orphans = [
        str(suite) for suite in suites if Path("tables", suite.parent.name, suite.stem, "table.py") not in _DECLARATIONS
    ]

    assert suites
    assert not orphans
