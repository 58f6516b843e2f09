"""What a declaration can get wrong about a source that changes its schema."""

from pathlib import Path

import pytest

from deltaworks.catalog import check, load
from tests.mistakes import CITIES, MEMBERS, Edit
from tests.tiny_project import Project

NAME = 'Column("name", "string", pii=True'
READS = 'json("bronze.letters", topic="members")'
KEEP = Edit(MEMBERS, READS, 'json("bronze.letters", topic="members", unknown_fields=keep("_rest"))')
WORD = Edit(MEMBERS, "import Column, Table, json, latest", "import Column, Table, json, keep, latest")
REST = 'Column("_rest", "string", doc="What comes beyond."),\n        '


@pytest.mark.parametrize(
    ("edits", "finding"),
    [
        ([KEEP, WORD], "undeclared fields are kept in _rest, which is not declared"),
        (
            [KEEP, WORD, Edit(MEMBERS, NAME, REST.replace('"string"', '"bigint"') + NAME)],
            "column _rest: takes undeclared fields as JSON text",
        ),
        ([Edit(MEMBERS, NAME, REST + NAME)], "column _rest: names that start with _ are the engine's"),
        (
            [Edit(MEMBERS, NAME, 'Column("name", "string", previously="city", pii=True')],
            "column name: previously 'city' is another column's name too",
        ),
        (
            [Edit(CITIES, 'Column("city", "string"', 'Column("city", "string", previously="town"')],
            "column city: previously means nothing in a table that does not parse",
        ),
    ],
)
def test_mistake_is_found(tmp_path: Path, edits: list[Edit], finding: str) -> None:
    """Each by itself, before anything runs."""
    project = Project(tmp_path / "project")
    for edit in edits:
        edit.apply(project)

    assert [one.finding for one in check(project.folder)] == [finding]


def test_a_column_for_undeclared_fields_may_be_hidden(tmp_path: Path) -> None:
    """Its name may start with an underscore: then views over the table do not see it."""
    project = Project(tmp_path / "project")
    for edit in (KEEP, WORD, Edit(MEMBERS, NAME, REST + NAME)):
        edit.apply(project)

    assert check(project.folder) == []
    assert "_rest" in [column.name for column in load(project.folder)["silver.members"].columns]
