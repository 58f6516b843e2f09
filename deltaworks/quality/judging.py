"""Row rules over Arrow record batches: the one implementation, in the driver and in Spark's Python workers.

A check gives per row true where it is broken; null and false are fine. Doubles are compared as Spark compares them:
NaN is equal to itself and greater than everything.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.errors import DeclarationError
from deltaworks.quality.pattern import LINE_END, Pattern
from deltaworks.quality.predicate import Joined, Not, Predicate
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
    Text,
)

Array = Any
"""A boolean pyarrow array, which has no types of its own."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """What the rules say of the rows of a batch, by place; rows without a fault are not named."""

    refused: dict[int, str] = field(default_factory=dict)
    """The reason, that of the first critical rule that is broken."""
    warned: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The names of the warnings of rows that are not refused."""


def proven(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules, tried on a text, as Arrow reads no pattern without; raises DeclarationError for one it refuses."""
    for rule in rules:
        if isinstance(rule.check, Match):
            try:
                _match(rule.check, pa.array([""]))
            except pa.ArrowInvalid as error:
                text = str(error).splitlines()[0]
                raise DeclarationError(rule.name, f"the pattern cannot be used ({text})", "Make it shorter") from None
    return tuple(rules)


def judge(
    rules: Sequence[Rule], rows: pa.RecordBatch, among: Array, *, unsent: Mapping[str, Array] | None = None
) -> Verdicts:
    """Judge the rows where `among` is true, each by the rules whose columns it carries (`unsent`: per column not)."""
    refused: dict[int, str] = {}
    warned: dict[int, list[str]] = {}
    unsent = unsent or {}
    for rule in rules:
        found = pc.and_(pc.fill_null(broken(rule.check, rows), False), among)
        for column in unsent.keys() & {*columns_of(rule.check)}:
            found = pc.and_(found, pc.invert(unsent[column]))
        if not pc.any(found).as_py():
            continue
        for place in pc.indices_nonzero(found).to_pylist():
            if rule.critical:
                refused.setdefault(place, rule.reason)
            else:
                warned.setdefault(place, []).append(rule.name)
    kept = {place: tuple(dict.fromkeys(names)) for place, names in warned.items() if place not in refused}
    return Verdicts(refused=refused, warned=kept)


def columns_of(check: Check) -> tuple[str, ...]:
    """The columns that a check looks at."""
    return (check.column,) if hasattr(check, "column") else check.columns


def holds(predicate: Predicate, rows: pa.RecordBatch) -> Array:
    """Per row whether the condition holds; null where it is neither true nor false."""
    match predicate:
        case Not(part=part):
            return pc.invert(holds(part, rows))
        case Joined(how=how, parts=parts):
            return reduce(pc.and_kleene if how == "all" else pc.or_kleene, [holds(part, rows) for part in parts])
    fits = pc.invert(broken(predicate, rows))
    if isinstance(predicate, Null):
        return fits
    known = reduce(pc.and_, [pc.is_valid(rows.column(name)) for name in columns_of(predicate)])
    return pc.if_else(known, fits, pa.scalar(None, pa.bool_()))


def broken(check: Check, rows: pa.RecordBatch) -> Array:
    """Per row whether the check is broken; null where it says nothing."""
    match check:
        case Null(column=column, wanted=wanted):
            return pc.is_valid(rows.column(column)) if wanted else pc.is_null(rows.column(column))
        case Range():
            return _not(_in_ranges(check, rows.column(check.column)))
        case OneOf(column=column, values=values, wanted=wanted):
            return _one_of(rows.column(column), values, wanted=wanted)
        case Match(column=column):
            return _match(check, rows.column(column))
        case Length(column=column, least=least, most=most):
            return _length(rows.column(column), least, most)
        case Parses(column=column, text=text, form=form):
            return _unreadable(rows.column(column), text, form)
    columns = [rows.column(name) for name in check.columns]
    return pc.and_kleene(_broken_among(check, columns), _not(_left_out(columns, check.ignored)))


def _broken_among(check: Greater | Equal | Distinct | PairIn | Sum, columns: list[Array]) -> Array:
    match check:
        case Greater(or_equal=or_equal):
            greater = _greater(*columns, or_equal=or_equal)
            return _not(pc.or_kleene(greater, _same(*columns)) if or_equal else greater)
        case Equal():
            return _not(reduce(pc.and_, [_same(columns[0], other) for other in columns[1:]]))
        case Distinct():
            pairs = [(one, other) for at, one in enumerate(columns) for other in columns[at + 1 :]]
            return reduce(pc.or_, [_same(one, other) for one, other in pairs])
        case PairIn(pairs=pairs):
            one, other = columns
            fits = [pc.and_(_is(one, first), _is(other, second)) for first, second in pairs]
            return _not(reduce(pc.or_, fits))
        case Sum(total=total):
            sums = (
                sum(value or 0 for value in values) for values in zip(*(c.to_pylist() for c in columns), strict=True)
            )
            return pa.array([float(value) != total for value in sums], pa.bool_())


def _not(array: Array) -> Array:
    return pc.invert(array)


def _in_ranges(check: Range, values: Array) -> Array:
    fits = _all(values, False)
    for low, high in check.ranges:
        one = _all(values, True)
        if low is not None:
            above = (pc.greater if check.low_out else pc.greater_equal)(values, _scalar(low, values))
            one = pc.and_kleene(one, pc.or_kleene(above, _nan(values)))
        if high is not None:
            below = (pc.less if check.high_out else pc.less_equal)(values, _scalar(high, values))
            one = pc.and_kleene(one, below)
        fits = pc.or_kleene(fits, one)
    return pc.if_else(pc.is_valid(values), fits, pa.scalar(None, pa.bool_()))


def _one_of(values: Array, members: Sequence[Any], *, wanted: bool) -> Array:
    found = pc.is_in(values, value_set=_fitting(members, values.type))
    return pc.and_(pc.is_valid(values), _not(found) if wanted else found)


def _fitting(values: Sequence[Any], kind: pa.DataType) -> Array:
    """The values as the column's type; what it cannot hold is in no row."""
    made = []
    for value in values:
        try:
            made.append(pa.scalar(value, kind).as_py())
        except (pa.ArrowInvalid, OverflowError, ValueError):
            continue
    return pa.array(made, kind)


def _match(check: Match, texts: Array) -> Array:
    fits = [_fits(texts, pattern) for pattern in check.patterns]
    if check.wanted:
        return _not(reduce(pc.and_, fits))
    return reduce(pc.or_, fits)


def _fits(texts: Array, pattern: Pattern) -> Array:
    found = pc.match_substring_regex(texts, pattern=pattern.whole)
    if pattern.without_line_end is None:
        return found
    cut = pc.replace_substring_regex(texts, pattern=LINE_END, replacement="")
    return pc.or_(found, pc.match_substring_regex(cut, pattern=pattern.without_line_end))


def _length(values: Array, least: int | None, most: int | None) -> Array:
    lengths = (pc.binary_length if pa.types.is_binary(values.type) else pc.utf8_length)(values).cast(pa.int64())
    outside = pa.array([False] * len(values), pa.bool_())
    if least is not None:
        outside = pc.or_kleene(outside, pc.less(lengths, least))
    if most is not None:
        outside = pc.or_kleene(outside, pc.greater(lengths, most))
    return outside


def _unreadable(texts: Array, text: Text, form: str) -> Array:
    reads = _is_json if text == "json" else _is_time(form)
    return pa.array([value is not None and not reads(value) for value in texts.to_pylist()], pa.bool_())


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _is_time(form: str) -> Callable[[str], bool]:
    def reads(value: str) -> bool:
        try:
            datetime.strptime(value, form)  # noqa: DTZ007  # only whether it can be read
        except ValueError:
            return False
        return True

    return reads


def _left_out(columns: list[Array], ignored: Ignored) -> Array:
    missing = [pc.is_null(column) for column in columns]
    if ignored == "none":
        return _all(columns[0], False)
    return reduce(pc.and_ if ignored == "all" else pc.or_, missing)


def _greater(one: Array, other: Array, *, or_equal: bool) -> Array:
    one, other = _comparable(one, other)
    above = (pc.greater_equal if or_equal else pc.greater)(one, other)
    if not pa.types.is_floating(one.type):
        return above
    return pc.or_kleene(above, pc.and_kleene(_nan(one), pc.invert(_nan(other))))


def _same(one: Array, other: Array) -> Array:
    """Equal, where two nulls are equal: never null itself."""
    one, other = _comparable(one, other)
    equal = pc.fill_null(pc.equal(one, other), False)
    both = pc.and_(pc.is_null(one), pc.is_null(other))
    if pa.types.is_floating(one.type):
        both = pc.or_(both, pc.fill_null(pc.and_kleene(_nan(one), _nan(other)), False))
    return pc.or_(equal, both)


def _comparable(one: Array, other: Array) -> tuple[Array, Array]:
    """Whole numbers of two sizes in the larger one."""
    if one.type == other.type:
        return one, other
    return one.cast(pa.int64()), other.cast(pa.int64())


def _is(values: Array, value: Any) -> Array:
    if value is None:
        return pc.is_null(values)
    fitting = _fitting([value], values.type)
    return pc.and_(pc.is_valid(values), pc.is_in(values, value_set=fitting))


def _nan(values: Array) -> Array:
    return pc.is_nan(values) if pa.types.is_floating(values.type) else _all(values, False)


def _scalar(value: Any, values: Array) -> Any:
    return pa.scalar(value, values.type)


def _all(values: Array, value: bool) -> Array:
    return pa.repeat(pa.scalar(value), len(values))
