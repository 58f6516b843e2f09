"""What can be wrong between tables, topics and apps: each mistake gives its finding."""

from pathlib import Path

import pytest

from deltaworks.catalog import Finding, check
from tests.mistakes import (
    CITIES,
    CITIES_TRANSFORM,
    DAYS,
    DAYS_CASE,
    DAYS_TRANSFORM,
    LETTERS,
    MEMBERS,
    NOTES,
    Delete,
    Edit,
    Mistake,
    Write,
)
from tests.tiny_project import Project

BACK_TRANSFORM = '''\
"""T."""

def transform(members_per_city):
    """T."""
    return members_per_city

def keys_from(members_per_city):
    """K."""
    return members_per_city
'''
BACK = '''\
"""Members and dues per city, as of now."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="gold.members_per_city",
    kept_as=view(keys=("city",)),
    columns=(
        Column("city", "string", null=False, doc="Where the members live."),
        Column("members", "bigint", null=False, doc="Members there."),
        Column("dues", "decimal(18,2)", null=False, doc="Dues of all of them per year, in euros."),
    ),
    owner="tests",
)
'''
MISTAKES = [
    Mistake(
        "unknown topic",
        [Edit(LETTERS, 'kafka("notes", "members")', 'kafka("notes", "members", "note")')],
        [Finding(place=f"{LETTERS}:5", finding="topic note is not in topics.toml", next_step="The nearest is notes")],
    ),
    Mistake(
        "changes on a compacted topic",  # of notes no clean-up is named
        [
            Edit(MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="a.members")'),
            Edit(MEMBERS, "Table, json", "Table, debezium"),
            Edit("topics.toml", "[members]", '[members]\ncleanup = "compact"'),
        ],
        [
            Finding(
                place="topics.toml members cleanup",
                finding="is 'compact', and bronze.letters takes changes from it: the broker refuses a truncate",
                next_step='Write cleanup = "delete"',
            )
        ],
    ),
    Mistake(
        "topic not of bronze",
        [Edit(NOTES, 'topic="notes"', 'topic="note"')],
        [
            Finding(
                place=f"{NOTES}:7", finding="bronze.letters does not read topic note", next_step="The nearest is notes"
            )
        ],
    ),
    Mistake(
        "an input named twice",
        [Edit(CITIES, 'reads="silver.members"', 'reads=("silver.members", "silver.members")')],
        [Finding(place=f"{CITIES}:7", finding="an input is named twice", next_step="Name each input once")],
    ),
    Mistake(
        "unknown input",
        [Edit(CITIES, '"silver.members"', '"silver.member"')],
        [
            Finding(
                place=f"{CITIES}:7",
                finding="there is no table silver.member",
                next_step="The nearest is silver.members",
            )
        ],
    ),
    Mistake(
        "two owners",
        [Edit(CITIES, 'app="tiny"', 'app="other"')],
        [
            Finding(
                place=f"{CITIES}:6",
                finding="two owners: this table is of app other, its input silver.members of tiny",
                next_step="Give both the same app: a table and its inputs have one owner",
            )
        ],
    ),
    Mistake(
        "parses silver",
        [Edit(MEMBERS, 'json("bronze.letters"', 'json("silver.notes"')],
        [
            Finding(
                place=f"{MEMBERS}:7",
                finding="silver.notes is not raw: nothing to parse",
                next_step="Read a bronze table",
            )
        ],
    ),
    Mistake(
        "gold reads bronze",
        [Edit(CITIES, '"silver.members"', '"bronze.letters"')],
        [
            Finding(
                place=f"{CITIES}:7",
                finding="bronze.letters is raw: it has no columns",
                next_step="Parse it in a silver table with json(...) or debezium(...), and read that one",
            )
        ],
    ),
    Mistake(
        "silver reads gold",
        [
            Write(
                "tables/silver/back/table.py",
                BACK,
            ),
            Write(
                "tables/silver/back/transform.py",
                BACK_TRANSFORM,
            ),
            Write(
                "tables/silver/back/cases/c.yml",
                "given:\n  gold.members_per_city: [[{city: A, members: 1, dues: 1}]]\nthen: {rows: []}\n",
            ),
            Write("expectations/silver/back.yml", "waived: a test\n"),
        ],
        [
            Finding(
                place="tables/silver/back/table.py:7",
                finding="a silver table reads gold.members_per_city",
                next_step="Move this table to gold: layers are read upwards only",
            )
        ],
    ),
    Mistake(
        "aggregate of latest",
        [
            Edit(DAYS, 'reads="silver.notes"', 'reads="silver.members"'),
            Edit(DAYS_TRANSFORM, "notes: DataFrame", "members: DataFrame"),
            Delete(DAYS_CASE),
        ],
        [
            Finding(
                place=f"{DAYS}:7",
                finding="silver.members is kept as latest: its rows change",
                next_step="Keep this table as view(...), or read an append table",
            )
        ],
    ),
    Mistake(
        "aggregate of two",
        [
            Edit(DAYS, 'reads="silver.notes"', 'reads=("silver.notes", "silver.members")'),
            Edit(DAYS_TRANSFORM, "notes: DataFrame", "notes: DataFrame, members: DataFrame"),
        ],
        [
            Finding(
                place=f"{DAYS}:7",
                finding="an aggregate of 2 tables",
                next_step="Read one table, or keep this one as view(...)",
            ),
            Finding(
                place=f"{DAYS}:7",
                finding="silver.members is kept as latest: its rows change",
                next_step="Keep this table as view(...), or read an append table",
            ),
        ],
    ),
    Mistake(
        "late without event time",
        [Edit(NOTES, '    event_time="written_at",\n', "")],
        [
            Finding(
                place=f"{DAYS}:9",
                finding="silver.notes has no event_time, so nothing is late",
                next_step="Name its event_time, or take late out",
            )
        ],
    ),
    Mistake(
        "cycle",
        [
            Edit(CITIES, 'reads="silver.members"', 'reads="gold.notes_per_day"'),
            Edit(DAYS, 'reads="silver.notes"', 'reads="gold.members_per_city"'),
        ],
        [
            Finding(
                place=f"{DAYS}:7",
                finding="gold.members_per_city is kept as view: its rows change",
                next_step="Keep this table as view(...), or read an append table",
            ),
            Finding(
                place=f"{CITIES}:7",
                finding="a cycle: gold.members_per_city reads gold.notes_per_day reads gold.members_per_city",
                next_step="Let one of them read something else",
            ),
            Finding(
                place=f"{CITIES_TRANSFORM}:7",
                finding="transform takes members, which is no input",
                next_step="Known inputs are notes_per_day",
            ),
            Finding(
                place=f"{CITIES_TRANSFORM}:12",
                finding="keys_from takes members, which is no input",
                next_step="Known inputs are notes_per_day",
            ),
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform takes notes, which is no input",
                next_step="Known inputs are members_per_city",
            ),
        ],
    ),
    Mistake(
        "a table that reads itself",
        [Edit(CITIES, 'reads="silver.members"', 'reads="gold.members_per_city"')],
        [
            Finding(
                place=f"{CITIES}:7",
                finding="a cycle: gold.members_per_city reads gold.members_per_city",
                next_step="Let one of them read something else",
            ),
            Finding(
                place=f"{CITIES_TRANSFORM}:7",
                finding="transform takes members, which is no input",
                next_step="The nearest is members_per_city",
            ),
            Finding(
                place=f"{CITIES_TRANSFORM}:12",
                finding="keys_from takes members, which is no input",
                next_step="The nearest is members_per_city",
            ),
        ],
    ),
    Mistake(
        "an app without tables",
        [Write("deltaworks.toml", "[apps.tiny]\n[apps.tinny]\n")],
        [
            Finding(
                place="deltaworks.toml [apps.tinny]", finding="no table has this app", next_step="The nearest is tiny"
            )
        ],
    ),
    Mistake(
        "topics.toml is not TOML",
        [Write("topics.toml", "[notes\n")],
        [
            Finding(
                place="topics.toml",
                finding="Expected ']' at the end of a table declaration (at line 1, column 7)",
                next_step="Mend the file",
            )
        ],
    ),
    Mistake(
        "no tables at all",
        [Delete("tables"), Delete("expectations")],
        [
            Finding(
                place="tables",
                finding="there are no tables",
                next_step='Run "deltaworks table new bronze.NAME --reads TOPIC"',
            ),
            Finding(
                place="deltaworks.toml [apps.tiny]", finding="no table has this app", next_step="There are no apps yet"
            ),
        ],
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_between_tables_is_found(mistake: Mistake, tmp_path: Path) -> None:
    """The finding has its place, what is wrong, and the next step; nothing else is found."""
    project = Project(tmp_path / "project")
    mistake.make(project)

    findings = check(project.folder)

    assert findings == mistake.findings
