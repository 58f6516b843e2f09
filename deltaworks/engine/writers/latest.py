"""`latest`: one row per key, placed by its sequence: of a database's change, or of a state (see `states.py`)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Clause, Committer, Merge, Rows, is_bounded
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.schemas import arrow_schema, own_schema
from deltaworks.engine.writers import states
from deltaworks.engine.writers.folding import Folding
from deltaworks.engine.writers.left import ENDS, KEYED
from deltaworks.engine.writers.partial import is_partial, keyed
from deltaworks.engine.writers.sequenced import Sequenced
from deltaworks.engine.writers.writer import span
from deltaworks.words.keeping import Latest

_HIGHEST = "\U0010ffff"
"""No character is higher: of long texts statistics have the beginning only."""


def deleted_schema(declared: Declared) -> pa.Schema:
    """Remembered deletes: keys, the sequence of the deletion, the ingest batch that brought it."""
    columns = arrow_schema(declared.table.columns)
    own = [field for field in own_schema(Latest) if field.name != "_sent"]
    return pa.schema([*(columns.field(key) for key in declared.keys), *own])


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What a batch holds: its last floor, whether a change leaves something out, its first and last sequence."""

    floor: str | None
    partial: bool
    first: str | None
    last: str | None


class LatestWriter(Sequenced):
    """Merges the newest change of each key of a batch.

    A deletion leaves no row that an older change could be compared with, so deletions are remembered beside the
    table, and in the position the floor: the last truncation, or the begin of the last snapshot that has ended. Partial
    changes are folded with what is there.
    """

    def __init__(self, *args: Any, deleted: OwnedTable, waiting: Callable[[], OwnedTable], **given: Any) -> None:
        """As every writer over bronze; `deleted` remembers deletions, `waiting` keeps rows that wait for a value."""
        super().__init__(*args, deleted=deleted, **given)
        self.waiting = waiting
        self._last: str | None = None
        """No row of the table is newer; None: not looked at yet."""

    def _keep(self, committer: Committer, parsed: Rows, counts: Counts) -> Counts:
        if self.by is not None:
            return self._keep_highest(committer, parsed, counts)
        seen = _seen(parsed)
        if seen.floor is not None:
            self.progress.truncated(seen.floor)
        floor = max(seen.floor or "", self.progress.position.truncated or "")
        if self._must_fold(seen):
            return self._fold(committer, parsed, counts, seen, floor)
        if self.progress.position.newest is not None and seen.last is not None:
            self.progress.newest(seen.last)
        overtaken = self._may_be_overtaken(seen)
        if isinstance(parsed, pa.Table):
            rows, gone = self._newest_arrow(parsed, floor, overtaken=overtaken)
        else:
            rows, gone = self._newest_spark(parsed, floor, overtaken=overtaken)
        counts = self._put_in(committer, rows, gone, counts, how=self._merge(seen.floor))
        self._reaches(seen)
        return counts

    def _put_in(self, committer: Committer, rows: Rows, gone: Rows | None, counts: Counts, *, how: Merge) -> Counts:
        """Remember deletions, then merge what counts of each key: a row, or with `_gone` that there is none.

        `_kind` tells which of them are whole changes.
        """
        low: Any
        high: Any
        if isinstance(rows, pa.Table):
            taken = pc.sum(pc.not_equal(rows["_kind"], "left")).as_py() or 0
            there = rows.filter(pc.invert(rows["_gone"]))
            low, high = span(there, self.declared.table.event_time)
        else:
            taken, low, high = rows.agg(F.count_if(F.col("_kind") != "left"), *self._span_columns()).collect()[0]
        counts = replace(counts, taken=taken, superseded=counts.read - counts.refused - counts.not_mine - taken)
        if gone is not None:
            self._beside(committer, self.deleted, gone)
        rows = rows.select([*self.table.schema.names, "_gone"])
        committer.commit(self.table, rows, self.progress.entry(counts, low=low, high=high), how=how)
        return counts

    def _keep_highest(self, committer: Committer, placed: Rows, counts: Counts) -> Counts:
        """Of states that a column places the highest counts, beside what is there of its key."""
        names, ends = [*self.table.schema.names, "_gone", "_kind"], self.deleted.schema.names
        how = self._merge(None, judged=True)
        if isinstance(placed, pa.Table):
            rows = placed.append_column("_gone", pc.equal(placed["_kind"], "delete"))
            keys = self.declared.keys
            there, ended = (_newest_of(table, rows, keys) for table in (self.table, self.deleted))
            merged, remembered = states.highest_arrow(rows, keys, stored=there, ended=ended)
            gone = rows.take(pa.array(remembered, pa.int64())).select(ends) if remembered else None
            return self._put_in(committer, rows.take(pa.array(merged, pa.int64())).select(names), gone, counts, how=how)
        large = self._highest_spark(placed).persist(StorageLevel.DISK_ONLY)
        try:
            forgotten = large.where("_remembered").select(*ends)
            gone = None if forgotten.isEmpty() else forgotten
            return self._put_in(committer, large.where("_merged").select(*names), gone, counts, how=how)
        finally:
            large.unpersist()

    def _highest_spark(self, placed: DataFrame) -> DataFrame:
        """The same for a batch that is too large to collect: with what `states.highest_spark` says of each row."""
        keys = self.declared.keys
        there, ended = (_sources(placed.sparkSession, table, keys) for table in (self.table, self.deleted))
        rows = placed.withColumn("_gone", F.col("_kind") == "delete")
        return states.highest_spark(
            rows,
            keys,
            stored=there.withColumnRenamed("_known", "_there"),
            ended=ended.withColumnRenamed("_known", "_ended"),
        )

    def _may_be_overtaken(self, seen: _Seen) -> bool:
        """Whether the table may have a row that is newer than one of a batch; most batches are newer than all."""
        if self._last is None:
            self._last = _last_source(self.table)
        return seen.first is not None and seen.first <= self._last

    def _reaches(self, seen: _Seen) -> None:
        """The table may have what the batch had."""
        if self._last is not None:
            self._last = max(self._last, seen.last or "")

    def _must_fold(self, seen: _Seen) -> bool:
        """Whether changes have to be looked at beside what is there; never in a table without partial changes."""
        newest = self.progress.position.newest
        if seen.partial or newest is None:
            return seen.partial
        return seen.floor is not None or (seen.first is not None and seen.first <= newest)

    def _fold(self, committer: Committer, parsed: Rows, counts: Counts, seen: _Seen, floor: str) -> Counts:
        """Side tables first, the table's own entry last."""
        folding = Folding(
            table=self.table, deleted=self.deleted, waiting=self.waiting(), keys=self.declared.keys, floor=floor
        )
        last = folding.newest() if self.progress.position.newest is None else ""
        self.progress.newest(max(last, seen.last or ""))
        with folding.fold(parsed, everything=seen.floor is not None, rows=counts.read) as folded:
            refused, taken = folded.count("refuse"), folded.taken
            if refused:
                self._set_aside(committer, folded.refused())
            for side, act in ((self.deleted, "forget"), (self.waiting(), "hold")):
                if folded.count(act):
                    seq = self.progress.entry(Counts()).ingest_seq  # so that a crash before the table's entry undoes it
                    self._beside(committer, side, folded.rows(act, side.schema, seq=seq))
            counts = replace(counts, refused=counts.refused + refused, taken=taken)
            counts = replace(counts, superseded=counts.read - counts.refused - counts.not_mine - taken)
            low, high = folded.span(self.declared.table.event_time)
            entry = self.progress.entry(counts, low=low, high=high)
            committer.commit(self.table, folded.changed(), entry, how=self._merge(seen.floor, judged=True))
        self._reaches(seen)
        return counts

    def _span_columns(self) -> list[F.Column]:  # type: ignore[name-defined]  # re-exported without a stub
        name = self.declared.table.event_time
        return [F.min(name), F.max(name)] if name else [F.lit(None), F.lit(None)]

    def _newest_arrow(self, parsed: pa.Table, floor: str, *, overtaken: bool) -> tuple[pa.Table, pa.Table | None]:
        """The changes that count, one per key, and the deletions among them.

        `overtaken`: the table may have newer rows.
        """
        rows = parsed.filter(pc.is_in(parsed["_kind"], pa.array(KEYED)))
        rows = rows.filter(pc.greater(rows["_source"], floor)).sort_by("_source")
        last = {key: at for at, key in enumerate(self._keys(rows))}
        rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
        known = self._remembered(rows)
        for key, source in (_newest_of(self.table, rows, self.declared.keys) if overtaken else {}).items():
            known[key] = max(source, known.get(key, ""))
        newer = [
            source > known.get(key, "")
            for key, source in zip(self._keys(rows), rows["_source"].to_pylist(), strict=True)
        ]
        rows = rows.filter(pa.array(newer, pa.bool_()))
        rows = rows.append_column("_gone", pc.is_in(rows["_kind"], pa.array(ENDS)))
        gone = rows.filter(rows["_gone"]).select(self.deleted.schema.names)
        return rows, gone if gone.num_rows else None

    def _newest_spark(self, parsed: DataFrame, floor: str, *, overtaken: bool) -> tuple[DataFrame, DataFrame | None]:
        """The same for a batch that is too large to collect."""
        keys = list(self.declared.keys)
        rows = parsed.where(F.col("_kind").isin(*KEYED)).where(F.col("_source") > floor)
        newest_first = Window.partitionBy(*keys).orderBy(F.col("_source").desc())
        rows = rows.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1")
        names = [*self.table.schema.names, "_gone", "_kind"]
        rows = rows.withColumn("_gone", F.col("_kind").isin(*ENDS)).select(*names)
        for there in (self.deleted, self.table) if overtaken else (self.deleted,):
            known = _sources(parsed.sparkSession, there, keys)
            rows = rows.join(known, keys, "left").where(F.coalesce("_known", F.lit("")) < F.col("_source"))
            rows = rows.drop("_known")
        rows = rows.select(*names)
        gone = rows.where("_gone").select(*self.deleted.schema.names)
        return rows, None if gone.isEmpty() else gone

    def _keys(self, rows: pa.Table) -> Iterator[tuple[Any, ...]]:
        return keyed(rows, self.declared.keys)

    def _remembered(self, rows: pa.Table) -> dict[tuple[Any, ...], str]:
        """The newest remembered deletion of each of these rows' keys."""
        return _newest_of(self.deleted, rows, self.declared.keys)

    def _merge(self, floor: str | None, *, judged: bool = False) -> Merge:
        """Put changes in; those that were `judged` beside what is there count as they are, others if they are newer."""
        own = {name: f"s.{name}" for name in self.table.schema.names}
        newer = "true" if judged else "s._source > t._source"
        clauses = [
            Clause(on="matched", act="delete", when=f"s._gone and {newer}", set={}),
            Clause(on="matched", act="update", when=newer, set=own),
            Clause(on="not matched", act="insert", when="not s._gone", brings=("_gone", False), set=own),
        ]
        if floor is not None:
            before = f"t._source < '{floor}'"
            clauses.append(Clause(on="not matched by source", act="delete", when=before, set={}))
        return Merge(keys=self.declared.keys, clauses=tuple(clauses))


def _newest_of(table: OwnedTable, rows: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], str]:
    """The newest sequence that a table has of each of these rows' keys."""
    if rows.num_rows == 0 or table.rows() == 0:
        return {}
    # files are left out by their statistics: only by those that can be trusted
    first = next((key for key in keys if is_bounded(rows.schema.field(key).type)), None)
    mine = None if first is None else ds.field(first).isin(rows[first].unique())
    found = table.read([*keys, "_source"], where=mine)
    known: dict[tuple[Any, ...], str] = {}
    for key, source in zip(keyed(found, keys), found["_source"].to_pylist(), strict=True):
        known[key] = max(source, known.get(key, ""))
    return known


def _sources(spark: SparkSession, table: OwnedTable, keys: Sequence[str]) -> DataFrame:
    """By key the newest sequence that a table has, as of now: what this batch commits must not supersede itself."""
    there = spark.read.format("delta").option("versionAsOf", table.version).load(str(table.path))
    return there.groupBy(*keys).agg(F.max("_source").alias("_known"))


def _last_source(table: OwnedTable) -> str:
    """No row's sequence is higher."""
    actions = pa.table(table.delta.get_add_actions(flatten=True))
    if "max._source" in actions.column_names and not actions["max._source"].null_count:
        found = pc.max(actions["max._source"]).as_py()
        return f"{found}{_HIGHEST}" if found else ""
    highest = ""  # its statistics do not reach so many columns
    for batch in dataset_of(table.delta).to_batches(columns=["_source"]):
        highest = max(highest, pc.max(batch.column(0)).as_py() or "")
    return highest


def _seen(parsed: Rows) -> _Seen:
    if isinstance(parsed, pa.Table):
        mine = parsed.filter(pc.is_in(parsed["_kind"], pa.array(["row", "delete"])))
        both = pc.min_max(mine["_source"]).as_py()
        floor = pc.max(parsed["_floor"]).as_py()
        return _Seen(floor=floor, partial=is_partial(mine), first=both["min"], last=both["max"])
    source = F.when(F.col("_kind").isin("row", "delete"), F.col("_source"))
    row = parsed.agg(F.max("_floor"), F.count("_sent"), F.min(source), F.max(source)).collect()[0]
    return _Seen(floor=row[0], partial=row[1] > 0, first=row[2], last=row[3])
