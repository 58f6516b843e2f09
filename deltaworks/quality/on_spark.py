"""What no validation can judge: what Great Expectations 1.24 lacks on Spark, or cannot do with a column's type.

Tests hold both against the library itself.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from deltaworks.words.types import Type

Unjudged = tuple[str, str]
"""The finding, and what to do."""

_NO_ORDER = ("the rows of a table have no order", "Compare two columns, or take it out")
_OTHER_TABLE = (
    'Write unexpected_rows_expectation, with the other table in braces: "... from {batch} join {silver.orders} ..."'
)
_LACKING: Mapping[str, Unjudged] = {
    **{
        kind: (f"Great Expectations has no {kind} on Spark", "Write a regex")
        for kind in (
            "expect_column_values_to_match_like_pattern",
            "expect_column_values_to_match_like_pattern_list",
            "expect_column_values_to_not_match_like_pattern",
            "expect_column_values_to_not_match_like_pattern_list",
            "expect_column_values_to_be_dateutil_parseable",
        )
    },
    **{
        kind: (f"Great Expectations has no {kind} on Spark", _OTHER_TABLE)
        for kind in ("expect_query_results_to_match_comparison", "expect_table_row_count_to_equal_other_table")
    },
    "expect_column_values_to_be_increasing": _NO_ORDER,
    "expect_column_values_to_be_decreasing": _NO_ORDER,
}
NUMBERS = frozenset({"int", "bigint", "double", "decimal"})
_TIMES = frozenset({"date", "timestamp"})
_FLAG = frozenset({"boolean"})
_TEXT = frozenset({"string"})
_EXTREMES = ("expect_column_max_to_be_between", "expect_column_min_to_be_between")
OF_TYPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_EXTREMES, NUMBERS | _TIMES | _FLAG),
    "expect_column_mean_to_be_between": NUMBERS,
    "expect_column_median_to_be_between": NUMBERS,
    "expect_column_quantile_values_to_be_between": NUMBERS,
    "expect_column_stdev_to_be_between": NUMBERS,
    "expect_column_sum_to_be_between": NUMBERS,
    "expect_column_value_z_scores_to_be_less_than": NUMBERS,
    "expect_column_values_to_not_be_outliers": NUMBERS,
    "expect_column_values_to_be_between": NUMBERS | _TIMES | _TEXT,
    "expect_column_most_common_value_to_be_in_set": NUMBERS | _FLAG | _TEXT,
    "expect_column_kl_divergence_to_be_less_than": NUMBERS | _FLAG | _TEXT,
    "expect_column_values_to_match_json_schema": _TEXT,
    "expect_column_values_to_match_strftime_format": _TEXT,
}
"""Types of columns that it can judge; those that are not here it can judge of every type."""
_BETWEEN = (
    *_EXTREMES,
    "expect_column_mean_to_be_between",
    "expect_column_median_to_be_between",
    "expect_column_stdev_to_be_between",
    "expect_column_sum_to_be_between",
)
_DATE_LENGTH = len("2026-11-21")
_BY_QUERY = 'Write unexpected_rows_expectation, which asks by SQL: "select ... from {batch} where ..."'


def not_on_spark(kind: str) -> Unjudged | None:
    """Why expectations of this type cannot be judged, and what to do; None where they can."""
    return _LACKING.get(kind)


def not_of_column(kind: str, kwargs: Mapping[str, Any], types: Mapping[str, Type]) -> Unjudged | None:
    """The same of one column's expectation, for the column's type."""
    column = str(kwargs.get("column", ""))
    found, known = types.get(column), OF_TYPES.get(kind)
    if found is None or known is None:
        return None
    if found.name not in known:
        return f"Great Expectations cannot judge this of {column}, which is {found}", _BY_QUERY
    # of a text only numbers can be bounds: of its length, of how many there are, of texts that are numbers
    for bound in ("min_value", "max_value") if kind in _BETWEEN or found.name == "string" else ():
        value = kwargs.get(bound)
        if value is not None and (wanted := _wanted(value, found)):
            return f"{bound} {value!r} is none for {column}, which is {found}", f"Write {wanted}"
    return None


def _wanted(value: object, of: Type) -> str:
    """What a bound must look like instead; empty where it will do."""
    if of.name not in _TIMES:
        return "" if isinstance(value, int | float) else "a number"
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return f'a {of} in quotes, as in "2026-11-21"'
    if moment.tzinfo is not None:
        return 'it without a zone, as in "2026-11-21T10:00:00", which is UTC: Great Expectations compares no other'
    return "" if of.name == "timestamp" or len(str(value)) == _DATE_LENGTH else 'a date, as in "2026-11-21"'
