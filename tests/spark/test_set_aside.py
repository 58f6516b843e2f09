"""What the stream has set aside by a suite's rules is told beside what Great Expectations judges at rest."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.quality.planning import planned
from deltaworks.quality.verdict import Judged
from deltaworks.settings import ROOT, Settings
from deltaworks.suites import Expectation, Suite
from deltaworks.validation.run import validate
from deltaworks.validation.set_aside import setting_aside
from deltaworks.words import Column
from tests.arrow_flows import ArrowOwner
from tests.flows import Log
from tests.shop_rows import broken, view

TABLE = "silver.page_views"
RULE = "expect_column_values_to_match_regex(page)"


def test_rows_that_a_rule_has_set_aside_are_told_in_the_same_format(spark: SparkSession, tmp_path: Path) -> None:
    """Counted by rule, with pages of their own; the table at rest is well, and so is the run."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path)
    owner, log = ArrowOwner(settings, "web"), Log()
    whole = json.loads(view(4).value or b"")
    null = json.dumps({**whole, "event_id": None}).encode()
    missing = json.dumps({name: value for name, value in whole.items() if name != "event_id"}).encode()
    wrong = [view(2, page="x"), view(3, page="y"), *map(broken, (b"{", null, missing))]
    log.send([view(1), *wrong, *(view(number) for number in range(5, 12))])
    owner.take(log.batch())

    outcome = validate(spark, settings, catalog.load(settings.project), TABLE)

    at_rest = {one.name: one for one in outcome.judged if one.where == "at rest"}
    aside = {one.name: one for one in outcome.judged if one.where == "in the stream"}
    assert {name: (one.verdict, counted(one)) for name, one in aside.items()} == {
        RULE: ("failed", (13, 2)), "expect_column_values_to_not_be_null(event_id)": ("failed", (13, 2)),
    }  # fmt: skip
    assert {*aside} < {*at_rest}
    assert at_rest[RULE].verdict == outcome.verdict == "passed"
    kind = json.loads(aside[RULE].result)["expectation_config"]
    assert (kind["type"], kind["kwargs"]["column"]) == ("expect_column_values_to_match_regex", "page")
    (page,) = settings.quality_docs.glob("validations/silver/page_views/stream/**/*.html")
    assert "unexpected values" in page.read_text()


def test_reasons_of_the_declaration_are_told_with_the_expectation_that_they_break() -> None:
    """A type that does not fit, a null where there is none: refused before a rule is asked, and counted as its own."""
    listed = [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "n"}},
        {"type": "expect_column_values_to_be_of_type", "kwargs": {"column": "n", "type_": "LongType"}},
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 1}},
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 2}},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n"}},
    ]
    suite = Suite(name="silver.t", waived=None, expectations=tuple(map(critical, listed)))
    between = "rule: expect_column_values_to_be_between(n)"
    reasons = ["n: null", "n: missing", "n: not an integer", "n: out of range", between, "n: future", "not JSON",
               "n: differs only by case", "n: value not sent, and no earlier change has it"]  # fmt: skip

    found = setting_aside([*planned(suite, [Column("n", "bigint", doc="A number.")], parses=True, closes_days=False)])

    assert [(one.expectation.type, [*filter(one.reasons, reasons)]) for one in found] == [
        ("expect_column_values_to_not_be_null", reasons[:2]),
        ("expect_column_values_to_be_of_type", reasons[2:4]),
        ("expect_column_values_to_be_between", [between]),
        ("expect_column_values_to_be_between", [between]),
    ]


def critical(one: Mapping[str, Any]) -> Expectation:
    """An expectation of this type and these arguments."""
    return Expectation(type=one["type"], kwargs=one["kwargs"], severity="critical", meta={})


def counted(one: Judged) -> tuple[int, int]:
    """How many rows were judged, and how many are set aside."""
    result = json.loads(one.result)["result"]
    return result["element_count"], result["unexpected_count"]
