"""All rows of a table's version in memory, brought from one version to the next by the table's change feed.

A view is computed from whole inputs, of which a turn changes a few rows. Read again in each turn they would cost by
their size; kept, a turn costs the changed rows and one look over a column for each question. Losing a snapshot changes
nothing: it is read again.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.phases import phase
from deltaworks.engine.values import told_apart

Condition: TypeAlias = Mapping[str, pa.Array]
"""Rows of which each of these, columns or what is computed from them, has one of the values."""
Compute: TypeAlias = Callable[[pa.Table], pa.Table]
"""Columns of values, one for each row; raises UnknownError where a row has none."""
CHUNKS_MAX = 12
"""Each change is a chunk of its own, and each chunk costs a question a little; small ones are put together then."""
AGAIN_SECONDS = 600.0
"""What cannot be computed of a chunk's rows is tried again after so long: the row that raised may have gone, or what
there was too little of may be there again."""
_GONE_MAX = 0.5
"""A chunk of which more has gone is written anew."""
REMOVED = ("delete", "update_preimage")
"""What the change feed calls rows that were there and are not any more."""


class LostError(Exception):
    """The feed names a row that is not there."""


class UnknownError(Exception):
    """What rows are asked for by cannot be computed for all of them: take all rows."""


@dataclass
class _Chunk:
    rows: pa.RecordBatch
    alive: npt.NDArray[np.bool_]
    computed: dict[str, pa.Array] = field(default_factory=dict)
    """What is computed of its rows, null for those that had gone by then."""
    again_at: dict[str, float] = field(default_factory=dict)
    """What could not be computed, and when that is tried again, by the monotonic clock."""

    def where(self, wanted: npt.NDArray[np.bool_]) -> pa.RecordBatch:
        """The rows that are there and wanted."""
        at = np.flatnonzero(wanted & self.alive)
        return self.rows if len(at) == self.rows.num_rows else self.rows.take(pa.array(at))


class Snapshot:
    """The rows of one version of a table. Not thread-safe: it is its app's."""

    def __init__(self, rows: pa.Table, *, version: int, told_by: Sequence[str]) -> None:
        """Hold the rows of a version; `told_by`: columns in which rows differ, by which one is found."""
        self.schema, self.version, self._by = rows.schema, version, told_by
        self._chunks = [_chunk(batch) for batch in rows.combine_chunks().to_batches()]
        self._computes: dict[str, Compute] = {}
        self._asked: dict[tuple[str, ...], tuple[str, ...]] = {}

    def knows(self, name: str) -> bool:
        """Whether rows can be asked for by this."""
        return name in self.schema.names or name in self._computes

    def compute(self, names: Collection[str], compute: Compute, *, reader: tuple[str, ...]) -> None:
        """Let rows be asked for by what is computed from them, columns of these names: once for each row.

        What this reader, a view and what it asks by, had computed before goes.
        """
        self._let_go(reader)
        self._asked[reader] = tuple(names)
        self._computes.update(dict.fromkeys(names, compute))

    def forget(self, view: str) -> None:
        """Let all go that a view had computed."""
        for reader in [one for one in self._asked if one[0] == view]:
            self._let_go(reader)

    def _let_go(self, reader: tuple[str, ...]) -> None:
        for name in self._asked.pop(reader, ()):
            self._computes.pop(name, None)
            for chunk in self._chunks:
                chunk.computed.pop(name, None)
                chunk.again_at.pop(name, None)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        computed: int = sum(one.nbytes for chunk in self._chunks for one in chunk.computed.values())
        return computed + self.rows_nbytes

    @property
    def rows_nbytes(self) -> int:
        """The same without what is computed."""
        found: int = sum(chunk.rows.nbytes for chunk in self._chunks)
        return found

    def compact(self) -> None:
        """Let the memory of rows that have gone go."""
        self._chunks = self._together(self._chunks)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(int(chunk.alive.sum()) for chunk in self._chunks)

    def follow(self, changes: pa.Table, *, version: int) -> None:
        """Become a later version: what changed since, in the snapshot's columns and `_change_type`.

        Raises LostError where that does not fit what is there; then it is of no version any more.
        """
        gone = removed_in(changes)
        # first what came: a row that changes twice comes and goes in one feed
        come = changes.filter(pc.invert(gone)).select(self.schema.names).combine_chunks()
        before = len(self._chunks)
        self._chunks += [_chunk(batch) for batch in come.to_batches() if batch.num_rows]
        self._remove(changes.filter(gone).select(self.schema.names))
        self.version = version
        # of what has just come nothing is computed yet: together with it, all would be computed again
        old, new = self._chunks[:before], self._chunks[before:]
        if self._dead() > _GONE_MAX:
            self._chunks = [*self._together(old), *new]
        elif len(self._chunks) > CHUNKS_MAX:
            large = _large(old)
            self._chunks = [*old[:large], *self._together(old[large:]), *new]

    @phase("read")
    def rows(self) -> pa.Table:
        """All of them."""
        return self._table([chunk.where(chunk.alive) for chunk in self._chunks])

    @phase("read")
    def those(self, conditions: Sequence[Condition]) -> pa.Table:
        """The rows that one of these conditions holds for; raises UnknownError."""
        found = []
        asked = dict[tuple[int, str], pa.Array]()  # in the type of the rows, which is that of every chunk
        for chunk in self._chunks:
            wanted = np.zeros(chunk.rows.num_rows, np.bool_)
            for at, condition in enumerate(conditions):
                mine = chunk.alive
                for name, values in condition.items():
                    there = self._values(chunk, name)
                    if (at, name) not in asked:
                        asked[at, name] = values.cast(there.type)
                    mine = mine & _flags(pc.is_in(there, value_set=asked[at, name]))
                wanted |= mine
            if wanted.any():
                found.append(chunk.where(wanted))
        return self._table(found)

    def _together(self, chunks: Sequence[_Chunk]) -> list[_Chunk]:
        """Some chunks as one, without the rows that have gone, with what is computed of all of them."""
        rows = self._table([one.where(one.alive) for one in chunks])
        made = [_chunk(batch) for batch in rows.combine_chunks().to_batches() if batch.num_rows]
        if len(made) == 1:
            there = [(one, np.flatnonzero(one.alive)) for one in chunks]
            for name in set(chunks[0].computed).intersection(*(one.computed for one in chunks)):
                made[0].computed[name] = pa.concat_arrays([one.computed[name].take(pa.array(at)) for one, at in there])
        return made

    def _values(self, chunk: _Chunk, name: str) -> pa.Array:
        if name in self.schema.names:
            return chunk.rows[name]
        if name not in chunk.computed:
            self._compute(chunk, name)
        return chunk.computed[name]

    def _compute(self, chunk: _Chunk, name: str) -> None:
        compute, now = self._computes[name], time.monotonic()
        if now < chunk.again_at.get(name, now):
            raise UnknownError(name)
        try:
            found = compute(pa.Table.from_batches([chunk.where(chunk.alive)])).combine_chunks()
        except UnknownError:
            several = [other for other, one in self._computes.items() if one is compute]
            chunk.again_at |= dict.fromkeys(several, now + AGAIN_SECONDS)
            raise
        places = pa.array(np.cumsum(chunk.alive) - 1, mask=~chunk.alive)
        for other, column in zip(found.column_names, found.columns, strict=True):
            # of no rows there is no chunk
            values = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            chunk.computed[other] = values if len(values) == chunk.rows.num_rows else values.take(places)

    def _remove(self, rows: pa.Table) -> None:
        """Take out one row for each of these that is equal in all columns."""
        if not rows.num_rows:
            return
        wanted = Counter(told_apart(rows, self.schema.names))
        values = {name: rows[name].combine_chunks() for name in self._by}
        for chunk in reversed(self._chunks):  # what changes now has often changed a moment ago
            alike = chunk.alive
            for name, those in values.items():
                alike = alike & _flags(pc.is_in(chunk.rows[name], value_set=those))
            found = np.flatnonzero(alike)
            if not len(found):
                continue
            there = pa.Table.from_batches([chunk.rows.take(pa.array(found))])
            for at, row in zip(found.tolist(), told_apart(there, self.schema.names), strict=True):
                if wanted[row] > 0:
                    wanted[row] -= 1
                    chunk.alive[at] = False
        if any(wanted.values()):
            raise LostError

    def _dead(self) -> float:
        total = sum(chunk.rows.num_rows for chunk in self._chunks)
        return 1 - self.num_rows / total if total else 0.0

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, self.schema)


def removed_in(changes: pa.Table) -> pa.ChunkedArray:
    """Which of these changes are of rows that were there and are not any more."""
    return pc.is_in(changes["_change_type"], value_set=pa.array(REMOVED))


def _large(chunks: Sequence[_Chunk]) -> int:
    """How many, from the first on, have more rows than all behind them together: so a row is seldom written anew."""
    rows = [chunk.rows.num_rows for chunk in chunks]
    return next((at for at, mine in enumerate(rows) if mine <= sum(rows[at + 1 :])), len(rows))


def _chunk(rows: pa.RecordBatch) -> _Chunk:
    return _Chunk(rows, np.ones(rows.num_rows, np.bool_))


def _flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
