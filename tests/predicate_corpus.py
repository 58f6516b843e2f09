"""Conditions at random over the rows of `rule_corpus`, with values that are among them or near."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from random import Random
from typing import Any

import pyarrow as pa

from deltaworks.words.types import parse
from tests.rule_corpus import COLUMNS

_TYPES = {column.name: parse(column.type) for column in COLUMNS if column.name != "id"}
_SIGNS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
_ALIKE = (("big", "other"), ("small", "big"), ("ratio", "rate"), ("price", "cost"), ("name", "alias"), ("day", "due"))
_PATTERNS = ("a%", "%b", "_", "__", "%", "", "%é%", "/%", "a_b", "%''%", "a@b.c", "[%]", "{}", "%😀")
_NOT_NULL = 3
"""How often a column is compared, for each time that its being null is asked."""


def predicates(chance: Random, rows: pa.Table, count: int) -> list[str]:
    """So many conditions, each column alone among them."""
    columns = {name: [value for value in rows[name].to_pylist() if _can_bewritten(value)] for name in _TYPES}
    single = [_of(chance, name, columns[name]) for name in _TYPES for _ in range(2)]
    return [*single, *(_joined(chance, columns, depth=3) for _ in range(count))]


def _joined(chance: Random, columns: dict[str, list[Any]], depth: int) -> str:
    roll = chance.random()
    if depth == 0 or roll < 0.3:
        name = chance.choice([*_TYPES])
        return _of(chance, name, columns[name])
    if roll < 0.45:
        return f"not ({_joined(chance, columns, depth - 1)})"
    parts = [_joined(chance, columns, depth - 1) for _ in range(chance.choice((2, 2, 3)))]
    joined = f" {chance.choice(('and', 'or', 'AND', 'Or'))} ".join(parts)
    return f"({joined})" if roll < 0.8 else joined


def _of(chance: Random, name: str, values: Sequence[Any]) -> str:
    """A condition on one column."""
    shown, kind = chance.choice((name, f"`{name}`")), _TYPES[name].name
    inverse = chance.choice(("", "not "))
    if kind == "binary" or chance.randrange(_NOT_NULL + 1) == 0:
        return f"{shown} is {inverse}null"
    if kind == "boolean":
        return chance.choice((shown, f"not {shown}", f"{shown} = {chance.choice(('true', 'false'))}"))
    ways = [
        f"{shown} {chance.choice(_SIGNS)} {written(chance.choice(values))}",
        f"{written(chance.choice(values))} {chance.choice(_SIGNS)} {shown}",
        f"{shown} {inverse}in ({', '.join(map(written, chance.sample(values, 3)))})",
        f"{shown} {inverse}between {written(chance.choice(values))} and {written(chance.choice(values))}",
        *(f"{one} {chance.choice(_SIGNS)} {other}" for one, other in _ALIKE if name in (one, other)),
        *(f"{shown} {inverse}like '{chance.choice(_PATTERNS)}'" for _ in range(2 if kind == "string" else 0)),
    ]
    return chance.choice(ways)


def _can_bewritten(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return value is not None and not (isinstance(value, str) and "\\" in value)


def written(value: Any) -> str:
    """A value as SQL."""
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"timestamp '{value.isoformat()}'"
        case date():
            return f"date '{value.isoformat()}'"
        case Decimal():
            return f"{value:f}"
    return str(value)
