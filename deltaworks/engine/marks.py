"""Lateness, decided once: how far event time had come when a row's ingest batch began.

mark(k) is the larger of mark(k-1) and how far the events accepted in ingest batch k have come. A row of batch k is late
by mark(k-1) less its own event time. Batches are walked in order, however many come in one slice, so the verdict does
not depend on how reads were cut.

A mark that a wrong clock has raised may be revised (`revise`): so much is decided by somebody, once, and stands in the
table's log as a mark after its last ingest batch. What was judged by the wrong one stays judged.

An event comes as far as its own time says, and never further than its arrival: nothing has happened yet that is ahead
of it, so a sender's clock that is ahead makes nobody late.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltaworks.engine.clocks import APART_MAX
from deltaworks.engine.entry import Entry


@dataclass(frozen=True)
class Walk:
    """The mark before each ingest batch, where it rose, and where it ended; microseconds since 1970."""

    before: Mapping[int, int | None]
    raised: tuple[tuple[int, int], ...]
    mark: int | None
    closed: int | None = None
    """How far it had come where it was revised meanwhile."""


def walk(highest: Iterable[tuple[int, int | None]], mark: int | None) -> Walk:
    """Walk ingest batches, each with how far its events came, from the mark that the table has come to."""
    before: dict[int, int | None] = {}
    raised = []
    for seq, high in sorted(highest):
        before[seq] = mark
        if high is not None and (mark is None or high > mark):
            mark = high
            raised.append((seq, high))
    return Walk(before, tuple(raised), mark)


def walk_as_recorded(batches: Iterable[int], mark: int | None, marks: Sequence[tuple[int, int]]) -> Walk:
    """The same walk as it was done once: `marks` has every ingest batch that moved the mark, and to what, in order.

    What was refused then, and would pass now, does not move them.
    """
    order, heights = [seq for seq, _ in marks], [mark for _, mark in marks]
    before = {seq: heights[at - 1] if (at := bisect_left(order, seq)) else None for seq in batches}
    last = bisect_right(order, max(before, default=0))
    if not last:
        return Walk(before, (), mark)
    most = max(heights[:last])
    return Walk(before, (), heights[last - 1], most if most > heights[last - 1] else None)


def highest_in(rows: pa.Table, event_time: str) -> list[tuple[int, int | None]]:
    """Each ingest batch of the rows, and how far they came, in microseconds; `rows` has `_seq` and `_arrived`."""
    come = pc.min_element_wise(_micros(rows, event_time), _micros(rows, "_arrived"), skip_nulls=False)
    batches = pa.table({"seq": rows["_seq"], "time": come})
    batches = batches.group_by("seq").aggregate([("time", "max")])
    return list(zip(batches["seq"].to_pylist(), batches["time_max"].to_pylist(), strict=True))


def ahead_in(rows: pa.Table, event_time: str) -> int:
    """How many rows say that they happened after their arrival, by more than clocks are apart."""
    ahead = pc.subtract(_micros(rows, event_time), _micros(rows, "_arrived"))
    return int(pc.sum(pc.greater(ahead, APART_MAX)).as_py() or 0)


def ahead_of(event_time: str) -> Column:
    """The same of rows that are too many to collect, to be aggregated."""
    ahead = F.unix_micros(F.col(event_time).cast("timestamp")) - F.unix_micros("_arrived")
    return F.count_if(ahead > APART_MAX)


def late_by(rows: pa.Table, event_time: str, before: Mapping[int, int | None]) -> pa.Table:
    """The rows with `_late_by` in microseconds, 0 for what is in time, by the mark before the ingest batch of each."""
    order = pa.array(before.keys(), pa.int64())
    marks = pa.array(before.values(), pa.int64()).take(pc.index_in(rows["_seq"], order))
    behind = pc.subtract(marks, _micros(rows, event_time))
    late = pc.if_else(pc.greater(behind, 0), behind, 0)
    return rows.append_column("_late_by", pc.fill_null(late, 0).cast(pa.int64()))


Told = Iterable[tuple[int, Entry | None]]
"""A table's versions with what their commits say of themselves, newest first."""


def looked_up(told: Told, batches: Iterable[int]) -> dict[int, int | None]:
    """The mark before each of these ingest batches, as a table's entries say; None where there was none.

    A mark is never computed again: what was refused then would move it now.
    """
    wanted = set(batches)
    if not wanted:
        return {}
    oldest = min(wanted)
    raised: list[tuple[int, int]] = []
    for one in marks_backwards(told):
        raised.append(one)
        if one[0] < oldest:
            break
    return {seq: next((mark for at, mark in raised if at < seq), None) for seq in wanted}


def marks_backwards(told: Told) -> Iterator[tuple[int, int]]:
    """(ingest batch, mark) wherever the mark was moved that rows were judged by, newest first.

    A rewind brings a version back with all that led to it: what was committed since then, other rewinds among it, is
    passed over.
    """
    upto, there = math.inf, math.inf
    for version, entry in told:
        if entry is None or version > there:
            continue
        yield from (raised for raised in reversed(entry.marks) if raised[0] <= upto)
        if entry.kind == "publish" and entry.back_to is not None:
            there = entry.back_to
        elif entry.kind == "publish":  # what was taken beyond it before gave way, and was taken again since
            if entry.ingest_seq <= upto and entry.position.mark is not None:
                yield entry.ingest_seq, entry.position.mark
            upto = min(upto, entry.ingest_seq)


def in_order(told: Told) -> list[tuple[int, int]]:
    """The same, oldest first: of several after one ingest batch the last one holds."""
    found = list(marks_backwards(told))
    found.reverse()  # before it is sorted, which leaves those of one batch in their order
    return sorted(found, key=itemgetter(0))


def _micros(rows: pa.Table, event_time: str) -> pa.ChunkedArray:
    return rows[event_time].cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def stamp_spark(rows: DataFrame, event_time: str, found: Walk) -> DataFrame:
    """The same for rows that are too many to collect, with the walk over `highest_of` them."""
    known = pa.table(
        {"_seq": pa.array(found.before.keys(), pa.int64()), "_before": pa.array(found.before.values(), pa.int64())}
    )
    before = F.broadcast(rows.sparkSession.createDataFrame(known))
    behind = F.col("_before") - F.unix_micros(F.col(event_time).cast("timestamp"))
    late = F.coalesce(F.greatest(behind, F.lit(0)), F.lit(0))
    return rows.join(before, "_seq", "left").withColumn("_late_by", late).drop("_before")


def highest_of(rows: DataFrame, event_time: str) -> list[tuple[int, int | None]]:
    """The same as `highest_in` for rows that are too many to collect."""
    time = F.unix_micros(F.col(event_time).cast("timestamp"))
    come = F.when(time.isNotNull(), F.least(time, F.unix_micros("_arrived")))
    found = rows.groupBy("_seq").agg(F.max(come)).collect()
    return [(seq, high) for seq, high in found]
