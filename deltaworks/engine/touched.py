"""Which stretches of event time new rows touch, and the rows that these are computed from."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from deltaworks.engine import stretches
from deltaworks.engine.stretches import Ints, Parts, Stretches, runs

FIRST_LOOK = 4
"""So many gaps to either side are read at first; twice as many each time that a stretch goes on beyond."""
Rows = Mapping[str, pa.Table]
Read = Callable[[Stretches], dict[str, pa.Table]]
"""The rows of each input that lie in stretches; new ones are among them."""


def by_reach(
    new: Rows, read: Read, *, part: Sequence[str], times: Mapping[str, str], length: int
) -> tuple[Stretches, dict[str, pa.Table]]:
    """A row changes results up to `length` around it, and these depend on rows up to `length` around them."""
    parts = Parts(list(new.values()), part)
    touched = _runs(parts, new, times, 2 * length).widened(length)
    return touched, read(touched.widened(length))


def by_gap(
    new: Rows, read: Read, *, part: Sequence[str], times: Mapping[str, str], length: int
) -> tuple[Stretches, dict[str, pa.Table]]:
    """A row changes the stretch of rows, each no more than `length` from the next, that it lies in.

    How far such a stretch goes is not known before it is read: more is read until both of its ends are seen. A row that
    is not there any more counts where it was.
    """
    parts = Parts(list(new.values()), part)
    place, time = _points(parts, new, times)
    step = FIRST_LOOK * length
    looked = _runs(parts, new, times, length).widened(step)
    while True:
        rows = read(looked)
        there, moments = _points(parts, rows, times)
        found = runs(parts, np.concatenate((there, place)), np.concatenate((moments, time)), length)
        touched = found.chosen(np.isin(np.arange(len(found)), found.around(place, time)))
        left = looked.around(touched.part, touched.low - length)
        right = looked.around(touched.part, touched.high + length)
        cut = (left < 0) | (left != right)  # not all of the stretch and a gap to either side was looked at
        if not cut.any():
            return touched, {name: one.filter(touched.hold(one, times[name])) for name, one in rows.items()}
        step *= 2
        looked = looked.with_those(touched.chosen(cut).widened(step))


def _runs(parts: Parts, rows: Rows, columns: Mapping[str, str], length: int) -> Stretches:
    return runs(parts, *_points(parts, rows, columns), length)


def _points(parts: Parts, rows: Rows, columns: Mapping[str, str]) -> tuple[Ints, Ints]:
    """The part and time of each row of all inputs."""
    places = [parts.places(one) for one in rows.values()]
    moments = [stretches.times(one, columns[name]) for name, one in rows.items()]
    return np.concatenate(places), np.concatenate(moments)
