"""One function, two ways: small batches are committed from Arrow by delta-rs in milliseconds, large ones by Spark.

Both ways carry the same entry and the same txn, expect the same version, and leave the same rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypeAlias

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession

from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import HOOKS_OFF, TXN_APP, OwnedTable
from deltaworks.errors import CommitLostError, ForeignCommitError

Rows: TypeAlias = pa.Table | DataFrame
# Without decimals: delta-rs keeps their statistics as doubles, a key may lie outside those of its own file.
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_timestamp, pa.types.is_date)


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One branch of a merge; expressions are SQL that DataFusion and Spark both read, over `t` (table) and `s`."""

    on: Literal["matched", "not matched", "not matched by source"]
    act: Literal["update", "delete", "insert"]
    when: str | None = None
    set: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Put rows in by key: the first clause that fits a row counts."""

    keys: tuple[str, ...]
    nullable_keys: frozenset[str] = frozenset()
    clauses: tuple[Clause, ...]

    @property
    def whole(self) -> bool:
        """Whether rows that the batch does not name are looked at too."""
        return any(clause.on == "not matched by source" for clause in self.clauses)


Guard = Callable[[], None]
"""Called right before a commit; raises LeaseLostError when this process may no longer commit."""


class Committer:
    """Commits to owned tables. `spark` is the session of the batch in hand (None: marks only)."""

    def __init__(self, *, spark: SparkSession | None, arrow_bytes_max: int, guard: Guard) -> None:
        """Keep what every commit needs."""
        self.spark, self.arrow_bytes_max, self.guard = spark, arrow_bytes_max, guard

    def commit(self, table: OwnedTable, rows: Rows, entry: Entry, *, how: Merge | None = None) -> None:
        """Append `rows`, or merge them when `how` says so, as exactly one commit with `entry`.

        Raises CommitLostError when the expected version is taken, LeaseLostError from the guard.
        """
        self.guard()
        expected = table.version + 1
        if isinstance(rows, pa.Table):
            rows = sound(rows, table.schema, subset=how is not None)
            if how is not None and self.spark is not None and self.touched(table, rows, how) > self.arrow_bytes_max:
                rows = self.spark.createDataFrame(rows)
        if isinstance(rows, pa.Table):
            self._by_arrow(table, rows, entry, how)
        else:
            self._by_spark(table, rows, entry, how)
        if table.delta.version() != expected:
            self._lost(table, expected)
        idle = isinstance(rows, pa.Table) and rows.num_rows == 0 and not (how and how.whole)
        table.moved_to(expected, entry, brought_rows=not idle)

    def mark(self, table: OwnedTable, entry: Entry) -> None:
        """Commit no rows, only the entry: a fence, or a batch that changed nothing."""
        self.commit(table, table.schema.empty_table(), entry)

    def _by_arrow(self, table: OwnedTable, rows: pa.Table, entry: Entry, how: Merge | None) -> None:
        before = table.version
        try:
            if how is None or (rows.num_rows == 0 and not how.whole):
                self._append(table, rows.select(table.schema.names), entry)
                return
            merged = table.delta.merge(
                rows,
                _on(how, rows),
                source_alias="s",
                target_alias="t",
                commit_properties=table.properties(entry),
                post_commithook_properties=HOOKS_OFF,
            )
            for clause in how.clauses:
                if clause.on == "not matched by source":
                    merged = merged.when_not_matched_by_source_delete(clause.when)
                elif clause.act == "delete":
                    merged = merged.when_matched_delete(clause.when)
                elif clause.act == "update":
                    merged = merged.when_matched_update(dict(clause.set), clause.when)
                else:
                    merged = merged.when_not_matched_insert(dict(clause.set), clause.when)
            merged.execute()
            if table.delta.version() == before:  # a merge that changes nothing commits nothing
                self._append(table, table.schema.empty_table(), entry)
        except CommitFailedError as error:
            raise CommitLostError(
                table.name, f"version {before + 1} was taken by another commit ({error})", "Restart the app"
            ) from error

    def _append(self, table: OwnedTable, rows: pa.Table, entry: Entry) -> None:
        deltalake.write_deltalake(
            table.delta,
            rows,
            mode="append",
            commit_properties=table.properties(entry),
            post_commithook_properties=HOOKS_OFF,
        )

    def _by_spark(self, table: OwnedTable, rows: DataFrame, entry: Entry, how: Merge | None) -> None:
        before = table.version
        spark = rows.sparkSession
        if how is None:
            (
                rows.select(*table.schema.names)
                .write.format("delta")
                .mode("append")
                .option("userMetadata", entry.to_json())
                .option("txnAppId", TXN_APP)
                .option("txnVersion", before + 1)
                .save(str(table.path))
            )
        else:
            self._merge_by_spark(spark, table, rows, entry, how)
        table.refresh()
        if table.delta.version() == before:  # Spark commits nothing when nothing changes
            self._append(table, table.schema.empty_table(), entry)

    def _merge_by_spark(
        self, spark: SparkSession, table: OwnedTable, rows: DataFrame, entry: Entry, how: Merge
    ) -> None:
        from delta.tables import DeltaTable

        settings = {
            "spark.databricks.delta.commitInfo.userMetadata": entry.to_json(),
            "spark.databricks.delta.write.txnAppId": TXN_APP,
            "spark.databricks.delta.write.txnVersion": str(table.version + 1),
        }
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            merged = DeltaTable.forPath(spark, str(table.path)).alias("t").merge(rows.alias("s"), _keys_equal(how))
            for clause in how.clauses:
                if clause.on == "not matched by source":
                    merged = merged.whenNotMatchedBySourceDelete(clause.when)
                elif clause.act == "delete":
                    merged = merged.whenMatchedDelete(clause.when)
                elif clause.act == "update":
                    merged = merged.whenMatchedUpdate(clause.when, dict(clause.set))
                else:
                    merged = merged.whenNotMatchedInsert(clause.when, dict(clause.set))  # type: ignore[arg-type]  # None is its default
            merged.execute()
        finally:
            for name in settings:
                spark.conf.unset(name)

    def touched(self, table: OwnedTable, rows: pa.Table, how: Merge) -> int:
        """Bytes of the files that a merge of `rows` would read; 0 while the whole table is small enough."""
        size = table.bytes()
        if size <= self.arrow_bytes_max or (rows.num_rows == 0 and not how.whole):
            return 0
        actions = pa.table(table.delta.get_add_actions(flatten=True))
        touched = pa.array([True] * actions.num_rows)
        for key in () if how.whole else how.keys:
            low, high = f"min.{key}", f"max.{key}"
            if low not in actions.column_names or not is_bounded(rows.schema.field(key).type):
                continue
            span = pc.min_max(rows[key]).as_py()
            overlaps = pc.and_(pc.less_equal(actions[low], span["max"]), pc.greater_equal(actions[high], span["min"]))
            touched = pc.and_(touched, pc.fill_null(overlaps, True))
        return int(pc.sum(pc.filter(actions["size_bytes"], touched)).as_py() or 0)

    def _lost(self, table: OwnedTable, expected: int) -> None:
        raise ForeignCommitError(
            table.name,
            f"expected to commit version {expected}, found version {table.delta.version()}",
            "Somebody else writes this table; stop them and restart the app",
        )


def sound(rows: pa.Table, schema: pa.Schema, *, subset: bool = False) -> pa.Table:
    """Rows in the table's types and order, without what poisons later reads and merges (bad UTF-8, -0.0)."""
    names = [name for name in rows.column_names if name in schema.names] if subset else schema.names
    extra = [name for name in rows.column_names if name not in schema.names] if subset else []
    columns, fields = [], []
    for name in [*names, *extra]:
        field = schema.field(name) if name in schema.names else rows.schema.field(name)
        column = rows[name].cast(field.type)
        if pa.types.is_floating(field.type):
            column = pc.if_else(pc.equal(column, 0.0), pa.scalar(0.0, field.type), column)
        columns.append(column)
        fields.append(field)
    made = pa.table(columns, schema=pa.schema(fields))
    made.validate(full=True)  # raises ArrowInvalid for strings that are not UTF-8
    return made


def _on(how: Merge, rows: pa.Table) -> str:
    """The join condition with literal bounds of the batch's keys: they prune files."""
    bounds = []
    for key in () if how.whole else how.keys:
        column = rows[key]
        if column.null_count or not is_bounded(column.type):
            continue
        span = pc.min_max(column).as_py()
        bounds.append(f"t.{key} >= {literal(span['min'])} and t.{key} <= {literal(span['max'])}")
    return " and ".join([_keys_equal(how), *bounds])


def _keys_equal(how: Merge) -> str:
    return " and ".join(
        f"(t.{key} is not distinct from s.{key})" if key in how.nullable_keys else f"t.{key} = s.{key}"
        for key in how.keys
    )


def is_bounded(kind: pa.DataType) -> bool:
    """Whether a file's statistics of such a column can be trusted to hold all its values."""
    return any(test(kind) for test in _BOUNDED)


def literal(value: Any) -> str:
    """An SQL literal that DataFusion reads."""
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
        case date():
            return f"cast('{value.isoformat()}' as date)"
        case _:
            return str(value)
