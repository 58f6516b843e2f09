"""Keys of a table that are computed again: their rows take the place of those that were there, vanished ones go."""

from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Clause, Committer, Merge, Rows
from deltaworks.engine.entry import Counts
from deltaworks.engine.values import tuples
from deltaworks.engine.writers.result import nullable_keys, result_of
from deltaworks.engine.writers.writer import Progress, frame

KEYS_LISTED_MAX = 1_000
"""Up to so many keys are written into the filter, where Spark pushes them furthest: below what may raise for others."""


def replace_keys(
    declared: Declared,
    progress: Progress,
    spark: SparkSession,
    committer: Committer,
    computed: Rows,
    *,
    keys: pa.Table | None,
    counts: Counts,
    unfit: pa.Table | None = None,
) -> None:
    """Commit the rows of these keys (None: of all) out of what was computed, as the batch in hand of `progress`.

    `unfit`: keys that are not computed, and whose rows go.
    """
    computed = computed.select(progress.table.schema.names)
    if keys is not None:
        computed = only(spark, computed, keys)
    if unfit is not None and unfit.num_rows:
        computed = only(spark, computed, unfit, how="left_anti")
    replace_all(declared, progress, spark, committer, computed, had=keys, counts=counts)


def replace_all(
    declared: Declared,
    progress: Progress,
    spark: SparkSession,
    committer: Committer,
    computed: Rows,
    *,
    had: pa.Table | None,
    counts: Counts,
) -> None:
    """Commit all that was computed, as the batch in hand of `progress`; of the keys `had` (None: of all) others go."""
    table = progress.table
    with result_of(declared, computed.select(table.schema.names), arrow_bytes_max=committer.arrow_bytes_max) as result:
        if isinstance(result.rows, pa.Table):
            rows: Rows = _with_vanished(result.rows.cast(table.schema), had)
        else:
            rows = _with_vanished_spark(spark, frame(spark, result.rows), had)
        low, high = result.span
        entry = progress.entry(counts, low=low, high=high)
        committer.commit(table, rows, entry, how=_merge(declared, table.schema.names, whole=had is None))
    progress.committed()


def only(
    spark: SparkSession, computed: Rows, keys: pa.Table, *, how: Literal["left_semi", "left_anti"] = "left_semi"
) -> Rows:
    """The rows of these keys, or with `how` left_anti those of all others."""
    if isinstance(computed, pa.Table):
        return semi(computed, keys, others=how == "left_anti")
    names = keys.column_names
    if keys.num_rows <= KEYS_LISTED_MAX:
        listed = _listed(keys, [computed.schema[name].dataType.simpleString() for name in names])
        # a null key is none of them
        return computed.where(listed if how == "left_semi" else ~F.coalesce(listed, F.lit(False)))
    wanted = F.broadcast(spark.createDataFrame(keys))
    return computed.alias("c").join(
        wanted.alias("w"), [F.col(f"c.{name}").eqNullSafe(F.col(f"w.{name}")) for name in names], how
    )


def _listed(keys: pa.Table, types: list[str]) -> Column:
    """Whether a row has one of these keys, as one text: a call for each value would take seconds."""
    if not keys.num_rows:
        return F.lit(False)
    literals = [_literals(keys[name], kind) for name, kind in zip(keys.column_names, types, strict=True)]
    names = [f"`{name}`" for name in keys.column_names]
    if len(names) == 1 and not keys.column(0).null_count:  # files are left out by their statistics
        return F.expr(f"{names[0]} in ({', '.join(literals[0])})")
    wanted = ", ".join(f"struct({', '.join(key)})" for key in zip(*literals, strict=True))  # nulls are equal in structs
    return F.expr(f"struct({', '.join(names)}) in ({wanted})")


def _literals(values: pa.ChunkedArray, kind: str) -> list[str]:
    if pa.types.is_binary(values.type):
        return [f"cast(null as {kind})" if value is None else f"unhex('{value.hex()}')" for value in values.to_pylist()]
    texts = values.cast(pa.string()).to_pylist()  # in hexadecimal: whatever is in them ends no literal
    return [f"cast({'null' if text is None else _text(text)} as {kind})" for text in texts]


def _text(text: str) -> str:
    return f"cast(unhex('{text.encode().hex()}') as string)"


def semi(rows: pa.Table, keys: pa.Table, *, others: bool = False) -> pa.Table:
    """The rows that have one of these keys, in the same types, null and NaN like values; or those of all `others`."""
    names = keys.column_names
    wanted = set(tuples(keys, names))
    return rows.filter(pa.array([(key in wanted) != others for key in tuples(rows, names)], pa.bool_()))


def _with_vanished(result: pa.Table, keys: pa.Table | None) -> pa.Table:
    rows = result.append_column("_gone", pa.array([False] * result.num_rows, pa.bool_()))
    if keys is None:
        return rows
    names = keys.column_names
    gone = semi(keys, result.select(names), others=True)
    if not gone.num_rows:
        return rows
    columns = [gone[f.name].cast(f.type) if f.name in names else pa.nulls(gone.num_rows, f.type) for f in result.schema]
    vanished = pa.table([*columns, pa.array([True] * gone.num_rows)], schema=rows.schema)
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
        Clause(on="not matched", act="insert", when="not s._gone", brings=("_gone", False), set=own),
    ]
    if whole:
        clauses.append(Clause(on="not matched by source", act="delete", when=None, set={}))
    return Merge(
        keys=declared.keys,
        nullable_keys=nullable_keys(declared),
        idempotent=True,
        gone=("_gone", True),
        clauses=tuple(clauses),
    )
