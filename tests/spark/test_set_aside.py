"""What the stream has set aside by a suite's rules is told beside what Great Expectations judges at rest."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.quality.verdict import Judged
from deltaworks.settings import ROOT, Settings
from deltaworks.validation.run import validate
from tests.arrow_flows import ArrowOwner
from tests.flows import Log
from tests.shop_rows import broken, view

TABLE = "silver.page_views"
RULE = "expect_column_values_to_match_regex(page)"


def test_rows_that_a_rule_has_set_aside_are_told_in_the_same_format(spark: SparkSession, tmp_path: Path) -> None:
    """Counted by rule, with pages of their own; the table at rest is well, and so is the run."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path)
    owner, log = ArrowOwner(settings, "web"), Log()
    log.send([view(1), view(2, page="x"), view(3, page="y"), broken(b"{")])
    owner.take(log.batch())

    outcome = validate(spark, settings, catalog.load(settings.project), TABLE)

    at_rest = {one.name: one for one in outcome.judged if one.where == "at rest"}
    aside = {one.name: one for one in outcome.judged if one.where == "in the stream"}
    assert {name for name, one in aside.items() if one.verdict == "failed"} == {RULE}
    assert counted(aside[RULE]) == (4, 2)
    assert {counted(one) for name, one in aside.items() if name != RULE} == {(4, 0)}
    assert {*aside} < {*at_rest}
    assert at_rest[RULE].verdict == outcome.verdict == "passed"
    kind = json.loads(aside[RULE].result)["expectation_config"]
    assert (kind["type"], kind["kwargs"]["column"]) == ("expect_column_values_to_match_regex", "page")
    (page,) = settings.quality_docs.glob("validations/silver/page_views/stream/**/*.html")
    assert "50" in page.read_text()  # percent


def counted(one: Judged) -> tuple[int, int]:
    """How many rows were judged, and how many are set aside."""
    result = json.loads(one.result)["result"]
    return result["element_count"], result["unexpected_count"]
