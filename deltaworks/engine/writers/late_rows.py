"""A table's policy for late rows: which of a batch's rows it uses, and where the others go."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.commit import Clause, Committer, Merge, Rows
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Counts
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.writer import Progress
from deltaworks.words.lateness import Drop, Late, SideOutput

LATE_SYSTEM = pa.schema(
    [("_late_by", pa.int64()), ("_source", pa.string()), ("_version", pa.int64()), ("_claimed", pa.int64())]
)
"""Stored with a late row: how late it was in microseconds, its coordinates, the input's version that brought it.

`_claimed`: the how-manieth use of such rows it belongs to; once the table has come to that, the row is in the table.
"""
LATE_ADDED = frozenset({"_claimed"})
"""Columns that older tables of late rows lack."""
ROWS_PER_USE = 10_000
_CLAIMED = {"_claimed": "s._claimed"}


def late_max(policy: Late | None) -> int | None:
    """Rows that are later than so many microseconds are not used; None: all are."""
    return policy.after // timedelta(microseconds=1) if isinstance(policy, Drop | SideOutput) else None


def used_of(rows: Rows, policy: Late | None) -> Rows:
    """Rows that are no later than the policy allows."""
    after = late_max(policy)
    if after is None:
        return rows
    if isinstance(rows, pa.Table):
        return rows.filter(pc.less_equal(rows["_late_by"], after))
    return rows.where(F.col("_late_by") <= after)


def in_time(rows: Rows, policy: Late | None) -> tuple[Rows, Rows | None, Counts]:
    """What is used, what is too late for it (None: nothing), and how many."""
    after, late = late_max(policy), None
    if after is not None and isinstance(rows, pa.Table):
        late = rows.filter(pc.greater(rows["_late_by"], after))
    elif after is not None:
        late = rows.where(F.col("_late_by") > after)
    rows = used_of(rows, policy)
    taken, missed = _count(rows), 0 if late is None else _count(late)
    return rows, late if missed else None, Counts(read=taken + missed, taken=taken, late=missed)


def set_aside(committer: Committer, side: OwnedTable, late: Rows, *, count: int, upto: int, progress: Progress) -> None:
    """Append to the table of late rows; the main table's own entry closes the group."""
    names = [name for name in side.schema.names if name not in ("_version", "_claimed")]
    if isinstance(late, pa.Table):
        version, claimed = pa.array([upto] * late.num_rows, pa.int64()), pa.nulls(late.num_rows, pa.int64())
        rows: Rows = late.select(names).append_column("_version", version).append_column("_claimed", claimed)
    else:
        known = {"_version": upto, "_claimed": None}
        rows = late.select(*names, *(F.lit(value).cast("bigint").alias(name) for name, value in known.items()))
    mine = progress.entry(Counts())
    counts = Counts(read=count, taken=count)
    entry = side.entry.follow("batch", counts=counts, position=mine.position, ingest_seq=mine.ingest_seq)
    committer.commit(side, rows, entry)


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """Rows of an input that gave way to others, as a table with its policy for late rows sees them.

    `touched`: those that it used, and those that it is to use, each with the input's columns. `counts`: what that adds.
    """

    touched: Rows
    counts: Counts


def exchange(
    committer: Committer, side: OwnedTable | None, policy: Late | None, progress: Progress, *, gone: Rows, come: Rows,
    upto: int, uses: int,
) -> Exchanged:  # fmt: skip
    """Let late rows that are gone leave the table of late rows, and set aside those that come.

    Both are Arrow or both a DataFrame. What was used after all, in one of `uses`, stays used if it comes again in
    another form.
    """
    gone_used, gone_late, minus = in_time(gone, policy)
    come_used, come_late, plus = in_time(come, policy)
    touched, counts = _both(gone_used, come_used), plus - minus
    if side is None:
        return Exchanged(touched=touched, counts=counts)
    there = side.read(["_source", "_claimed"])
    used = there.filter(pc.fill_null(pc.less_equal(there["_claimed"], uses), False)).select(["_source"])
    if gone_late is not None:
        _leave(committer, side, _places(gone_late))
        mine = _among(gone_late, used)
        touched, many = _both(touched, mine), _count(mine)
        counts += Counts(taken=-many, late=many)
        progress.used(-many)
    if come_late is not None:
        set_aside(committer, side, come_late, count=plus.late, upto=upto, progress=progress)
        mine = _among(come_late, used)
        touched, many = _both(touched, mine), _count(mine)
        counts += Counts(taken=many, late=-many)
        progress.used(many)
        if many:
            again = _places(mine)
            again = again.append_column("_claimed", pa.array([uses] * many, pa.int64()))
            how = Merge(keys=("_source",), clauses=(Clause(on="matched", act="update", set=_CLAIMED),))
            committer.commit(side, again, side.entry.follow("claim"), how=how)
    return Exchanged(touched=touched, counts=counts)


def _both(one: Rows, other: Rows) -> Rows:
    if isinstance(one, pa.Table):
        return pa.concat_tables([one, other])
    assert isinstance(other, DataFrame)
    return one.unionByName(other)


def _places(rows: Rows) -> pa.Table:
    places = rows.select(["_source"]) if isinstance(rows, pa.Table) else rows.select("_source").toArrow()
    return places.combine_chunks()


def _among(rows: Rows, places: pa.Table) -> Rows:
    if isinstance(rows, pa.Table):
        return rows.filter(pc.is_in(rows["_source"], value_set=places["_source"].combine_chunks()))
    return rows.join(F.broadcast(rows.sparkSession.createDataFrame(places)), "_source", "left_semi").select(
        *rows.columns
    )


def _leave(committer: Committer, side: OwnedTable, places: pa.Table) -> None:
    columns = [
        places["_source"] if field.name == "_source" else pa.nulls(places.num_rows, field.type) for field in side.schema
    ]
    how = Merge(keys=("_source",), clauses=(Clause(on="matched", act="delete", set={}),))
    entry = side.entry.follow("redo", counts=Counts(read=-places.num_rows, taken=-places.num_rows))
    committer.commit(side, pa.table(columns, schema=side.schema), entry, how=how)


def number_anew(committer: Committer, side: OwnedTable) -> None:
    """Forget the versions that brought late rows, in a lake whose versions mean nothing elsewhere."""
    rows = side.read(["_source"])
    rows = rows.append_column("_version", pa.array([0] * rows.num_rows, pa.int64()))
    how = Merge(keys=("_source",), clauses=(Clause(on="matched", act="update", set={"_version": "s._version"}),))
    committer.commit(side, rows, side.entry.follow("redo"), how=how)


class LateRows:
    """The rows beside a table that came too late for it: open, or used after all.

    Rows are claimed for the next use, then the table takes them and says in its entry that it has come to that use. So
    a crash between the two leaves rows that are still open, whatever was claimed.
    """

    def __init__(self, side: OwnedTable, main: OwnedTable) -> None:
        """Look at `side` as far as `main` has come."""
        self.side, self.main = side, main
        self.using = 0
        """The use in hand, whose rows count as used while it is computed."""
        self._sizes: pa.Table | None = None

    @property
    def uses(self) -> int:
        """How often the table has used such rows."""
        return (self.main.entry.position.applied or (0, 0))[0]

    def open(self) -> pa.Table:
        """`_source` and `_claimed` of the rows that are not used, in the order of their coordinates."""
        rows = self.side.read(["_source", "_claimed"])
        # not as a condition: it would leave out the files that were written before there was such a column
        rows = rows.filter(pc.fill_null(pc.greater(rows["_claimed"], self.uses), True))
        return rows.sort_by([("_source", "ascending")])

    def used(self, names: list[str], where: ds.Expression | None = None) -> pa.Table:
        """Columns of the rows that are in the table, or in what it is about to become."""
        claimed = ds.field("_claimed") <= max(self.uses, self.using)
        return self.side.read(names, where=claimed if where is None else claimed & where)

    def used_spark(self, spark: SparkSession, names: list[str]) -> DataFrame:
        """The same as a DataFrame."""
        rows = spark.read.format("delta").load(str(self.side.path))
        return rows.where(F.col("_claimed") <= max(self.uses, self.using)).select(*names)

    def claim(self, committer: Committer, *, command: int, bytes_max: int, only: set[str] | None = None) -> pa.Table:
        """Claim the next rows for the next use and return them; none are left when it is empty.

        They take about `bytes_max` bytes of memory at most, or are one row. `only`: none but those with these
        coordinates.
        """
        found = self.open()
        if only is not None:
            found = found.filter(pc.is_in(found["_source"], pa.array(sorted(only), pa.string())))
        self.using = self.uses + 1
        if not found.num_rows:
            return self.side.schema.empty_table()
        chosen = self._within(found["_source"].slice(0, ROWS_PER_USE), bytes_max)
        mine = pa.table({"_source": chosen, "_claimed": pa.array([self.using] * len(chosen), pa.int64())})
        stray = found.slice(len(chosen))
        stray = stray.filter(pc.fill_null(pc.equal(stray["_claimed"], self.using), False))  # of an owner that died
        stray = stray.set_column(1, "_claimed", pa.nulls(stray.num_rows, pa.int64()))
        how = Merge(keys=("_source",), clauses=(Clause(on="matched", act="update", set=_CLAIMED),))
        entry = self.side.entry.follow("claim", command=command)
        committer.commit(self.side, pa.concat_tables([mine, stray]), entry, how=how)
        return self.side.read(where=ds.field("_claimed") == self.using)

    def _within(self, places: pa.ChunkedArray, bytes_max: int) -> pa.ChunkedArray:
        """The first of these coordinates, in their order, whose rows are within the bound; one at least."""
        known = self._sizes
        if known is None or not pc.all(pc.is_in(places, known["_source"])).as_py():
            # of all that are open: to look through the rows for each use would unpack all of them each time
            sized = self.side.memory_per_row(["_source", "_claimed"])
            open_rows = pc.fill_null(pc.greater(sized["_claimed"], self.uses), True)
            known = self._sizes = sized.filter(open_rows).select(["_source", "bytes"])
        sizes = pc.cumulative_sum(known.filter(pc.is_in(known["_source"], places)).sort_by("_source")["bytes"])
        return places.slice(0, max(1, pc.sum(pc.less_equal(sizes, bytes_max)).as_py()))


def late_rows_used(lake: Path, table: str, *, uses: int) -> set[str]:
    """Coordinates of the rows beside a table of a lake that it had used when it had done so this often."""
    path = folder_of(table, lake)
    side = path.with_name(f"{path.name}__late")
    if not uses or not deltalake.DeltaTable.is_deltatable(str(side)):
        return set()
    data = dataset_of(deltalake.DeltaTable(str(side)))
    return set(data.to_table(columns=["_source"], filter=ds.field("_claimed") <= uses)["_source"].to_pylist())


def _count(rows: Rows) -> int:
    return rows.num_rows if isinstance(rows, pa.Table) else rows.count()
