"""Quarantine: rows that were refused, until somebody mends what refused them, or discards them.

A row goes from here to its table in three commits: it is marked with the ingest batch in which it goes, the table takes
it, it is removed here. A crash between any two leaves what is needed to go on: before the table's commit the same rows
are judged again in that same ingest batch, after it the marked ones are removed.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Counts, Replay
from deltaworks.engine.lake import HOOKS_OFF, OwnedTable
from deltaworks.engine.points import reached
from deltaworks.engine.source import BRONZE

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
        ("_moving", pa.int64()),
    ]
)
"""Refused rows: the raw bytes, where they came from, why, which code and which suite judged.

`state`: open (undecided), or discarded by `command`. `_moving`: the ingest batch in which the row goes to the table;
once that has it, it is gone from here.
"""
DECIDED = frozenset({"command", "_moving"})
"""Columns that older quarantines lack."""
PLACE = ("topic", "partition", "offset")
ROWS_PER_BATCH = 10_000
"""So many are judged again in one ingest batch, or those of one ingest batch if that had more."""


def pieces(quarantine: OwnedTable, *, cause: str | None) -> Iterator[tuple[int, int, int]]:
    """Cut the undecided rows by the ingest batches that brought them: (after, upto, rows), oldest first."""
    rows = quarantine.read(["_seq"], where=_open(cause))
    counted = rows.group_by("_seq").aggregate([([], "count_all")]).sort_by("_seq")
    after, held = 0, 0
    upto = after
    for seq, count in zip(counted["_seq"].to_pylist(), counted["count_all"].to_pylist(), strict=True):
        if held and held + count > ROWS_PER_BATCH:
            yield after, upto, held
            after, held = upto, 0
        upto, held = seq, held + count
    if held:
        yield after, upto, held


def moving(quarantine: OwnedTable, due: Replay) -> pa.Table:
    """The rows of a replay as bronze has them, in the order in which they came.

    Those that are marked, if it was begun before: the others did not pass then.
    """
    names = [name for name in BRONZE.names if name in QUARANTINE.names]
    found = quarantine.read(names, where=ds.field("_moving") == due.seq)
    if not found.num_rows:
        within = (ds.field("_seq") > due.after) & (ds.field("_seq") <= due.upto)
        found = quarantine.read(names, where=within & _open(due.cause))
    found = found.sort_by([(name, "ascending") for name in ("_seq", *PLACE)])
    lacking = [name for name in BRONZE.names if name not in names]
    for name in lacking:
        found = found.append_column(name, pa.nulls(found.num_rows, BRONZE.field(name).type))
    return found.select(BRONZE.names)


def mark_moving(committer: Committer, quarantine: OwnedTable, rows: pa.Table, due: Replay) -> None:
    """Mark rows that pass; a row that was marked before and does not pass now is undecided again."""
    marked = quarantine.read([*PLACE], where=ds.field("_moving") == due.seq)
    if marked.num_rows == rows.num_rows or not (marked.num_rows or rows.num_rows):
        return
    own = pa.array([due.seq] * rows.num_rows, pa.int64())
    changed = rows.select(PLACE).append_column("_moving", own)
    if marked.num_rows:
        back = marked.join(rows.select(PLACE), list(PLACE), join_type="left anti")
        changed = pa.concat_tables([changed, back.append_column("_moving", pa.nulls(back.num_rows, pa.int64()))])
    entry = quarantine.entry.follow("replay", command=due.command)
    how = Merge(keys=PLACE, clauses=(Clause(on="matched", act="update", set={"_moving": "s._moving"}),))
    committer.commit(quarantine, changed, entry, how=how)


def remove_moved(committer: Committer, quarantine: OwnedTable, *, upto: int) -> None:
    """Remove the rows that the table has taken: those marked with an ingest batch up to this one."""
    gone = quarantine.read(["_moving"], where=ds.field("_moving") <= upto).num_rows
    if not gone:
        return
    entry = quarantine.entry.follow("replay", counts=Counts(taken=-gone, read=-gone))
    committer.guard()
    reached(quarantine.name, entry.kind, "before-commit")
    quarantine.delta.delete(
        f"_moving <= {upto}",
        commit_properties=quarantine.properties(entry),
        post_commithook_properties=HOOKS_OFF,
    )
    reached(quarantine.name, entry.kind, "after-commit")
    quarantine.moved_to(quarantine.delta.version(), entry, brought_rows=True)


def discard(committer: Committer, quarantine: OwnedTable, *, cause: str | None, command: int) -> int:
    """Decide that undecided rows stay out for good; they are kept, and counted as refused. How many those are."""
    rows = quarantine.read([*PLACE], where=_open(cause))
    if rows.num_rows:
        rows = rows.append_column("command", pa.array([command] * rows.num_rows, pa.int64()))
        decided = Clause(on="matched", act="update", set={"state": "'discarded'", "command": "s.command"})
        entry = quarantine.entry.follow("discard", command=command)
        committer.commit(quarantine, rows, entry, how=Merge(keys=PLACE, clauses=(decided,)))
    return int(rows.num_rows)


def _open(cause: str | None) -> ds.Expression:
    """Undecided rows, of this cause if one is given."""
    undecided = (ds.field("state") == "open") & ds.field("_moving").is_null()
    return undecided if cause is None else undecided & (ds.field("reason") == pc.scalar(cause))
