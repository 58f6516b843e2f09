"""From the changes of keys to the intervals in which each state held: pure, the same for any order of the changes.

PyArrow and no Spark: the same function runs in the driver on small batches and inside `applyInArrow` on large ones, so
both give the same.

The sequence of the source decides the order. A state begins at the source's time of its change, yet never before the
one that it follows began or ended: clocks may run backwards, and changes of one source transaction share one time.
Such states have an interval of no length, and at no time is there more than one.

A row that a snapshot has read while changes were streamed has the time at which it was sent, which may be after the
commits of changes that follow it. It was so before them: it begins no later than the next of them.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.debezium import was_read

KIND = pa.field("_kind", pa.string())
NEW = pa.field("_new", pa.bool_())
TIME = pa.timestamp("us", "UTC")


class Truncation(NamedTuple):
    """All keys end here. `at` is in microseconds since 1970, as all times in this file."""

    sequence: str
    at: int


class Change(NamedTuple):
    """One row of the events: a state (`kind` row) that begins, or the end (`kind` delete) of the one before."""

    place: int
    key: tuple[Any, ...]
    sequence: str
    kind: str
    at: int
    stored: tuple[int, int | None] | None
    """The interval that the table says; None for a change that is not in the table."""


class Interval(NamedTuple):
    """When the state of a change held; `end` None: it still does."""

    change: Change
    start: int
    end: int | None


OfKey = Callable[[Iterator[Change]], Iterable[tuple[Interval, bool]]]
"""The intervals of one key's changes, each with whether the table has a row of it."""


def events_schema(table: pa.Schema) -> pa.Schema:
    """What `fold` takes: the table's columns, and what each row is. Changes not yet stored have no interval."""
    return pa.schema([*table, KIND])


def folded_schema(table: pa.Schema) -> pa.Schema:
    """What `fold` gives: rows of the table, and whether they are new in it."""
    return pa.schema([*table, NEW])


def fold(events: pa.Table, *, keys: Sequence[str], table: pa.Schema, of_key: OfKey) -> pa.Table:
    """The rows of a history that its table lacks or has with another interval.

    `events` are **all** changes known of some keys: stored rows, new ones, deletions. `of_key` says what becomes of one
    key's, with the lowest offset first among those of one sequence and kind.
    """
    events = events.select(events_schema(table).names).cast(events_schema(table))
    order = [*keys, "_source", "_kind", "_offset"]  # a deletion before the row of the same change: a key that moves
    events = events.take(pc.sort_indices(events, sort_keys=[(name, "ascending") for name in order]))
    changed: list[tuple[Interval, bool]] = []
    for _, changes in groupby(_changes(events, keys), attrgetter("key")):
        for interval, stored in of_key(changes):
            if interval.change.stored != (interval.start, interval.end):
                changed.append((interval, not stored))
    return _rows(events, changed, table)


def _changes(events: pa.Table, keys: Sequence[str]) -> Iterator[Change]:
    times = [events[name].cast(pa.int64()).to_pylist() for name in ("_at", "valid_from", "valid_to")]
    columns = [events[name].to_pylist() for name in ("_source", "_kind")]
    found = zip(*(events[key].to_pylist() for key in keys), strict=True)
    for place, (key, sequence, kind, at, start, end) in enumerate(zip(found, *columns, *times, strict=True)):
        yield Change(place, key, sequence, kind, at, None if start is None else (start, end))


def by_sequence(copies: Iterator[Change], cuts: Sequence[Truncation]) -> Iterator[tuple[Interval, bool]]:
    """The intervals of one key, and whether the change or a copy of it is in the table; `cuts` in their order.

    A change is told by its sequence and kind; of its copies the first one counts.
    """
    changes: list[Change] = []
    stored: set[str] = set()
    for change in copies:
        if change.stored is not None:
            stored.add(change.sequence)
        if not changes or (changes[-1].sequence, changes[-1].kind) != (change.sequence, change.kind):
            changes.append(change)
    for interval in intervals(changes, cuts):
        yield interval, interval.change.sequence in stored


def intervals(changes: Sequence[Change], cuts: Sequence[Truncation]) -> Iterator[Interval]:
    """Fold the changes of one key, in their order and without copies; `cuts` in their order."""
    held: Change | None = None
    start = clock = 0  # clock: never before what has been; times are after 1970
    for change in _timed(changes, cuts):
        if held is not None and (cut := _first_after(cuts, held.sequence)) and cut.sequence <= change.sequence:
            clock = max(clock, cut.at)
            yield Interval(held, start, clock)
            held = None
        if held is not None or change.kind == "row":
            clock = max(clock, change.at)
        if held is not None:
            yield Interval(held, start, clock)
        held, start = (change, clock) if change.kind == "row" else (None, start)
    if held is not None:
        cut = _first_after(cuts, held.sequence)
        yield Interval(held, start, None if cut is None else max(clock, cut.at))


def _timed(changes: Sequence[Change], cuts: Sequence[Truncation]) -> Sequence[Change]:
    """The same changes; those that were read are no later than what comes next."""
    if not any(was_read(change.sequence) for change in changes):
        return changes
    timed: list[Change] = []
    follows: Change | Truncation | None = None
    for change in reversed(changes):
        cut = _first_after(cuts, change.sequence)
        if cut is not None and (follows is None or cut.sequence <= follows.sequence):
            follows = cut
        if follows is None or not was_read(change.sequence):
            timed.append(change)
        else:
            timed.append(change._replace(at=min(change.at, follows.at)))
        follows = timed[-1]
    return timed[::-1]


def _first_after(cuts: Sequence[Truncation], sequence: str) -> Truncation | None:
    place = bisect_right(cuts, sequence, key=attrgetter("sequence"))
    return cuts[place] if place < len(cuts) else None


def _rows(events: pa.Table, changed: Sequence[tuple[Interval, bool]], table: pa.Schema) -> pa.Table:
    rows = events.select(table.names).take(pa.array([one.change.place for one, _ in changed], pa.int64()))
    ends = [one.end for one, _ in changed]
    own = {
        "valid_from": pa.array([one.start for one, _ in changed], TIME),
        "valid_to": pa.array(ends, TIME),
        "is_current": pa.array([end is None for end in ends], pa.bool_()),
    }
    columns = [own[name] if name in own else rows[name] for name in table.names]
    return pa.table([*columns, pa.array([new for _, new in changed], pa.bool_())], schema=folded_schema(table))
