"""Stretches of event time that belong together, per part: what new rows touch, and what lies inside.

A stretch is a span of event time of one part, both ends included. Those of one part do not touch each other. Times are
microseconds since 1970. Small data are numpy arrays here; `spark_stretches` does the same where they are large.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


def micros(length: timedelta) -> int:
    """A length of time in microseconds."""
    return length // timedelta(microseconds=1)


class Parts:
    """The different parts of some rows; a part is known by its place here, null is a value like others."""

    def __init__(self, rows: Sequence[pa.Table], columns: Sequence[str]) -> None:
        """Number the parts that are found in the rows."""
        self.columns = list(columns)
        self.rows = pa.concat_tables([one.select(self.columns) for one in rows]).group_by(self.columns).aggregate([])
        self._values = [self.rows[name].combine_chunks().unique() for name in self.columns]
        self._known = self._coded(self.rows)

    def places(self, rows: pa.Table) -> Ints:
        """The part of each row, -1 where it is none of these."""
        found = pc.fill_null(pc.index_in(self._coded(rows), value_set=self._known), -1)
        return _ints(found)

    def _coded(self, rows: pa.Table) -> pa.Array:
        """One number for all part columns; null where a value is not known."""
        code = None
        for name, values in zip(self.columns, self._values, strict=True):
            mine = pc.index_in(rows[name], value_set=values).cast(pa.int64())
            code = mine if code is None else pc.add(pc.multiply(code, len(values)), mine)
        assert code is not None, "a part has columns"
        return code.combine_chunks() if isinstance(code, pa.ChunkedArray) else code


@dataclass(frozen=True, kw_only=True)
class Stretches:
    """Spans of event time, by part and start."""

    parts: Parts
    part: Ints
    low: Ints
    high: Ints

    def __len__(self) -> int:
        """How many there are."""
        return len(self.part)

    def chosen(self, wanted: Flags) -> "Stretches":
        """Some of them."""
        return replace(self, part=self.part[wanted], low=self.low[wanted], high=self.high[wanted])

    def widened(self, by: int) -> "Stretches":
        """Each longer by so much at both ends; those that meet then are one."""
        return _joined(self.parts, self.part, self.low - by, self.high + by)

    def with_those(self, others: "Stretches") -> "Stretches":
        """These and others of the same parts; those that meet are one."""
        part = np.concatenate((self.part, others.part))
        low, high = np.concatenate((self.low, others.low)), np.concatenate((self.high, others.high))
        return _joined(self.parts, part, low, high)

    def around(self, part: Ints, time: Ints) -> Ints:
        """Which stretch each point lies in, -1 for none."""
        if not len(self) or not len(time):
            return np.full(len(time), -1, np.int64)
        # points are placed by part, then time: one number for both, as times alone are too large to be multiplied
        starts = np.unique(self.low)
        width = len(starts) + 1
        mine = self.part * width + np.searchsorted(starts, self.low, side="right")
        at = np.searchsorted(mine, part * width + np.searchsorted(starts, time, side="right"), side="right") - 1
        found = np.maximum(at, 0)
        inside = (at >= 0) & (part >= 0) & (self.part[found] == part) & (self.high[found] >= time)
        return np.where(inside, at, -1)

    def hold(self, rows: pa.Table, time: str) -> pa.Array:
        """Which rows lie in one of them."""
        return pa.array(self.around(self.parts.places(rows), times(rows, time)) >= 0)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The event times of all parts together: spans that do not meet, in order."""
        part = np.zeros(len(self), np.int64)
        joined = _joined(self.parts, part, self.low, self.high)
        yield from zip(joined.low.tolist(), joined.high.tolist(), strict=True)

    def table(self) -> pa.Table:
        """The parts' columns with `_low` and `_high`, for Spark."""
        rows = self.parts.rows.take(pa.array(self.part))
        return rows.append_column("_low", pa.array(self.low)).append_column("_high", pa.array(self.high))


def times(rows: pa.Table, column: str) -> Ints:
    """A timestamp column as microseconds; it has no null."""
    return _ints(rows[column].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))


def runs(parts: Parts, part: Ints, time: Ints, length: int) -> Stretches:
    """Points of a part with no more than `length` from each to the next."""
    order = np.lexsort((time, part))
    part, time = part[order], time[order]
    begins = np.ones(len(part), np.bool_)
    begins[1:] = (part[1:] != part[:-1]) | (time[1:] - time[:-1] > length)
    first = np.flatnonzero(begins)
    last = np.flatnonzero(np.roll(begins, -1))  # each before the next's first
    return Stretches(parts=parts, part=part[first], low=time[first], high=time[last])


def _joined(parts: Parts, part: Ints, low: Ints, high: Ints) -> Stretches:
    """Spans as stretches: by part and start, those that meet as one."""
    order = np.lexsort((low, part))
    part, low, high = part[order], low[order], high[order]
    joined: list[tuple[int, int, int]] = []
    for place, start, end in zip(part.tolist(), low.tolist(), high.tolist(), strict=True):
        if joined and joined[-1][0] == place and start <= joined[-1][2]:
            joined[-1] = (place, joined[-1][1], max(end, joined[-1][2]))
        else:
            joined.append((place, start, end))
    columns = np.array(joined, np.int64).reshape(-1, 3)
    return Stretches(parts=parts, part=columns[:, 0], low=columns[:, 1], high=columns[:, 2])


def _ints(values: pa.ChunkedArray | pa.Array) -> Ints:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return np.asarray(flat.to_numpy(zero_copy_only=False), np.int64)
