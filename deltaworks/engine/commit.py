"""One function, two ways: small batches are committed from Arrow by delta-rs in milliseconds, large ones by Spark.

Both ways carry the same entry and the same txn, expect the same version, and leave the same rows.
"""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from datetime import date, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import HOOKS_OFF, TXN_APP, OwnedTable
from deltaworks.engine.log import ROWS_ADDED, ROWS_DELETED, ROWS_UPDATED
from deltaworks.engine.merge import Clause, Merge
from deltaworks.engine.phases import phase
from deltaworks.engine.points import reached
from deltaworks.engine.repeats import Key
from deltaworks.engine.session import suit
from deltaworks.engine.stage import OtherCommitError, TakenError
from deltaworks.engine.values import tuples, unsliced
from deltaworks.errors import CommitLostError, ForeignCommitError, LakeError

__all__ = ["Clause", "Committer", "Guard", "Merge", "Rows", "is_bounded", "literal", "pruning", "sound"]

Rows: TypeAlias = pa.Table | DataFrame
Keys: TypeAlias = AbstractSet[Key]
# Without decimals: delta-rs keeps their statistics as doubles, a key may lie outside those of its own file.
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_timestamp, pa.types.is_date)

KEYS_NAMED_MAX, LONG_KEYS_NAMED_MAX = 50, 8
"""So many keys of one column, and of several, are written into a condition: beyond, a merge is cheaper."""
_CONDITION_MAX = 2**13
"""Characters of a condition: it stands in the log."""
_VALUES_PRUNED_MAX = 20
"""Of more values DataFusion asks no statistics: their bounds prune files then."""
_MILLISECOND = 1_000  # in the microseconds of our timestamps
_TOO_LONG = re.compile(r"is too (large|small) to store in a Decimal\d+ of precision")
"""What Arrow in delta-rs says of an exact number that has too many digits."""
There: TypeAlias = Mapping[Key, bool]
"""Of each key of a batch whether the table has it."""
Guard = Callable[[], None]
"""Called right before a commit; raises LeaseLostError when this process may no longer commit."""


class Committer:
    """Commits to owned tables. `spark` is the session of the batch in hand (None: marks only)."""

    def __init__(self, *, spark: SparkSession | None, arrow_bytes_max: int, guard: Guard) -> None:
        """Keep what every commit needs."""
        self.spark, self.arrow_bytes_max, self.guard = spark, arrow_bytes_max, guard

    @phase("commit")
    def commit(
        self, table: OwnedTable, rows: Rows, entry: Entry, *, how: Merge | None = None, existing: Keys | None = None
    ) -> None:
        """Append `rows`, or merge them when `how` says so, as exactly one commit with `entry`.

        `existing`: has every key of `rows` that the table has (None: not known).
        Raises CommitLostError when the expected version is taken, LeaseLostError from the guard.
        """
        entry = table.placed(entry)
        expected, asked, done, there = table.version + 1, how, None, None
        # also of rows that change nothing those who read the table are to move on; expired events they count too
        nothing = isinstance(rows, pa.Table) and rows.num_rows == 0 and not (how and how.whole)
        idle = nothing and not (entry.counts.expired and entry.position.batches)
        if isinstance(rows, pa.Table):
            rows = sound(rows, table.schema, subset=how is not None)
        else:
            rows = without_negative_zero(rows)
        if how is not None and isinstance(rows, pa.Table):
            rows, done = table.repeats.without(rows, how, version=table.data_version)
            keys = [] if done is None and existing is None else tuples(rows, how.keys)
            there = None if done is None else table.repeats.there(keys, existing)
            if there is not None:
                existing = {key for key, is_there in there.items() if is_there}
            if existing is not None and existing.isdisjoint(keys):
                brought = how.brought(rows, table.schema.names)
                rows, how = (rows, how) if brought is None else (brought, None)
        with ExitStack() as scratch:
            self._commit(table, rows, entry, how, scratch, there)
        if table.delta.version() != expected:
            self._lost(table, expected)
        reached(table.name, entry.kind, "after-commit")
        table.moved_to(expected, entry, brought_rows=not idle)
        if asked is not None and done is not None:
            table.repeats.merged(done, asked, version=table.data_version)

    def _commit(
        self, table: OwnedTable, rows: Rows, entry: Entry, how: Merge | None, scratch: ExitStack, there: There | None
    ) -> None:
        rows, how, parts = _in_parts(table, rows, how)
        if isinstance(rows, pa.Table):
            rows = self._too_large_for_arrow(table, rows, how, scratch) or rows
        if isinstance(rows, pa.Table):
            self._by_arrow(table, rows, entry, how, parts, there)
        else:
            self._by_spark(table, rows, entry, how, parts)

    @phase("commit")
    def mark(self, table: OwnedTable, entry: Entry) -> None:
        """Commit no rows, only the entry: a fence, or a batch that changed nothing."""
        if table.outdated is None:
            self.commit(table, table.schema.empty_table(), entry)
        else:
            entry = table.placed(entry)
            self._files(table, (), entry, mode="append", schema=table.delta.schema())
            table.moved_to(table.version + 1, entry, brought_rows=False)

    def replace(
        self, table: OwnedTable, files: Sequence[AddAction], entry: Entry, *, schema: deltalake.Schema | None = None
    ) -> None:
        """Put the rows of these files into the place of all rows, as one commit with `entry`; raises as above.

        The files lie in the table's folder already, and have the columns of `schema` (None: those of the table).
        """
        entry = table.placed(entry)
        self._files(table, files, entry, mode="overwrite", schema=schema or table.delta.schema())
        table.moved_to(table.version + 1, entry, brought_rows=True)
        table.reopen()

    def _files(
        self, table: OwnedTable, files: Sequence[AddAction], entry: Entry, *, mode: str, schema: deltalake.Schema
    ) -> None:
        self.guard()
        reached(table.name, entry.kind, "before-commit")
        try:
            table.delta.create_write_transaction(
                list(files),
                mode=mode,
                schema=schema,
                partition_by=table.delta.metadata().partition_columns,
                commit_properties=table.properties(entry),
                post_commithook_properties=HOOKS_OFF,
            )
        except CommitFailedError as error:
            raise _taken(table.name, table.version + 1) from error
        reached(table.name, entry.kind, "after-commit")
        table.refresh()

    @phase("commit")
    def delete(self, table: OwnedTable, where: str, entry: Entry) -> None:
        """Delete rows by a condition in SQL, as one commit with `entry` also where there are none; raises as above."""
        before, entry = table.version, table.placed(entry)
        self.guard()
        reached(table.name, entry.kind, "before-commit")
        try:
            table.delta.delete(
                where,
                **table.written,
                commit_properties=table.properties(entry),
                post_commithook_properties=HOOKS_OFF,
            )
        except CommitFailedError as error:
            raise _taken(table.name, before + 1) from error
        if table.delta.version() == before:
            self.mark(table, entry)
            return
        reached(table.name, entry.kind, "after-commit")
        table.moved_to(table.delta.version(), entry, brought_rows=True)

    @phase("commit")
    def rewrite(self, table: OwnedTable, entry: Entry, *, size_max: int, part: tuple[str, Any] | None = None) -> bool:
        """Put files that are smaller than `size_max` bytes together into some of about that size; rows stay the same.

        `part`: only those of this part, the hidden column and its value. One commit with `entry`, on the table's
        stage first: delta-rs's own would pass over a foreign commit, whatever its properties say. False, and no commit,
        where nothing is to gain. Raises as above.
        """
        expected, entry = table.version + 1, table.placed(entry)
        with _on_stage(table, files=table.smaller(size_max, part)["path"].to_pylist()):
            deltalake.DeltaTable(str(table.stage.path)).optimize.compact(
                # in the text that the log has, where nothing stands for null
                partition_filters=None if part is None else [(part[0], "=", "" if part[1] is None else str(part[1]))],
                target_size=size_max,
                **table.written,
                commit_properties=table.properties(entry),
                post_commithook_properties=HOOKS_OFF,
            )
            self.guard()
            reached(table.name, entry.kind, "before-commit")
            published = table.stage.publish(expected, entry=entry.to_json())
        if published:
            table.refresh()
            reached(table.name, entry.kind, "after-commit")
            table.moved_to(expected, entry, brought_rows=False)
        return published

    def _by_arrow(
        self, table: OwnedTable, rows: pa.Table, entry: Entry, how: Merge | None, parts: str | None, there: There | None
    ) -> None:
        before = table.version
        self.guard()
        reached(table.name, entry.kind, "before-commit")
        try:
            if how is not None and (brought := _brought(table, rows, how)) is not None:
                rows, how = brought, None
            if how is None or (rows.num_rows == 0 and not how.whole):
                whole = rows if rows.num_rows else table.stored.empty_table()  # those of a merge may lack columns
                self._append(table, whole.select(table.stored.names), entry)
                return
            unknown = there is None or table.keeps_changes or table.partition is not None
            stands = None if unknown else how.stands(rows, table.stored.names)
            if there is not None and stands is not None and (condition := _keys_condition(how, rows)) is not None:
                self._replace(table, stands, entry, condition, _counted(tuples(stands, how.keys), there))
            else:
                self._merge(table, rows, entry, how, parts)
            if table.delta.version() == before:  # neither commits anything where it changes nothing
                self._append_nothing(table, entry)
        except CommitFailedError as error:
            raise _taken(table.name, before + 1) from error

    def _merge(self, table: OwnedTable, rows: pa.Table, entry: Entry, how: Merge, parts: str | None) -> None:
        merged = table.delta.merge(
            rows,
            _on(how, rows, parts),
            source_alias="s",
            target_alias="t",
            **table.written,
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
        try:
            merged.execute()
        except ValueError as error:
            if not _TOO_LONG.search(str(error)):
                raise
            finding = "a number that rows were put together into does not fit the declared type"
            step = f'Declare a longer one, then run "deltaworks rebuild {table.name}"'
            raise LakeError(table.name, finding, step) from None  # what Arrow says quotes the number

    def _replace(
        self, table: OwnedTable, rows: pa.Table, entry: Entry, condition: str, counted: Mapping[str, int]
    ) -> None:
        """Put rows in the place of those that fulfil a condition, for two thirds of what a merge costs or less."""
        deltalake.write_deltalake(
            table.delta,
            rows,
            mode="overwrite",
            predicate=condition,
            **table.written,
            commit_properties=table.properties(entry, counted=counted),
            post_commithook_properties=HOOKS_OFF,
        )

    def _append_nothing(self, table: OwnedTable, entry: Entry) -> None:
        reached(table.name, entry.kind, "before-empty-commit")
        self._append(table, table.stored.empty_table(), entry)

    def _append(self, table: OwnedTable, rows: pa.Table, entry: Entry) -> None:
        deltalake.write_deltalake(
            table.delta,
            rows,
            mode="append",
            **table.written,
            commit_properties=table.properties(entry),
            post_commithook_properties=HOOKS_OFF,
        )

    def _by_spark(self, table: OwnedTable, rows: DataFrame, entry: Entry, how: Merge | None, parts: str | None) -> None:
        """Let Spark commit to the table's stage, as long as that takes; the guard is asked when it is done."""
        suit(rows.sparkSession, many_rows=True)
        expected = table.version + 1
        with _on_stage(table, files=() if how is None else table.files()):
            self._to_stage(table, rows, entry, how, parts)
            self.guard()
            reached(table.name, entry.kind, "before-commit")
            if table.stage.publish(expected, entry=entry.to_json()):
                table.refresh()
            elif _left_out(table, rows, how):
                raise CommitLostError(table.name, f"Spark left the rows of version {expected} out", "Restart the app")
            else:  # Spark commits nothing when nothing changes
                try:
                    self._append_nothing(table, entry)
                except CommitFailedError as error:
                    raise _taken(table.name, expected) from error

    def _to_stage(self, table: OwnedTable, rows: DataFrame, entry: Entry, how: Merge | None, parts: str | None) -> None:
        path, expected = table.stage.path, table.version + 1
        if how is not None:
            self._merge_by_spark(rows, path, how, entry, expected, parts)
            return
        (
            rows.select(*table.stored.names)
            .write.format("delta")
            .mode("append")
            .option("userMetadata", entry.to_json())
            .option("txnAppId", TXN_APP)
            .option("txnVersion", expected)
            .save(str(path))
        )

    def _merge_by_spark(
        self, rows: DataFrame, path: Path, how: Merge, entry: Entry, expected: int, parts: str | None
    ) -> None:
        from delta.tables import DeltaTable

        spark = rows.sparkSession
        settings = {
            "spark.databricks.delta.commitInfo.userMetadata": entry.to_json(),
            "spark.databricks.delta.write.txnAppId": TXN_APP,
            "spark.databricks.delta.write.txnVersion": str(expected),
        }
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            merged = (
                DeltaTable.forPath(spark, str(path)).alias("t").merge(rows.alias("s"), _all((_keys_equal(how), parts)))
            )
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

    def _too_large_for_arrow(
        self, table: OwnedTable, rows: pa.Table, how: Merge | None, scratch: ExitStack
    ) -> DataFrame | None:
        """The rows for Spark, when the merge would touch too many bytes."""
        if how is None or self.spark is None or self.touched(table, rows, how) <= self.arrow_bytes_max:
            return None
        if rows.nbytes <= self.arrow_bytes_max:
            return self.spark.createDataFrame(unsliced(rows))
        # not through the JVM's memory, which they may be too much for; the next owner clears away what is left there
        home = table.stage.path.parent
        home.mkdir(exist_ok=True)
        folder = scratch.enter_context(tempfile.TemporaryDirectory(prefix="rows-", dir=home))
        pq.write_table(rows, f"{folder}/rows.parquet")
        return self.spark.read.parquet(folder)

    def touched(self, table: OwnedTable, rows: pa.Table, how: Merge) -> int:
        """Bytes of the files that a merge of `rows` would read; 0 while the whole table is small enough."""
        size = table.bytes()
        if size <= self.arrow_bytes_max or (rows.num_rows == 0 and not how.whole):
            return 0
        actions = pa.table(table.delta.get_add_actions(flatten=True))
        return int(pc.sum(pc.filter(actions["size_bytes"], _met(table, actions, rows, how))).as_py() or 0)

    def _lost(self, table: OwnedTable, expected: int) -> None:
        raise ForeignCommitError(
            table.name,
            f"expected to commit version {expected}, found version {table.delta.version()}",
            "Somebody else writes this table; stop them and restart the app",
        )


@contextmanager
def _on_stage(table: OwnedTable, *, files: Iterable[str]) -> Iterator[None]:
    """Make a table's next commit on its stage, and publish it; raises CommitLostError where it cannot be that."""
    expected = table.version + 1
    try:
        with table.stage.attempt(table.version, files=files):
            yield
    except TakenError as error:
        raise _taken(table.name, expected) from error
    except OtherCommitError as error:
        finding = f"what was committed as version {expected} is another attempt's"
        raise CommitLostError(table.name, finding, "Restart the app") from error


def _brought(table: OwnedTable, rows: pa.Table, how: Merge) -> pa.Table | None:
    """What a merge puts in where no file can have one of its keys, which an append does for half the price or less.

    None where one can.
    """
    if how.whole or not rows.num_rows:
        return None
    actions = pa.table(table.delta.get_add_actions(flatten=True))
    return None if pc.any(_met(table, actions, rows, how)).as_py() else how.brought(rows, table.stored.names)


def _met(table: OwnedTable, actions: pa.Table, rows: pa.Table, how: Merge) -> pa.Array | pa.ChunkedArray:
    """Which files of a table can have one of these rows' keys, by the statistics that its log has of them."""
    met = pa.array([True] * actions.num_rows, pa.bool_())
    for key in () if how.whole else how.keys:
        low, high, column = f"min.{key}", f"max.{key}", rows[key]
        if low not in actions.column_names or column.null_count or not is_bounded(column.type):
            continue
        first, last, span = actions[low].cast(column.type), actions[high].cast(column.type), pc.min_max(column)
        least = span["min"]
        if pa.types.is_timestamp(column.type):  # the log has milliseconds, rounded down
            least = pa.scalar(least.value - least.value % _MILLISECOND, column.type)
        overlaps = pc.and_(pc.less_equal(first, span["max"]), pc.greater_equal(last, least))
        met = pc.and_(met, pc.fill_null(overlaps, True))
    partition = table.partition
    # the writer of a history asks before its rows have the hidden column
    if partition is not None and partition.column in how.keys and partition.name in rows.column_names and not how.whole:
        mine = pc.unique(rows[partition.name])  # all of them, however many
        met = pc.and_(met, pc.is_in(actions[f"partition.{partition.name}"], mine.cast(partition.kind)))
    return met


def _left_out(table: OwnedTable, rows: DataFrame, how: Merge | None) -> bool:
    """Whether Spark did not commit what it was given: it leaves out, silently, a txn that is not above the log's."""
    known = table.delta.transaction_version(TXN_APP)
    return (known is not None and known > table.version) or (how is None and not rows.isEmpty())


def _taken(table: str, version: int) -> CommitLostError:
    return CommitLostError(table, f"version {version} was taken by another commit", "Restart the app")


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


def without_negative_zero(rows: DataFrame) -> DataFrame:
    """The same soundness for Spark's rows: texts of theirs are Python's, or were looked through (`result_of`)."""
    doubles = [field.name for field in rows.schema.fields if field.dataType.typeName() == "double"]
    return rows.withColumns({name: F.col(f"`{name}`") + F.lit(0.0) for name in doubles}) if doubles else rows


def _in_parts(table: OwnedTable, rows: Rows, how: Merge | None) -> tuple[Rows, Merge | None, str | None]:
    """Rows and merge with the hidden column of a table in parts, and the condition that names the parts."""
    partition = table.partition
    if partition is None:
        return rows, how, None
    rows = partition.beside(rows) if isinstance(rows, pa.Table) else partition.beside_spark(rows)
    return (rows, how, None) if how is None else (rows, partition.carried(how), partition.bound(how, rows))


def _on(how: Merge, rows: pa.Table, parts: str | None) -> str:
    """The join condition with literal bounds of the batch's keys: they prune files."""
    return _all((_keys_equal(how), *(() if how.whole else _bounds(how, rows, "t.{}")), parts))


def _bounds(how: Merge, rows: pa.Table, name: str) -> Iterator[str]:
    """For each key that can be bounded by its column's statistics, its span in the batch."""
    for key in how.keys:
        column = rows[key]
        if column.null_count or not is_bounded(column.type):
            continue
        try:
            span, of_table = pc.min_max(column).as_py(), name.format(key)
        except (OverflowError, ValueError):  # times that Python has not
            continue
        yield f"{of_table} >= {literal(span['min'])} and {of_table} <= {literal(span['max'])}"


def _keys_condition(how: Merge, rows: pa.Table) -> str | None:
    """The condition that rows of the table have a key of the batch; None where it would be long, or not exact."""
    most = KEYS_NAMED_MAX if len(how.keys) == 1 else LONG_KEYS_NAMED_MAX
    if rows.num_rows > most or not all(is_bounded(rows[key].type) for key in how.keys):
        return None
    if any(rows[key].null_count for key in how.keys):
        return None
    try:
        keys = [list(map(literal, rows[key].to_pylist())) for key in how.keys]
    except (OverflowError, ValueError):  # times that Python has not
        return None
    each = ([f'"{key}" = {value}' for key, value in zip(how.keys, one, strict=True)] for one in zip(*keys, strict=True))
    one_of = " or ".join(f"({_all(one)})" for one in each)
    bounds = _bounds(how, rows, '"{}"') if rows.num_rows > _VALUES_PRUNED_MAX else ()
    condition = _all((*bounds, f"({one_of})"))
    return condition if len(condition) <= _CONDITION_MAX else None


def _counted(come: Sequence[Key], there: There) -> dict[str, int]:
    """What taking rows of these keys for those that are there does to the table, as its log is to tell it."""
    updated, before = sum(there[key] for key in come), sum(there.values())
    return {ROWS_ADDED: len(come) - updated, ROWS_UPDATED: updated, ROWS_DELETED: before - updated}


def _all(conditions: Iterable[str | None]) -> str:
    return " and ".join(condition for condition in conditions if condition)


def _keys_equal(how: Merge) -> str:
    return " and ".join(
        f"(t.{key} is not distinct from s.{key})" if key in how.nullable_keys else f"t.{key} = s.{key}"
        for key in how.keys
    )


def is_bounded(kind: pa.DataType) -> bool:
    """Whether a file's statistics of such a column can be trusted to hold all its values."""
    return any(test(kind) for test in _BOUNDED)


def pruning(rows: pa.Table, names: Iterable[str]) -> ds.Expression | None:
    """Whether a row's values of these columns are among those of `rows`, to leave files out by their statistics.

    Asked of those columns alone whose statistics can be trusted, None where there are none: who reads filters the rest.
    """
    trusted = [name for name in names if is_bounded(rows.schema.field(name).type)]
    return reduce(and_, (ds.field(name).isin(pc.unique(rows[name])) for name in trusted)) if trusted else None


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
