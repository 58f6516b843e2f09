"""What a suite can get wrong: each mistake gives its finding."""

from pathlib import Path

import pytest

from deltaworks.catalog import Finding, check
from tests.mistakes import SUITE, Delete, Edit, Mistake, Write
from tests.tiny_project import Project

COMPOUND = """\
expectations:
  - type: expect_compound_columns_to_be_unique
    kwargs: {column_list: [note_id, member]}
    severity: critical
"""
MISTAKES = [
    Mistake(
        "missing suite",
        [Delete(SUITE)],
        [Finding(place=SUITE, finding="the suite is missing", next_step="Write expectations: [...]")],
    ),
    Mistake(
        "missing suite of bronze",
        [Delete("expectations/bronze/letters.yml")],
        [
            Finding(
                place="expectations/bronze/letters.yml",
                finding="the suite is missing",
                next_step="Write waived: raw copy; checked in silver",
            )
        ],
    ),
    Mistake(
        "suite that is not YAML",
        [Write(SUITE, "expectations: [\n")],
        [
            Finding(
                place=f"{SUITE}:2", finding="not YAML: did not find expected node content", next_step="Mend the line"
            )
        ],
    ),
    Mistake(
        "suite that is a list",
        [Write(SUITE, "- a\n")],
        [
            Finding(
                place=SUITE,
                finding="a suite is a mapping",
                next_step="Write expectations: [...], or waived: with the reason",
            )
        ],
    ),
    Mistake(
        "unknown key of a suite",
        [Edit(SUITE, "expectations:", "expectation:")],
        [Finding(place=SUITE, finding="unknown key expectation", next_step="The nearest is expectations")],
    ),
    Mistake(
        "suite of another name",
        [Edit(SUITE, "expectations:", "name: silver.note\nexpectations:")],
        [
            Finding(
                place=SUITE,
                finding="name is 'silver.note'",
                next_step="Write silver.notes, or leave it out: the path is the name",
            )
        ],
    ),
    Mistake(
        "waived without reason",
        [Write(SUITE, "waived:\n")],
        [
            Finding(
                place=SUITE,
                finding="waived without a reason",
                next_step="Write why, as in waived: raw copy; checked in silver",
            )
        ],
    ),
    Mistake(
        "waived with expectations",
        [Edit(SUITE, "expectations:", "waived: too hard\nexpectations:")],
        [Finding(place=SUITE, finding="waived, yet there are expectations", next_step="Keep one of them")],
    ),
    Mistake(
        "suite without expectations",
        [Write(SUITE, "expectations: []\n")],
        [Finding(place=SUITE, finding="there are no expectations", next_step="Write some, or waived: with the reason")],
    ),
    Mistake(
        "expectations are no list",
        [Write(SUITE, "expectations: 3\n")],
        [Finding(place=SUITE, finding="expectations is no list", next_step="Write - type: ... for each")],
    ),
    Mistake(
        "an expectation is text",
        [Write(SUITE, "expectations: [a]\n")],
        [
            Finding(
                place=SUITE,
                finding="'a' is no expectation",
                next_step="Write {type: ..., kwargs: {...}, severity: critical}",
            )
        ],
    ),
    Mistake(
        "unknown key of an expectation",
        [Edit(SUITE, "    meta:", "    notes:")],
        [
            Finding(
                place=f"{SUITE}:5", finding="unknown key notes", next_step="Known keys are kwargs, meta, severity, type"
            )
        ],
    ),
    Mistake(
        "unknown severity",
        [Edit(SUITE, "severity: critical", "severity: fatal")],
        [
            Finding(
                place=f"{SUITE}:2",
                finding="severity 'fatal' is unknown",
                next_step="Write critical (something follows) or warning (it is counted)",
            )
        ],
    ),
    Mistake(
        "no severity",
        [Edit(SUITE, "    severity: critical\n", "")],
        [
            Finding(
                place=f"{SUITE}:2",
                finding="there is no severity",
                next_step="Write critical (something follows) or warning (it is counted)",
            )
        ],
    ),
    Mistake(
        "misspelt expectation",
        [Edit(SUITE, "expect_column_values_to_be_between", "expect_column_values_between")],
        [
            Finding(
                place=f"{SUITE}:2",
                finding="there is no expectation expect_column_values_between",
                next_step="The nearest is expect_column_values_to_be_between",
            )
        ],
    ),
    Mistake(
        "expectation without type",
        [Write(SUITE, "expectations:\n  - kwargs: {column: words}\n    severity: critical\n")],
        [
            Finding(
                place=f"{SUITE}:2",
                finding="there is no type",
                next_step="Write type: expect_column_distinct_values_to_be_in_set, or another",
            )
        ],
    ),
    Mistake(
        "misspelt argument",
        [Edit(SUITE, "min_value: 0", "min: 0")],
        [
            Finding(
                place=f"{SUITE}:2",
                finding="expect_column_values_to_be_between has no argument min",
                next_step="The nearest is min_value",
            )
        ],
    ),
    Mistake(
        "missing argument",
        [Edit(SUITE, "{column: words, min_value: 0}", "{min_value: 0}")],
        [
            Finding(
                place=f"{SUITE}:2",
                finding="expect_column_values_to_be_between lacks column",
                next_step="Give column in kwargs",
            )
        ],
    ),
    Mistake(
        "kwargs are text",
        [Edit(SUITE, "{column: words, min_value: 0}", "words")],
        [Finding(place=f"{SUITE}:2", finding="kwargs is no mapping", next_step="Write kwargs: {...}")],
    ),
    Mistake(
        "unknown column",
        [Edit(SUITE, "column: words", "column: word")],
        [Finding(place=f"{SUITE}:2", finding="there is no column word", next_step="The nearest is words")],
    ),
    Mistake(
        "unknown column in a list",
        [
            Write(
                SUITE,
                COMPOUND,
            )
        ],
        [Finding(place=f"{SUITE}:2", finding="there is no column member", next_step="The nearest is member_id")],
    ),
    Mistake(
        "suite without table",
        [Write("expectations/silver/note.yml", "waived: x\n")],
        [
            Finding(
                place="expectations/silver/note.yml",
                finding="there is no table silver.note",
                next_step="The nearest is silver.notes",
            )
        ],
    ),
    Mistake(
        "suite by another ending",
        [Write("expectations/silver/members.yaml", "waived: x\n")],
        [
            Finding(
                place="expectations/silver/members.yaml",
                finding="is not read",
                next_step="Name it members.yml, or delete it",
            )
        ],
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_a_suite_is_found(mistake: Mistake, tmp_path: Path) -> None:
    """The finding has its place, what is wrong, and the next step; nothing else is found."""
    project = Project(tmp_path / "project")
    mistake.make(project)

    findings = check(project.folder)

    assert findings == mistake.findings
