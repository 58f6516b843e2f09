"""Quarantine: rows that were refused, until somebody mends what refused them, or discards them.

A row goes from here to its table in three commits: it is claimed for the ingest batch in which it goes, the table takes
it, it is released here. A crash between any two leaves what is needed to go on: before the table's commit the same rows
are judged again in that same ingest batch, after it the claimed ones are released.
"""

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Counts, Replay
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.source import BRONZE
from deltaworks.engine.writers.partial import REASON

QUARANTINE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
        ("code", pa.string()),
        ("suite", pa.string()),
        ("state", pa.string()),
        ("command", pa.int64()),
        ("_seq", pa.int64()),
        ("_claimed", pa.int64()),
    ]
)
"""Refused rows: the raw bytes, where they came from, why, which code and which suite judged.

`state`: open (undecided), or discarded by `command`. `_claimed`: the ingest batch in which the row goes to the table;
once that has it, the row is gone from here.
"""
DECIDED = frozenset({"command", "_claimed"})
"""Columns that older quarantines lack."""
PLACE = ("topic", "partition", "offset")
Place = tuple[str, int, int]
"""A record's topic, partition and offset."""
_OF_BRONZE = [name for name in BRONZE.names if name in QUARANTINE.names]
ROWS_PER_BATCH = 10_000
"""So many are judged again in one ingest batch, or those of one ingest batch if that had more."""


class Quarantine:
    """The rows that one table has refused."""

    def __init__(self, table: OwnedTable) -> None:
        """Own the table beside."""
        self.table = table

    def pieces(self, *, cause: str | None, bytes_max: int) -> list[tuple[int, int, int]]:
        """Cut the undecided rows by the ingest batches that brought them: (after, upto, rows), oldest first.

        Each takes about `bytes_max` bytes of memory at most, or is of one ingest batch.
        """
        rows = _undecided(self.table.memory_per_row(["_seq", "_claimed"], where=_of(cause)))
        counted = rows.group_by("_seq").aggregate([([], "count_all"), ("bytes", "sum")]).sort_by("_seq")
        found = []
        after = upto = held = size = 0
        for batch in counted.to_pylist():
            count, more = batch["count_all"], batch["bytes_sum"]
            if held and (held + count > ROWS_PER_BATCH or size + more > bytes_max):
                found.append((after, upto, held))
                after, held, size = upto, 0, 0
            upto, held, size = batch["_seq"], held + count, size + more
        return [*found, (after, upto, held)] if held else found

    def causes(self) -> dict[str, int]:
        """The causes of undecided rows, and how many each has."""
        counted = self._open(["reason"], cause=None).group_by("reason").aggregate([([], "count_all")])
        return dict(zip(counted["reason"].to_pylist(), counted["count_all"].to_pylist(), strict=True))

    def rows(self, due: Replay) -> pa.Table:
        """The rows of a replay as bronze has them, in the order in which they came.

        Those that are claimed for it, if it was begun before: the others did not pass then.
        """
        found = self.table.read(_OF_BRONZE, where=ds.field("_claimed") == due.seq)
        if not found.num_rows:
            found = self._open(_OF_BRONZE, cause=due.cause, after=due.after, upto=due.upto)
        return _as_bronze(found.sort_by([(name, "ascending") for name in ("_seq", *PLACE)]))

    def row(self, place: Place) -> pa.Table:
        """The undecided row from this topic, partition and offset as bronze has it; empty if there is none."""
        return _as_bronze(self._open(_OF_BRONZE, cause=None, place=place))

    def discarded(self, command: int) -> pa.Table:
        """The places of the rows that a command has discarded."""
        return self.table.read([*PLACE], where=ds.field("command") == command)

    def claim(self, committer: Committer, rows: pa.Table, due: Replay) -> None:
        """Claim rows that pass; a row that was claimed before and does not pass now is undecided again."""
        before = self.table.read([*PLACE], where=ds.field("_claimed") == due.seq)
        if before.num_rows == rows.num_rows:  # of those claimed none can have come since
            return
        claimed = rows.select(PLACE).append_column("_claimed", pa.array([due.seq] * rows.num_rows, pa.int64()))
        given_back = before.join(rows.select(PLACE), list(PLACE), join_type="left anti")
        given_back = given_back.append_column("_claimed", pa.nulls(given_back.num_rows, pa.int64()))
        how = Merge(keys=PLACE, clauses=(Clause(on="matched", act="update", set={"_claimed": "s._claimed"}),))
        entry = self.table.entry.follow("claim", command=due.command, claimed=(due.seq, rows.num_rows))
        committer.commit(self.table, pa.concat_tables([claimed, given_back]), entry, how=how)

    def release(self, committer: Committer, *, upto: int) -> None:
        """Let go of the rows that the table has taken: those claimed for an ingest batch up to this one."""
        if self.table.entry.claimed is None or self.table.entry.claimed[0] > upto:
            return
        gone = self.table.read(["_claimed"], where=ds.field("_claimed") <= upto).num_rows
        entry = self.table.entry.follow("release", counts=Counts(read=-gone, taken=-gone), claimed=None)
        if not gone:
            committer.mark(self.table, entry)
            return
        committer.delete(self.table, f"_claimed <= {upto}", entry)

    def discard(self, committer: Committer, *, cause: str | None, place: Place | None, command: int) -> int:
        """Decide that undecided rows stay out for good; they are kept, and counted as refused. How many those are.

        Of one cause, or the one from a place, where given.

        Rows that wait for a value are left: they have a place beside the table, and come when the value does.
        """
        before = self.table.read(["command"], where=ds.field("command") == command).num_rows  # an owner died since
        rows = self._open([*PLACE, "reason"], cause=cause, place=place)
        rows = rows.filter(pc.invert(pc.ends_with(rows["reason"], REASON))).select(PLACE)
        if rows.num_rows:
            rows = rows.append_column("command", pa.array([command] * rows.num_rows, pa.int64()))
            decided = Clause(on="matched", act="update", set={"state": "'discarded'", "command": "s.command"})
            entry = self.table.entry.follow("discard", command=command)
            committer.commit(self.table, rows, entry, how=Merge(keys=PLACE, clauses=(decided,)))
        return int(before + rows.num_rows)

    def _open(
        self, names: list[str], *, cause: str | None, after: int | None = None, upto: int | None = None,
        place: Place | None = None,
    ) -> pa.Table:  # fmt: skip
        """Columns of undecided rows, of this cause, this place and the ingest batches in (after, upto], where given."""
        where = _of(cause)
        for name, value in zip(PLACE, place or (), strict=place is not None):
            where &= ds.field(name) == value
        if after is not None and upto is not None:
            where &= (ds.field("_seq") > after) & (ds.field("_seq") <= upto)
        return _undecided(self.table.read([*names, "_claimed"], where=where)).select(names)


def _of(cause: str | None) -> ds.Expression:
    """Rows that may be undecided, of this cause or of any."""
    is_open = ds.field("state") == "open"
    return is_open if cause is None else is_open & (ds.field("reason") == cause)


def _undecided(rows: pa.Table) -> pa.Table:
    # not as a condition of the read: it would leave out the files that were written before there was such a column
    return rows.filter(pc.is_null(rows["_claimed"]))


def _as_bronze(found: pa.Table) -> pa.Table:
    for field in BRONZE:
        if field.name not in _OF_BRONZE:
            found = found.append_column(field.name, pa.nulls(found.num_rows, field.type))
    return found.select(BRONZE.names)
