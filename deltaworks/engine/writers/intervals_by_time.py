"""The intervals of a key's states that say themselves from when on they hold: `history(..., by=...)`.

A state stands at its own time, a deletion at that of its arrival; of equal times what arrived later stands later. So
the intervals follow from the set of what came: not from the order in which it is taken, nor from how often it came.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, zip_longest

from deltaworks.engine.writers.intervals import Change, Interval
from deltaworks.engine.writers.states import arrival

Place = tuple[int, str]
"""A time, and an arrival."""


def by_time(changes: Iterable[Change]) -> Iterator[tuple[Interval, bool]]:
    """The intervals of one key, and whether the table has a state of that time.

    Of the states of one time the last to arrive counts. A deletion takes away what had arrived before it: a state of
    which the time came later than that never held. Its interval has no length, and it ends no other state.
    """
    states: dict[int, Change] = {}
    stored: set[int] = set()
    ends: list[Place] = []
    for change in changes:
        if change.kind != "row":
            ends.append(_place(change))
            continue
        if change.stored is not None:
            stored.add(change.at)
        if _place(states.setdefault(change.at, change)) < _place(change):
            states[change.at] = change
    ends.sort()
    for interval in _intervals([states[at] for at in sorted(states)], ends):
        yield interval, interval.start in stored


def _intervals(states: Iterable[Change], ends: list[Place]) -> Iterator[Interval]:
    """Both in their order, of each time one state."""
    last = list(accumulate((arrived for _, arrived in ends), max))  # to arrive, of those up to each place
    held: list[Change] = []
    for state in states:
        earlier = bisect_left(ends, (state.at, ""))
        if earlier and last[earlier - 1] > arrival(state.sequence):
            yield Interval(state, state.at, state.at)
        else:
            held.append(state)
    for state, follows in zip_longest(held, held[1:]):
        end = bisect_right(ends, _place(state))
        bounds = [ends[end][0]] if end < len(ends) else []
        bounds += [] if follows is None else [follows.at]
        yield Interval(state, state.at, min(bounds, default=None))


def _place(change: Change) -> Place:
    return change.at, arrival(change.sequence)
