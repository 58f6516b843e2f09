"""What a table's transform cannot compute is left out of the table, named in its position, and tried again when asked.

The rest is one commit that says so. So a death in between leaves nothing to repair: the slice is taken again, and the
same rows are found again.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.entry import Counts, Unfit
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.poison import FOUND_MAX, TooManyError, culprits, is_of_rows, name_of
from deltaworks.engine.writers.writer import Progress
from deltaworks.errors import LakeError

UNFIT_MAX = 1_000
"""So many a table leaves out: each stands in every entry."""
WITNESSES = 20
"""So many rows of before are tried where none of a slice can be computed: a bug would hit them too."""
log = logging.getLogger("deltaworks.poison")
Given = Mapping[str, Rows]
"""Rows by input."""
Attempt = Callable[[Given], None]
"""Evaluates rows, and gives nothing."""
Commit = Callable[[Given, Counts], None]
"""Commits what is computed from rows, with counts."""


class Fitting:
    """What one table leaves out."""

    def __init__(self, progress: Progress) -> None:
        """Look at what its position says."""
        self.progress = progress
        self.decided: tuple[Unfit, ...] = ()
        """In a recomputation: what the table that is recomputed leaves out."""

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
                given, counts = self._rest(given, counts, error, attempt, sources)
            else:
                return counts
        if counts.taken:
            commit(given, counts)
        else:
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
        if not is_of_rows(error):
            raise error
        try:
            found = _search(given, attempt, found_max=FOUND_MAX)
        except TooManyError:
            raise error from None
        if not found:
            raise error
        if len(found) == sum(_count(rows) for rows in given.values()):
            before = {table.name: self._taken_before(table, found) for table in sources}
            if not any(rows.num_rows for rows in before.values()):
                raise error
            attempt(before)
        for one in found:
            log.error("%s of %s is left out of %s: %s", one.place, one.of, self.progress.table.name, one.error)
        return self._without(given, counts, found)

    def gone(self, of: str, rows: DataFrame) -> tuple[DataFrame, Counts]:
        """Rows of an input that give way to others, without those that were left out: they are left out no more."""
        mine = among(rows, self.places(of))
        self.progress.leave_out([one for one in self.progress.unfit if one.of != of or one.place not in mine])
        rest = without(rows, mine)
        assert isinstance(rest, DataFrame)
        return rest, Counts(read=-len(mine), refused=-len(mine))

    def tried_again(self, given: Given, *, attempt: Attempt) -> tuple[Given, Counts]:
        """Rows that were left out without those that still raise; what the position says follows."""
        still = _search(given, attempt, found_max=UNFIT_MAX)
        fit = {of: without(rows, [one.place for one in still if one.of == of]) for of, rows in given.items()}
        tried = {(of, place) for of, rows in given.items() for place in _sources(rows)}
        others = [one for one in self.progress.unfit if (one.of, one.place) not in tried]
        self.leave_out([*others, *still])
        many = len(tried) - len(still)
        return fit, Counts(taken=many, refused=-many)

    def leave_out(self, unfit: Collection[Unfit]) -> None:
        """With the batch in hand these are left out; raises LakeError if they are too many."""
        if len(unfit) > max(UNFIT_MAX, len(self.progress.unfit)):
            finding = f"its transform cannot compute more than {UNFIT_MAX:,} rows"
            raise LakeError(self.progress.table.name, finding, f'Mend it, then "{again(self.progress.table.name)}"')
        self.progress.leave_out(unfit)

    def _taken_before(self, table: OwnedTable, found: Collection[Unfit]) -> pa.Table:
        """Some rows of an input that this table has taken."""
        besides = {one.place for one in (*self.progress.unfit, *found)}
        where = (ds.field("_seq") <= self.progress.ingest_seq) & ~ds.field("_source").isin(sorted(besides))
        for batch in table.delta.to_pyarrow_dataset().to_batches():
            rows = pa.Table.from_batches([batch]).filter(where)
            if rows.num_rows:
                return rows.slice(0, WITNESSES).select(table.schema.names).cast(table.schema)
        return table.schema.empty_table()

    def _without(self, given: Given, counts: Counts, out: Collection[Unfit]) -> tuple[Given, Counts]:
        self.leave_out([*self.progress.unfit, *out])
        rest = {of: without(rows, [one.place for one in out if one.of == of]) for of, rows in given.items()}
        return rest, counts + Counts(taken=-len(out), refused=len(out))


def again(table: str) -> str:
    """The order by which a table tries what it leaves out again."""
    return f"deltaworks quarantine replay {table}"


def evaluate(computed: DataFrame) -> None:
    """Compute every value and bring none of them here."""
    computed.agg(F.max(F.xxhash64(*(F.col(f"`{name}`") for name in computed.columns)))).collect()


def without(rows: Rows, places: Collection[str]) -> Rows:
    """Rows but those with these coordinates."""
    if not places:
        return rows
    if isinstance(rows, pa.Table):
        return rows.filter(pc.invert(pc.is_in(rows["_source"], pa.array(sorted(places), pa.string()))))
    return rows.where(~F.col("_source").isin(sorted(places)))


def among(rows: Rows, places: Collection[str]) -> set[str]:
    """Which of these coordinates some row has."""
    if not places:
        return set()
    if isinstance(rows, pa.Table):
        found = rows.filter(pc.is_in(rows["_source"], pa.array(sorted(places), pa.string())))
        return set(found["_source"].to_pylist())
    return set(_sources(rows.where(F.col("_source").isin(sorted(places)))))


def with_places(table: OwnedTable, places: Collection[str]) -> pa.Table:
    """The rows of a table that have these coordinates."""
    return table.read(where=ds.field("_source").isin(sorted(places)))


def chosen(unfit: Iterable[Unfit], *, of: str, places: Collection[str]) -> list[Unfit]:
    """Those of an input with these coordinates."""
    return [one for one in unfit if one.of == of and one.place in places]


def keys_as_places(keys: pa.Table) -> list[str]:
    """Each row of keys as text."""
    columns = [keys[name].cast(pa.string()).to_pylist() for name in keys.column_names]
    return [json.dumps(key) for key in zip(*columns, strict=True)]


def places_as_keys(places: Collection[str], schema: pa.Schema) -> pa.Table:
    """The keys that were written so."""
    found = [json.loads(place) for place in places]
    columns = [pa.array([key[at] for key in found], pa.string()) for at in range(len(schema))]
    return pa.table([one.cast(field.type) for one, field in zip(columns, schema, strict=True)], schema=schema)


def _search(given: Given, attempt: Attempt, *, found_max: int) -> list[Unfit]:
    """The rows that raise alone; raises TooManyError beyond the bound."""
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

    found = culprits(len(every), some, found_max=found_max)
    return [Unfit(of=every[n][0], place=every[n][1], error=name_of(error)) for n, error in found.items()]


def _sources(rows: Rows) -> list[str]:
    """The coordinates of rows; raises TooManyError where the driver cannot hold them."""
    small = rows if isinstance(rows, pa.Table) else collected(rows.select("_source"))
    if small is None:
        raise TooManyError
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
