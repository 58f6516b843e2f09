"""What a stateful table can get wrong: each mistake gives its finding."""

from pathlib import Path

import pytest

from deltaworks import catalog
from deltaworks.catalog import Finding, check
from deltaworks.catalog.describing import described
from tests.mistakes import NOTES, Delete, Edit, Mistake, Write
from tests.tiny_project import Project

SPELLS = "tables/gold/spells/table.py"
DECLARED = '''\
"""Spells of writing: notes of a member, no more than ten minutes from each to the next."""

from deltaworks.words import Column, Table, correct, minutes, side_output, stateful

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=stateful(keys=("member_id", "begun"), part=("member_id",), gap=minutes(10), closes="over"),
    late=correct(after=minutes(5)),
    columns=(
        Column("member_id", "bigint", doc="Who wrote."),
        Column("begun", "timestamp", null=False, doc="Time of the first note, UTC."),
        Column("over", "timestamp", null=False, doc="Ten minutes after the last one, UTC."),
        Column("complete", "boolean", null=False, doc="Whether all notes in time are counted."),
    ),
    event_time="begun",
    owner="tests",
)
'''
TRANSFORM = '''\
"""T."""


def transform(notes):
    """T."""
    return notes
'''
CASE = """\
doc: A note alone.
given:
  silver.notes:
    - - {note_id: a, written_at: "2026-11-21T10:00:00Z", words: 1}
then:
  rows:
    - {begun: "2026-11-21T10:00:00Z", over: "2026-11-21T10:10:00Z", complete: false}
"""
SUITE = """\
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: begun}
    severity: critical
"""
ADDED = (
    Write(SPELLS, DECLARED),
    Write("tables/gold/spells/transform.py", TRANSFORM),
    Write("tables/gold/spells/cases/a_note.yml", CASE),
    Write("expectations/gold/spells.yml", SUITE),
)


def wrong(name: str, old: str, new: str, line: int, finding: str, next_step: str) -> Mistake:
    """Give one mistake in the declaration."""
    return Mistake(
        name,
        [*ADDED, Edit(SPELLS, old, new)],
        [Finding(place=f"{SPELLS}:{line}", finding=finding, next_step=next_step)],
    )


MISTAKES = [
    wrong(
        "no length",
        ", gap=minutes(10)",
        "",
        8,
        "neither gap nor reach",
        "Write gap=minutes(...) for sessions, else reach=minutes(...)",
    ),
    wrong(
        "two lengths",
        "gap=minutes(10)",
        "gap=minutes(10), reach=minutes(1)",
        8,
        "both gap and reach",
        "Write gap=minutes(...) for sessions, else reach=minutes(...)",
    ),
    wrong(
        "no gap at all",
        "gap=minutes(10)",
        "gap=minutes(0)",
        8,
        "gap is not above zero",
        "Say how far apart, as in minutes(10)",
    ),
    wrong(
        "no part",
        'part=("member_id",)',
        "part=()",
        8,
        "there is no part",
        'Name the columns of rows that belong together, as in part=("user_id",)',
    ),
    wrong(
        "part that no input has",
        'part=("member_id",)',
        'part=("member_id", "begun")',
        8,
        "silver.notes has no part column begun",
        "Known columns are member_id, note_id, words, written_at",
    ),
    wrong(
        "part of another type",
        'Column("member_id", "bigint"',
        'Column("member_id", "string"',
        11,
        "column member_id: is string here, bigint in silver.notes",
        "Declare it as bigint: it tells parts apart in both",
    ),
    wrong(
        "part that is no key",
        'keys=("member_id", "begun")',
        'keys=("begun",)',
        8,
        "the keys do not have the part column member_id",
        "Add it: rows of different parts and times are different rows",
    ),
    wrong(
        "time that is no key",
        'keys=("member_id", "begun")',
        'keys=("member_id",)',
        8,
        "the keys do not have the event_time begun",
        "Add it: rows of different parts and times are different rows",
    ),
    wrong(
        "no event time",
        '    event_time="begun",\n',
        "",
        5,
        "a stateful table without event_time",
        'Name the column that places a row in time, as in event_time="session_start"',
    ),
    wrong(
        "closes names no column",
        'closes="over"',
        'closes="ovr"',
        8,
        "closes ovr is not declared",
        "The nearest is over",
    ),
    wrong(
        "nothing is kept of what closes",
        '        Column("complete", "boolean", null=False, doc="Whether all notes in time are counted."),\n',
        "",
        8,
        "closes without the column complete",
        'Declare Column("complete", "boolean", null=False, ...): the engine keeps it',
    ),
    wrong(
        "closes may be null",
        'Column("over", "timestamp", null=False',
        'Column("over", "timestamp"',
        8,
        "closes names over, a timestamp that may be null",
        "Name a timestamp column with null=False: from then on nothing in time changes the row",
    ),
    Mistake(
        "input without a time",
        [*ADDED, Edit(NOTES, '    event_time="written_at",\n', ""), Delete("tables/gold/notes_per_day"),
         Delete("expectations/gold/notes_per_day.yml")],
        [
            Finding(
                place=f"{SPELLS}:7",
                finding="silver.notes has no timestamp as event_time",
                next_step="Name one in silver.notes: rows must be placed in time",
            )
        ],
    ),
    Mistake(
        "input whose rows change",
        [*ADDED, Edit(SPELLS, 'reads="silver.notes"', 'reads=("silver.notes", "silver.members")'),
         Edit("tables/gold/spells/transform.py", "def transform(notes)", "def transform(notes, members)"),
         Edit("tables/gold/spells/cases/a_note.yml", "then:", "  silver.members:\n    - []\nthen:")],
        [
            Finding(
                place=f"{SPELLS}:7",
                finding="silver.members is kept as latest: its rows change",
                next_step="Keep this table as view(...), or read an append table",
            )
        ],
    ),
]  # fmt: skip


def test_a_stateful_table_is_described(tmp_path: Path) -> None:
    """Nothing is found wrong with a right one, and it is told in words."""
    project = Project(tmp_path / "project")
    for one in ADDED:
        one.apply(project)

    facts = described(catalog.load(project.folder), "gold.spells")

    assert facts["kept_as"] == "stateful by member_id, begun, parts by member_id, gap 10 minutes"
    assert facts["late"] == "corrects, after 5 minutes"


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_a_stateful_declaration_is_found(mistake: Mistake, tmp_path: Path) -> None:
    """The finding has its place, what is wrong, and the next step; nothing else is found."""
    project = Project(tmp_path / "project")
    mistake.make(project)

    assert check(project.folder) == mistake.findings
