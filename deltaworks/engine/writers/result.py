"""What a transform gave, small or large, held against what the table declares before it is committed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from pyspark.storagelevel import StorageLevel

from deltaworks.catalog import Declared
from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Rows
from deltaworks.engine.phases import phase
from deltaworks.engine.session import suit
from deltaworks.engine.writers.writer import span
from deltaworks.errors import LakeError


@dataclass(frozen=True)
class Result:
    """Rows as Arrow, or as a DataFrame where they are too many, with the span of their event time."""

    rows: Rows
    span: tuple[Any, Any]


@contextmanager
def result_of(declared: Declared, computed: Rows, *, arrow_bytes_max: int) -> Iterator[Result]:
    """Compute a transform's result once, for the time of the commit; with `arrow_bytes_max` 0 it stays with Spark.

    What is Arrow was computed already.

    Raises LakeError where it has null that the table declares impossible, or a key more than once: `null=False` and
    keys are the engine's promise, Delta itself would take both. So where a text is none: a cast of bytes lets any pass,
    both ways to commit would write them, and every later merge of delta-rs would fail.
    """
    if isinstance(computed, pa.Table):
        small: pa.Table | None = computed
    else:
        small = collected(computed) if arrow_bytes_max else None
    if small is not None:
        _refuse_no_text(declared, {name: _no_text(small[name]) for name in small.column_names})
        _refuse_nulls(declared, {name: small[name].null_count for name in small.column_names})
        keys = list(declared.keys)
        _refuse_copies(declared, small.num_rows - small.group_by(keys).aggregate([]).num_rows)
        yield Result(small, span(small, declared.table.event_time))
        return
    assert isinstance(computed, DataFrame)
    suit(computed.sparkSession, many_rows=True)
    large = computed.persist(StorageLevel.DISK_ONLY)  # it is looked through, then committed
    try:
        event_time = declared.table.event_time
        spans = [F.min(event_time), F.max(event_time)] if event_time in computed.columns else [F.lit(None)] * 2
        nulls = [F.count(F.when(F.col(name).isNull(), 1)).alias(name) for name in computed.columns]
        texts = [field.name for field in computed.schema.fields if isinstance(field.dataType, StringType)]
        # a tenth of looking through and committing a million rows that are nearly all text
        no_texts = [F.count(F.when(~F.is_valid_utf8(name), 1)).alias(f"{name}?") for name in texts]
        with phase("compute"):
            (seen,) = large.agg(F.count("*"), *spans, *nulls, *no_texts).collect()
        counts = iter(seen[3:])
        found = dict(zip(computed.columns, counts, strict=False))
        _refuse_no_text(declared, dict(zip(texts, counts, strict=True)))
        _refuse_nulls(declared, found)
        _refuse_copies(declared, seen[0] - large.select(*declared.keys).distinct().count())
        yield Result(large, (seen[1], seen[2]))
    finally:
        large.unpersist()


def nullable_keys(declared: Declared) -> frozenset[str]:
    """Key columns that may be null and must be compared null-safe."""
    return frozenset(c.name for c in declared.table.columns if c.null and c.name in declared.keys)


def _refuse_nulls(declared: Declared, nulls: dict[str, int]) -> None:
    for column in declared.table.columns:
        if not column.null and nulls.get(column.name):
            raise LakeError(
                f"{declared.name}.{column.name}",
                f"the transform gave null in {nulls[column.name]} row(s), declared null=False",
                "Mend the transform, or declare the column nullable",
            )


def _no_text(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _refuse_no_text(declared: Declared, found: Mapping[str, int]) -> None:
    """Columns have no parts: a check of whole ones leaves no text out."""
    for name in (name for name, bad in found.items() if bad):
        finding = "the transform gave bytes that are no text (UTF-8)"
        raise LakeError(f"{declared.name}.{name}", finding, "Mend the transform: try_validate_utf8 makes them null")


def _refuse_copies(declared: Declared, copies: int) -> None:
    if copies:
        keys = ", ".join(declared.keys)
        finding = f"the transform gave {copies} row(s) more than there are keys ({keys})"
        raise LakeError(declared.name, finding, "Group by the keys, or declare the column that tells the rows apart")
