"""A table's policy for late rows: which of a batch's rows it uses, and where the others go."""

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.writer import Progress
from deltaworks.words.lateness import Drop, Late, SideOutput

LATE_SYSTEM = pa.schema([("_late_by", pa.int64()), ("_source", pa.string()), ("_version", pa.int64())])
"""Stored with a late row: how late it was in microseconds, its coordinates, the input's version that brought it."""


def late_max(policy: Late | None) -> int | None:
    """Rows that are later than so many microseconds are not used; None: all are."""
    return policy.after // timedelta(microseconds=1) if isinstance(policy, Drop | SideOutput) else None


def in_time(rows: Rows, policy: Late | None) -> tuple[Rows, Rows | None, Counts]:
    """What is used, what is too late for it (None: nothing), and how many."""
    after, late = late_max(policy), None
    if after is not None:
        if isinstance(rows, pa.Table):
            too_late = pc.greater(rows["_late_by"], after)
            rows, late = rows.filter(pc.invert(too_late)), rows.filter(too_late)
        else:
            too_late = F.col("_late_by") > after
            rows, late = rows.where(~too_late), rows.where(too_late)
    taken, missed = _count(rows), 0 if late is None else _count(late)
    return rows, late if missed else None, Counts(read=taken + missed, taken=taken, late=missed)


def set_aside(committer: Committer, side: OwnedTable, late: Rows, *, count: int, upto: int, progress: Progress) -> None:
    """Append to the table of late rows; the main table's own entry closes the group."""
    names = [name for name in side.schema.names if name != "_version"]
    if isinstance(late, pa.Table):
        version = pa.array([upto] * late.num_rows, pa.int64())
        rows: Rows = late.select(names).append_column("_version", version)
    else:
        rows = late.select(*names, F.lit(upto).cast("bigint").alias("_version"))
    mine = progress.entry(Counts())
    counts = Counts(read=count, taken=count)
    entry = side.entry.follow("batch", counts=counts, position=mine.position, ingest_seq=mine.ingest_seq)
    committer.commit(side, rows, entry)


def _count(rows: Rows) -> int:
    return rows.num_rows if isinstance(rows, pa.Table) else rows.count()
