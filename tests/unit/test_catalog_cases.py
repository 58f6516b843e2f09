"""What the form of a case can get wrong: each mistake gives its finding."""

from pathlib import Path

import pytest

from deltaworks.catalog import Finding, check
from tests.mistakes import DAYS_CASE, NOTES_CASE, Delete, Edit, Mistake, Write
from tests.tiny_project import Project

MISTAKES = [
    Mistake(
        "no cases at all",
        [Delete("tables/silver/notes/cases")],
        [
            Finding(
                place="tables/silver/notes/cases",
                finding="there are no cases",
                next_step="Write a file NAME.yml there, with given: and then:",
            )
        ],
    ),
    Mistake(
        "case by another ending",
        [Write("tables/silver/notes/cases/more.yaml", "")],
        [
            Finding(
                place="tables/silver/notes/cases/more.yaml",
                finding="is not read",
                next_step="Name it more.yml, or delete it",
            )
        ],
    ),
    Mistake(
        "case: yaml",
        [Write(DAYS_CASE, "given: {")],
        [
            Finding(
                place=f"{DAYS_CASE}:2",
                finding="not YAML: did not find expected node content",
                next_step="Mend the line",
            )
        ],
    ),
    Mistake(
        "case: no then",
        [Edit(DAYS_CASE, "then:", "than:")],
        [Finding(place=f"{DAYS_CASE}:1", finding="unknown key than", next_step="The nearest is then")],
    ),
    Mistake(
        "case: scalar",
        [Write(DAYS_CASE, "hello")],
        [Finding(place=DAYS_CASE, finding="'hello' is no mapping", next_step="Write given:, then:")],
    ),
    Mistake(
        "case: given input",
        [Edit(DAYS_CASE, "silver.notes:", "silver.note:")],
        [Finding(place=f"{DAYS_CASE}:3", finding="unknown key silver.note", next_step="The nearest is silver.notes")],
    ),
    Mistake(
        "case: no rows key",
        [Edit(DAYS_CASE, "  rows:", "  row:")],
        [Finding(place=f"{DAYS_CASE}:9", finding="unknown key row", next_step="The nearest is rows")],
    ),
    Mistake(
        "case: no rows given",
        [Write(DAYS_CASE, "given: {silver.notes: []}\nthen: {rows: []}\n")],
        [Finding(place=f"{DAYS_CASE}:1", finding="no rows are given", next_step="Write [[row, row], restart, [row]]")],
    ),
    Mistake(
        "case: unknown column",
        [Edit(DAYS_CASE, "note_id: c", "noteid: c")],
        [Finding(place=f"{DAYS_CASE}:7", finding="there is no column noteid", next_step="The nearest is note_id")],
    ),
    Mistake(
        "case: row unknown column",
        [Edit(DAYS_CASE, "notes: 2", "note: 2")],
        [Finding(place=f"{DAYS_CASE}:10", finding="there is no column note", next_step="The nearest is notes")],
    ),
    Mistake(
        "case: missing",
        [Edit(DAYS_CASE, "note_id: c, ", "")],
        [
            Finding(
                place=f"{DAYS_CASE}:7", finding="note_id is missing", next_step="Give it a value: it may not be null"
            )
        ],
    ),
    Mistake(
        "case: type",
        [Edit(DAYS_CASE, "member_id: 2", "member_id: two")],
        [
            Finding(
                place=f"{DAYS_CASE}:7",
                finding="member_id: 'two' is no bigint",
                next_step="Write a whole number below 2^63",
            )
        ],
    ),
    Mistake(
        "case: time",
        [Edit(DAYS_CASE, '"2025-11-22T00:00:00Z", words', '"2025-11-22T00:00:00", words')],
        [
            Finding(
                place=f"{DAYS_CASE}:5",
                finding="written_at: '2025-11-22T00:00:00' is no timestamp",
                next_step='Write a time with its zone, as in "2026-11-21T10:00:00Z"',
            )
        ],
    ),
    Mistake(
        "case: batch",
        [Edit(DAYS_CASE, "    - restart", "    - reboot")],
        [
            Finding(
                place=f"{DAYS_CASE}:3",
                finding="'reboot' is no batch",
                next_step="Write [row, row], restart, or at: with a time",
            )
        ],
    ),
    Mistake(
        "case: no time of arrival",
        [Edit(DAYS_CASE, "    - restart", "    - at: noon")],
        [
            Finding(
                place=f"{DAYS_CASE}:3",
                finding="at: 'noon' is no timestamp",
                next_step='Write a time with its zone, as in "2026-11-21T10:00:00Z"',
            )
        ],
    ),
    Mistake(
        "case: arrival before arrival",
        [Edit(DAYS_CASE, "    - restart", '    - at: "2025-11-22T00:00:00Z"\n    - at: "2025-11-21T00:00:00Z"')],
        [
            Finding(
                place=f"{DAYS_CASE}:3",
                finding="at: 2025-11-21T00:00:00+00:00 is before the one above",
                next_step="Rows arrive one after the other",
            )
        ],
    ),
    Mistake(
        "case: refused unknown",
        [Edit(NOTES_CASE, "[{note_id: b, written_at: 1763719200000, words: 3, colour: red}", "[{note_id: z}")],
        [
            Finding(
                place=f"{NOTES_CASE}:13",
                finding="a refused row is not among the given ones",
                next_step="Write it as in given; only tables that parse refuse rows",
            )
        ],
    ),
    Mistake(
        "case: refused form",
        [Edit(NOTES_CASE, "[{note_id: b, written_at: 1763719200000, words: 3, colour: red}, undeclared field]", "[b]")],
        [
            Finding(
                place=NOTES_CASE,
                finding="['b'] is no refused row",
                next_step="Write [row, reason]",
            )
        ],
    ),
    Mistake(
        "case: wire",
        [Write(NOTES_CASE, "given:\n  bronze.letters: [[7]]\nthen: {rows: []}\n")],
        [
            Finding(
                place=NOTES_CASE,
                finding="7 is nothing that Kafka carries here",
                next_step='Write a JSON document {...}, bytes: "...", or null for a tombstone',
            )
        ],
    ),
    Mistake(
        "case bytes",
        [Write(NOTES_CASE, 'given:\n  bronze.letters: [[{bytes: "\\u20ac"}]]\nthen: {rows: []}\n')],
        [
            Finding(
                place=f"{NOTES_CASE}:2",
                finding="bytes holds more than bytes",
                next_step='Write one character for each byte, as in "\\xff{"',
            )
        ],
    ),
    Mistake(
        "case: twice",
        [Edit(DAYS_CASE, "doc:", "doc: x\ndoc:")],
        [Finding(place=f"{DAYS_CASE}:2", finding="not YAML: key 'doc' is there twice", next_step="Mend the line")],
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_the_form_of_a_case_is_found(mistake: Mistake, tmp_path: Path) -> None:
    """The finding has its place, what is wrong, and the next step; nothing else is found."""
    project = Project(tmp_path / "project")
    mistake.make(project)

    findings = check(project.folder)

    assert findings == mistake.findings
