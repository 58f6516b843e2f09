"""What no validation can judge: what Great Expectations 1.24 lacks on Spark, or cannot do with a column's type.

Tests hold both against the library itself.
"""

import re
from collections.abc import Callable, Iterator, Mapping
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
_SUM = "expect_column_sum_to_be_between"
"""Of moments that of their seconds since 1970, as Spark adds them up."""
_EXTREMES = ("expect_column_max_to_be_between", "expect_column_min_to_be_between")
OF_TYPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_EXTREMES, NUMBERS | _TIMES | _FLAG),
    "expect_column_mean_to_be_between": NUMBERS,
    "expect_column_median_to_be_between": NUMBERS,
    "expect_column_quantile_values_to_be_between": NUMBERS,
    "expect_column_stdev_to_be_between": NUMBERS,
    _SUM: NUMBERS | {"timestamp"},
    "expect_column_value_z_scores_to_be_less_than": NUMBERS,
    "expect_column_values_to_not_be_outliers": NUMBERS,
    "expect_column_values_to_be_between": NUMBERS | _TIMES,
    "expect_column_most_common_value_to_be_in_set": NUMBERS | _FLAG | _TEXT,
    "expect_column_kl_divergence_to_be_less_than": NUMBERS | _FLAG | _TEXT,
    "expect_column_values_to_match_json_schema": _TEXT,
    "expect_column_values_to_match_strftime_format": _TEXT,
}
"""Types of columns that it can judge; those that are not here it can judge of every type."""
_BOUNDED = (
    *_EXTREMES,
    "expect_column_mean_to_be_between",
    "expect_column_median_to_be_between",
    "expect_column_stdev_to_be_between",
    _SUM,
    "expect_column_values_to_be_between",
)
"""Those whose bounds are values of the column's type, or numbers where what is bounded is one."""
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?")
_BY_QUERY = 'Write unexpected_rows_expectation, which asks by SQL: "select ... from {batch} where ..."'


def not_on_spark(kind: str) -> Unjudged | None:
    """Why expectations of this type cannot be judged, and what to do; None where they can."""
    return _LACKING.get(kind)


def not_of_column(kind: str, kwargs: Mapping[str, Any], types: Mapping[str, Type]) -> Unjudged | None:
    """Why an expectation about a column cannot be judged of one of its type, or with its bounds; None where it can."""
    column = str(kwargs.get("column", ""))
    found, known = types.get(column), OF_TYPES.get(kind)
    if found is None or known is None:
        return None
    if found.name not in known:
        return f"Great Expectations cannot judge this of {column}, which is {found}", _BY_QUERY
    for bound, value in _bounds(kind, kwargs):
        moments = found.name in _TIMES and kind != _SUM
        if wanted := _wanted(value, found, zoned=kind not in _EXTREMES) if moments else _number(value):
            return f"{bound} {value!r} is none for {column}, which is {found}", f"Write {wanted}"
    return None


def _bounds(kind: str, kwargs: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """What must be of the column's type."""
    if kind in _BOUNDED:
        yield from ((name, kwargs[name]) for name in ("min_value", "max_value") if kwargs.get(name) is not None)
    given = kwargs.get("quantile_ranges")
    ranges = given.get("value_ranges") if isinstance(given, dict) else None
    for pair in ranges if isinstance(ranges, list) else []:
        yield from (
            ("value_ranges", value) for value in (pair if isinstance(pair, list) else [pair]) if value is not None
        )


def _number(value: object) -> str:
    """What a bound must be instead, empty where it will do."""
    return "" if isinstance(value, int | float) else "a number"


def _wanted(value: object, of: Type, *, zoned: bool) -> str:
    """The same of a date or moment; `zoned`: whether it may have a zone."""
    pattern = DATE if of.name == "date" else _MOMENT
    if not isinstance(value, str) or not pattern.fullmatch(value) or not reads(datetime.fromisoformat, value):
        return f'a {of} in quotes, as in "2026-11-21{"" if of.name == "date" else "T10:00:00"}"'
    if not zoned and datetime.fromisoformat(value).tzinfo is not None:
        return 'it without a zone, as in "2026-11-21T10:00:00", which is UTC: Great Expectations compares no other'
    return ""


def reads(read: Callable[[str], object], text: str) -> bool:
    """Whether a text can be read so."""
    try:
        read(text)
    except ValueError:
        return False
    return True
