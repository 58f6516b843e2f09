"""A row rule: one expectation about single rows, compiled to plain values that travel to Spark's Python workers.

What a check says nothing about (a null, mostly) does not break it, as in Great Expectations.
"""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from deltaworks.quality.pattern import Pattern

Value = bool | int | float | Decimal | str | date | datetime
Ignored = Literal["all", "any", "none"]
"""Rows left out of a check over columns: those where all are null, where any is, or none."""
Text = Literal["json", "time"]


@dataclass(frozen=True, kw_only=True)
class Null:
    """The value is null, or is not."""

    column: str
    wanted: bool


@dataclass(frozen=True, kw_only=True)
class Range:
    """The value lies in one of these ranges; None is no end, `low_out` and `high_out` leave the ends out.

    Nothing lies in no range.
    """

    column: str
    ranges: tuple[tuple[Value | None, Value | None], ...]
    low_out: bool = False
    high_out: bool = False


@dataclass(frozen=True, kw_only=True)
class OneOf:
    """The value is one of these, or none of them."""

    column: str
    values: tuple[Value, ...]
    wanted: bool


@dataclass(frozen=True, kw_only=True)
class Match:
    """The text fits all of these patterns, or none of them."""

    column: str
    patterns: tuple[Pattern, ...]
    wanted: bool


@dataclass(frozen=True, kw_only=True)
class Length:
    """So many characters, or bytes of a binary; both ends included."""

    column: str
    least: int | None
    most: int | None


@dataclass(frozen=True, kw_only=True)
class Parses:
    """The text is JSON, or a time in Python's format `form`."""

    column: str
    text: Text
    form: str = ""


@dataclass(frozen=True, kw_only=True)
class Greater:
    """The first column is greater than the second, or equal if that counts too."""

    columns: tuple[str, str]
    or_equal: bool
    ignored: Ignored


@dataclass(frozen=True, kw_only=True)
class Equal:
    """All columns have the value of the first; nulls are equal."""

    columns: tuple[str, ...]
    ignored: Ignored


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """No two columns have the same value; nulls are the same."""

    columns: tuple[str, ...]
    ignored: Ignored


@dataclass(frozen=True, kw_only=True)
class PairIn:
    """The two values are one of these pairs; a null is one too."""

    columns: tuple[str, str]
    pairs: tuple[tuple[Value | None, Value | None], ...]
    ignored: Ignored


@dataclass(frozen=True, kw_only=True)
class Sum:
    """The columns add up to `total`, compared as a double; nulls count as zero."""

    columns: tuple[str, ...]
    total: float
    ignored: Ignored


Check = Null | Range | OneOf | Match | Length | Parses | Greater | Equal | Distinct | PairIn | Sum


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A check with its severity. `name`: type and columns of the expectation, never a value."""

    name: str
    critical: bool
    check: Check

    @property
    def reason(self) -> str:
        """Why a row that breaks it is in quarantine."""
        return f"rule: {self.name}"
