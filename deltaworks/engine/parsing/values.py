"""One column's way from JSON values to Arrow: a whole column at once when it is clean, else value by value.

`Converter.many` accepts only what `Converter.one` accepts, with the same result: tests hold them against each other.
"""

import binascii
import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cached_property
from math import isinf
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.errors import DeclarationError
from deltaworks.words import types
from deltaworks.words.reading import ARRIVAL
from deltaworks.words.table import Column

One = Callable[[Any], Any]
Many = Callable[[list[Any]], pa.Array | None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROS = {"micros": 1, "millis": 1_000, "seconds": 1_000_000}
_INT_BOUNDS = {"int": 2**31, "bigint": 2**63}
_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_NONE = type(None)
# one grammar for both engines (Python's and Arrow's RE2): ASCII digits only, whole text
_YEAR = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"  # Arrow reads a year 0, which Python does not have
_DATE = rf"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}"
_MINUTE = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_MINUTE}:[0-5][0-9](\.[0-9]+)?(Z|[+-]{_MINUTE})"
_TIMESTAMP = rf"{_DATE}T{_TIME}"
_FINER = r"(\.[0-9]{6})[0-9]+"  # than a microsecond: the type has no more, and the instant lies in this one
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"  # as JSON writes one
_IS_TIMESTAMP, _IS_DATE, _IS_NUMBER = re.compile(_TIMESTAMP), re.compile(_DATE), re.compile(_NUMBER)
_IS_OTHER_YEAR = re.compile(rf"[+-]?[0-9]{{4,}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}")
_NUMBER_LENGTH_MAX = 400  # no declared decimal needs more; bounds the work on a hostile text
_DOUBLES = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""What JSON has no number for, as connectors and protobuf's JSON write it."""
_CODES = {
    "nan": "NaN", "inf": "infinite", "infinity": "infinite", "positive_infinity": "infinite",
    "negative_infinity": "infinite",
}  # fmt: skip
"""Codes of texts that say what the type has not; those of a `numeric` are Debezium's own words."""
UNSENT = "value not sent"
"""Code of a value that the source left out because it is what it was (an unchanged TOAST value)."""


@dataclass(frozen=True)
class Placeholder:
    """What a connector writes for a value that was not sent: this text, in a form that fits the column's type.

    Text, JSON and what else is text; bytes; arrays of them and of UUIDs; arrays of numbers, which are the text's bytes;
    a map (hstore) of the text to itself, or the JSON of it.
    """

    text: str

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The forms that are texts themselves."""
        pair = {self.text: self.text}
        return (self.text, self._base64, json.dumps(pair, separators=(",", ":")), json.dumps(pair))

    @cached_property
    def lists(self) -> tuple[list[Any], ...]:
        """The forms that are arrays."""
        plain = self.text.encode()
        uuid = UUID(bytes=hashlib.md5(plain, usedforsecurity=False).digest(), version=3)
        return [self.text], [self._base64], [str(uuid)], [*plain]

    @property
    def _base64(self) -> str:
        return b64encode(self.text.encode()).decode()

    def stands_for(self, value: Any) -> bool:
        """Whether this is no value, but says that none was sent."""
        if isinstance(value, list):
            return value in self.lists
        return value == {self.text: self.text} if isinstance(value, dict) else value in self.texts


@dataclass(frozen=True, kw_only=True)
class Years:
    """Years that a date or timestamp sent as a number may lie in: others are taken for a wrong unit."""

    first: int
    last: int = 9999


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a kind of source writes values where a column's `wire=` does not say.

    `days`: dates are numbers of days. `micros`: a timestamp may also be a number of microseconds.
    `unsent`: what stands for a value that was not sent.
    """

    years: Years
    days: bool = False
    micros: bool = False
    unsent: Placeholder | None = None


@dataclass(frozen=True, kw_only=True)
class Converter:
    """One declared column: `column` is what the parsers call."""

    name: str
    type: pa.DataType
    null: bool
    one: One
    many: Many
    unsent: Placeholder | None = None
    arrival: bool = False
    """Whether it is no field of the source, but the time at which its record arrived."""

    def column(self, values: list[Any]) -> tuple[pa.Array, dict[int, str]]:
        """The values (None for null) as an array of the same length, and the codes of the refused ones (null there)."""
        if not self._may_be_unsent(values):
            array = self.many(values)
            if array is not None and (self.null or array.null_count == 0):
                return array, {}
        return self._one_by_one(values)

    def _may_be_unsent(self, values: list[Any]) -> bool:
        """Only a column of texts takes what says that no value was sent for one: others look at each value then."""
        if self.unsent is None or not pa.types.is_string(self.type):
            return False
        return any(text in values for text in self.unsent.texts)

    def _one_by_one(self, values: Sequence[Any]) -> tuple[pa.Array, dict[int, str]]:
        made: list[Any] = []
        refused: dict[int, str] = {}
        for place, value in enumerate(values):
            try:
                made.append(self._value(value))
            except Refusal as refusal:
                refused[place] = refusal.code
                made.append(None)
        return pa.array(made, self.type), refused

    def _value(self, value: Any) -> Any:
        if value is None:
            if not self.null:
                raise Refusal("null")
            return None
        if self.unsent is not None and self.unsent.stands_for(value):
            raise Refusal(UNSENT)
        return self.one(value)


def arrow_type(text: str) -> pa.DataType:
    """Arrow's type for a declared one; raises DeclarationError for a name that is none."""
    kind = types.parse(text)
    return pa.decimal128(kind.precision, kind.scale) if kind.name == "decimal" else _PLAIN[kind.name]


def converter(column: Column, encoding: Encoding, *, key: bool = False) -> Converter:
    """Compile a declared column; a key column is never null. Raises DeclarationError for a `wire` that does not fit."""
    kind = types.parse(column.type)
    arrival = column.wire == ARRIVAL
    one, many = _ways(replace(column, wire=None) if arrival else column, kind, encoding)
    return Converter(
        name=column.name,
        type=arrow_type(column.type),
        null=column.null and not key,
        one=one,
        many=many,
        unsent=encoding.unsent,
        arrival=arrival,
    )


def _ways(column: Column, kind: types.Type, encoding: Encoding) -> tuple[One, Many]:
    wire = column.wire
    if kind.name == "timestamp":
        return _timestamps(column, encoding)
    if kind.name == "date" and wire in (None, "days"):
        return _days(encoding.years) if wire == "days" or encoding.days else (_date, _dates)
    if wire is not None:
        raise _wrong_wire(column)
    if kind.name == "decimal":
        return _decimals(kind)
    if kind.name in _INT_BOUNDS:
        return _integers(kind.name)
    return {
        "boolean": (_boolean, _as_is(bool, pa.bool_())),
        "string": (_text, _as_is(str, pa.string())),
        "double": (_double, _each),
        "binary": (_bytes, _each),
    }[kind.name]


def _wrong_wire(column: Column) -> DeclarationError:
    place = f"{column.name}: {column.type}"
    return DeclarationError(place, f"wire={column.wire!r} does not fit", "See Column's docstring for what does")


def _each(_values: list[Any]) -> None:
    """No faster way than one by one."""


def _as_is(python: type, arrow: pa.DataType) -> Many:
    """Values that need no conversion once their Python type is right (bool is not int here)."""
    allowed = {python, _NONE}

    def many(values: list[Any]) -> pa.Array | None:
        if not allowed.issuperset(map(type, values)):
            return None
        try:
            return pa.array(values, arrow)
        except (OverflowError, pa.ArrowInvalid):
            return None

    return many


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Refusal("not a boolean")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Refusal("not text")
    return value


def _integers(name: str) -> tuple[One, Many]:
    bound = _INT_BOUNDS[name]

    def one(value: Any) -> int:
        if type(value) is not int:
            raise Refusal("not an integer")
        if not -bound <= value < bound:
            raise Refusal("out of range")
        return value

    return one, _as_is(int, _PLAIN[name])


def _double(value: Any) -> float:
    if type(value) is str and value in _DOUBLES:
        return _DOUBLES[value]
    if type(value) is not int and type(value) is not Decimal:
        raise Refusal("not a number")
    try:
        found = float(value)
    except OverflowError:
        raise Refusal("out of range") from None
    if isinf(found) or (value and not found):  # no number is infinite, and none but zero is nothing
        raise Refusal("out of range")
    return found + 0.0  # -0.0 becomes 0.0: they are equal in SQL and unequal as bytes of a key


def _bytes(value: Any) -> bytes:
    text = _text(value)
    try:
        found = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal("not base64") from None
    if b64encode(found).decode() != text:
        raise Refusal("not base64")
    return found


def _decimals(kind: types.Type) -> tuple[One, Many]:
    """Numbers and texts of numbers that the type holds exactly: 1.50 fits decimal(12,1), 1.55 does not."""
    assert kind.precision is not None
    assert kind.scale is not None
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    step = Decimal(1).scaleb(-kind.scale)
    arrow = pa.decimal128(kind.precision, kind.scale)

    def one(value: Any) -> Decimal:
        try:
            return context.quantize(_number(value), step)
        except (Inexact, InvalidOperation):
            raise Refusal("more digits than declared") from None

    def many(values: list[Any]) -> pa.Array | None:
        try:
            return pa.array([None if value is None else one(value) for value in values], arrow)
        except Refusal:
            return None

    return one, many


def _number(value: Any) -> Decimal:
    if type(value) is Decimal:
        return value
    if type(value) is int:
        return Decimal(value)
    if type(value) is not str:
        raise Refusal("not a number")
    if len(value) > _NUMBER_LENGTH_MAX or not _IS_NUMBER.fullmatch(value):
        raise Refusal(_code(value) or "not a number")
    return Decimal(value)


def _timestamps(column: Column, encoding: Encoding) -> tuple[One, Many]:
    wire = column.wire
    if wire is None and not encoding.micros:
        return _timestamp, _timestamps_of_texts
    if wire is not None and wire not in _MICROS:
        raise _wrong_wire(column)
    number, numbers = _numbers(_MICROS[wire or "micros"], *_micros_of_years(encoding.years), _PLAIN["timestamp"])
    if wire is not None:
        return number, numbers

    def one(value: Any) -> int:
        return _timestamp(value) if type(value) is str else number(value)

    def many(values: list[Any]) -> pa.Array | None:
        array = _timestamps_of_texts(values)
        return numbers(values) if array is None else array

    return one, many


def _timestamp(value: Any) -> int:
    """Microseconds since 1970 of an ISO-8601 text with a zone; what is finer is cut, other forms are refused."""
    if type(value) is not str:
        raise Refusal("not a timestamp")
    if not _IS_TIMESTAMP.fullmatch(value):
        year = _IS_OTHER_YEAR.fullmatch(value)  # before the year 1, or after 9999
        raise Refusal(_code(value) or ("out of range" if year else "not a timestamp"))
    try:
        micros = (datetime.fromisoformat(re.sub(_FINER, r"\1", value)) - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        raise Refusal("not a timestamp") from None
    if not _FIRST_MICRO <= micros <= _LAST_MICRO:  # an offset can lead out of the years 1 to 9999
        raise Refusal("out of range")
    return micros


def _code(text: str) -> str | None:
    """Of a text that says not a number, or an infinite one; None of any other."""
    return _CODES.get(text[:20].lower().lstrip("+-"))


def _date(value: Any) -> date:
    if type(value) is not str or not _IS_DATE.fullmatch(value):
        raise Refusal("not a date")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise Refusal("not a date") from None


def _days(years: Years) -> tuple[One, Many]:
    low, high = date(years.first, 1, 1).toordinal() - _EPOCH_DAY, date(years.last, 12, 31).toordinal() - _EPOCH_DAY
    return _numbers(1, low, high, pa.date32())


def _numbers(unit: int, low: int, high: int, arrow: pa.DataType) -> tuple[One, Many]:
    """Integers of a unit of time, within bounds counted in Arrow's unit."""
    first, last = -(-low // unit), high // unit

    def one(value: Any) -> int:
        if type(value) is not int:
            raise Refusal("not an integer")
        if not first <= value <= last:
            raise Refusal("out of range")
        return value * unit

    def many(values: list[Any]) -> pa.Array | None:
        if not {int, _NONE}.issuperset(map(type, values)):
            return None
        try:
            return pa.array([None if value is None else one(value) for value in values], arrow)
        except Refusal:
            return None

    return one, many


def _micros_of_years(years: Years) -> tuple[int, int]:
    first = datetime(years.first, 1, 1, tzinfo=UTC)
    last = datetime(years.last, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    micro = timedelta(microseconds=1)
    return (first - _EPOCH) // micro, (last - _EPOCH) // micro


_FIRST_MICRO, _LAST_MICRO = _micros_of_years(Years(first=1))


def _timestamps_of_texts(values: list[Any]) -> pa.Array | None:
    array = _cast_texts(values, rf"\A{_TIMESTAMP}\z", _PLAIN["timestamp"], finer=_FINER)
    return array if array is None or _within(array.cast(pa.int64()), _FIRST_MICRO, _LAST_MICRO) else None


def _dates(values: list[Any]) -> pa.Array | None:
    return _cast_texts(values, rf"\A{_DATE}\z", pa.date32())


def _cast_texts(values: list[Any], pattern: str, arrow: pa.DataType, *, finer: str | None = None) -> pa.Array | None:
    """All of them, where each is written so; `finer`: of what Arrow does not cast the first group is enough."""
    if not {str, _NONE}.issuperset(map(type, values)):
        return None
    texts = pa.array(values, pa.string())
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        return None
    with suppress(pa.ArrowInvalid):
        return texts.cast(arrow)
    with suppress(pa.ArrowInvalid):
        return None if finer is None else pc.replace_substring_regex(texts, finer, r"\1").cast(arrow)
    return None


def _within(array: pa.Array, low: int, high: int) -> bool:
    """Bounds of `datetime`: an offset can lead out of the years 1 to 9999."""
    found = pc.min_max(array).as_py()
    return found["min"] is None or (low <= found["min"] and found["max"] <= high)
