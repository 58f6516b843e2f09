"""Values of rows as Python compares them, where Spark would: NaN equals itself, and null is like a value.

Times are numbers: Python's own end with the year 9999, those of tables do not.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def tuples(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """These columns of each row as one value."""
    return list(zip(*(_comparable(rows[name]) for name in names), strict=True))


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return ["NaN" if value is not None and value != value else value for value in values]  # noqa: PLR0124  # NaN alone differs from itself
    return values


def told_apart(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The same, but that zeros of both signs are two values: one may change to the other."""
    signed = [
        map(repr, rows[name].to_pylist()) if pa.types.is_floating(rows[name].type) else _comparable(rows[name])
        for name in names
    ]
    return list(zip(*signed, strict=True))
