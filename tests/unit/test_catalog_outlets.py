"""What can be wrong with a table's copies in the serving database and in topics: each mistake gives its finding."""

from pathlib import Path

import pytest

from deltaworks.catalog import Finding, check
from tests.mistakes import CITIES, DAYS, LETTERS, MEMBERS, NOTES, Edit, Mistake
from tests.tiny_project import Project

MEMBERS_LINE, NOTES_LINE = f"{MEMBERS}:17", f"{NOTES}:17"
"""Where `declared` writes the words."""


def declared(path: str, words: str) -> list[Edit]:
    """The words in a table's declaration, and their import."""
    imported = ", ".join(name for name in ("changelog", "events", "postgres") if f"{name}(" in words)
    return [
        Edit(path, '    owner="tests",', f'    {words},\n    owner="tests",'),
        Edit(path, "import Column, Table,", f"import Column, Table, {imported},"),
    ]


def topic(name: str, cleanup: str) -> Edit:
    """A topic more in topics.toml."""
    return Edit("topics.toml", "[members]", f'[{name}]\nkey = "k"\ncleanup = "{cleanup}"\n\n[members]')


RAW = 'TABLE = Table(app="tiny", reads=kafka("notes", "members"), kept_as=raw(), owner="tests")'
MISTAKES = [
    Mistake(
        "a copy of bytes",
        [
            Edit(LETTERS, RAW, RAW.replace(", owner", ', serves=postgres(), publishes=changelog("new"), owner')),
            Edit(LETTERS, "import Table, kafka", "import Table, changelog, kafka, postgres"),
            topic("new", "compact"),
        ],
        [
            Finding(
                place=f"{LETTERS}:5",
                finding="serves means nothing in a raw table",
                next_step="Take it out: declare it in a table above",
            ),
            Finding(
                place=f"{LETTERS}:5",
                finding="publishes means nothing in a raw table",
                next_step="Take it out: declare it in a table above",
            ),
        ],
    ),
    Mistake(
        "a copy of rows without keys",
        declared(NOTES, "serves=postgres()"),
        [
            Finding(
                place=NOTES_LINE,
                finding="serves needs a table with one row per key",
                next_step="Write events(topic, key=...) to publish it, or declare it in a table that has keys",
            )
        ],
    ),
    Mistake(
        "a changelog of rows without keys",
        [*declared(NOTES, 'publishes=changelog("new")'), topic("new", "compact")],
        [
            Finding(
                place=NOTES_LINE,
                finding="publishes needs a table with one row per key",
                next_step="Write events(topic, key=...) to publish it, or declare it in a table that has keys",
            )
        ],
    ),
    Mistake(
        "a key that may be null",
        [
            Edit(CITIES, 'Column("city", "string", null=False,', 'Column("city", "string",'),
            *declared(CITIES, 'serves=postgres(), publishes=changelog("new")'),
            topic("new", "compact"),
        ],
        [
            Finding(
                place=f"{CITIES}:10",
                finding="column city: is a key, but may be null",
                next_step="Write null=False: serves and publishes cannot tell rows without it apart",
            )
        ],
    ),
    Mistake(
        "a key that may be no number",
        [
            Edit(MEMBERS, 'Column("member_id", "bigint"', 'Column("member_id", "double"'),
            *declared(MEMBERS, 'publishes=changelog("new")'),
            topic("new", "compact"),
        ],
        [
            Finding(
                place=f"{MEMBERS}:10",
                finding="column member_id: is a key, and not every double equals itself",
                next_step="Take a decimal, or leave publishes out",
            )
        ],
    ),
    Mistake(
        "a copy of a history",
        [
            Edit(
                MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="public.members")'
            ),
            Edit(MEMBERS, "kept_as=latest(", "kept_as=history("),
            Edit(MEMBERS, "json, latest", "debezium, history"),
            *declared(MEMBERS, "serves=postgres()"),
        ],
        [
            Finding(
                place=MEMBERS_LINE,
                finding="serves does not go with a history: states of one moment have the same key",
                next_step="Declare it in a view over it",
            )
        ],
    ),
    Mistake(
        "a language that nobody speaks",
        declared(MEMBERS, 'serves=postgres(search=("name",), language="englisch")'),
        [
            Finding(
                place=MEMBERS_LINE,
                finding="there is no text search in englisch",
                next_step="The nearest is english",
            )
        ],
    ),
    Mistake(
        "a search in no column",
        declared(MEMBERS, 'serves=postgres(search=("name", "cities"))'),
        [
            Finding(
                place=MEMBERS_LINE,
                finding="search column cities is not declared",
                next_step="The nearest is city",
            )
        ],
    ),
    Mistake(
        "a search in numbers",
        declared(MEMBERS, 'serves=postgres(search=("name", "dues"))'),
        [
            Finding(
                place=MEMBERS_LINE,
                finding="search column dues is of type decimal(8,2)",
                next_step="Name columns of text",
            )
        ],
    ),
    Mistake(
        "events without a key",
        [*declared(NOTES, 'publishes=events("new", key=())'), topic("new", "delete")],
        [
            Finding(
                place=NOTES_LINE,
                finding="events without a key",
                next_step="Name the columns whose order is to be kept",
            )
        ],
    ),
    Mistake(
        "events by no column",
        [*declared(NOTES, 'publishes=events("new", key=("member", "note_id"))'), topic("new", "delete")],
        [
            Finding(
                place=NOTES_LINE,
                finding="key member is not declared",
                next_step="The nearest is member_id",
            )
        ],
    ),
    Mistake(
        "an unknown topic",
        declared(NOTES, 'publishes=events("noted", key=("note_id",))'),
        [
            Finding(
                place=NOTES_LINE,
                finding="topic noted is not in topics.toml",
                next_step="The nearest is notes",
            )
        ],
    ),
    Mistake(
        "a changelog whose topic forgets",
        [*declared(MEMBERS, 'publishes=changelog("new")'), topic("new", "delete")],
        [
            Finding(
                place="topics.toml new cleanup",
                finding="is 'delete', and silver.members publishes to it: the newest message of each key is to stay",
                next_step='Write cleanup = "compact"',
            )
        ],
    ),
    Mistake(
        "events whose topic keeps the last",
        [*declared(DAYS, 'publishes=events("new", key=("day",))'), topic("new", "compact")],
        [
            Finding(
                place="topics.toml new cleanup",
                finding="is 'compact', and gold.notes_per_day publishes to it: each event counts, not the last",
                next_step='Write cleanup = "delete"',
            )
        ],
    ),
    Mistake(
        "two writers of a topic",
        [
            *declared(DAYS, 'publishes=events("new", key=("day",))'),
            *declared(NOTES, 'publishes=events("new", key=("note_id",))'),
            topic("new", "delete"),
        ],
        [
            Finding(
                place=NOTES_LINE,
                finding="gold.notes_per_day publishes to new too",
                next_step="Give each table a topic of its own",
            )
        ],
    ),
    Mistake(
        "a topic that its own table reads",
        declared(CITIES, 'publishes=events("members", key=("city",))'),
        [
            Finding(
                place=f"{LETTERS}:5",
                finding="a cycle: bronze.letters reads gold.members_per_city reads silver.members reads bronze.letters",
                next_step="Let one of them read something else",
            )
        ],
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_about_copies_is_found(mistake: Mistake, tmp_path: Path) -> None:
    """The finding has its place, what is wrong, and the next step; nothing else is found."""
    project = Project(tmp_path / "project")
    mistake.make(project)

    findings = check(project.folder)

    assert findings == mistake.findings


def test_copies_that_fit_are_no_mistake(tmp_path: Path) -> None:
    """Every word where it belongs; a topic that some other table reads is no cycle."""
    project = Project(tmp_path / "project")
    for edit in (
        *declared(MEMBERS, 'serves=postgres(search=("name", "city"), language="english"), publishes=changelog("all")'),
        *declared(NOTES, 'publishes=events("new", key=("member_id", "note_id"))'),
        *declared(CITIES, "serves=postgres()"),
        topic("all", "compact"),
        topic("new", "delete"),
    ):
        edit.apply(project)
    project.write("tables/bronze/told/table.py", TOLD)
    project.write("expectations/bronze/told.yml", "waived: a test\n")

    assert check(project.folder) == []


TOLD = '''\
"""Notes as they were told."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="tiny", reads=kafka("new"), kept_as=raw(), owner="tests")
'''
