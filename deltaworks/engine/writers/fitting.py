"""What a table's transform cannot compute is left out of the table, named in its position, and tried again when asked.

The rest is one commit that says so. So a death in between leaves nothing to repair: the slice is taken again, and the
same rows are found again.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Counts, Unfit
from deltaworks.engine.halves import TooManyError, Try
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.origin import lines_noted, origin_of
from deltaworks.engine.phases import phase
from deltaworks.engine.poison import culprits, is_of_rows, name_of, suspects
from deltaworks.engine.writers.writer import Input, InVain, Progress
from deltaworks.errors import LakeError, UnfitError

UNFIT_MAX = 1_000
"""So many a table leaves out: each stands in every entry."""
WITNESSES = 20
"""So many rows of before are tried where none of a slice can be computed: a bug would hit them too."""
LOOKED_BACK = 1_000
"""So many commits ago rows may have given way to others for what was left out before to be looked at."""
log = logging.getLogger("deltaworks.poison")
Given = Mapping[str, Rows]
"""Rows by input."""
Attempt = Callable[[Given], None]
"""Evaluates rows, and gives nothing."""
Commit = Callable[[Given, Counts], None]
"""Commits what is computed from rows, with counts."""


class Fitting:
    """What one table leaves out."""

    def __init__(
        self, progress: Progress, own: Input, *, transform: Path | None = None, late_max: int | None = None
    ) -> None:
        """Look at what its position says; rows that are later than `late_max` microseconds are not the table's.

        `transform`: the file whose lines are named.
        """
        self.progress, self.own, self.transform, self.late_max = progress, own, transform, late_max
        self.decided: tuple[Unfit, ...] = ()
        """In a proof: what the table that is recomputed leaves out, and so does this one."""
        self.known: tuple[Unfit, ...] = ()
        """In a rebuild: what the table that is recomputed leaves out, and this one looks at first."""

    @property
    def one_version(self) -> bool:
        """Whether the next slice is of one version: it is a part of one that was looked through in vain.

        So who catches up meets no more rows at once that raise than who took each version when it came.
        """
        in_vain, position = self.own.in_vain, self.progress.position
        if in_vain is None or in_vain.code != self.progress.code:
            return False
        return any(version > position.versions.get(of, 0) for of, version in in_vain.versions.items())

    def places(self, of: str) -> list[str]:
        """The rows of an input that are left out."""
        return [one.place for one in self.progress.unfit if one.of == of]

    def take(
        self, given: Given, counts: Counts, *, commit: Commit, attempt: Attempt, sources: Collection[OwnedTable],
        committer: Committer,
    ) -> Counts:  # fmt: skip
        """Commit what can be computed of a slice of these inputs; says what came of its rows.

        What the slice raises is raised again where it comes from no row, where no row or too many raise alone, or where
        nothing else can be computed, no row of before either: that is a bug that hits everything.
        """
        given, counts = self._as_decided(given, counts)
        if counts.taken:
            try:
                commit(given, counts)
            except Exception as error:  # noqa: BLE001  # one that is no row's is raised again
                with self.search(error):
                    given, counts = self._rest(given, counts, error, attempt, sources)
                    if counts.taken:
                        commit(given, counts)
            if counts.taken:
                return counts
        self.progress.pass_by(committer, counts)
        return counts

    def _as_decided(self, given: Given, counts: Counts) -> tuple[Given, Counts]:
        """A slice without what was decided to be left out of it."""
        if not self.decided:
            return given, counts
        out = [
            one
            for of, rows in given.items()
            for one in chosen(self.decided, of=of, places=among(rows, {one.place for one in self.decided}))
        ]
        return self._without(given, counts, out)

    def _rest(
        self, given: Given, counts: Counts, error: Exception, attempt: Attempt, sources: Collection[OwnedTable]
    ) -> tuple[Given, Counts]:
        """A slice without the rows that raise alone, after all of it raised `error`."""
        known = [one for of, rows in given.items() for one in self._known_among(of, rows)]
        found = self._search(_just(given, known), attempt, known=known)
        found += self._search(_but(given, found), attempt)
        if not found:
            raise error
        if len(found) == sum(_count(rows) for rows in given.values()):
            before = {table.name: self._taken_before(table, found) for table in sources}
            there = any(rows.num_rows for rows in before.values())
            self.try_others(partial(attempt, before) if there else None, found)
        for one in found:
            log.error("%s of %s is left out of %s: %s", one.place, one.of, self.progress.table.name, one.told)
        return self._without(given, counts, found)

    @contextmanager
    def search(self, error: Exception) -> Iterator[None]:
        """Compute the batch in hand, which raised `error`, without the rows that raise, once these are found.

        Raises `error` if it is no row's, or too many are, and at once if that was tried in vain before by the same
        code: all tables of the app wait for it.
        """
        if not is_of_rows(error):
            raise error
        mine = InVain(position=self.progress.position, versions=self.progress.upto, code=self.progress.code)
        if self.own.in_vain is not None and replace(self.own.in_vain, error=None) == mine:
            raise self.own.in_vain.error or error
        try:
            yield
        except TooManyError:
            self.own.in_vain = mine
            raise error from None
        except LakeError as raised:
            if type(raised) in (LakeError, UnfitError):  # told anew: the frames that it came through hold rows
                told = type(raised)(raised.place, raised.finding, raised.next_step)
                self.own.in_vain = replace(mine, error=told)
            raise
        except Exception as raised:
            if is_of_rows(raised):
                self.own.in_vain = mine
            raise

    def known_before(self) -> tuple[Unfit, ...]:
        """What is likely not to be computed: it was left out before the rows gave way to others, or give way now."""
        table = self.progress.table
        back = table.version - table.entry.replaced_at + 1
        if self.known or not table.entry.replaced_at or back > LOOKED_BACK:
            return self.known
        before = next(islice(table.entries_backwards(), back, None), None)
        return () if before is None else before.position.unfit

    def _known_among(self, of: str, rows: Rows) -> list[Unfit]:
        known = [one for one in self.known_before() if one.of == of]
        return chosen(known, of=of, places=among(rows, {one.place for one in known}))

    def gone(self, of: str, rows: Rows) -> tuple[Rows, Counts]:
        """Rows of an input that give way to others, without those that were left out: they are left out no more."""
        mine = among(rows, self.places(of))
        self.progress.leave_out([one for one in self.progress.unfit if one.of != of or one.place not in mine])
        return without(rows, mine), Counts(read=-len(mine), refused=-len(mine))

    def tried_again(self, given: Given, *, attempt: Attempt) -> tuple[Given, Counts]:
        """Rows that were left out without those that still raise; what the position says follows."""
        still = self._search(given, attempt, known=self.progress.unfit)
        fit = _but(given, still)
        tried = {(of, place) for of, rows in given.items() for place in _sources(rows)}
        others = [one for one in self.progress.unfit if (one.of, one.place) not in tried]
        self.leave_out([*others, *still])
        many = len(tried) - len(still)
        return fit, Counts(taken=many, refused=-many)

    def again(self, keys: pa.Table | None) -> list[Unfit]:
        """Those of a view's touched keys (None: all) that were left out before, but for what was decided."""
        decided, name = {one.place for one in self.decided}, self.progress.table.name
        out = [one for one in self.progress.unfit if one.of == name and one.place not in decided]
        if keys is None or not out:  # of many keys the texts take a while
            return out
        there = set(keys_as_places(keys))
        return [one for one in out if one.place in there]

    def leave_out(self, unfit: Collection[Unfit]) -> None:
        """With the batch in hand these are left out; raises LakeError if they are too many."""
        if len(unfit) > max(UNFIT_MAX, len(self.progress.unfit)):
            finding = f"its transform cannot compute more than {UNFIT_MAX:,} rows"
            raise LakeError(self.progress.table.name, finding, f'Mend it, then "{again(self.progress.table.name)}"')
        self.progress.leave_out(unfit)

    def named(
        self, of: Sequence[str], places: Sequence[str], attempt: Try, *, known: Collection[Unfit] = ()
    ) -> list[Unfit]:
        """Those of the rows with these inputs and coordinates that raise alone; raises UnfitError beyond the bound.

        `known`: all of them were left out before; those that there is no time to try stay so. What an attempt plans
        meanwhile says by which line it raises.
        """
        if not places:
            return []
        before = {(one.of, one.place): one for one in known}

        def unfit(at: int, error: Exception | None) -> Unfit:
            if error is None:
                return before[of[at], places[at]]
            origin = origin_of(error, self.transform)
            return Unfit(of=of[at], place=places[at], error=name_of(error), origin=origin)

        with lines_noted():
            try:
                found = (suspects if known else culprits)(len(places), attempt)
            except TooManyError as stopped:
                if not stopped.found:
                    raise
                raise self._unfit_error([unfit(at, error) for at, error in stopped.found.items()]) from None
        return [unfit(at, error) for at, error in found.items()]

    def try_others(self, attempt: Callable[[], None] | None, found: Sequence[Unfit]) -> None:
        """Raise UnfitError where rows of before cannot be computed either, or there are none (None)."""
        if attempt is None:
            raise self._unfit_error(found)
        try:
            attempt()
        except Exception as error:
            if not is_of_rows(error):
                raise
            raise self._unfit_error(found) from None

    def _unfit_error(self, found: Sequence[Unfit]) -> UnfitError:
        """What is told of these rows; the keys of a view are values, which stay in the lake."""
        table, first, more = self.progress.table.name, found[0], len(found) - 1
        if first.of == table:
            what = f"keys ({len(found)} that were tried)"
        else:
            what = f"{first.place} of {first.of}" + (f" and {more} more rows that were tried" if more else "")
        return UnfitError(table, f"its transform cannot compute {what}: {first.told}", "Mend it; it is tried again")

    def _search(self, given: Given, attempt: Attempt, *, known: Collection[Unfit] = ()) -> list[Unfit]:
        """The rows that raise alone, as in `named`."""
        by_input = {of: sorted(_sources(rows)) for of, rows in given.items()}
        every = [(of, place) for of, places in by_input.items() for place in places]
        first, at = 0, dict[str, int]()
        for of, places in by_input.items():
            at[of] = first
            first += len(places)

        def some(low: int, high: int) -> None:
            part = {}
            for of, places in by_input.items():
                mine = places[max(low - at[of], 0) : max(high - at[of], 0)]
                part[of] = _between(given[of], mine[0], mine[-1]) if mine else _none(given[of])
            attempt(part)

        return self.named([of for of, _ in every], [place for _, place in every], some, known=known)

    def _taken_before(self, table: OwnedTable, found: Collection[Unfit]) -> pa.Table:
        """Some rows of an input that this table has taken and used."""
        besides = {one.place for one in (*self.progress.unfit, *found)}
        where = (ds.field("_seq") <= self.progress.ingest_seq) & ~ds.field("_source").isin(sorted(besides))
        if self.late_max is not None:
            where &= ds.field("_late_by") <= self.late_max
        for batch in dataset_of(table.delta).to_batches():
            rows = pa.Table.from_batches([batch]).filter(where)
            if rows.num_rows:
                return rows.slice(0, WITNESSES).select(table.schema.names).cast(table.schema)
        return table.schema.empty_table()

    def _without(self, given: Given, counts: Counts, out: Collection[Unfit]) -> tuple[Given, Counts]:
        self.leave_out([*self.progress.unfit, *out])
        return _but(given, out), counts + Counts(taken=-len(out), refused=len(out))


def again(table: str) -> str:
    """The order by which a table tries what it leaves out again."""
    return f"deltaworks quarantine replay {table}"


@phase("compute")
def evaluate(computed: Rows) -> None:
    """Compute every value and bring none of them here; those of Arrow are computed."""
    if isinstance(computed, pa.Table):
        return
    computed.agg(F.max(F.xxhash64(*(F.col(f"`{name}`") for name in computed.columns)))).collect()


def without(rows: Rows, places: Collection[str]) -> Rows:
    """Rows but those with these coordinates."""
    if not places:
        return rows
    if isinstance(rows, pa.Table):
        return rows.filter(pc.invert(pc.is_in(rows["_source"], pa.array(sorted(places), pa.string()))))
    return rows.where(~F.col("_source").isin(sorted(places)))


def _but(given: Given, out: Collection[Unfit]) -> Given:
    return {of: without(rows, [one.place for one in out if one.of == of]) for of, rows in given.items()}


def _just(given: Given, wanted: Collection[Unfit]) -> Given:
    return {of: _these(rows, [one.place for one in wanted if one.of == of]) for of, rows in given.items()}


def _these(rows: Rows, places: Collection[str]) -> Rows:
    if isinstance(rows, pa.Table):
        return rows.filter(pc.is_in(rows["_source"], pa.array(sorted(places), pa.string())))
    return rows.where(F.col("_source").isin(sorted(places)))


def among(rows: Rows, places: Collection[str]) -> set[str]:
    """Which of these coordinates some row has."""
    if not places:
        return set()
    return set(_sources(_these(rows, places)))


def with_places(table: OwnedTable, places: Collection[str]) -> pa.Table:
    """The rows of a table that have these coordinates."""
    return table.read(where=ds.field("_source").isin(sorted(places)))


def chosen(unfit: Iterable[Unfit], *, of: str, places: Collection[str]) -> list[Unfit]:
    """Those of an input with these coordinates."""
    return [one for one in unfit if one.of == of and one.place in places]


def keys_as_places(keys: pa.Table) -> list[str]:
    """Each row of keys as text, bytes in hexadecimal: they need be none."""
    columns = [_texts(keys[name]) for name in keys.column_names]
    return [json.dumps(key) for key in zip(*columns, strict=True)]


def places_as_keys(places: Collection[str], schema: pa.Schema) -> pa.Table:
    """The keys that were written so, without what was written otherwise, as before the keys were declared so."""
    keys = _keys_read(places, schema)
    if keys is None:  # seldom: one at a time takes a while
        fit = [one for place in places if (one := _keys_read([place], schema)) is not None]
        keys = pa.concat_tables([schema.empty_table(), *fit])
    return keys


def _keys_read(places: Collection[str], schema: pa.Schema) -> pa.Table | None:
    """The keys of these places; None where keys of this schema would not be written so."""
    try:
        columns = zip(*map(json.loads, places), strict=True)
        values = [_values(list(texts), field.type) for texts, field in zip(columns, schema, strict=True)]
    except ValueError:  # no JSON, another number of keys, no value of the type
        return None
    keys = pa.table(values, schema=schema)
    return keys if keys_as_places(keys) == list(places) else None


def _texts(values: pa.ChunkedArray) -> list[str | None]:
    if pa.types.is_binary(values.type):
        return [None if value is None else value.hex() for value in values.to_pylist()]
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    return texts


def _values(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text) for text in texts], kind)
    return pa.array(texts, pa.string()).cast(kind)


def _sources(rows: Rows) -> list[str]:
    """The coordinates of rows; raises TooManyError where the driver cannot hold them."""
    small = rows if isinstance(rows, pa.Table) else collected(rows.select("_source"))
    if small is None:
        raise TooManyError({}, [])
    found: list[str] = small["_source"].to_pylist()
    return found


def _between(rows: Rows, low: str, high: str) -> Rows:
    """A range of coordinates: so a slice that only Spark can hold is cut without a list of its rows."""
    if isinstance(rows, pa.Table):
        return rows.filter(pc.and_(pc.greater_equal(rows["_source"], low), pc.less_equal(rows["_source"], high)))
    return rows.where(F.col("_source").between(low, high))


def _none(rows: Rows) -> Rows:
    return rows.slice(0, 0) if isinstance(rows, pa.Table) else rows.limit(0)


def _count(rows: Rows) -> int:
    return rows.num_rows if isinstance(rows, pa.Table) else rows.count()
