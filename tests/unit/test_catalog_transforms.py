"""What the text of transform.py can get wrong: each mistake gives its finding."""

from pathlib import Path

import pytest

from deltaworks.catalog import Finding, check
from tests.mistakes import CITIES, CITIES_TRANSFORM, DAYS_TRANSFORM, Delete, Edit, Mistake, Write
from tests.tiny_project import Project

MISTAKES = [
    Mistake(
        "a view without transform",
        [Delete(CITIES_TRANSFORM)],
        [
            Finding(
                place=CITIES_TRANSFORM,
                finding="is missing",
                next_step="Write def transform(members) and def keys_from(members)",
            )
        ],
    ),
    Mistake(
        "an aggregate without transform",
        [Delete(DAYS_TRANSFORM)],
        [Finding(place=DAYS_TRANSFORM, finding="is missing", next_step="Write def transform(notes)")],
    ),
    Mistake(
        "transform not run",
        [Write("tables/silver/notes/transform.py", "")],
        [
            Finding(
                place="tables/silver/notes/transform.py",
                finding="is not run: the table reads json notes from bronze.letters",
                next_step="Delete it: columns are taken by name",
            )
        ],
    ),
    Mistake(
        "transform syntax",
        [Edit(DAYS_TRANSFORM, "return notes.", "return notes..")],
        [Finding(place=f"{DAYS_TRANSFORM}:9", finding="not Python: invalid syntax", next_step="Mend the line")],
    ),
    Mistake(
        "no function",
        [Edit(DAYS_TRANSFORM, "def transform(", "def transfrom(")],
        [
            Finding(
                place=DAYS_TRANSFORM, finding="there is no function transform", next_step="Write def transform(notes)"
            )
        ],
    ),
    Mistake(
        "no keys_from",
        [Edit(CITIES_TRANSFORM, "def keys_from(", "def keys_form(")],
        [
            Finding(
                place=CITIES_TRANSFORM,
                finding="there is no function keys_from",
                next_step="Write def keys_from(members)",
            )
        ],
    ),
    Mistake(
        "a parameter that is no input",
        [Edit(DAYS_TRANSFORM, "notes: DataFrame", "note: DataFrame")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform takes note, which is no input",
                next_step="The nearest is notes",
            )
        ],
    ),
    Mistake(
        "a transform without parameters",
        [Edit(DAYS_TRANSFORM, "notes: DataFrame", "")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform does not take its inputs by name",
                next_step="Write def transform(notes)",
            )
        ],
    ),
    Mistake(
        "inputs by **",
        [Edit(DAYS_TRANSFORM, "notes: DataFrame", "**notes: DataFrame")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:7",
                finding="transform does not take its inputs by name",
                next_step="Write def transform(notes)",
            )
        ],
    ),
    Mistake(
        "keys_from with two inputs",
        [
            Edit(CITIES, 'reads="silver.members"', 'reads=("silver.members", "silver.notes")'),
            Edit(CITIES_TRANSFORM, "transform(members: DataFrame", "transform(members: DataFrame, notes: DataFrame"),
            Edit(CITIES_TRANSFORM, "keys_from(members: DataFrame", "keys_from(members: DataFrame, notes: DataFrame"),
            Delete("tables/gold/members_per_city/cases/a_member_who_moves_changes_both_cities.yml"),
            Write(
                "tables/gold/members_per_city/cases/c.yml",
                "given: {silver.members: [[{member_id: 1, city: A, dues: 1}]], silver.notes: [[]]}\nthen: {rows: []}\n",
            ),
        ],
        [
            Finding(
                place=f"{CITIES_TRANSFORM}:12",
                finding="keys_from is called with one changed input at a time",
                next_step="Write def keys_from(members=None, notes=None)",
            )
        ],
    ),
    Mistake(
        "transform imports",
        [
            Edit(
                DAYS_TRANSFORM,
                "from pyspark.sql import DataFrame",
                "import requests\nfrom pyspark.sql import DataFrame",
            )
        ],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:3",
                finding="transform.py imports requests",
                next_step="Import pyspark and deltaworks.words only",
            )
        ],
    ),
    Mistake(
        "a clock in a transform",
        [Edit(DAYS_TRANSFORM, 'F.max("written_at")', "F.max(F.current_timestamp())")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:13",
                finding="current_timestamp gives something else in a replay",
                next_step="Use a column of the input: times and ids come with the rows",
            )
        ],
    ),
    Mistake(
        "a literal that is the time of its reading",
        [Edit(DAYS_TRANSFORM, 'F.max("written_at")', "F.max(F.expr(\"timestamp'Now'\"))")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:13",
                finding="timestamp'Now' gives something else in a replay",
                next_step="Use a column of the input: times and ids come with the rows",
            )
        ],
    ),
    Mistake(
        "a transform that collects",
        [Edit(DAYS_TRANSFORM, "    return notes.groupBy", "    notes.collect()\n    return notes.groupBy")],
        [
            Finding(
                place=f"{DAYS_TRANSFORM}:9",
                finding="collect reaches out of the transform",
                next_step="Give back a DataFrame made from the inputs, and nothing else",
            )
        ],
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_a_transform_is_found(mistake: Mistake, tmp_path: Path) -> None:
    """The finding has its place, what is wrong, and the next step; nothing else is found."""
    project = Project(tmp_path / "project")
    mistake.make(project)

    findings = check(project.folder)

    assert findings == mistake.findings
