"""Values of rows as Python compares them, where Spark would: NaN equals itself, and null is like a value."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def tuples(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """These columns of each row as one value."""
    return list(zip(*(_comparable(rows[name]) for name in names), strict=True))


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return ["NaN" if value is not None and value != value else value for value in values]  # noqa: PLR0124  # NaN alone differs from itself
    return values
