"""What a transform gave, small or large, held against what the table declares before it is committed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.catalog import Declared
from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Rows
from deltaworks.engine.writers.writer import span
from deltaworks.errors import LakeError


@dataclass(frozen=True)
class Result:
    """Rows as Arrow, or as a DataFrame where they are too many, with the span of their event time."""

    rows: Rows
    span: tuple[Any, Any]


@contextmanager
def result_of(declared: Declared, computed: DataFrame, *, arrow_bytes_max: int) -> Iterator[Result]:
    """Compute a transform's result once, for the time of the commit; with `arrow_bytes_max` 0 it stays with Spark.

    Raises LakeError where it has null that the table declares impossible, or a key more than once: `null=False` and
    keys are the engine's promise, Delta itself would take both.
    """
    small = collected(computed) if arrow_bytes_max else None
    if small is not None:
        _refuse_nulls(declared, {name: small[name].null_count for name in small.column_names})
        keys = list(declared.keys)
        _refuse_copies(declared, small.num_rows - small.group_by(keys).aggregate([]).num_rows)
        yield Result(small, span(small, declared.table.event_time))
        return
    large = computed.persist(StorageLevel.DISK_ONLY)  # it is looked through, then committed
    try:
        event_time = declared.table.event_time
        spans = [F.min(event_time), F.max(event_time)] if event_time in computed.columns else [F.lit(None)] * 2
        nulls = [F.count(F.when(F.col(name).isNull(), 1)).alias(name) for name in computed.columns]
        (seen,) = large.agg(F.count("*"), *spans, *nulls).collect()
        _refuse_nulls(declared, dict(zip(computed.columns, seen[3:], strict=True)))
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


def _refuse_copies(declared: Declared, copies: int) -> None:
    if copies:
        keys = ", ".join(declared.keys)
        finding = f"the transform gave {copies} row(s) more than there are keys ({keys})"
        raise LakeError(declared.name, finding, "Group by the keys, or declare the column that tells the rows apart")
