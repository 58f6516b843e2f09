"""Stores of Great Expectations: results that hold no value of a row, and suites that are the project's own files.

They have the names of those that they extend: a context takes one of its own beside each class that is named otherwise.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from great_expectations.core import ExpectationSuite
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.data_context import store as base
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metadata_types import FailureSeverity

from deltaworks import suites
from deltaworks.catalog import Catalog
from deltaworks.catalog.companions import not_judged
from deltaworks.expectation_types import COMMON, TYPES
from deltaworks.quality.verdict import Verdict, of_all
from deltaworks.suites import Expectation, Suite

COUNTS = (
    "element_count",
    "missing_count",
    "missing_percent",
    "unexpected_count",
    "unexpected_percent",
    "unexpected_percent_nonmissing",
    "unexpected_percent_total",
)
"""What of a result tells how many, and never which."""
_ABOUT_MANY = {
    "expect_column_proportion_of_non_null_values_to_be_between",
    "expect_column_proportion_of_unique_values_to_be_between",
    "expect_column_unique_value_count_to_be_between",
    "expect_table_column_count_to_be_between",
    "expect_table_column_count_to_equal",
    "expect_table_columns_to_match_ordered_list",
    "expect_table_columns_to_match_set",
    "expect_table_row_count_to_be_between",
    "expect_table_row_count_to_equal",
    "unexpected_rows_expectation",
}
"""What is observed there is a count or a name, whatever the rows are."""
_OF_MANY = {"expect_column_mean_to_be_between", "expect_column_stdev_to_be_between", "expect_column_sum_to_be_between"}
"""There it is one number of many rows: told of whole tables, but of private columns; a day may be one row."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)*)\]")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception))\b", re.MULTILINE)


class ExpectationsStore(base.ExpectationsStore):
    """Keeps suites, and writes one that is edited back to its file under `expectations/`."""

    catalog: Catalog | None = None
    """Whose suites these are; None while they are loaded. Set for the process, as Great Expectations makes its
    stores itself."""

    def _update(self, key: Any, value: Any, **kwargs: Any) -> Any:
        """Write it first: what the project cannot have is refused, and nothing is kept of it."""
        self._save(value)
        return super()._update(key, value, **kwargs)  # type: ignore[no-untyped-call]  # the library gives it no types

    def _save(self, suite: ExpectationSuite) -> None:
        if self.catalog is None:
            return
        declared = self.catalog[suite.name]
        path = self.catalog.project / suites.shown_path(suite.name)
        columns = [column.name for column in declared.columns]
        ours = Suite(name=suite.name, waived=None, expectations=tuple(map(_ours, suite.expectations)))
        for finding in not_judged(declared, ours, self.catalog.tables.keys()):
            raise finding.error()
        suites.save(path, ours.expectations, table=suite.name, columns=columns)


def as_theirs(one: Expectation, kwargs: Mapping[str, Any] | None = None) -> ExpectationConfiguration:
    """An expectation of ours as theirs, with other arguments where some are given."""
    return ExpectationConfiguration(
        type=one.type,
        kwargs=dict(one.kwargs if kwargs is None else kwargs),
        meta=dict(one.meta),
        severity=FailureSeverity(one.severity),
    )


def _ours(one: Any) -> Expectation:
    """An expectation of theirs as ours."""
    found = one.configuration.to_json_dict()
    known = {*" ".join(TYPES.get(found["type"], ("", ""))).split(), *COMMON} - {"batch_id"}
    return Expectation(
        type=found["type"],
        kwargs={name: value for name, value in found["kwargs"].items() if name in known},
        severity="warning" if found.get("severity") == "warning" else "critical",
        meta=found.get("meta") or {},
    )


class ValidationResultsStore(base.ValidationResultsStore):
    """Keeps results after what they quote of rows has gone; whoever made them sees the same from then on.

    So neither Data Docs nor an Action that comes after ever has a value. `private`: by suite the private columns; of a
    suite that is not there all are.
    """

    private: Mapping[str, frozenset[str]] = {}
    """Set for the process, as above."""

    def store_validation_results(
        self, suite_validation_result: ExpectationSuiteValidationResult, *args: Any, **kwargs: Any
    ) -> Any:
        """Take the values out, then keep it."""
        without_values(suite_validation_result, self.private.get(suite_validation_result.suite_name))
        cast("dict[str, Any]", suite_validation_result.meta)["verdict"] = _of_what_is_critical(suite_validation_result)
        return super().store_validation_results(suite_validation_result, *args, **kwargs)


def verdict_of(one: ExpectationValidationResult) -> Verdict:
    """Of a result that was kept: what raised an error nobody knows."""
    if (one.exception_info or {}).get("raised_exception"):
        return "unknown"
    return "passed" if one.success else "failed"


def _of_what_is_critical(results: ExpectationSuiteValidationResult) -> Verdict:
    critical = (
        one for one in results.results if one.expectation_config is None or one.expectation_config.severity != "warning"
    )
    return of_all(map(verdict_of, critical))


def without_values(results: ExpectationSuiteValidationResult, private: frozenset[str] | None) -> None:
    """Take out of the results of a suite whatever a row may have said; `private`: None where all columns are."""
    results.success = bool(results.success)
    for one in results.results:
        one.success = bool(one.success)  # numpy's own, as some give, is no JSON
        one.result = _told(one, private)
        one.exception_info = raised(one)


def raised(one: ExpectationValidationResult) -> dict[str, Any]:
    """What went wrong while it was judged, by the names that Python and Spark have for it: texts quote values."""
    found = one.exception_info or {}
    each = [found] if "raised_exception" in found else list(found.values())
    wrong = [info for info in each if isinstance(info, Mapping) and info.get("raised_exception")]
    if not wrong:
        return {"raised_exception": False, "exception_message": "", "exception_traceback": ""}
    texts = [f"{info.get('exception_traceback') or ''}\n{info.get('exception_message') or ''}" for info in wrong]
    names = dict.fromkeys(
        name for text in texts for name in (_RAISED.findall(text)[-1:] + _CONDITION.findall(text)[:1])
    )
    told = ", ".join(names) or "an error without a name"
    return {"raised_exception": True, "exception_message": told, "exception_traceback": ""}


def _told(one: ExpectationValidationResult, private: frozenset[str] | None) -> dict[str, Any]:
    result, config = one.result or {}, one.expectation_config
    kept = {name: result[name] for name in COUNTS if name in result}
    kind = "" if config is None else config.type
    column = None if config is None else config.kwargs.get("column")
    open_number = kind in _OF_MANY and private is not None and column not in private
    if "observed_value" in result and (kind in _ABOUT_MANY or open_number):
        kept["observed_value"] = result["observed_value"]
    return kept
