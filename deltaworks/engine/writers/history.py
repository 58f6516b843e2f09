"""`history`: every state of a key with the time in which it held, placed by its change's sequence (SCD2).

Each change is a row of its own, so a change that arrives late is put in at its place: the keys that a batch touches
are folded again from all that is known of them, and the rows whose interval is another now are merged.

States by JSON are placed by the time that they say themselves (`by=`), of each time there is one row.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Clause, Committer, Merge, Rows, is_bounded, sound, without_negative_zero
from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.schemas import arrow_schema, spark_schema
from deltaworks.engine.writers.intervals import (
    NEW,
    TIME,
    OfKey,
    Truncation,
    by_sequence,
    events_schema,
    fold,
    folded_schema,
)
from deltaworks.engine.writers.intervals_by_time import by_time
from deltaworks.engine.writers.left import KEYED
from deltaworks.engine.writers.sequenced import Sequenced
from deltaworks.engine.writers.writer import frame, span

_REMEMBERED = pa.schema([("_at", TIME), ("_seq", pa.int64()), ("_source", pa.string())])
_CHANGES = (*KEYED, "truncate")
_OFFSET = "/[^/]*$"
_LEFT = "/left"
"""At the end of the sequence of what ended because its row has left its keys: the change is counted with its row."""
ROWS_FOLDED_MAX = 300_000
"""So many rows the driver folds at once: each takes a kilobyte or two there, and may take a byte in its file."""
EVENTS_PER_CALL = 50_000
"""So many events go into one call of the fold: a call for each key would cost a millisecond each."""


def deleted_schema(declared: Declared) -> pa.Schema:
    """Remembered ends: the deleted row's keys, null for a truncation; the time, ingest batch and sequence of it."""
    columns = arrow_schema(declared.table.columns)
    return pa.schema([*(columns.field(key) for key in declared.keys), *_REMEMBERED])


class HistoryWriter(Sequenced):
    """Folds the keys of a batch with what is stored of them, and merges the rows that are new or have changed.

    Deletions and truncations leave no row. They are remembered beside the table for good: an older change may come at
    any time, and its state ended there.
    """

    def _keep(self, committer: Committer, parsed: Rows, counts: Counts) -> Counts:
        if isinstance(parsed, pa.Table) and not self._reads_much(committer, parsed):
            return self._keep_arrow(committer, parsed, counts)
        assert committer.spark is not None, "batches come with their session"
        return self._keep_spark(committer, frame(committer.spark, parsed), counts)

    def _reads_much(self, committer: Committer, parsed: pa.Table) -> bool:
        """Whether what is stored of the batch's keys may be more than the driver should hold."""
        if parsed["_floor"].null_count < parsed.num_rows:
            return self.is_large(committer.arrow_bytes_max)
        keyed = parsed.filter(pc.is_in(parsed["_kind"], pa.array(KEYED)))
        return committer.touched(self.table, keyed, Merge(keys=self.declared.keys, clauses=())) > (
            committer.arrow_bytes_max
        )

    def is_large(self, bytes_max: int) -> bool:
        """Whether all that is stored is more than the driver should hold: in files, or as Python's values."""
        stored = (self.table, self.deleted)
        return sum(one.bytes() for one in stored) > bytes_max or sum(one.rows() for one in stored) > ROWS_FOLDED_MAX

    # -- small batches ------------------------------------------------------------------------------------------

    def _keep_arrow(self, committer: Committer, parsed: pa.Table, counts: Counts) -> Counts:
        changes = parsed.filter(pc.is_in(parsed["_kind"], pa.array(_CHANGES)))
        left = pc.equal(changes["_kind"], "left")
        if self.by is None:
            sequences = pc.replace_substring_regex(changes["_source"], _OFFSET, "")
            sequences = pc.if_else(left, pc.binary_join_element_wise(sequences, _LEFT, ""), sequences)
            changes = changes.set_column(changes.schema.get_field_index("_source"), "_source", sequences)
        changes = sound(changes, self.table.schema, subset=True)  # keys are compared with those stored
        known = self._stored(self.deleted, changes)
        gone = self._not_known(changes.filter(pc.not_equal(changes["_kind"], "row")), known)
        ends = pa.concat_tables([gone, self._not_known(self._floors(parsed), known)])
        cut = pc.max(ends.filter(pc.is_null(ends[self.declared.keys[0]]))["_source"]).as_py()
        # a truncation or snapshot may end what is stored, if that is older
        whole = cut is not None and self.table.read(["_source"], where=ds.field("_source") < cut).num_rows > 0
        known = pa.concat_tables([self.deleted.read() if whole else known, ends])
        events = [
            _events(self.table.read() if whole else self._stored(self.table, changes), "row", self.table.schema),
            _events(changes.filter(pc.equal(changes["_kind"], "row")), "row", self.table.schema),
            _events(known.filter(pc.is_valid(known[self.declared.keys[0]])), "delete", self.table.schema),
        ]
        cuts = known.filter(pc.is_null(known[self.declared.keys[0]]))
        folded = self._fold(_truncations(cuts))(pa.concat_tables(events))
        told = pc.sum(pc.invert(pc.ends_with(gone["_source"], _LEFT))).as_py() or 0
        taken, came = told + (pc.sum(folded[NEW.name]).as_py() or 0), pc.sum(pc.invert(left)).as_py() or 0
        counts = replace(counts, taken=taken, superseded=came - taken)
        if ends.num_rows:
            self._beside(committer, self.deleted, ends)
        low, high = span(folded, self.declared.table.event_time)
        committer.commit(self.table, folded, self.progress.entry(counts, low=low, high=high), how=self._merge())
        return counts

    def _floors(self, parsed: pa.Table) -> pa.Table:
        """Begins of snapshots that have ended: what is older, and was not seen by them, is gone in the source."""
        found = parsed.filter(pc.and_(pc.is_valid(parsed["_floor"]), pc.not_equal(parsed["_kind"], "truncate")))
        own = {"_at": pc.coalesce(found["_at"], pa.scalar(0, TIME)), "_seq": found["_seq"], "_source": found["_floor"]}
        schema = self.deleted.schema
        return pa.table([own.get(f.name, pa.nulls(found.num_rows, f.type)) for f in schema], schema=schema)

    def _stored(self, table: OwnedTable, changes: pa.Table) -> pa.Table:
        """Everything stored of the changes' keys (by one of their columns, so maybe of more), and all truncations."""
        # files are left out by their statistics: only by those that can be trusted
        key = next((key for key in self.declared.keys if is_bounded(changes.schema.field(key).type)), None)
        if key is not None:
            return table.read(where=ds.field(key).isin(changes[key].drop_null().unique()) | ds.field(key).is_null())
        rows, key = table.read(), self.declared.keys[0]
        return rows.filter(pc.or_(pc.is_in(rows[key], changes[key].unique()), pc.is_null(rows[key])))

    def _not_known(self, ends: pa.Table, known: pa.Table) -> pa.Table:
        """Deletions and truncations of the batch that are not remembered yet, each once."""
        told = [*self.declared.keys, "_source"]
        there = set(zip(*(known[name].to_pylist() for name in told), strict=True))
        places = []
        for place, end in enumerate(zip(*(ends[name].to_pylist() for name in told), strict=True)):
            if end not in there:
                there.add(end)
                places.append(place)
        return ends.take(pa.array(places, pa.int64())).select(self.deleted.schema.names).cast(self.deleted.schema)

    # -- large batches ------------------------------------------------------------------------------------------

    def _keep_spark(self, committer: Committer, parsed: DataFrame, counts: Counts) -> Counts:
        changes = parsed.where(F.col("_kind").isin(*_CHANGES))
        if self.by is None:
            sequence = F.regexp_replace("_source", _OFFSET, F.when(F.col("_kind") == "left", _LEFT).otherwise(""))
            changes = changes.withColumn("_source", sequence)
        changes = without_negative_zero(changes)
        gone = self._not_known_spark(changes.where(F.col("_kind") != "row")).withColumn("_told", F.lit(True))
        floors = self._not_known_spark(self._floors_spark(parsed)).withColumn("_told", F.lit(False))
        both = gone.unionByName(floors).persist(StorageLevel.DISK_ONLY)
        folded = None
        try:
            cut = F.when(self._is_truncation(), F.col("_source"))
            whole_changes = F.count_if(F.col("_told") & ~F.endswith("_source", F.lit(_LEFT)))
            told, ended, last = both.agg(whole_changes, F.count("*"), F.max(cut)).collect()[0]
            ends = both.drop("_told")
            older = None if last is None else _as_of(self.table, changes).where(F.col("_source") < last)
            whole = older is not None and not older.isEmpty()
            folded = self._folded_spark(changes, ends, whole=whole).persist(StorageLevel.DISK_ONLY)
            event_time = self.declared.table.event_time
            spans = [F.min(event_time), F.max(event_time)] if event_time else [F.lit(None), F.lit(None)]
            new, low, high = folded.agg(F.count_if(NEW.name), *spans).collect()[0]
            taken = told + new
            counts = replace(counts, taken=taken, superseded=changes.where(F.col("_kind") != "left").count() - taken)
            if ended:
                self._beside(committer, self.deleted, ends)
            entry = self.progress.entry(counts, low=low, high=high)
            committer.commit(self.table, folded, entry, how=self._merge())
        finally:
            both.unpersist()
            if folded is not None:
                folded.unpersist()
        return counts

    def _floors_spark(self, parsed: DataFrame) -> DataFrame:
        keys = [
            F.lit(None).cast(field.dataType).alias(field.name)
            for field in spark_schema(self.deleted.schema)
            if field.name in self.declared.keys
        ]
        at = F.coalesce("_at", F.timestamp_micros(F.lit(0)))
        found = parsed.where(F.col("_floor").isNotNull()).where(F.col("_kind") != "truncate")
        return found.select(*keys, at.alias("_at"), "_seq", F.col("_floor").alias("_source"))

    def _not_known_spark(self, ends: DataFrame) -> DataFrame:
        """Those of the batch that are not remembered yet, each once."""
        keys = list(self.declared.keys)
        grouped = ends.groupBy(*keys, "_source")
        once = grouped.agg(F.min("_at").alias("_at"), F.min("_seq").alias("_seq")).alias("e")
        known = _as_of(self.deleted, ends).select(*keys, "_source").alias("k")
        same = [F.col(f"e.{name}").eqNullSafe(F.col(f"k.{name}")) for name in (*keys, "_source")]
        return once.join(known, same, "left_anti").select(*self.deleted.schema.names)

    def _folded_spark(self, changes: DataFrame, gone: DataFrame, *, whole: bool) -> DataFrame:
        keys = list(self.declared.keys)
        known = _as_of(self.deleted, changes).unionByName(gone)
        cuts = known.where(self._is_truncation()).toArrow()
        ends, stored = known.where(~self._is_truncation()), _as_of(self.table, changes)
        if not whole:
            touched = changes.where(F.col("_kind") != "truncate").select(*keys).distinct()
            ends, stored = (rows.join(touched, keys, "left_semi") for rows in (ends, stored))
        rows = changes.where(F.col("_kind") == "row")
        kinds = ((stored, "row"), (rows, "row"), (ends, "delete"))
        events, *further = (self._events_spark(one, kind) for one, kind in kinds)
        for one in further:
            events = events.unionByName(one)
        calls = events.count() // EVENTS_PER_CALL + 1
        parts = events.groupBy(F.pmod(F.hash(*keys), F.lit(calls)))
        return parts.applyInArrow(self._fold(_truncations(cuts)), spark_schema(folded_schema(self.table.schema)))

    def _events_spark(self, rows: DataFrame, kind: str) -> DataFrame:
        wanted = spark_schema(self.table.schema)
        columns = [
            F.col(field.name) if field.name in rows.columns else F.lit(None).cast(field.dataType).alias(field.name)
            for field in wanted
        ]
        return rows.select(*columns, F.lit(kind).alias("_kind"))

    def _is_truncation(self) -> Column:
        return F.col(self.declared.keys[0]).isNull()

    # -- both ---------------------------------------------------------------------------------------------------

    def _fold(self, truncations: Sequence[Truncation]) -> Callable[[pa.Table], pa.Table]:
        """The same function for both ways; it is sent to Spark's workers, so it holds values only."""
        keys, table = self.declared.keys, self.table.schema
        of_key: OfKey = partial(by_sequence, cuts=sorted(truncations)) if self.by is None else by_time

        def folded(events: pa.Table) -> pa.Table:
            return fold(events, keys=keys, table=table, of_key=of_key)

        return folded

    def _merge(self) -> Merge:
        own = {name: f"s.{name}" for name in self.table.schema.names}
        clauses = (Clause(on="matched", act="update", set=own), Clause(on="not matched", act="insert", set=own))
        told = "_source" if self.by is None else "valid_from"  # a state of the same time takes the place of another
        return Merge(keys=(*self.declared.keys, told), clauses=clauses)


def _events(rows: pa.Table, kind: str, table: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in table
    ]
    return pa.table([*columns, pa.array([kind] * rows.num_rows, pa.string())], schema=events_schema(table))


def _truncations(cuts: pa.Table) -> tuple[Truncation, ...]:
    times = cuts["_at"].cast(TIME).cast(pa.int64()).to_pylist()
    return tuple(Truncation(*one) for one in zip(cuts["_source"].to_pylist(), times, strict=True))


def _as_of(table: OwnedTable, batch: DataFrame) -> DataFrame:
    """The table before this batch, whatever of the batch is committed by the time that this is computed."""
    read = batch.sparkSession.read.format("delta").option("versionAsOf", table.version)
    return read.load(str(table.path))
