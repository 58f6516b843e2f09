"""Nothing that a suite declares stays unrun: where and when each expectation is judged, and what follows."""

from pathlib import Path

import pytest

from deltaworks import catalog
from deltaworks.catalog.describing import described
from deltaworks.expectation_types import TYPES
from deltaworks.quality.every_type import every_type, page
from deltaworks.quality.planning import tables_named, with_views
from deltaworks.suites import Expectation
from tests.expectations_page import PAGE
from tests.tiny_project import Project

DAYS, MEMBERS, NOTES = "gold/notes_per_day", "silver/members", "silver/notes"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project: a gold table whose days close, and two that parse."""
    return Project(tmp_path / "project")


def suite(project: Project, table: str, *expectations: str) -> str:
    """Write the suite of a table; returns the table's name."""
    lines = "\n".join(f"  - {{{one}}}" for one in expectations)
    project.write(f"expectations/{table}.yml", f"expectations:\n{lines}\n")
    return table.replace("/", ".")


def shown(project: Project, table: str) -> list[tuple[str, str]]:
    """What `table show` says of each expectation: when it is judged, and what then."""
    found = described(catalog.load(project.folder), table)["expectations"]
    assert isinstance(found, list)
    return [(one["judged"], one["then"]) for one in found]


MANY = "not in the stream: it is about many rows together"
UNIQUE = "type: expect_column_values_to_be_unique, kwargs: {column: COLUMN}, severity: critical"
NOT_NULL = "type: expect_column_values_to_not_be_null, kwargs: {column: COLUMN}, severity: SEVERITY"


def of(text: str, column: str, severity: str = "critical", meta: str = "") -> str:
    """The expectation of a column."""
    more = f", meta: {{{meta}}}" if meta else ""
    return text.replace("COLUMN", column).replace("SEVERITY", severity) + more


def test_of_a_gold_table_all_is_judged_each_night_and_when_a_day_closes(project: Project) -> None:
    """It parses nothing, so no row is set aside, but counted; `meta` may say one of both times, and what follows."""
    name = suite(
        project, DAYS, of(UNIQUE, "day"), of(NOT_NULL, "notes", "warning", "when: schedule"),
        of(NOT_NULL, "words", meta="when: day, then: hold"), of(NOT_NULL, "day", meta="then: suspend"),
    )  # fmt: skip

    assert catalog.check(project.folder) == []
    assert shown(project, name) == [
        (f"each night, when a day closes; {MANY}", "the run fails"),
        ("each night", "counted"),
        ("when a day closes, of its rows", "the day's asset is held back"),
        ("each row, each night, when a day closes", "the app is not well, the table is suspended"),
    ]


def test_of_a_table_that_parses_rows_are_judged_as_they_come_too(project: Project) -> None:
    """What is about many rows is judged each night, and `table show` says why not before."""
    name = suite(project, NOTES, of(NOT_NULL, "words"), of(UNIQUE, "note_id"))

    assert shown(project, name) == [
        ("each row, each night", "sets the row aside, the run fails"),
        (f"each night; {MANY}", "the run fails"),
    ]


@pytest.mark.parametrize(
    ("table", "expectation", "finding"),
    [
        (DAYS, of(NOT_NULL, "day", meta="when: monthly"), "when is 'monthly'"),
        (DAYS, of(NOT_NULL, "day", meta="then: stop"), "then is 'stop'"),
        (DAYS, of(NOT_NULL, "day", "warning", "then: hold"), "a warning has no consequence"),
        (DAYS, of(NOT_NULL, "day", meta="when: schedule, then: hold"), "no day's asset can be held back"),
        (MEMBERS, of(UNIQUE, "city", meta="when: day"), "the table's days do not close"),
        (NOTES, of(NOT_NULL, "words", meta="then: suspend"), "is set aside, and the table goes on"),
        (DAYS, of(NOT_NULL, "day", meta="when: day, then: suspend"), "days of a suspended table do not close"),
        (MEMBERS, of(UNIQUE, "city", meta="then: hold"), "no day's asset can be held back"),
        (DAYS, "type: expect_column_values_to_be_increasing, kwargs: {column: notes}, severity: warning", "no order"),
        (
            DAYS,
            "type: expect_table_row_count_to_equal_other_table, kwargs: {other_table_name: x}, severity: warning",
            "on",
        ),
        (
            DAYS,
            "type: unexpected_rows_expectation, kwargs: {unexpected_rows_query: OTHER}, severity: warning".replace(
                "OTHER", '"select 1 from {batch} join {silver.letters} using (day)"'
            ),
            "there is no table silver.letters",
        ),
        (
            DAYS,
            "type: expect_column_values_to_be_dateutil_parseable, kwargs: {column: day}, severity: warning",
            "on Spark",
        ),
    ],
)
def test_what_nothing_can_run_is_a_finding(project: Project, table: str, expectation: str, finding: str) -> None:
    """Of any table and at any severity: a promise that nobody keeps is worse than none."""
    suite(project, table, expectation)

    found = catalog.check(project.folder)

    assert [one.place for one in found] == [f"expectations/{table}.yml:2"]
    assert finding in found[0].finding


def test_the_page_of_all_types_is_what_judges() -> None:
    """`python -m tests.expectations_page` writes it."""
    assert PAGE.read_text() == page()
    assert [one.type for one in every_type()] == sorted(TYPES)


def test_a_query_between_tables_names_them_in_braces() -> None:
    """Each becomes a view of a version of that table; the table's own rows stay for Great Expectations to fill in."""
    query = "select 1 from {batch} join {silver.notes} n join {silver.notes} m join {gold.x} using (day)"
    one = Expectation(
        type="unexpected_rows_expectation", kwargs={"unexpected_rows_query": query}, severity="warning", meta={}
    )

    made = with_views(one, {"silver.notes": "a", "gold.x": "b"})

    assert tables_named(one) == ("silver.notes", "gold.x")
    assert made == {"unexpected_rows_query": "select 1 from {batch} join a n join a m join b using (day)"}
