"""`stateful`: what neighbouring events make together. The stretches that new rows touch are computed again.

The transform runs on all rows of a touched stretch, as a backfill would run it, and its rows take the place of those
that the stretch had. So the table is at any time the transform of the rows that it has taken, in whatever order, cuts
or restarts they came; there is no state beside it.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.catalog import Catalog, Declared
from deltaworks.catalog.stateful import COMPLETE
from deltaworks.engine import slices, spark_stretches
from deltaworks.engine.commit import Clause, Committer, Keys, Merge, Rows
from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Counts, Entry, Unfit
from deltaworks.engine.event_range import EventRange
from deltaworks.engine.expiry import still_kept
from deltaworks.engine.lake import OwnedTable, TooMuchError, read_commit
from deltaworks.engine.nearby import Nearby
from deltaworks.engine.own_rows import OwnRows
from deltaworks.engine.stretches import Stretches, micros, times
from deltaworks.engine.touched import FIRST_LOOK, by_gap, by_reach
from deltaworks.engine.transforms import load_transform
from deltaworks.engine.values import tuples
from deltaworks.engine.writers import late_rows
from deltaworks.engine.writers.computing import Computing, declared_columns
from deltaworks.engine.writers.fitting import WITNESSES, Attempt, Fitting, Given, evaluate, with_places, without
from deltaworks.engine.writers.result import nullable_keys, result_of
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of, frame
from deltaworks.errors import LakeError
from deltaworks.words.keeping import Stateful

_ACT = pa.field("_act", pa.string())
"""What is done with a row: it is `row` of the result, `gone` from it, or `closed` by the mark."""


@dataclass(frozen=True, kw_only=True)
class _New:
    """What a batch brings of one input."""

    rows: Rows
    upto: int
    seq: int
    mark: int | None


@dataclass(frozen=True, kw_only=True)
class _Touched:
    """The stretches to be computed again, and the rows of each input that they are computed from.

    `near` None: the stretches are many, and only Spark knows them, as `wide`.
    """

    near: Stretches | None
    wide: DataFrame | None
    rows: Mapping[str, Rows]


class StatefulWriter:
    """Replaces the rows of the stretches that new rows touch."""

    def __init__(
        self,
        declared: Declared,
        *,
        own: Input,
        sources: tuple[Input, ...],
        catalog: Catalog,
        late: OwnedTable | None = None,
        direct: bool = True,
    ) -> None:
        """Own `own`; read the rows that `sources` gain; `late` takes what comes too late, if it is set aside."""
        kept = declared.table.kept_as
        assert isinstance(kept, Stateful)
        self.declared, self.kept, self.own, self.sources, self.table = declared, kept, own, sources, own.table
        self.late = late
        gives = pa.schema([one for one in own.table.schema if one.name != COMPLETE or kept.closes is None])
        tables = [source.table for source in sources]
        self.computing = Computing(declared, load_transform(declared), tables, gives, direct=direct)
        self.progress = Progress(own.table, code=code_of(declared), inputs=tables)
        self.part = list(kept.part)
        self.length = micros(kept.gap or kept.reach or timedelta())
        self.times = {source.table.name: _event_time(catalog[source.table.name]) for source in sources}
        policy = declared.table.late
        self.late_max = late_rows.late_max(policy)
        self.fitting = Fitting(self.progress, own, transform=declared.transform, late_max=self.late_max)
        self.used = None if late is None else late_rows.LateRows(late, own.table)
        self.after_max = 0 if policy is None else micros(policy.after)
        self.nearby = {
            source.table.name: self._nearby(source.table, declared_columns(source.table)) for source in sources
        }
        keep = 2 * FIRST_LOOK * self.length + self.after_max
        self.own_rows = OwnRows(own.table, keys=declared.keys, time=self._event_time, keep=keep)
        self.merge = _merge(declared, self.table.schema.names)
        self._open: pa.Table | None = None
        """Keys and closing times of the rows that are not complete; None: to be read from the table."""

    def _nearby(self, table: OwnedTable, columns: list[str], *, narrow: bool = False) -> Nearby:
        return Nearby(
            table,
            time=self.times[table.name],
            columns=columns,
            late_max=self.late_max,
            keep=2 * FIRST_LOOK * self.length + self.after_max,
            late=self.used,
            unfit=partial(self.fitting.places, table.name),
            narrow=narrow,
        )

    def _forget(self) -> None:
        """Read the neighbours of what comes next from the tables."""
        for memory in self.nearby.values():
            memory.forget()

    def forget(self) -> None:
        """Rows of the table were deleted: read what is remembered of it again."""
        self._forget()
        self._open = None

    def after(self, source: Input) -> int:
        """Last version of an input taken in full."""
        return self.progress.position.versions.get(source.table.name, 0)

    def behind(self) -> bool:
        """Whether an input has versions with rows beyond this table's position."""
        return any(self.after(source) < source.table.data_version for source in self.sources)

    def plan_ahead(self, spark: SparkSession) -> None:
        """Plan its transform beside the turn."""
        self.computing.planned.plan_ahead(spark)

    def settle(self, committer: Committer) -> None:
        """Commit the remembered position."""
        if not self.behind():
            self.progress.come_along([source.table for source in self.sources])
        self.progress.settle(committer)

    def take(self, spark: SparkSession, committer: Committer) -> Turn | None:
        """Compute again what the next slice of new rows of each input touches."""
        self.own.fresh = None
        if not self.behind():
            return None
        bytes_max, counts, one = committer.arrow_bytes_max, Counts(), self.fitting.one_version
        new: dict[str, _New] = {}
        aside: list[tuple[Rows, int, int]] = []
        for source in self.sources:
            piece = slices.versions(
                spark, source, after=self.after(source), bytes_max=bytes_max, reader=self.declared.name, one=one
            )
            upto = self.after(source) if piece is None else piece.upto
            given: Rows = source.table.schema.empty_table() if piece is None else piece.rows
            rows, late, counted = late_rows.in_time(given, self.declared.table.late)
            counts += counted
            if piece is not None:
                counts += Counts(read=piece.expired, expired=piece.expired)
            if late is not None:
                aside.append((late, counted.late, upto))
            new[source.table.name] = _new(source.table, rows, upto)
        self._reach(new)
        for late, count, upto in aside if self.late is not None else ():
            assert self.late is not None
            late_rows.set_aside(committer, self.late, late, count=count, upto=upto, progress=self.progress)
        with self._attempt(spark, new) as attempt:
            counts = self.fitting.take(
                {name: one.rows for name, one in new.items()},
                counts,
                commit=lambda given, counts: self._replace(spark, committer, _given(new, given), counts),
                attempt=attempt,
                sources=[source.table for source in self.sources],
                committer=committer,
            )
        return Turn(table=self.declared.name, counts=counts)

    def try_again(
        self, spark: SparkSession, committer: Committer, wanted: Collection[Unfit], *, command: int
    ) -> Counts:
        """Compute again what rows touch that were left out, as far as the transform can compute them now."""
        self.progress.tries_again(command)
        new = {}
        for source in self.sources:
            rows = with_places(source.table, [one.place for one in wanted if one.of == source.table.name])
            new[source.table.name] = _new(source.table, rows, self.after(source))
        with self._attempt(spark, new) as attempt:
            given, counts = self.fitting.tried_again({name: one.rows for name, one in new.items()}, attempt=attempt)
        if counts.taken:
            self._forget()
            self._replace(spark, committer, _given(new, given), counts)
        return counts

    def use_late(self, spark: SparkSession, committer: Committer, rows: pa.Table, *, command: int) -> Counts:
        """Compute again what rows touch that came too late once; they count among their neighbours from now on."""
        (source,) = self.sources  # rows are set aside where there is one input
        counts = Counts(taken=rows.num_rows, late=-rows.num_rows)
        rows = rows.select(declared_columns(source.table)).append_column(
            "_seq", pa.array([0] * rows.num_rows, pa.int64())
        )
        new = {source.table.name: _new(source.table, rows, self.after(source))}
        self.progress.applied(rows.num_rows, command=command)
        self._replace(spark, committer, new, counts)
        return counts

    def exchanged(self, spark: SparkSession, committer: Committer, source: Input, *, gone: Rows, come: Rows) -> None:
        """Compute again what rows of an input touch that gave way to others in its last versions."""
        table, policy = source.table, self.declared.table.late
        empty = {
            one.table.name: _new(one.table, one.table.schema.empty_table(), self.after(one)) for one in self.sources
        }
        self.progress.over_tables({table.name: table.version}, ingest_seq=table.entry.ingest_seq)
        gone, left = self.fitting.gone(table.name, gone)
        uses = 0 if self.used is None else self.used.uses
        found = late_rows.exchange(
            committer, self.late, policy, self.progress, gone=gone, come=come, upto=table.version, uses=uses
        )
        touched = _places_of(found.touched, table)
        self._forget()  # rows were taken out of the midst of it
        new = {**empty, table.name: _new(table, touched, table.version)}
        self._replace(spark, committer, new, found.counts + left)

    def compute_again(self, spark: SparkSession, committer: Committer, wanted: EventRange) -> None:
        """Compute again what rows touch that happened in a range, also those that are not used by the rules of now."""
        new = {}
        for source in self.sources:
            table, upto = source.table, self.after(source)
            there = slices.present(spark, table, 0, [*declared_columns(table), "_seq"])
            assert isinstance(there, DataFrame), "nothing fits into no bytes"
            within = wanted.holds_spark(self.times[table.name])
            here = there.where(within & (F.col("_seq") <= _new(table, table.schema.empty_table(), upto).seq))
            new[table.name] = _new(table, _places_of(here, table), upto)
        self._reach(new)
        self._replace(spark, committer, new, Counts())

    def _reach(self, new: Mapping[str, _New]) -> None:
        whole = all(new[source.table.name].upto >= source.table.data_version for source in self.sources)
        seq = max(source.table.entry.ingest_seq for source in self.sources) if whole else None
        self.progress.over_tables({name: one.upto for name, one in new.items()}, ingest_seq=seq)

    def _replace(self, spark: SparkSession, committer: Committer, new: Mapping[str, _New], counts: Counts) -> None:
        marks = [one.mark for one in new.values()]
        # strictly before the mark: a row that is late by exactly `after` is in time
        passed = None if None in marks else min(mark for mark in marks if mark is not None) - self.after_max
        with self._touched(spark, new, committer.arrow_bytes_max) as touched:
            computed = self._computed(spark, touched.rows, passed)
            if self.kept.reach is not None:  # of the rows at the edges only a part was seen
                computed = self._inside(spark, touched, computed)
            with result_of(self.declared, computed, arrow_bytes_max=committer.arrow_bytes_max) as result:
                self._refuse_misplaced(spark, touched, result.rows)
                open_before = self._open_rows()
                closing = _closing(open_before, self.kept.closes, passed)
                rows: Rows
                had: Keys | None
                try:
                    rows, had = self._changes(touched, result.rows, closing, committer.arrow_bytes_max)
                except TooMuchError:
                    rows, had = self._changes_spark(spark, touched, frame(spark, result.rows), closing), None
                low, high = result.span
                entry = self.progress.entry(counts, low=low, high=high)
                committer.commit(self.table, rows, entry, how=self.merge, existing=had)
                if touched.near is not None and isinstance(rows, pa.Table):
                    there = rows.filter(pc.equal(rows[_ACT.name], "row"))
                    self.own_rows.replaced(touched.near, there, bytes_max=committer.arrow_bytes_max)
                self._remember_open(touched, result.rows, open_before, passed)
        self.progress.committed()

    def _computed(self, spark: SparkSession, rows: Mapping[str, Rows], passed: int | None) -> Rows:
        computed = self.computing(spark, rows)
        if self.kept.closes is not None:
            computed = _with_complete(computed, self.kept.closes, passed)
        return still_kept(computed.select(self.table.schema.names), self.declared, self.progress.position)

    def _inside(self, spark: SparkSession, touched: _Touched, computed: Rows) -> Rows:
        """The rows of a result that lie in the stretches."""
        if touched.near is not None and isinstance(computed, pa.Table):
            timed = computed.filter(pc.is_valid(computed[self._event_time]))
            return timed.filter(touched.near.hold(timed, self._event_time))
        wide = self._frame(spark, touched)
        return spark_stretches.within(frame(spark, computed), self._event_time, wide, self.part)

    @contextmanager
    def _attempt(self, spark: SparkSession, new: Mapping[str, _New]) -> Iterator[Attempt]:
        """Evaluates some of the new rows together with the stored ones near all of them, which are read when asked."""
        with ExitStack() as kept:
            beside: dict[str, DataFrame] = {}

            def attempt(some: Given) -> None:
                if not beside:
                    beside.update(self._beside(spark, new, kept))
                rows = {}
                for name, stored in beside.items():
                    others = without(stored, _few(some[name]))  # stored ones may be tried, too
                    assert isinstance(others, DataFrame)
                    rows[name] = frame(spark, some[name]).select(*stored.columns).unionByName(others).drop("_source")
                evaluate(self._computed(spark, rows, None))

            yield attempt

    def _beside(self, spark: SparkSession, new: Mapping[str, _New], kept: ExitStack) -> dict[str, DataFrame]:
        """The stored rows of each input near the new ones, without these."""
        self._forget()  # it may have taken rows up that are left out
        wide = self._wide(spark, new).persist(StorageLevel.DISK_ONLY)
        kept.callback(wide.unpersist)
        widened = 0 if self.kept.reach is None else self.length
        found = {}
        for name, one in new.items():
            fresh = frame(spark, one.rows).select("_source")
            stored = self._stored(spark, name, one, with_source=True).join(fresh, "_source", "left_anti")
            near = spark_stretches.within(stored, self.times[name], wide, self.part, widened=widened)
            found[name] = near.persist(StorageLevel.DISK_ONLY)
            kept.callback(found[name].unpersist)
        return found

    @property
    def _event_time(self) -> str:
        event_time = self.declared.table.event_time
        assert event_time is not None, "declared: `table check` asks for it"
        return event_time

    # -- what is touched ----------------------------------------------------------------------------------------

    @contextmanager
    def _touched(self, spark: SparkSession, new: Mapping[str, _New], bytes_max: int) -> Iterator[_Touched]:
        """The stretches that the new rows touch, with the rows of all inputs in them and within `reach` of them."""
        small = {name: one.rows for name, one in new.items() if isinstance(one.rows, pa.Table)}
        by_arrow = bytes_max > 0 and len(small) == len(new)
        if by_arrow:
            try:
                near, rows = self._near(small, new, bytes_max)
            except TooMuchError:
                pass
            else:
                yield _Touched(near=near, wide=None, rows=rows)
                return
        self._forget()  # it is not given the rows of this batch
        if by_arrow:
            try:
                found = self._only_stretches(small, new, bytes_max)
            except TooMuchError:
                pass
            else:
                wide = F.broadcast(spark.createDataFrame(found.table()))
                yield _Touched(near=found, wide=None, rows=self._within(spark, new, wide))
                return
        with ExitStack() as kept:
            wide = self._wide(spark, new).persist(StorageLevel.DISK_ONLY)  # three things are held against them
            kept.callback(wide.unpersist)
            yield _Touched(near=None, wide=wide, rows=self._within(spark, new, wide))

    def _within(self, spark: SparkSession, new: Mapping[str, _New], wide: DataFrame) -> dict[str, DataFrame]:
        """The stored rows that results in these stretches are computed from."""
        widened = 0 if self.kept.reach is None else self.length
        return {
            name: spark_stretches.within(
                self._stored(spark, name, one), self.times[name], wide, self.part, widened=widened
            )
            for name, one in new.items()
        }

    def _only_stretches(self, small: Mapping[str, pa.Table], new: Mapping[str, _New], bytes_max: int) -> Stretches:
        """The stretches, where the rows in them are too many: of these no more is read than their part and time."""
        if self.kept.reach is not None:  # no stored row has a say in them
            return by_reach(small, lambda _: {}, part=self.part, times=self.times, length=self.length)[0]
        names = {name: list(dict.fromkeys((*self.part, self.times[name]))) for name in new}
        memories = {
            source.table.name: self._nearby(source.table, names[source.table.name], narrow=True)
            for source in self.sources
        }

        def read(stretches: Stretches) -> dict[str, pa.Table]:
            return {
                name: memory.rows(stretches, small[name], seq=new[name].seq, bytes_max=bytes_max)
                for name, memory in memories.items()
            }

        return by_gap(small, read, part=self.part, times=self.times, length=self.length)[0]

    def _near(
        self, small: Mapping[str, pa.Table], new: Mapping[str, _New], bytes_max: int
    ) -> tuple[Stretches, dict[str, pa.Table]]:
        def read(stretches: Stretches) -> dict[str, pa.Table]:
            return {
                name: self.nearby[name].rows(stretches, small[name], seq=one.seq, bytes_max=bytes_max)
                for name, one in new.items()
            }

        for name, rows in small.items():
            self.nearby[name].begin(rows)
        find = by_reach if self.kept.reach is not None else by_gap
        return find(small, read, part=self.part, times=self.times, length=self.length)

    def _wide(self, spark: SparkSession, new: Mapping[str, _New]) -> DataFrame:
        """The same where the rows are many: parts with `_low` and `_high`."""
        points = reduce(
            DataFrame.unionAll,
            [spark_stretches.placed(frame(spark, one.rows), self.part, self.times[name]) for name, one in new.items()],
        )
        fresh = points.withColumn("_new", F.lit(True))
        if self.kept.reach is not None:
            found = spark_stretches.runs(fresh, self.part, 2 * self.length)
            low, high = F.col("_low") - self.length, F.col("_high") + self.length
            return found.select(*self.part, low.alias("_low"), high.alias("_high"))
        stored = reduce(
            DataFrame.unionAll,
            [
                spark_stretches.placed(self._stored(spark, name, one), self.part, self.times[name])
                for name, one in new.items()
            ],
        )
        parts = points.select(*self.part).distinct()
        mine = stored.alias("r").join(parts.alias("s"), spark_stretches.same(self.part, "r", "s"), "left_semi")
        found = spark_stretches.runs(mine.withColumn("_new", F.lit(False)).unionAll(fresh), self.part, self.length)
        return found.where("_new").select(*self.part, "_low", "_high")

    def _stored(self, spark: SparkSession, name: str, new: _New, *, with_source: bool = False) -> DataFrame:
        """An input's rows as of this batch, without those that are left out and without the engine's columns."""
        (table,) = (source.table for source in self.sources if source.table.name == name)
        names = [*declared_columns(table), *(["_source"] if with_source else [])]
        rows: Rows = spark.read.format("delta").load(str(table.path)).where(F.col("_seq") <= new.seq)
        rows = without(rows, self.fitting.places(name))
        assert isinstance(rows, DataFrame)
        if self.late_max is not None:
            rows = rows.where(F.col("_late_by") <= self.late_max)
        rows = rows.select(*names)
        return rows if self.used is None else rows.unionByName(self.used.used_spark(spark, names))

    def _frame(self, spark: SparkSession, touched: _Touched) -> DataFrame:
        if touched.wide is not None:
            return touched.wide
        assert touched.near is not None
        return frame(spark, touched.near.table())

    # -- what is written ----------------------------------------------------------------------------------------

    def _changes(
        self, touched: _Touched, result: Rows, closing: pa.Table | None, bytes_max: int
    ) -> tuple[pa.Table, Keys]:
        """The result's rows, the keys that the stretches had and have no more, and those that the mark has passed.

        With them, those of their keys that the table has.

        Raises TooMuchError where they are not Arrow, or too many rows of this table lie between them.
        """
        near = touched.near
        if near is None or not isinstance(result, pa.Table):
            raise TooMuchError(bytes_max)
        result, schema = result.cast(self.table.schema), self.table.schema.append(_ACT)
        keys = list(self.declared.keys)
        own = self.own_rows.within(near, bytes_max=bytes_max)
        come, had = set(tuples(result, keys)), set(tuples(own, keys))
        gone = own.filter(pa.array([key not in come for key in tuples(own, keys)], pa.bool_()))
        parts = [result.append_column(_ACT, pa.array(["row"] * result.num_rows, pa.string()))]
        parts.append(_only_keys(gone, schema, "gone"))
        if closing is not None:
            beyond = closing.filter(pc.invert(near.hold(closing, self._event_time)))
            parts.append(_only_keys(beyond, schema, "closed"))
            had.update(tuples(beyond, keys))
        return pa.concat_tables(parts), had

    def _changes_spark(
        self, spark: SparkSession, touched: _Touched, result: DataFrame, closing: pa.Table | None
    ) -> DataFrame:
        keys, schema = list(self.declared.keys), self.table.schema
        wide = F.broadcast(self._frame(spark, touched))  # beside the whole table
        mine = spark.read.format("delta").load(str(self.table.path)).select(*keys)
        had = spark_stretches.within(mine, self._event_time, wide, self.part)
        gone = had.alias("h").join(result.alias("c"), spark_stretches.same(keys, "h", "c"), "left_anti")
        empty = [F.lit(None).cast(result.schema[n].dataType).alias(n) for n in schema.names if n not in keys]
        rows = result.withColumn("_act", F.lit("row"))
        rows = rows.unionByName(gone.select(*keys, *empty, F.lit("gone").alias("_act")))
        if closing is not None:
            closed = spark.createDataFrame(closing.select(keys))
            inside = spark_stretches.within(closed, self._event_time, wide, self.part)
            beyond = closed.alias("k").join(inside.alias("i"), spark_stretches.same(keys, "k", "i"), "left_anti")
            rows = rows.unionByName(beyond.select(*keys, *empty, F.lit("closed").alias("_act")))
        return rows

    def _refuse_misplaced(self, spark: SparkSession, touched: _Touched, result: Rows) -> None:
        """A row outside of the stretches that it was computed from could not be found again."""
        if self.kept.gap is None:
            return
        if touched.near is not None and isinstance(result, pa.Table):
            beyond = result.num_rows - int(pc.sum(touched.near.hold(result, self._event_time)).as_py() or 0)
        else:
            rows = frame(spark, result)
            inside = spark_stretches.within(rows, self._event_time, self._frame(spark, touched), self.part)
            beyond = rows.count() - inside.count()
        if beyond:
            finding = f"the transform gave {beyond} row(s) whose part or {self._event_time} is not that of their rows"
            next_step = f"Let {self._event_time} lie between the first and the last row that a row is made from"
            raise LakeError(self.declared.name, finding, next_step)

    # -- which rows can still change ----------------------------------------------------------------------------

    def _open_rows(self) -> pa.Table | None:
        """Keys and closing times of the rows that are not complete; None where nothing closes."""
        if self.kept.closes is None:
            return None
        if self._open is None:
            names = list(dict.fromkeys((*self.declared.keys, self.kept.closes)))
            self._open = self.table.read([*names, COMPLETE], where=~ds.field(COMPLETE)).select(names)
        return self._open

    def _remember_open(self, touched: _Touched, result: Rows, before: pa.Table | None, passed: int | None) -> None:
        """After a commit: as the table has them now."""
        if before is None or touched.near is None or not isinstance(result, pa.Table):
            self._open = None
            return
        assert self.kept.closes is not None
        kept = before.filter(pc.invert(touched.near.hold(before, self._event_time)))
        if passed is not None:
            kept = kept.filter(pa.array(times(kept, self.kept.closes) >= passed))
        fresh = result.cast(self.table.schema).filter(pc.invert(result[COMPLETE])).select(before.column_names)
        self._open = pa.concat_tables([kept, fresh]).combine_chunks()


def _new(table: OwnedTable, rows: Rows, upto: int) -> _New:
    """What a batch takes of an input, as of the version that it takes it up to."""
    entry: Entry | None = table.entry
    if upto < table.data_version:  # its log file is there: the rows beyond were just found by it
        entry = read_commit(table.path, upto).entry
    assert entry is not None, "a foreign commit is refused when the table is opened"
    return _New(rows=rows, upto=upto, seq=entry.ingest_seq, mark=entry.passed)


def _places_of(rows: Rows, table: OwnedTable) -> Rows:
    """Rows that only say what they touch: what is computed there is computed from the stored ones."""
    if isinstance(rows, pa.Table):
        return rows.select(declared_columns(table)).append_column("_seq", pa.array([0] * rows.num_rows, pa.int64()))
    return rows.select(*declared_columns(table)).withColumn("_seq", F.lit(0).cast("bigint"))


def _given(new: Mapping[str, _New], given: Given) -> dict[str, _New]:
    """What a batch takes of each input, with only these rows of it."""
    return {name: replace(one, rows=given[name]) for name, one in new.items()}


def _few(rows: Rows) -> list[str]:
    """The coordinates of rows that are no more than are tried of those that are stored."""
    if not isinstance(rows, pa.Table) or rows.num_rows > WITNESSES:
        return []
    places: list[str] = rows["_source"].to_pylist()
    return places


def _closing(open_rows: pa.Table | None, closes: str | None, passed: int | None) -> pa.Table | None:
    """The open rows that the mark has passed."""
    if open_rows is None or closes is None or passed is None:
        return None
    return open_rows.filter(pa.array(times(open_rows, closes) < passed))


def _with_complete(computed: Rows, closes: str, passed: int | None) -> Rows:
    """What was computed, and of each row whether the mark has passed the time at which it closes."""
    if isinstance(computed, DataFrame):
        closed = F.unix_micros(closes) < passed if passed is not None else F.lit(False)
        return computed.withColumn(COMPLETE, closed)
    if passed is None:
        return computed.append_column(COMPLETE, pa.array([False] * computed.num_rows, pa.bool_()))
    at = computed[closes].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return computed.append_column(COMPLETE, pc.less(at, passed))


def _only_keys(rows: pa.Table, schema: pa.Schema, act: str) -> pa.Table:
    """Rows of which only the keys are known."""
    count = rows.num_rows
    columns = [rows[f.name].cast(f.type) if f.name in rows.column_names else pa.nulls(count, f.type) for f in schema]
    columns[-1] = pa.array([act] * count, pa.string())
    return pa.table(columns, schema=schema)


def _event_time(declared: Declared) -> str:
    event_time = declared.table.event_time
    assert event_time is not None, "`table check` asks for it"
    return event_time


def _merge(declared: Declared, names: list[str]) -> Merge:
    own = {name: f"s.{name}" for name in names}
    values = [name for name in names if name not in declared.keys]
    changed = " or ".join(f"(t.{name} is distinct from s.{name})" for name in values) or "false"
    closed = [Clause(on="matched", act="update", when="s._act = 'closed'", set={COMPLETE: "true"})]
    clauses = [
        Clause(on="matched", act="delete", when="s._act = 'gone'", set={}),
        *(closed if COMPLETE in names else []),
        Clause(on="matched", act="update", when=f"s._act = 'row' and ({changed})", set=own),
        Clause(on="not matched", act="insert", when="s._act = 'row'", brings=("_act", "row"), set=own),
    ]
    return Merge(
        keys=declared.keys,
        nullable_keys=nullable_keys(declared),
        idempotent=True,
        gone=("_act", "gone"),
        clauses=tuple(clauses),
    )
