"""Keys of a table that are computed again: their rows take the place of those that were there, vanished ones go."""

from collections.abc import Collection
from datetime import date, datetime
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Clause, Committer, Merge, Rows
from deltaworks.engine.entry import Counts
from deltaworks.engine.writers.result import nullable_keys, result_of
from deltaworks.engine.writers.writer import Progress

KEYS_LISTED_MAX = 1_000
"""Up to so many values of a single key are written into the filter, where Spark pushes them furthest."""


def replace_keys(
    declared: Declared,
    progress: Progress,
    spark: SparkSession,
    committer: Committer,
    computed: DataFrame,
    *,
    keys: pa.Table | None,
    parts: Collection[pa.Table] = (),
    counts: Counts,
    unfit: pa.Table | None = None,
) -> None:
    """Commit the rows of these keys (None: of all) out of what was computed, as the batch in hand of `progress`.

    `parts`: values of some of the key columns; the rows that have them belong to it too. `unfit`: keys that are not
    computed, and whose rows go.
    """
    table = progress.table
    computed = computed.select(*table.schema.names)
    if keys is not None:
        computed = only(spark, computed, keys, *parts)
    if unfit is not None and unfit.num_rows:
        computed = only(spark, computed, unfit, how="left_anti")
    with result_of(declared, computed, arrow_bytes_max=committer.arrow_bytes_max) as result:
        if isinstance(result.rows, pa.Table):
            rows: Rows = _with_vanished(result.rows.cast(table.schema), keys)
        else:
            rows = _with_vanished_spark(spark, result.rows, keys)
        low, high = result.span
        entry = progress.entry(counts, low=low, high=high)
        committer.commit(table, rows, entry, how=_merge(declared, table.schema.names, whole=keys is None))
    progress.committed()


def only(spark: SparkSession, computed: DataFrame, *keys: pa.Table, how: str = "left_semi") -> DataFrame:
    """The rows that have one of these keys, of whatever columns they are; with `how` left_anti all others."""
    listed, joined = list[pa.Table](), list[pa.Table]()
    for wanted in keys:
        (listed if _listable(wanted) else joined).append(wanted)
    if len(joined) == 1 and not any(wanted.num_rows for wanted in listed):
        return _join(spark, computed, joined[0], how=how)
    names, found = computed.columns, reduce(or_, [_listed(wanted) for wanted in listed], F.lit(False))
    for at, wanted in enumerate(joined):
        flag = f"_wanted_{at}"
        computed = _join(spark, computed, wanted, how="left", flag=flag)
        found = found | F.col(flag).isNotNull()
    # a null key is none of the listed ones
    return computed.where(found if how == "left_semi" else ~F.coalesce(found, F.lit(False))).select(*names)


def semi(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of these keys."""
    names = keys.column_names
    wanted = set(zip(*(keys[name].to_pylist() for name in names), strict=True))
    mine = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return rows.filter(pa.array([key in wanted for key in mine], pa.bool_()))


def _listable(keys: pa.Table) -> bool:
    few: bool = keys.num_rows <= KEYS_LISTED_MAX and keys.column(0).null_count == 0
    return keys.num_columns == 1 and few


def _listed(keys: pa.Table) -> Column:
    values = [_exactly(value) for value in keys.column(0).to_pylist()]
    return F.col(keys.column_names[0]).isin(values)


def _join(spark: SparkSession, computed: DataFrame, keys: pa.Table, *, how: str, flag: str | None = None) -> DataFrame:
    wanted = spark.createDataFrame(keys).alias("w")
    if flag is not None:
        wanted = wanted.withColumn(flag, F.expr("true")).alias("w")
    same = [F.col(f"c.{name}").eqNullSafe(F.col(f"w.{name}")) for name in keys.column_names]
    joined = computed.alias("c").join(F.broadcast(wanted), same, how)
    return joined if flag is None else joined.select("c.*", f"w.{flag}")


def _with_vanished(result: pa.Table, keys: pa.Table | None) -> pa.Table:
    rows = result.append_column("_gone", pa.array([False] * result.num_rows, pa.bool_()))
    if keys is None:
        return rows
    names = keys.column_names
    there = set(zip(*(result[name].to_pylist() for name in names), strict=True))
    gone = [key for key in zip(*(keys[name].to_pylist() for name in names), strict=True) if key not in there]
    if not gone:
        return rows
    columns = [
        pa.array([key[names.index(f.name)] for key in gone], f.type) if f.name in names else pa.nulls(len(gone), f.type)
        for f in result.schema
    ]
    vanished = pa.table([*columns, pa.array([True] * len(gone))], schema=rows.schema)
    return pa.concat_tables([rows, vanished])


def _with_vanished_spark(spark: SparkSession, computed: DataFrame, keys: pa.Table | None) -> DataFrame:
    rows = computed.withColumn("_gone", F.lit(False))
    if keys is None:
        return rows
    names = keys.column_names
    there = [F.col(f"w.{name}").eqNullSafe(F.col(f"c.{name}")) for name in names]
    gone = spark.createDataFrame(keys).alias("w").join(computed.alias("c"), there, "left_anti")
    empty = [F.lit(None).cast(computed.schema[n].dataType).alias(n) for n in computed.columns if n not in names]
    return rows.unionByName(gone.select(*names, *empty, F.lit(True).alias("_gone")))


def _merge(declared: Declared, names: list[str], *, whole: bool) -> Merge:
    own = {name: f"s.{name}" for name in names}
    values = [name for name in own if name not in declared.keys]
    changed = " or ".join(f"(t.{name} is distinct from s.{name})" for name in values) or "false"
    clauses = [
        Clause(on="matched", act="delete", when="s._gone", set={}),
        Clause(on="matched", act="update", when=changed, set=own),
        Clause(on="not matched", act="insert", when="not s._gone", set=own),
    ]
    if whole:
        clauses.append(Clause(on="not matched by source", act="delete", when=None, set={}))
    return Merge(keys=declared.keys, nullable_keys=nullable_keys(declared), clauses=tuple(clauses))


def _exactly(value: Any) -> Any:
    """A value as Spark's literal: PySpark's own of dates and times go through a calendar that changed in 1582."""
    match value:
        case datetime():
            return F.expr(f"timestamp'{value.isoformat()}'")
        case date():
            return F.expr(f"date'{value.isoformat()}'")
    return value
