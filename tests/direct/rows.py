"""Rows for transforms that are made by chance: values that meet, values at the edges, rows that cannot be computed."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from deltaworks.engine.parse import arrow_type
from tests.generated import COLUMNS

START = datetime(2024, 3, 31, 0, 30, tzinfo=UTC)
"""The hour in which summer begins in Europe."""
INPUTS = ("one", "two", "three")
Value = Callable[[Random, int], Any]
"""A value, by chance, of one of so many rows."""


def _of(*values: Any) -> Value:
    return lambda chance, _: chance.choice(values)


_INTERESTING = {name: _of(*COLUMNS[name][1]) for name in ("select", "ratio", "price", "wide", "bytes")}
TYPES: Mapping[str, tuple[str, pa.DataType, Value]] = {
    # kind, type, values; names that an SQL reader could take for something else
    "key": ("long", pa.int64(), lambda chance, many: chance.randrange(max(3, many))),
    "order": ("long", pa.int32(), _of(0, 1, 2, 3, 4)),
    "select": ("edge", pa.int64(), _INTERESTING["select"]),
    "a b": ("text", pa.string(), _of("", " ", "a", "A", "ab", "a\x00b", "ä", "a\u0308", "\N{GRINNING FACE}", "%_")),
    "do.t": ("text", pa.string(), _of("x", "y", "it's", "null", "12")),
    "ba`ck": ("text", pa.string(), _of("one two", "three", None)),
    "Flag": ("flag", pa.bool_(), _of(True, False)),
    "ratio": ("double", pa.float64(), _of(0.0, -0.0, 0.5, -1.25, float("nan"), float("inf"), 1e15)),
    "price": ("decimal", arrow_type("decimal(18,2)"), _INTERESTING["price"]),
    "wide": ("wide", arrow_type("decimal(38,10)"), _INTERESTING["wide"]),
    "bytes": ("binary", pa.binary(), _INTERESTING["bytes"]),
    "day": ("date", pa.date32(), _of(date(2023, 12, 31), date(2024, 2, 29), date(2024, 3, 1), date(1970, 1, 1))),
    "at": (
        "time",
        pa.timestamp("us", "UTC"),
        lambda chance, _: START + timedelta(seconds=chance.randrange(3_600), microseconds=chance.choice((0, 1))),
    ),
    "when": ("moment", pa.timestamp("us", "UTC"), _of(*COLUMNS["at"][1])),
    "list": ("list", pa.list_(pa.int64()), _of([], [1], [3, 1, 2], [None], [1, 1, None], [7, 8, 9, 10])),
    "pairs": (
        "pairs",
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())])),
        _of([], [{"key": "a", "value": 1}], [{"key": "b", "value": None}, {"key": None, "value": 2}, None]),
    ),
    # what raises for a bad row, and for no other
    "divisor": ("divisor", pa.int32(), _of(1, 2, 3)),
    "number": ("number", pa.string(), _of("12", "-3", " 7 ")),
    "near": ("near", pa.int64(), _of(1, 50, 100)),
    "index": ("index", pa.int32(), _of(1, 2, 3)),
}
SCHEMA = pa.schema([(name, kind) for name, (_, kind, _) in TYPES.items()])
BAD = {"divisor": 0, "number": "x", "near": 2**63 - 1, "index": 9, "wide": Decimal("9" * 28 + ".5")}
"""Of a row that raises."""
SAFE_WIDE = (Decimal("-0.0000000001"), Decimal(1), Decimal(0), Decimal("1234567.5"))


def rows(chance: Random, many: int, *, nulls: float = 0.15, bad: int = 0) -> pa.Table:
    """So many rows, of which so many raise; a column is null in this part of them."""

    def value(name: str, make: Value) -> Any:
        if nulls and chance.random() < nulls:
            return None
        return chance.choice(SAFE_WIDE) if name == "wide" else make(chance, many)

    columns = {name: [value(name, make) for _ in range(many)] for name, (_, _, make) in TYPES.items()}
    for at in chance.sample(range(many), min(bad, many)):
        for name, wrong in BAD.items():
            columns[name][at] = wrong
        # a row that others meet, and that no condition leaves out
        columns["key"][at], columns["order"][at], columns["at"][at] = 1, 1, START
    return pa.table(columns, schema=SCHEMA)


def doubled(table: pa.Table) -> pa.Table:
    """Each row twice, and the first one thrice."""
    return pa.concat_tables([table, table, table.slice(0, 1)])


def all_null(many: int) -> pa.Table:
    """Rows of nothing."""
    return pa.table([pa.nulls(many, field.type) for field in SCHEMA], schema=SCHEMA)
