"""Expectations as row rules, without Spark: what is compiled, what is refused at the door, what a verdict names."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.catalog import check
from deltaworks.engine.parse import parser
from deltaworks.quality.compiling import compiled, findings, rules_of
from deltaworks.quality.judging import judge
from deltaworks.quality.pattern import NotPortableError, translate
from deltaworks.suites import Expectation, Suite
from deltaworks.words import Column, json
from tests.bronze_rows import bronze
from tests.tiny_project import Project

COLUMNS = (
    Column("id", "bigint", doc="Number."),
    Column("name", "string", doc="Text."),
    Column("price", "decimal(12,2)", doc="Money."),
    Column("at", "timestamp", doc="Moment."),
)
_ROWS = pa.RecordBatch.from_pydict({"id": [1, -1, None], "name": ["a", "b", None]})
_ALL = pa.array([True] * 3)


def _suite(*expectations: tuple[str, dict[str, Any], str]) -> Suite:
    made = tuple(
        Expectation(type=kind, kwargs=kwargs, severity=severity, meta={}, line=2)  # type: ignore[arg-type]  # a literal
        for kind, kwargs, severity in expectations
    )
    return Suite(name="silver.things", expectations=made, waived=None)


def test_a_critical_rule_refuses_and_a_warning_is_noted_with_the_rows_that_stay() -> None:
    """The reason names type and column, never a value; a refused row is not warned about."""
    between = {"column": "id", "min_value": 0}
    suite = _suite(
        ("expect_column_values_to_be_between", between, "critical"),
        ("expect_column_values_to_be_in_set", {"column": "name", "value_set": ["z"]}, "warning"),
    )

    verdicts = judge(rules_of(suite, COLUMNS), _ROWS, _ALL)

    assert verdicts.refused == {1: "rule: expect_column_values_to_be_between(id)"}
    assert verdicts.warned == {0: ("expect_column_values_to_be_in_set(name)",)}


def test_a_row_that_breaks_a_rule_is_refused_with_its_bytes() -> None:
    """As every refused row: kind, reason and bytes, and none of its values; the others stay as they are."""
    suite = _suite(
        ("expect_column_values_to_be_between", {"column": "id", "min_value": 0}, "critical"),
        ("expect_column_values_to_not_be_null", {"column": "name"}, "warning"),
    )
    columns = COLUMNS[:2]
    values = [b'{"id": 1, "name": "a"}', b'{"id": -1, "name": "b"}', b'{"id": 2}', b"{"]

    parsed = parser(json("bronze.things", topic="events"), columns, rules=rules_of(suite, columns)).parse(
        bronze(values)
    )

    rows = parsed.select(["id", "name", "_kind", "_reason", "_value", "_warned"]).to_pylist()
    assert [row["_kind"] for row in rows] == ["row", "refused", "row", "refused"]
    assert rows[0] == {"id": 1, "name": "a", "_kind": "row", "_reason": None, "_value": None, "_warned": None}
    assert rows[1] == {
        "id": None, "name": None, "_kind": "refused", "_reason": "rule: expect_column_values_to_be_between(id)",
        "_value": values[1], "_warned": None,
    }  # fmt: skip
    assert rows[2]["_warned"] == "expect_column_values_to_not_be_null(name)"
    assert rows[3]["_value"] == b"{"


@pytest.mark.parametrize(
    ("kind", "kwargs", "finding"),
    [
        ("expect_column_values_to_match_regex", {"column": "name", "regex": "(?=a)"}, "looking around"),
        ("expect_column_values_to_match_regex", {"column": "name", "regex": r"\bword"}, r"\\b"),
        ("expect_column_values_to_match_regex", {"column": "id", "regex": "a"}, "id is bigint, no string"),
        ("expect_column_values_to_be_between", {"column": "at", "min_value": "1500-11-21T10:00:00Z"}, "is none"),
        ("expect_column_values_to_be_in_set", {"column": "id", "value_set": ["1"]}, "is none"),
        ("expect_column_values_to_be_in_set", {"column": "id", "value_set": [1, None]}, "has a null"),
        ("expect_column_pair_values_to_be_equal", {"column_A": "id", "column_B": "name"}, "different types"),
    ],
)
def test_a_critical_expectation_that_cannot_set_rows_aside_is_found(
    kind: str, kwargs: dict[str, Any], finding: str
) -> None:
    """It would be a promise that nobody keeps; as a warning it is left alone, and `table show` says so."""
    found = list(findings(_suite((kind, kwargs, "critical")), COLUMNS))
    (left,) = compiled(_suite((kind, kwargs, "warning")), COLUMNS)

    assert len(found) == 1
    assert finding.replace("\\\\", "\\") in found[0].finding
    assert found[0].place == "expectations/silver/things.yml:2"
    assert not list(findings(_suite((kind, kwargs, "warning")), COLUMNS))
    assert left.why_no_rule


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        ("expect_column_values_to_be_of_type", {"column": "id", "type_": "StringType"}),
        ("expect_column_values_to_match_like_pattern", {"column": "name", "like_pattern": "a%"}),
        ("expect_column_values_to_be_increasing", {"column": "id"}),
        ("expect_column_max_to_be_between", {"column": "name", "max_value": 1}),
        ("expect_column_mean_to_be_between", {"column": "id", "max_value": "1"}),
        ("expect_column_values_to_be_between", {"column": "name", "max_value": "b"}),
        ("expect_column_values_to_be_between", {"column": "name", "min_value": 1}),
        ("expect_column_values_to_be_between", {"column": "at", "min_value": "2026-11-21"}),
        ("expect_column_values_to_be_between", {"column": "at", "min_value": "noon", "mostly": 0.9}),
        ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "id", "column_B": "id"}),
        (
            "expect_column_pair_values_a_to_be_greater_than_b",
            {"column_A": "at", "column_B": "at", "ignore_row_if": "neither"},
        ),
    ],
)
def test_what_can_never_hold_or_be_judged_is_found_at_any_severity(kind: str, kwargs: dict[str, Any]) -> None:
    """A type that the column does not have, and what Great Expectations has no words for on Spark.

    So is a comparison that passes rows without a value, though it seems to refuse them.
    """
    assert len(list(findings(_suite((kind, kwargs, "warning")), COLUMNS))) == 1


def test_expectations_about_many_rows_are_left_to_a_validation() -> None:
    """Uniqueness, a share of the rows, some of them and a mean say nothing of one row: no rule, and no finding."""
    suite = _suite(
        ("expect_column_values_to_be_unique", {"column": "id"}, "critical"),
        ("expect_column_values_to_not_be_null", {"column": "id", "mostly": 0.9}, "critical"),
        ("expect_column_values_to_not_be_null", {"column": "id", "row_condition": "name = 'a'"}, "critical"),
        ("expect_column_mean_to_be_between", {"column": "id", "min_value": 0}, "critical"),
        ("expect_column_values_to_be_of_type", {"column": "id", "type_": "LongType"}, "critical"),
    )

    assert rules_of(suite, COLUMNS) == ()
    assert not list(findings(suite, COLUMNS))


@pytest.mark.parametrize(
    "java", ["(", "a)", "[", "[]a]", "[a[b]]", "[a&&b]", "a{", "a{2,1}", "a{1001}", "(a{100}){100}", "a++", "^*", "a$b",
             "(a$)b", r"\1", r"\p{L}", r"\Qa\E", "(?<n>a)", "(?i:a)", r"[\w-z]", "[z-a]", "*", r"\ud800"],
)  # fmt: skip
def test_patterns_that_java_and_re2_read_differently_are_refused(java: str) -> None:
    """Better no rule than one that judges otherwise than the validation."""
    with pytest.raises(NotPortableError):
        translate(java)


def test_a_pattern_that_is_too_large_here_is_found(tmp_path: Path) -> None:
    """Not when the first row comes; of a warning the stream leaves it to Java."""
    project = Project(tmp_path / "project")
    text = "expectations:\n  - {type: expect_column_values_to_match_regex, severity: SEVERITY, kwargs: KWARGS}\n"
    text = text.replace("KWARGS", f"{{column: city, regex: '{300 * '[^a]{1000}'}'}}")
    found = {}
    for severity in ("critical", "warning"):
        project.write("expectations/silver/members.yml", text.replace("SEVERITY", severity))
        found[severity] = [one.finding for one in check(project.folder)]

    assert [told.partition("(")[0] for told in found["critical"]] == ["the pattern cannot be used "]
    assert found["warning"] == []


def test_a_bound_on_bad_rows_that_means_nothing_is_found(tmp_path: Path) -> None:
    """A share above one would never be reached, one of no rows always."""
    project = Project(tmp_path / "project")
    project.edit("tables/silver/notes/table.py", "minutes, refuse", "minutes, refuse, share")
    project.edit("tables/silver/notes/table.py", 'owner="tests",', 'owner="tests",\n    bad_rows_max=share(1.5, of=0),')

    found = [str(one) for one in check(project.folder)]

    assert len(found) == 1
    assert "no such share of rows" in found[0]


def test_table_check_tells_where_the_expectation_stands(tmp_path: Path) -> None:
    """The whole way: a suite of a project, a finding with its line and the next step."""
    project = Project(tmp_path / "project")
    project.edit("expectations/silver/members.yml", "'^[A-Z]'", r"'\bA'")

    found = [str(one) for one in check(project.folder)]

    assert len(found) == 1
    assert found[0].startswith(
        "expectations/silver/members.yml:2: the pattern is not read alike by Java and here: \\b."
    )
