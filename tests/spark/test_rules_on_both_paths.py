"""The suite of a table judges its rows in the stream, alike on both commit paths."""

import pytest
from pyspark.sql import SparkSession

from deltaworks.settings import Settings
from tests.flows import Log, Owner
from tests.shop_rows import broken, view

_RULE = "rule: expect_column_values_to_match_regex(page)"
_WARNING = "expect_column_values_to_be_between(user_id)"


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_a_critical_rule_sets_aside_and_a_warning_counts(spark: SparkSession, shop: Settings, path: str) -> None:
    """Alike on both commit paths: rows, reasons, counts, and what judged them."""
    owner, log = Owner(spark, shop, "web", path=path, only=("silver.page_views",)), Log()
    log.send([view(1), view(2, page="no path", user=0), view(3, user=0), view(4, user=-1), broken(b"{")])

    owner.take(log.batch())

    aside = owner.rows("silver.page_views__quarantine")
    entry = owner.flow.inputs["silver.page_views"].table.entry
    assert [row["event_id"] for row in owner.rows("silver.page_views")] == ["e1", "e3", "e4"]
    assert sorted(row["reason"] for row in aside) == ["not JSON", _RULE]
    assert {(row["code"], row["suite"], row["state"]) for row in aside} == {(entry.code, entry.suite, "open")}
    assert all((entry.code, entry.suite))
    assert (entry.counts.taken, entry.counts.refused, entry.counts.warned) == (3, 2, 2)
    assert dict(entry.warnings) == {_WARNING: 2}
    assert owner.verdicts() == {"ok"}
    assert {sheet.table: sheet.warned for sheet in owner.ledger().sheets()}["silver.page_views"] == 2
