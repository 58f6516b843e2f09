"""`view`: touched keys are recomputed from all inputs, as of this batch, and replaced; vanished keys go."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Counts, Unfit
from deltaworks.engine.feed import changes, shown, snapshot
from deltaworks.engine.halves import Try
from deltaworks.engine.lake import TooMuchError
from deltaworks.engine.needed import Wanted, needed
from deltaworks.engine.snapshot import Snapshot
from deltaworks.engine.spark.pushed_keys import PushedKeys
from deltaworks.engine.transforms import load_keys_from, load_transform
from deltaworks.engine.writers.computing import Computing, KeysFrom
from deltaworks.engine.writers.fitting import (
    WITNESSES,
    Fitting,
    chosen,
    evaluate,
    keys_as_places,
    log,
    named,
    places_as_keys,
)
from deltaworks.engine.writers.replacing import only, replace_keys, semi
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of, suite_of
from deltaworks.errors import LakeError

MANY_BYTES = 2**20
"""Inputs whose files have more bytes are planned for many rows."""
WHOLE_BYTES_MAX = 2**14
"""Inputs of no more bytes go into a plan as they are: to look for the rows that a key needs would gain nothing."""


@dataclass(frozen=True)
class Touched:
    """Keys to recompute; `keys` None means all of them.

    `parts`: values of some of the key columns; all keys that have them are recomputed too.
    """

    keys: pa.Table | None
    changes: int
    parts: tuple[pa.Table, ...] = ()

    @property
    def no_key(self) -> bool:
        """Whether there is no whole key."""
        return self.keys is not None and not self.keys.num_rows


class ViewWriter:
    """Recomputes and replaces the keys that changed rows of the inputs map to."""

    def __init__(self, declared: Declared, *, own: Input, sources: tuple[Input, ...], direct: bool = True) -> None:
        """Own `own`; follow the change feeds of `sources`."""
        self.declared, self.own, self.sources, self.table = declared, own, sources, own.table
        tables, keys_from = [source.table for source in sources], load_keys_from(declared)
        self.computing = Computing(declared, load_transform(declared), tables, own.table.schema, direct=direct)
        self.keys_from = {table.name: KeysFrom(declared, keys_from, table, direct=direct) for table in tables}
        self.progress = Progress(own.table, code=code_of(declared), suite=suite_of(declared), inputs=tables)
        self.fitting = Fitting(self.progress, own)
        self.key_schema = pa.schema([self.table.schema.field(key) for key in declared.keys])
        for source in sources:
            if source.snapshot is not None:  # its transform may have been mended
                source.snapshot.forget(declared.name)

    def after(self, source: Input) -> int | None:
        """Last version of an input taken in full; None when the view was never computed."""
        return self.progress.position.versions.get(source.table.name)

    def behind(self) -> bool:
        """Whether an input has changed beyond this view's position."""
        return any(_older(self.after(source), source.table.data_version) for source in self.sources)

    def take(self, spark: SparkSession, committer: Committer) -> Turn | None:
        """Bring the touched keys up to the inputs' present versions."""
        if not self.behind():
            return None
        touched = self._touched(spark, committer.arrow_bytes_max)
        self._reach()
        return Turn(table=self.declared.name, counts=self._bring(spark, committer, touched))

    def try_again(
        self, spark: SparkSession, committer: Committer, wanted: Collection[Unfit], *, command: int
    ) -> Counts:
        """Bring keys that were left out up to the inputs' present versions, with those that changed since."""
        keys = places_as_keys([one.place for one in wanted], self.key_schema)
        touched = self._touched(spark, committer.arrow_bytes_max) if self.behind() else Touched(keys, 0)
        if touched.keys is not None:
            touched = replace(touched, keys=self._distinct([touched.keys, keys]))
        self._reach()
        self.progress.replayed(command)
        return self._bring(spark, committer, touched, tried_again=True)

    def _reach(self) -> None:
        self.progress.over_tables(
            {source.table.name: source.table.version for source in self.sources},
            ingest_seq=max(source.table.entry.ingest_seq for source in self.sources),
        )

    def _bring(
        self, spark: SparkSession, committer: Committer, touched: Touched, *, tried_again: bool = False
    ) -> Counts:
        """Replace the touched keys but those that cannot be computed; says what came of the changes."""
        counts = Counts(read=touched.changes, taken=touched.changes)
        if touched.no_key and not touched.parts:
            self.progress.remember(counts)
            return counts
        bytes_max = committer.arrow_bytes_max
        computed, inputs = self._computed(spark, touched, bytes_max)
        if touched.parts:
            touched = self._whole(spark, touched, computed, bytes_max)
            if touched.no_key:
                self.progress.remember(counts)
                return counts
            if touched.keys is None:  # what was computed may be of the parts alone
                computed, inputs = self._computed(spark, touched, bytes_max)

        def attempt(keys: pa.Table) -> None:
            evaluate(only(spark, computed, keys))

        before = len(self.progress.unfit)
        self.fitting.leave_out({*self.progress.unfit, *self.fitting.decided})
        again = self.fitting.again(touched.keys)
        still = self._still(again, attempt)
        self.fitting.leave_out({*self.progress.unfit}.difference(again).union(still))
        if tried_again and not touched.changes and len(self.progress.unfit) == before:
            return counts
        try:
            return self._replace(spark, committer, computed, touched, counts, before)
        except Exception as error:  # one that no key raises alone is raised again
            with self.fitting.search(error):
                if not isinstance(computed, DataFrame):  # a plan gave it: no row of it raises
                    raise
                if self.computing.of_sessions:  # they are computed whole for each key, so each would raise
                    raise
                keys = self._every_key(spark, inputs, computed) if touched.keys is None else touched.keys
                self._leave_out_more(keys, attempt, error)
                return self._replace(spark, committer, computed, touched, counts, before)

    def _computed(self, spark: SparkSession, touched: Touched, bytes_max: int) -> tuple[Rows, Mapping[str, DataFrame]]:
        """The rows of the touched keys, and more; with what they were computed from where that was not cut to them."""
        found = self._directly(spark, touched, bytes_max)
        if found is not None:
            return found, {}
        inputs = {source.table.name: shown(spark, source, bytes_max) for source in self.sources}
        many_rows = sum(source.table.bytes() for source in self.sources) > MANY_BYTES
        return self.computing.ordinary(spark, inputs, many_rows=many_rows), inputs

    def _directly(self, spark: SparkSession, touched: Touched, bytes_max: int) -> pa.Table | None:
        """By a kept plan, the rows of the touched keys and some of others; None where that cannot be.

        Inputs are cut to the rows that the touched keys need: so a turn costs what it changes, not what there is.
        """
        if not bytes_max or self.computing.planned.plan(spark) is not None:
            return None
        whole: dict[str, Snapshot] = {}
        for source in sorted(self.sources, key=lambda one: one.table.bytes(), reverse=True):  # who is too large first
            kept = snapshot(spark, source, bytes_max)
            if kept is None:
                return None
            whole[source.table.name] = kept
        given = self._decided(spark, touched, sum(one.nbytes for one in whole.values()))
        for keys, known in given:
            for name, kept in whole.items():
                self._let_compute(spark, name, kept, known, keys.column_names)
        return self.computing.directly(spark, needed(whole, given))

    def _let_compute(
        self, spark: SparkSession, name: str, kept: Snapshot, known: PushedKeys | None, keys: Sequence[str]
    ) -> None:
        """Let rows of an input be asked for by what is computed from them."""
        expressions = {} if known is None else known.expressions_of(name)
        if not all(map(kept.knows, expressions)):
            compute = partial(self.computing.expressions(name, expressions), spark)
            kept.compute(expressions, compute, reader=(self.declared.name, *keys))

    def _decided(self, spark: SparkSession, touched: Touched, size: int) -> list[Wanted]:
        """The touched keys and parts, each with what of inputs of this size decides it; None: they are given whole."""
        if touched.keys is None or size <= WHOLE_BYTES_MAX:
            return [(self.key_schema.empty_table(), None)]
        given = [keys for keys in (touched.keys, *touched.parts) if keys.num_rows]
        return [(keys, self.computing.planned.pushed_keys(spark, keys.schema)) for keys in given]

    def _still(self, known: Collection[Unfit], attempt: Callable[[pa.Table], None]) -> list[Unfit]:
        """Those of the keys that were left out before that still raise."""
        places = [one.place for one in known]
        keys = places_as_keys(places, self.key_schema)
        return named([self.declared.name] * len(places), places, _parts(keys, attempt), known=known)

    def _leave_out_more(self, keys: pa.Table | None, attempt: Callable[[pa.Table], None], error: Exception) -> None:
        """Leave the keys out that raise alone, after all of them raised `error`; raise it again as `Fitting.take`."""
        if keys is None:
            raise error
        out = {one.place for one in self.progress.unfit}
        new = [place for place in keys_as_places(keys) if place not in out]
        known = chosen(self.fitting.known_before(), of=self.declared.name, places=set(new))
        found = self._still(known, attempt)
        out = {one.place for one in found}
        rest = [place for place in new if place not in out]
        keys = places_as_keys(rest, self.key_schema)
        found += named([self.declared.name] * len(rest), rest, _parts(keys, attempt))
        if not found:
            raise error
        if len(found) == len(new):
            self._try_there(attempt, {one.place for one in found}, error)
        for one in found:
            log.error("a key of %s cannot be computed, and is left out: %s", self.declared.name, one.error)
        self.fitting.leave_out([*self.progress.unfit, *found])

    def _try_there(self, attempt: Callable[[pa.Table], None], out: set[str], error: Exception) -> None:
        """Evaluate some keys that are in the table and not among these; raise `error` if there are none."""
        there = self.table.read(list(self.declared.keys)).slice(0, WITNESSES + len(out))
        there = there.filter(pa.array([place not in out for place in keys_as_places(there)], pa.bool_()))
        if not there.num_rows:
            raise error
        attempt(there)

    def _every_key(self, spark: SparkSession, inputs: Mapping[str, DataFrame], computed: DataFrame) -> pa.Table | None:
        """The keys that the inputs' rows map to; None if they are too many."""
        every = list[pa.Table]()
        for name, rows in inputs.items():
            keys = self._keys_of(spark, name, rows)
            if keys is None:
                return None
            every += keys
        if any(keys.column_names != self.key_schema.names for keys in every):
            found = collected(computed.select(*self.key_schema.names).distinct())
            return None if found is None else self._keys(found)
        return self._distinct(every)

    def plan_ahead(self, spark: SparkSession) -> None:
        """Plan its transform, and what maps changed rows to keys, beside the turn."""
        for keys_from in self.keys_from.values():
            keys_from.plan_ahead(spark)
        self.computing.planned.plan_ahead(spark)

    def settle(self, committer: Committer) -> None:
        """Commit the remembered position."""
        if not self.behind():
            self.progress.come_along([source.table for source in self.sources])
        self.progress.settle(committer)

    def _touched(self, spark: SparkSession, bytes_max: int) -> Touched:
        keys, many = list[pa.Table](), 0
        for source in self.sources:
            after = self.after(source)
            feed = None if after is None else changes(spark, source, after, bytes_max, reader=self.declared.name)
            if feed is None:
                return Touched(None, 0)
            read = feed.num_rows if isinstance(feed, pa.Table) else feed.count()
            many += read
            if read == 0:
                continue
            found = self._keys_of(spark, source.table.name, feed)
            if found is None:
                return Touched(None, many)
            keys += found
        whole = [one for one in keys if one.column_names == self.key_schema.names]
        parts = tuple(one for one in keys if one.column_names != self.key_schema.names and one.num_rows)
        return Touched(self._distinct(whole), many, parts)

    def _whole(self, spark: SparkSession, touched: Touched, computed: Rows, bytes_max: int) -> Touched:
        """The same with all keys that have the values of the parts: those that the view has, leaves out, and will have.

        Whole keys alone are what rows that cannot be computed are told apart by.
        """
        names, found = self.key_schema.names, [touched.keys]
        out = places_as_keys([one.place for one in self.progress.unfit], self.key_schema)
        for part in touched.parts:
            fields = [ds.field(name).isin(part[name].unique()) for name in part.column_names]
            try:
                there = self.table.read(names, where=reduce(and_, fields), bytes_max=bytes_max)
            except TooMuchError:
                return Touched(None, touched.changes)
            keys = only(spark, computed.select(names), part)
            if out.num_rows:  # whole keys are the only thing by which they are known: they must not raise here
                keys = only(spark, keys, out, how="left_anti")
            come = keys if isinstance(keys, pa.Table) else collected(keys.distinct())
            if come is None:
                return Touched(None, touched.changes)
            found += [semi(there, part), semi(out, part), self._keys(come)]
        return Touched(self._distinct(found), touched.changes)

    def _keys_of(self, spark: SparkSession, name: str, rows: Rows) -> list[pa.Table] | None:
        """What `keys_from` maps rows of an input to; None if that is too much."""
        found = []
        for given in self.keys_from[name](spark, rows):
            keys = given if isinstance(given, pa.Table) else collected(given.distinct())
            if keys is None:
                return None
            found.append(self._keys(keys))
        return found

    def _distinct(self, keys: list[pa.Table]) -> pa.Table:
        every = pa.concat_tables([self.key_schema.empty_table(), *keys])
        return every.group_by(self.key_schema.names).aggregate([])

    def _keys(self, rows: pa.Table) -> pa.Table:
        """The key columns that these rows have; raises LakeError where they have none, or others too."""
        wrong = [name for name in rows.column_names if name not in self.key_schema.names]
        if wrong or not rows.column_names:
            finding = f"keys_from gives {', '.join(wrong)}, which is no key" if wrong else "keys_from gives no column"
            raise LakeError(self.declared.name, finding, 'Run "deltaworks table check --deep"')
        schema = pa.schema([field for field in self.key_schema if field.name in rows.column_names])
        keys = rows.select(schema.names).cast(schema)
        keys.validate(full=True)  # raises ArrowInvalid for texts that are none
        signed = [pc.add(column, 0.0) if pa.types.is_floating(column.type) else column for column in keys.columns]
        keys = pa.table(signed, schema=schema)  # zeros of both signs are one key
        return keys.group_by(keys.column_names).aggregate([])

    def _replace(
        self, spark: SparkSession, committer: Committer, computed: Rows, touched: Touched, counts: Counts,
        before: int,
    ) -> Counts:  # fmt: skip
        unfit = places_as_keys([one.place for one in self.progress.unfit], self.key_schema)
        more = len(self.progress.unfit) - before
        counts += Counts(taken=-more, refused=more)
        replace_keys(
            self.declared, self.progress, spark, committer, computed, keys=touched.keys, counts=counts, unfit=unfit
        )
        return counts


def _parts(keys: pa.Table, attempt: Callable[[pa.Table], None]) -> Try:
    return lambda low, high: attempt(keys.slice(low, high - low))


def _older(after: int | None, version: int) -> bool:
    return after is None or after < version
