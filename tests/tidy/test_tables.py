"""A table's folder is whole: what its columns mean, what good rows are, and cases that show it."""

import ast
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, files, parsed

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


def test_every_suite_belongs_to_a_table() -> None:
    """A suite whose table is gone is a leftover."""
    suites = files("expectations/*/*.yml")

    orphans = [
        str(suite) for suite in suites if Path("tables", suite.parent.name, suite.stem, "table.py") not in _DECLARATIONS
    ]

    assert suites
    assert not orphans
