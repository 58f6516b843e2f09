"""Values of rows as Python compares them, where Spark would: NaN equals itself, and null is like a value.

Times are numbers: Python's own end with the year 9999, those of tables do not.
"""

from collections.abc import Sequence
from math import isnan
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
        return ["NaN" if value is not None and isnan(value) else value for value in values]
    return values


def told_apart(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The same, but that zeros of both signs are two values: one may change to the other."""
    signed = [
        map(repr, rows[name].to_pylist()) if pa.types.is_floating(rows[name].type) else _comparable(rows[name])
        for name in names
    ]
    return list(zip(*signed, strict=True))


def unsliced(rows: pa.Table) -> pa.Table:
    """The same rows, none of whose lists and maps is a part of longer arrays.

    PySpark takes no such part where some are null: it makes them anew with a mask, which Arrow refuses for parts.
    (pyspark/sql/pandas/types.py, _check_arrow_array_timestamps_localize)
    """
    parts = (chunk.offset for column in rows.columns if pa.types.is_nested(column.type) for chunk in column.chunks)
    if not any(parts):
        return rows
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
