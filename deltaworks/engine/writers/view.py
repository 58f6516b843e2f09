"""`view`: touched keys are recomputed from all inputs, as of this batch, and replaced; vanished keys go."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Committer, Rows, pruning
from deltaworks.engine.entry import Counts, Unfit
from deltaworks.engine.event_range import EventRange
from deltaworks.engine.feed import changes, shown, snapshot
from deltaworks.engine.halves import TooManyError, Try
from deltaworks.engine.lake import TooMuchError
from deltaworks.engine.needed import Wanted, needed
from deltaworks.engine.poison import is_of_rows, name_of
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
    places_as_keys,
)
from deltaworks.engine.writers.input_rows import InputRows
from deltaworks.engine.writers.replacing import only, replace_keys, semi
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of, suite_of
from deltaworks.errors import LakeError, UnfitError

MANY_BYTES = 2**20
"""Inputs whose files have more bytes are planned for many rows."""
WHOLE_BYTES_MAX = 2**14
"""Inputs of no more bytes go into a plan as they are: to look for the rows that a key needs would gain nothing."""


@dataclass(frozen=True)
class Touched:
    """Keys to recompute; `keys` None means all of them.

    `parts`: values of some of the key columns; all keys that have them are recomputed too. `rows`: rows of the inputs
    that are left out and may be computed now; None means all that are.
    """

    keys: pa.Table | None
    changes: int
    parts: tuple[pa.Table, ...] = ()
    rows: tuple[Unfit, ...] | None = None

    @property
    def no_key(self) -> bool:
        """Whether there is no whole key."""
        return self.keys is not None and not self.keys.num_rows


@dataclass(frozen=True)
class Made:
    """What the inputs give for the touched keys, and more; `inputs`: what it was made from where nothing is cut."""

    computed: Rows
    inputs: Mapping[str, DataFrame]
    touched: Touched


class ViewWriter:
    """Recomputes and replaces the keys that changed rows of the inputs map to."""

    def __init__(self, declared: Declared, *, own: Input, sources: tuple[Input, ...], direct: bool = True) -> None:
        """Own `own`; follow the change feeds of `sources`."""
        self.declared, self.own, self.sources, self.table = declared, own, sources, own.table
        tables, keys_from = [source.table for source in sources], load_keys_from(declared)
        self.computing = Computing(declared, load_transform(declared), tables, own.table.schema, direct=direct)
        self.keys_from = {table.name: KeysFrom(declared, keys_from, table, direct=direct) for table in tables}
        self.progress = Progress(own.table, code=code_of(declared), suite=suite_of(declared), inputs=tables)
        self.fitting = Fitting(self.progress, own, transform=declared.transform)
        self.input_rows = InputRows(declared.name, sources, self.computing, self.fitting)
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
        """Bring what was left out up to the inputs' present versions, with the keys that changed since."""
        touched = Touched(self.key_schema.empty_table(), 0, rows=())
        if self.behind():
            touched = self._touched(spark, committer.arrow_bytes_max)
        rows = [one for one in wanted if one.of != self.declared.name]
        touched = self._with(touched, [self._left_out(wanted), *self._keys_of_rows(spark, rows)], rows=rows)
        self._reach()
        self.progress.replayed(command)
        return self._bring(spark, committer, touched, tried_again=True)

    def compute_again(self, spark: SparkSession, committer: Committer, wanted: EventRange) -> None:
        """Compute the keys again that have a row in a range of the table's own event time, or would have one now.

        From the inputs as they are; what is left out of the view stays so. Raises TooMuchError where the keys are too
        many, and what a row raises that cannot be computed.
        """
        event_time, bytes_max = self.declared.table.event_time, committer.arrow_bytes_max
        assert event_time is not None, "asked for tables that have a range only"
        here = {source.table.name: self.after(source) or 0 for source in self.sources}
        self.progress.over_tables(here, ingest_seq=None)
        names = self.key_schema.names
        had = self.table.read(names, where=wanted.holds(event_time), bytes_max=bytes_max)
        computed: Rows = self._ordinary(spark, self.input_rows.whole(spark, bytes_max))
        if (out := self._left_out(self.progress.unfit)).num_rows:
            computed = only(spark, computed, out, how="left_anti")
        assert isinstance(computed, DataFrame), "of a DataFrame comes one"
        come = collected(computed.where(wanted.holds_spark(event_time)).select(*names).distinct())
        if come is None:
            raise TooMuchError
        touched = Touched(self._distinct([had, self._keys(come)]), 0, rows=())
        if touched.no_key:
            return
        made = self._made(spark, touched, bytes_max)
        self._replace(spark, committer, made, Counts(), len(self.progress.unfit))

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
        before, bytes_max = len(self.progress.unfit), committer.arrow_bytes_max
        named_by = {self.declared.name, *self.keys_from}  # its declaration may have named other inputs once
        out = {*self.progress.unfit, *self.fitting.decided}
        self.fitting.leave_out({one for one in out if one.of in named_by})
        self._rows_again(spark, touched, bytes_max)
        if touched.no_key and not touched.parts:
            return self._pass_by(committer, counts, before)
        made: Made | None = None
        try:
            made = self._made(spark, touched, bytes_max)
            if made.touched.no_key:
                return self._pass_by(committer, counts, before)
            self._keys_again(spark, made)
            if tried_again and not touched.changes and len(self.progress.unfit) == before:
                return counts
            return self._replace(spark, committer, made, counts, before)
        except Exception as error:  # one that no key and no row raises alone is raised again
            with self.fitting.search(error):
                if made is not None and not isinstance(made.computed, DataFrame):  # a plan gave it: no row of it raises
                    raise
                return self._replace_others(spark, committer, touched, made, counts, before, error)

    def _pass_by(self, committer: Committer, counts: Counts, before: int) -> Counts:
        """Move on where no key was touched; of the rows that are left out some may have gone."""
        more = len(self.progress.unfit) - before
        counts += Counts(taken=-more, refused=more)
        if more:
            self.progress.pass_by(committer, counts)
        else:
            self.progress.remember(counts)
        return counts

    def _made(self, spark: SparkSession, touched: Touched, bytes_max: int) -> Made:
        computed, inputs = self._computed(spark, touched, bytes_max)
        if touched.parts:
            touched = self._whole(spark, touched, computed, bytes_max)
            if touched.keys is None:  # what was computed may be of the parts alone
                computed, inputs = self._computed(spark, touched, bytes_max)
        return Made(computed, inputs, touched)

    def _attempt(self, spark: SparkSession, made: Made) -> Callable[[pa.Table], None]:
        """Evaluates some keys; planned anew while it is looked for what raises, so that it says where."""

        @cache
        def planned() -> Rows:
            return self._ordinary(spark, made.inputs) if isinstance(made.computed, DataFrame) else made.computed

        return lambda keys: _evaluate_keys(spark, planned(), keys)

    def _rows_again(self, spark: SparkSession, touched: Touched, bytes_max: int) -> None:
        """Rows of the inputs that were left out, and have changed, are left out no more unless they still raise."""
        out = self.input_rows.out
        again = {*(out if touched.rows is None else touched.rows)}.intersection(out).difference(self.fitting.decided)
        still = self.input_rows.still(spark, bytes_max, again)
        self.fitting.leave_out({*self.progress.unfit}.difference(again).union(still))

    def _keys_again(self, spark: SparkSession, made: Made) -> None:
        """The same for keys that are touched."""
        again = self.fitting.again(made.touched.keys)
        still = self._still(again, self._attempt(spark, made))
        self.fitting.leave_out({*self.progress.unfit}.difference(again).union(still))

    def _replace_others(
        self, spark: SparkSession, committer: Committer, touched: Touched, made: Made | None, counts: Counts,
        before: int, error: Exception,
    ) -> Counts:  # fmt: skip
        """Replace the touched keys but those that raise alone; where all do, without the rows that make them raise.

        A key tells where it is not whole. A row of an input that raises beside whatever it meets would cost every key.
        """
        bytes_max, out = committer.arrow_bytes_max, self.progress.unfit
        for search in (self._known_rows, self._raising_keys, self._raising_rows, self._raising_keys):
            try:
                found = search(spark, touched, made, bytes_max)
            except UnfitError as too_many:  # it says more than the first one
                error = too_many
                continue
            if not found:
                continue
            self.fitting.leave_out([*out, *found])
            rows = [one for one in found if one.of != self.declared.name]
            try:
                if rows:
                    out = self.progress.unfit  # they raise, whichever keys do
                    touched = self._with(touched, self._keys_of_rows(spark, rows), rows=touched.rows or ())
                    made = self._made(spark, touched, bytes_max)
                assert made is not None, "of nothing that is made no key raises"
                done = self._replace(spark, committer, made, counts, before)
            except Exception as more:
                if not is_of_rows(more):
                    raise
                error = more
                self.fitting.leave_out(out)
            else:
                for one in found:
                    what = "key" if one.of == self.declared.name else "row"  # its place may be a key, and values
                    log.error("a %s of %s is left out of %s: %s", what, one.of, self.declared.name, one.told)
                return done
        raise error

    def _known_rows(self, spark: SparkSession, touched: Touched, made: Made | None, bytes_max: int) -> list[Unfit]:
        """Rows that were left out before the view's rows gave way to others, and raise again."""
        del touched, made
        out = {*self.progress.unfit}
        known = [one for one in self.fitting.known_before() if one.of != self.declared.name and one not in out]
        return self.input_rows.still(spark, bytes_max, known)

    def _raising_rows(self, spark: SparkSession, touched: Touched, made: Made | None, bytes_max: int) -> list[Unfit]:
        """Rows of an input that raise alone, for the touched keys."""
        del made

        def cut(computed: DataFrame) -> DataFrame:
            if touched.keys is None or touched.parts:
                return computed
            found = only(spark, computed, touched.keys)
            assert isinstance(found, DataFrame), "of a DataFrame comes one"
            return found

        return self.input_rows.raising(spark, bytes_max, cut)

    def _raising_keys(self, spark: SparkSession, touched: Touched, made: Made | None, bytes_max: int) -> list[Unfit]:
        """The touched keys that raise alone, where there are others: those would raise too by a bug."""
        del touched, bytes_max
        if made is None or self.computing.of_sessions:  # they are computed whole for each key, so each would raise
            return []
        attempt = self._attempt(spark, made)
        try:
            keys = self._every_key(spark, made) if made.touched.keys is None else made.touched.keys
            return [] if keys is None else self._keys_that_raise(keys, attempt)
        except TooManyError:
            return []
        except Exception as error:
            if not is_of_rows(error):
                raise
            return []

    def _computed(self, spark: SparkSession, touched: Touched, bytes_max: int) -> tuple[Rows, Mapping[str, DataFrame]]:
        """The rows of the touched keys, and more; with what they were computed from where that was not cut to them."""
        found = self._directly(spark, touched, bytes_max)
        if found is not None:
            return found, {}
        if self.input_rows.out:
            inputs = self.input_rows.whole(spark, bytes_max)
        else:
            inputs = {source.table.name: shown(spark, source, bytes_max) for source in self.sources}
        return self._ordinary(spark, inputs), inputs

    def _ordinary(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
        many_rows = sum(source.table.bytes() for source in self.sources) > MANY_BYTES
        return self.computing.ordinary(spark, inputs, many_rows=many_rows)

    def _directly(self, spark: SparkSession, touched: Touched, bytes_max: int) -> pa.Table | None:
        """By a kept plan, the rows of the touched keys and some of others; None where that cannot be.

        Inputs are cut to the rows that the touched keys need: so a turn costs what it changes, not what there is.
        """
        if not bytes_max or self.input_rows.events or self.computing.planned.plan(spark) is not None:
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
        return self.computing.directly(spark, self.input_rows.without(needed(whole, given)))

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
        return self.fitting.named([self.declared.name] * len(places), places, _parts(keys, attempt), known=known)

    def _keys_that_raise(self, keys: pa.Table, attempt: Callable[[pa.Table], None]) -> list[Unfit]:
        """Those of the keys that raise alone; raises UnfitError where all do and no other can be computed."""
        name = self.declared.name
        out = {one.place for one in self.progress.unfit if one.of == name}
        new = [place for place in keys_as_places(keys) if place not in out]
        known = chosen(self.fitting.known_before(), of=name, places=set(new))
        found = self._still(known, attempt)
        out = {one.place for one in found}
        rest = [place for place in new if place not in out]
        keys = places_as_keys(rest, self.key_schema)
        found += self.fitting.named([name] * len(rest), rest, _parts(keys, attempt))
        if found and len(found) == len(new):
            self.fitting.try_others(self._some_there(attempt, {one.place for one in found}), found)
        return found

    def _some_there(self, attempt: Callable[[pa.Table], None], out: set[str]) -> Callable[[], None] | None:
        """Evaluates some keys that are in the table and not among these; None if there are none."""
        there = self.table.read(list(self.declared.keys)).slice(0, WITNESSES + len(out))
        there = there.filter(pa.array([place not in out for place in keys_as_places(there)], pa.bool_()))
        return partial(attempt, there) if there.num_rows else None

    def _every_key(self, spark: SparkSession, made: Made) -> pa.Table | None:
        """The keys that the inputs' rows map to; None if they are too many."""
        every, computed = list[pa.Table](), made.computed
        assert isinstance(computed, DataFrame), "what a plan gave raises for no row"
        for name, rows in made.inputs.items():
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
        keys, many, again = list[pa.Table](), 0, list[Unfit]()
        for source in self.sources:
            after = self.after(source)
            feed = None if after is None else changes(spark, source, after, bytes_max, reader=self.declared.name)
            if feed is None:
                return Touched(None, 0)
            read = feed.num_rows if isinstance(feed, pa.Table) else feed.count()
            many += read
            if read == 0:
                continue
            again += self.input_rows.told_of(source.table.name, feed)
            found = self._keys_of(spark, source.table.name, feed)
            if found is None:
                return Touched(None, many)
            keys += found
        return self._with(Touched(self.key_schema.empty_table(), many), keys, rows=again)

    def _with(self, touched: Touched, keys: Sequence[pa.Table | None], *, rows: Collection[Unfit]) -> Touched:
        """The same with more keys, or parts of keys (one None: all), and rows that may be computed now."""
        if touched.keys is None or None in keys:
            return replace(touched, keys=None, parts=(), rows=None)
        given = [one for one in keys if one is not None]
        whole = [one for one in given if one.column_names == self.key_schema.names]
        parts = tuple(one for one in given if one.column_names != self.key_schema.names and one.num_rows)
        return Touched(
            self._distinct([touched.keys, *whole]),
            touched.changes,
            (*touched.parts, *parts),
            tuple({*(touched.rows or ()), *rows}),
        )

    def _keys_of_rows(self, spark: SparkSession, wanted: Collection[Unfit]) -> list[pa.Table | None]:
        """The keys that rows of the inputs touch; one None: all."""
        found: list[pa.Table | None] = []
        for name, rows in self.input_rows.there(wanted).items():
            found += self._keys_of(spark, name, rows) or [None]
        return found

    def _left_out(self, unfit: Collection[Unfit]) -> pa.Table:
        """Those of these that are keys."""
        return places_as_keys([one.place for one in unfit if one.of == self.declared.name], self.key_schema)

    def _whole(self, spark: SparkSession, touched: Touched, computed: Rows, bytes_max: int) -> Touched:
        """The same with all keys that have the values of the parts: those that the view has, leaves out, and will have.

        Whole keys alone are what rows that cannot be computed are told apart by.
        """
        names, found = self.key_schema.names, [touched.keys]
        out = self._left_out(self.progress.unfit)
        for part in touched.parts:
            try:
                there = self.table.read(names, where=pruning(part, part.column_names), bytes_max=bytes_max)
            except TooMuchError:
                return replace(touched, keys=None, parts=())
            keys = only(spark, computed.select(names), part)
            if out.num_rows:  # whole keys are the only thing by which they are known: they must not raise here
                keys = only(spark, keys, out, how="left_anti")
            come = keys if isinstance(keys, pa.Table) else collected(keys.distinct())
            if come is None:
                return replace(touched, keys=None, parts=())
            found += [semi(there, part), semi(out, part), self._keys(come)]
        return replace(touched, keys=self._distinct(found), parts=())

    def _keys_of(self, spark: SparkSession, name: str, rows: Rows) -> list[pa.Table] | None:
        """What `keys_from` maps rows of an input to; None, for all, if that is too much or it cannot say."""
        found = []
        try:
            for given in self.keys_from[name](spark, rows):
                keys = given if isinstance(given, pa.Table) else collected(given.distinct())
                if keys is None:
                    return None
                found.append(self._keys(keys))
        except Exception as error:
            if not is_of_rows(error):
                raise
            log.error(
                "keys_from of %s cannot map a row of %s, so all is computed: %s",
                self.declared.name,
                name,
                name_of(error),
            )
            return None
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
        self, spark: SparkSession, committer: Committer, made: Made, counts: Counts, before: int
    ) -> Counts:  # fmt: skip
        unfit = self._left_out(self.progress.unfit)
        more = len(self.progress.unfit) - before
        counts += Counts(taken=-more, refused=more)
        keys, computed = made.touched.keys, made.computed
        replace_keys(self.declared, self.progress, spark, committer, computed, keys=keys, counts=counts, unfit=unfit)
        return counts


def _evaluate_keys(spark: SparkSession, computed: Rows, keys: pa.Table) -> None:
    evaluate(only(spark, computed, keys))


def _parts(keys: pa.Table, attempt: Callable[[pa.Table], None]) -> Try:
    return lambda low, high: attempt(keys.slice(low, high - low))


def _older(after: int | None, version: int) -> bool:
    return after is None or after < version
