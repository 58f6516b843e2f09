"""Expectations compiled to row rules; what cannot be has a reason.

Rows are judged here only where the verdict is that of Great Expectations 1.24 on Spark, the engine of the full
validation: kwargs that it reads in an unexpected way, and types that Spark would convert first, are refused.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from deltaworks.errors import DeclarationError
from deltaworks.findings import Finding
from deltaworks.quality.bounds import number_range
from deltaworks.quality.on_spark import DATE, NUMBERS, not_of_column, not_on_spark, reads
from deltaworks.quality.pattern import NotPortableError, any_of, translate
from deltaworks.quality.rule import (
    Check,
    Distinct,
    Equal,
    Greater,
    Ignored,
    Length,
    Match,
    Null,
    OneOf,
    PairIn,
    Parses,
    Range,
    Rule,
    Sum,
    Value,
)
from deltaworks.suites import Expectation, Suite, shown_path
from deltaworks.words.table import Column
from deltaworks.words.types import Type, parse

Kwargs = Mapping[str, Any]
Columns = Mapping[str, Type]

_INTS, _EXACT = ("int", "bigint"), ("int", "bigint", "decimal")
_SOME_TIME = datetime(2026, 11, 23, 12, tzinfo=UTC)
_WHOLE_NUMBER_MAX = 2**53  # beyond it a number read as a double is another one
_IGNORED_PAIRS: dict[str, Ignored] = {
    "both_values_are_missing": "all",
    "either_value_is_missing": "any",
    "neither": "none",
}
_IGNORED_ROWS: dict[str, Ignored] = {
    "all_values_are_missing": "all",
    "any_value_is_missing": "any",
    "never": "none",
}
_FIRST_DAY = "1600-01-01"  # Java has another calendar before 1582-10-15
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})")
_SPARK = {
    "boolean": "BooleanType",
    "int": "IntegerType",
    "bigint": "LongType",
    "double": "DoubleType",
    "string": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "decimal": "DecimalType",
}


class NotCompiledError(ValueError):
    """Rows cannot be judged by this expectation; says why and what to write instead."""

    def __init__(self, finding: str, next_step: str) -> None:
        """Keep both parts of a finding."""
        super().__init__(finding)
        self.finding, self.next_step = finding, next_step


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What became of one expectation: a rule, nothing to judge, or the reason why the stream leaves it alone."""

    expectation: Expectation
    rule: Rule | None = None
    settled: bool = False
    """Holds by the declaration."""
    hopeless: bool = False
    """Can never hold, or never be judged, whoever judges."""
    on_schedule: str | None = None
    """Why it says nothing about a single row."""
    refused: NotCompiledError | None = None
    """Why it cannot judge rows, although it is about single ones."""

    @property
    def why_no_rule(self) -> str:
        """Why single rows are not judged by it; empty where they are, or need not be."""
        return self.refused.finding if self.refused is not None else self.on_schedule or ""


def rules_of(suite: Suite, columns: Sequence[Column], *, later: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The row rules of a suite, in its order."""
    return tuple(one.rule for one in compiled(suite, columns, later=later) if one.rule is not None)


def compiled(suite: Suite, columns: Sequence[Column], *, later: Sequence[str] = ()) -> Iterator[Compiled]:
    """Every expectation of a suite, compiled or not; `later`: the columns that a row does not have when it comes."""
    if not suite.expectations:
        return  # bronze has columns of types that nobody declares
    types = {column.name: parse(column.type) for column in columns}
    for one in suite.expectations:
        unjudged = not_on_spark(one.type) or not_of_column(one.type, one.kwargs, types)
        if unjudged is not None:
            yield Compiled(expectation=one, refused=NotCompiledError(*unjudged), hopeless=True)
        elif one.type in _COMPILED and not set(later).isdisjoint(_columns(one.kwargs)):
            yield Compiled(expectation=one, on_schedule="a row has no interval when it comes")
        else:
            yield _compiled(one, types)


def findings(
    suite: Suite, columns: Sequence[Column], *, later: Sequence[str] = (), parses: bool = True
) -> Iterator[Finding]:
    """What nobody can judge, or not as it says; of a table that parses also what is critical, and sets no row aside."""
    nullable = {column.name for column in columns if column.null}
    for one in compiled(suite, columns, later=later):
        if one.rule is not None and (finding := _lets_nulls_through(one.rule.check, nullable)):
            yield Finding(
                place=f"{shown_path(suite.name)}:{one.expectation.line}",
                finding=finding,
                next_step="Write ignore_row_if: either_value_is_missing, which says so, and expect both to be not null",
            )
        if one.refused is None:
            continue
        finding, next_step = one.refused.finding, one.refused.next_step
        if one.hopeless or (parses and one.expectation.severity == "critical"):
            place = f"{shown_path(suite.name)}:{one.expectation.line}"
            yield Finding(place=place, finding=finding, next_step=next_step)


def _lets_nulls_through(check: Check, nullable: Collection[str]) -> str:
    """How a comparison passes rows that it seems to refuse: nothing is above null, and nothing is not. Empty if not."""
    if not isinstance(check, Greater) or check.ignored == "any":
        return ""
    names = [name for name in check.columns if name in nullable]
    return f"a row without {' or '.join(names)} passes, whatever ignore_row_if says" if names else ""


def _compiled(one: Expectation, types: Columns) -> Compiled:
    if one.type in _TYPE_CHECKS:
        return _declared_type(one, types)
    if one.type not in _COMPILED or one.kwargs.get("mostly", 1) != 1:
        return Compiled(expectation=one, on_schedule="it is about many rows together")
    if one.kwargs.get("row_condition") is not None:
        return Compiled(expectation=one, on_schedule="it is about some of the rows")
    try:
        check = _COMPILED[one.type](one.kwargs, types)
        rule = Rule(name=name_of(one), critical=one.severity == "critical", check=check)
        if isinstance(check, Match):
            _prove(rule)
    except NotCompiledError as error:
        return Compiled(expectation=one, refused=error)
    return Compiled(expectation=one, rule=rule)


def _prove(rule: Rule) -> None:
    try:
        from deltaworks.quality.judging import proven
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        return  # Airflow plans what is judged without Arrow; table check and the app have it
    try:
        proven([rule])
    except DeclarationError as error:
        raise NotCompiledError(error.finding, f"{error.next_step}. {_WARN}") from None


def judges_rows(kind: str) -> bool:
    """Whether single rows can be judged by expectations of this type."""
    return kind in _COMPILED


def settled_by_the_declaration(kind: str) -> bool:
    """Whether expectations of this type hold, or cannot, whatever the rows are."""
    return kind in _TYPE_CHECKS


_WARN = "Take it out, or write severity: warning: then the stream leaves it alone"


def name_of(one: Expectation) -> str:
    """Type and columns: nothing of the data."""
    return f"{one.type}({', '.join(_columns(one.kwargs))})"


def _columns(kwargs: Kwargs) -> list[str]:
    named = [kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs]
    return [str(name) for name in named or kwargs.get("column_list", [])]


def _declared_type(one: Expectation, types: Columns) -> Compiled:
    """A column has one type, the declared one: nothing is left for rows."""
    kind = types[one.kwargs["column"]]
    wanted = one.kwargs.get("type_", one.kwargs.get("type_list"))
    names = wanted if isinstance(wanted, list) else [wanted]
    spark = _SPARK[kind.name]
    if spark in names or wanted is None:
        return Compiled(expectation=one, settled=True)
    shown = ", ".join(str(name) for name in names)
    error = NotCompiledError(f"{one.kwargs['column']} is declared {kind}, never {shown}", f"Write {spark}")
    return Compiled(expectation=one, hopeless=True, refused=error)


# -- one column -----------------------------------------------------------------------------------------------------


def _null(wanted: bool) -> Callable[[Kwargs, Columns], Check]:
    return lambda kwargs, _: Null(column=kwargs["column"], wanted=wanted)


def _between(kwargs: Kwargs, types: Columns) -> Check:
    column = kwargs["column"]
    kind = types[column]
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    low_out, high_out = _flag(kwargs, "strict_min"), _flag(kwargs, "strict_max")
    if low is None and high is None:
        raise NotCompiledError("neither min_value nor max_value is given", "Give one of them")
    read = _number if kind.name in NUMBERS else _literal
    ends: list[Any] = [None if bound is None else read(bound, column, kind) for bound in (low, high)]
    first, last = ends
    if first is not None and last is not None and first > last:
        raise NotCompiledError("min_value is above max_value", "Swap them")
    if kind.name in _EXACT:
        found = number_range(kind, low=first, high=last, low_out=low_out, high_out=high_out)
        return Range(column=column, ranges=() if found is None else (found,))
    return Range(column=column, ranges=((first, last),), low_out=low_out, high_out=high_out)


def _one_of(wanted: bool) -> Callable[[Kwargs, Columns], Check]:
    def check(kwargs: Kwargs, types: Columns) -> Check:
        column, values = kwargs["column"], kwargs["value_set"]
        kind = types[column]
        if not (isinstance(values, list) and values):
            raise NotCompiledError("value_set is no list of values", "Write [a, b]")
        if None in values:  # with a null in the set Spark's answer is never "no"
            raise NotCompiledError("value_set has a null, which lets everything pass", "Take it out: nulls pass anyway")
        if kind.name == "decimal" and any(isinstance(value, float) for value in values):
            if not wanted:
                raise NotCompiledError(f"{column} is {kind}, and value_set has fractions", _WARN)
            return Range(column=column, ranges=_near(values, column, kind))
        return OneOf(column=column, values=tuple(_literal(value, column, kind) for value in values), wanted=wanted)

    return check


def _near(values: Sequence[Any], column: str, kind: Type) -> tuple[tuple[Value, Value], ...]:
    """The decimals that are equal to one of these numbers as doubles."""
    numbers = [_number(value, column, kind) for value in values]
    found = [number_range(kind, low=number, high=number) for number in numbers]
    return tuple(one for one in found if one is not None)


def _match(key: str, wanted: bool) -> Callable[[Kwargs, Columns], Check]:
    def check(kwargs: Kwargs, types: Columns) -> Check:
        column, given = kwargs["column"], kwargs.get(key)
        _text_only(column, types)
        listed: list[Any] = given if isinstance(given, list) else [given]
        patterns = [one for one in listed if isinstance(one, str)]
        if not patterns or len(patterns) < len(listed):
            raise NotCompiledError(f"{key} is no text", "Write it in single quotes")
        try:
            if wanted and kwargs.get("match_on", "any") == "any":
                return Match(column=column, patterns=(any_of(patterns),), wanted=True)
            return Match(column=column, patterns=tuple(translate(one) for one in patterns), wanted=wanted)
        except NotPortableError as error:
            finding = f"the pattern is not read alike by Java and here: {error}"
            raise NotCompiledError(finding, f"Write it otherwise. {_WARN}") from None

    return check


def _length(kwargs: Kwargs, types: Columns) -> Check:
    column = kwargs["column"]
    if types[column].name not in ("string", "binary"):
        raise NotCompiledError(f"{column} is {types[column]}: only text and bytes have a length", _WARN)
    if "value" in kwargs:
        exact = _whole(kwargs["value"], "value")
        return Length(column=column, least=exact, most=exact)
    low, high = (None if kwargs.get(key) is None else _whole(kwargs[key], key) for key in ("min_value", "max_value"))
    if low is None and high is None:
        raise NotCompiledError("neither min_value nor max_value is given", "Give one of them")
    if low is not None and _flag(kwargs, "strict_min"):
        low += 1
    if high is not None and _flag(kwargs, "strict_max"):
        high -= 1
    return Length(column=column, least=low, most=high)


def _json(kwargs: Kwargs, types: Columns) -> Check:
    _text_only(kwargs["column"], types)
    return Parses(column=kwargs["column"], text="json")


def _time(kwargs: Kwargs, types: Columns) -> Check:
    form = kwargs["strftime_format"]
    _text_only(kwargs["column"], types)
    try:
        # as Great Expectations asks of now; some forms cannot be read back on 29 February
        datetime.strptime(_SOME_TIME.strftime(form), form)  # noqa: DTZ007  # a form need have no zone
    except (ValueError, TypeError) as error:
        raise NotCompiledError(f"strftime_format {form!r}: {error}", "Write one that Python reads") from None
    return Parses(column=kwargs["column"], text="time", form=form)


# -- several columns ------------------------------------------------------------------------------------------------


def _greater(kwargs: Kwargs, types: Columns) -> Check:
    one, other = kwargs["column_A"], kwargs["column_B"]
    _alike((one, other), types)
    if types[one].name in ("boolean", "binary"):
        raise NotCompiledError(f"{one} is {types[one]}, which has no order", _WARN)
    return Greater(columns=(one, other), or_equal=_flag(kwargs, "or_equal"), ignored=_ignored(kwargs))


def _pair_equal(kwargs: Kwargs, types: Columns) -> Check:
    columns = (kwargs["column_A"], kwargs["column_B"])
    _alike(columns, types)
    return Equal(columns=columns, ignored=_ignored(kwargs))


def _pair_in(kwargs: Kwargs, types: Columns) -> Check:
    columns, given = (kwargs["column_A"], kwargs["column_B"]), kwargs["value_pairs_set"]
    if not (isinstance(given, list) and given and all(isinstance(pair, list) and len(pair) == 2 for pair in given)):
        raise NotCompiledError("value_pairs_set is no list of pairs", "Write [[a, b], [c, d]]")
    one, other = columns
    pairs = tuple(
        (
            None if first is None else _literal(first, one, types[one]),
            None if second is None else _literal(second, other, types[other]),
        )
        for first, second in given
    )
    return PairIn(columns=(one, other), pairs=pairs, ignored=_ignored(kwargs))


def _all_equal(kwargs: Kwargs, types: Columns) -> Check:
    return Equal(columns=_listed(kwargs, types), ignored=_ignored(kwargs))


def _distinct(kwargs: Kwargs, types: Columns) -> Check:
    return Distinct(columns=_listed(kwargs, types), ignored=_ignored(kwargs))


def _sum(kwargs: Kwargs, types: Columns) -> Check:
    columns = tuple(kwargs["column_list"])
    for name in columns:
        if types[name].name not in _INTS:
            raise NotCompiledError(f"{name} is {types[name]}: only whole numbers are added up here", _WARN)
    total = kwargs["sum_total"]
    return Sum(columns=columns, total=_number(total, columns[0], types[columns[0]]), ignored=_ignored(kwargs))


def _listed(kwargs: Kwargs, types: Columns) -> tuple[str, ...]:
    columns = tuple(kwargs["column_list"])
    if len(columns) < 2:
        raise NotCompiledError("column_list has fewer than two columns", "Name two or more")
    _alike(columns, types)
    return columns


# -- arguments ------------------------------------------------------------------------------------------------------


def _flag(kwargs: Kwargs, key: str) -> bool:
    value = kwargs.get(key)
    if value not in (None, True, False):
        raise NotCompiledError(f"{key} is {value!r}", "Write true or false")
    return bool(value)


def _ignored(kwargs: Kwargs) -> Ignored:
    given = kwargs.get("ignore_row_if")
    known = _IGNORED_PAIRS if "column_A" in kwargs else _IGNORED_ROWS
    if given is None:
        return "all"
    if given not in known:
        raise NotCompiledError(f"ignore_row_if is {given!r}", f"Known are {', '.join(known)}")
    return known[given]


def _number(value: Any, column: str, kind: Type) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotCompiledError(f"{column} is {kind}, and {value!r} is no number", "Write a number, without quotes")
    return float(value)


def _whole(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotCompiledError(f"{key} is {value!r}", "Write a whole number")
    return value


def _literal(value: Any, column: str, kind: Type) -> Value:
    """A value that is compared with the column's own, in its type."""
    made: Value | None = None
    match kind.name:
        case "boolean":
            made = value if isinstance(value, bool) else None
        case "int" | "bigint" | "decimal":
            made = value if isinstance(value, int) and not isinstance(value, bool) else None
        case "double":
            made = _number(value, column, kind) or 0.0  # -0.0 is 0.0 here
            if abs(made) > _WHOLE_NUMBER_MAX and isinstance(value, int):
                made = None
        case "string":
            made = value if isinstance(value, str) else None
        case "date":
            made = date.fromisoformat(value) if isinstance(value, str) and _is_date(value) else None
        case "timestamp":
            made = (
                datetime.fromisoformat(value).astimezone(UTC) if isinstance(value, str) and _is_moment(value) else None
            )
    if made is None:
        example = _EXAMPLES.get(kind.name, f"a {kind}")
        raise NotCompiledError(f"{column} is {kind}, and {value!r} is none", f"Write {example}. Otherwise: {_WARN}")
    return made


_EXAMPLES = {
    "boolean": "true or false",
    "int": "a whole number",
    "bigint": "a whole number",
    "decimal": "a whole number",
    "string": "it in quotes",
    "date": '"2026-11-21"',
    "timestamp": '"2026-11-21T10:00:00Z"',
}


def _is_date(value: str) -> bool:
    return DATE.fullmatch(value) is not None and value >= _FIRST_DAY and reads(date.fromisoformat, value)


def _is_moment(value: str) -> bool:
    return _MOMENT.fullmatch(value) is not None and value >= _FIRST_DAY and reads(datetime.fromisoformat, value)


def _text_only(column: str, types: Columns) -> None:
    if types[column].name != "string":
        raise NotCompiledError(f"{column} is {types[column]}, no string", _WARN)


def _alike(columns: Sequence[str], types: Columns) -> None:
    kinds = [types[name] for name in columns]
    if any(kind != kinds[0] for kind in kinds) and not all(kind.name in _INTS for kind in kinds):
        shown = ", ".join(f"{name} {types[name]}" for name in columns)
        raise NotCompiledError(f"the columns have different types ({shown})", _WARN)


_COMPILED: dict[str, Callable[[Kwargs, Columns], Check]] = {
    "expect_column_values_to_be_null": _null(True),
    "expect_column_values_to_not_be_null": _null(False),
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": _one_of(True),
    "expect_column_values_to_not_be_in_set": _one_of(False),
    "expect_column_values_to_match_regex": _match("regex", True),
    "expect_column_values_to_match_regex_list": _match("regex_list", True),
    "expect_column_values_to_not_match_regex": _match("regex", False),
    "expect_column_values_to_not_match_regex_list": _match("regex_list", False),
    "expect_column_value_lengths_to_be_between": _length,
    "expect_column_value_lengths_to_equal": _length,
    "expect_column_values_to_be_json_parseable": _json,
    "expect_column_values_to_match_strftime_format": _time,
    "expect_column_pair_values_a_to_be_greater_than_b": _greater,
    "expect_column_pair_values_to_be_equal": _pair_equal,
    "expect_column_pair_values_to_be_in_set": _pair_in,
    "expect_multicolumn_values_to_be_equal": _all_equal,
    "expect_select_column_values_to_be_unique_within_record": _distinct,
    "expect_multicolumn_sum_to_equal": _sum,
}
_TYPE_CHECKS = ("expect_column_values_to_be_of_type", "expect_column_values_to_be_in_type_list")
