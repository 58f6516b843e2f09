"""`aggregate`: the transform runs on new rows only, its result is combined into the table by key."""

from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine import slices
from deltaworks.engine.collect import as_arrow
from deltaworks.engine.commit import Clause, Committer, Merge, Rows
from deltaworks.engine.entry import Counts, Unfit
from deltaworks.engine.event_range import EventRange
from deltaworks.engine.expiry import still_kept
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.transforms import load_transform
from deltaworks.engine.writers import late_rows
from deltaworks.engine.writers.computing import Computing, declared_columns
from deltaworks.engine.writers.fitting import Fitting, Given, evaluate, with_places, without
from deltaworks.engine.writers.replacing import replace_all, replace_keys
from deltaworks.engine.writers.result import nullable_keys, result_of
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of, frame, suite_of
from deltaworks.words.keeping import Aggregate, Combine

_COMBINED: dict[Combine, str] = {
    "add": "coalesce({1}, t.{0}, s.{0})",  # null-ignoring: a sum with null would be null
    "least": "least(t.{0}, s.{0})",
    "greatest": "greatest(t.{0}, s.{0})",
}


class AggregateWriter:
    """Combines a batch's groups into the stored ones. Cost grows with the new rows, not with the table."""

    def __init__(
        self, declared: Declared, *, own: Input, source: Input, late: OwnedTable | None = None, direct: bool = True
    ) -> None:
        """Own `own`; read the rows that `source` gains; `late` takes what comes too late, if it is set aside."""
        kept = declared.table.kept_as
        assert isinstance(kept, Aggregate)
        self.declared, self.own, self.source, self.table = declared, own, source, own.table
        self.late = late
        self.used = None if late is None else late_rows.LateRows(late, own.table)
        self.computing = Computing(declared, load_transform(declared), [source.table], own.table.schema, direct=direct)
        code, suite = code_of(declared), suite_of(declared)
        self.progress = Progress(own.table, code=code, suite=suite, inputs=[source.table])
        late_max = late_rows.late_max(declared.table.late)
        self.fitting = Fitting(self.progress, own, transform=declared.transform, late_max=late_max)
        names = self.table.schema.names
        types = self.table.schema
        put_together = {name: combined(name, how, types.field(name).type) for name, how in kept.combine.items()}
        self.merge = Merge(
            keys=kept.keys,
            nullable_keys=nullable_keys(declared),
            clauses=(
                Clause(on="matched", act="update", set=put_together),
                Clause(on="not matched", act="insert", set={name: f"s.{name}" for name in names}),
            ),
        )

    @property
    def after(self) -> int:
        """Last version of the input taken in full."""
        return self.progress.position.versions.get(self.source.table.name, 0)

    def behind(self) -> bool:
        """Whether the input has versions with rows beyond this table's position."""
        return self.after < self.source.table.data_version

    def take(self, spark: SparkSession, committer: Committer) -> Turn | None:
        """Combine the next slice of new rows."""
        self.own.fresh = None
        bytes_max, one = committer.arrow_bytes_max, self.fitting.one_version
        piece = slices.versions(
            spark, self.source, after=self.after, bytes_max=bytes_max, reader=self.declared.name, one=one
        )
        if piece is None:
            return None
        whole = piece.upto >= self.source.table.data_version
        seq = self.source.table.entry.ingest_seq if whole else None
        self.progress.over_tables({self.source.table.name: piece.upto}, ingest_seq=seq)
        rows, late, counts = late_rows.in_time(piece.rows, self.declared.table.late)
        counts += Counts(read=piece.expired, expired=piece.expired)
        if late is not None and self.late is not None:
            late_rows.set_aside(committer, self.late, late, count=counts.late, upto=piece.upto, progress=self.progress)
        counts = self.fitting.take(
            {self.source.table.name: rows},
            counts,
            commit=lambda given, counts: self._combine(spark, committer, given, counts),
            attempt=lambda some: self._attempt(spark, some),
            sources=[self.source.table],
            committer=committer,
        )
        return Turn(table=self.declared.name, counts=counts)

    def try_again(
        self, spark: SparkSession, committer: Committer, wanted: Collection[Unfit], *, command: int
    ) -> Counts:
        """Combine rows that were left out, as far as the transform can compute them now."""
        self.progress.tries_again(command)
        source = self.source.table
        given, counts = self.fitting.tried_again(
            {source.name: with_places(source, [one.place for one in wanted])},
            attempt=lambda some: self._attempt(spark, some),
        )
        if counts.taken:
            self._combine(spark, committer, given, counts)
        return counts

    def use_late(self, spark: SparkSession, committer: Committer, rows: pa.Table, *, command: int) -> Counts:
        """Combine rows that came too late once."""
        counts = Counts(taken=rows.num_rows, late=-rows.num_rows)
        self.progress.applied(rows.num_rows, command=command)
        self._combine(spark, committer, {self.source.table.name: rows}, counts)
        return counts

    def exchanged(self, spark: SparkSession, committer: Committer, *, gone: Rows, come: Rows) -> None:
        """Compute the groups again, from all rows of the input, of rows that gave way to others in its last version."""
        source, policy = self.source.table, self.declared.table.late
        self.progress.over_tables({source.name: source.version}, ingest_seq=source.entry.ingest_seq)
        gone, left = self.fitting.gone(source.name, gone)
        uses = 0 if self.used is None else self.used.uses
        found = late_rows.exchange(
            committer, self.late, policy, self.progress, gone=gone, come=come, upto=source.version, uses=uses
        )
        computed = self._all(spark, committer)
        grouped = self._grouped(spark, frame(spark, found.touched))
        assert isinstance(grouped, DataFrame), "of a DataFrame comes one"
        touched = grouped.select(*self.declared.keys)
        schema = pa.schema([self.table.schema.field(key) for key in self.declared.keys])
        keys = as_arrow(touched).select(schema.names).cast(schema).group_by(schema.names).aggregate([])
        replace_keys(self.declared, self.progress, spark, committer, computed, keys=keys, counts=found.counts + left)

    def compute_again(self, spark: SparkSession, committer: Committer, wanted: EventRange) -> None:
        """Compute the groups of a range of the table's own event time again, from all rows of the input.

        Raises TooMuchError where these are too many.
        """
        event_time = self.declared.table.event_time
        assert event_time is not None, "asked for tables that have a range only"
        self.progress.over_tables({self.source.table.name: self.after}, ingest_seq=None)
        keys, bytes_max = list(self.declared.keys), committer.arrow_bytes_max
        had = self.table.read(keys, where=wanted.holds(event_time), bytes_max=bytes_max)
        computed = self._all(spark, committer).where(wanted.holds_spark(event_time))
        replace_all(self.declared, self.progress, spark, committer, computed, had=had, counts=Counts())

    def plan_ahead(self, spark: SparkSession) -> None:
        """Plan its transform beside the turn."""
        self.computing.planned.plan_ahead(spark)

    def settle(self, committer: Committer) -> None:
        """Commit the remembered position."""
        if not self.behind():
            self.progress.come_along([self.source.table])
        self.progress.settle(committer)

    def _all(self, spark: SparkSession, committer: Committer) -> DataFrame:
        """The groups of all rows of the input that are used."""
        source = self.source.table
        names = declared_columns(source)
        there = slices.present(spark, source, committer.arrow_bytes_max, [*names, "_source", "_late_by"])
        used = late_rows.used_of(there, self.declared.table.late)
        rows = frame(spark, without(used, self.fitting.places(source.name))).select(*names)
        if self.used is not None:
            rows = rows.unionByName(self.used.used_spark(spark, names))
        grouped = self._grouped(spark, rows)
        assert isinstance(grouped, DataFrame), "of a DataFrame comes one"
        return grouped

    def _combine(self, spark: SparkSession, committer: Committer, given: Given, counts: Counts) -> None:
        grouped = self._grouped(spark, given[self.source.table.name])
        with result_of(self.declared, grouped, arrow_bytes_max=committer.arrow_bytes_max) as result:
            low, high = result.span
            entry = self.progress.entry(counts, low=low, high=high)
            committer.commit(self.table, result.rows, entry, how=self.merge)
        self.progress.committed()

    def _attempt(self, spark: SparkSession, some: Given) -> None:
        evaluate(self._grouped(spark, some[self.source.table.name]))

    def _grouped(self, spark: SparkSession, rows: Rows) -> Rows:
        grouped = self.computing(spark, {self.source.table.name: rows})
        return still_kept(grouped, self.declared, self.progress.position)


def combined(name: str, how: Combine, kind: pa.DataType) -> str:
    """SQL for a column's stored value and a batch's put together."""
    return _COMBINED[how].format(name, _sum(name, kind))


def _sum(name: str, kind: pa.DataType) -> str:
    """A sum that fails where it does not fit: DataFusion's own on integers starts again from below, without a word."""
    if not pa.types.is_integer(kind):
        return f"t.{name} + s.{name}"
    wide = f"cast(t.{name} as decimal(20,0)) + cast(s.{name} as decimal(20,0))"
    return f"cast({wide} as {'int' if kind == pa.int32() else 'bigint'})"
