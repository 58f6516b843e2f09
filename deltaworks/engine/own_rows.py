"""Where a stateful table's own rows lie: their keys out of memory as far back as it reaches, else read.

Each batch asks what the stretches had before it puts other rows in their place. A table is written by its owner alone,
so what a commit made of it is known without reading. Losing the memory changes nothing.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.datasets import ds
from deltaworks.engine.lake import OwnedTable, TooMuchError
from deltaworks.engine.nearby import CHUNKS_MAX, moment, newer_half
from deltaworks.engine.phases import phase
from deltaworks.engine.stretches import Stretches, times


class OwnRows:
    """Keys of the rows that a table has, as of the last version that brought any; part and event time are in a key."""

    def __init__(self, table: OwnedTable, *, keys: Sequence[str], time: str, keep: int) -> None:
        """Know nothing yet; memory begins `keep` microseconds before what is asked for first."""
        self.table, self.time, self.keep = table, time, keep
        self.keys = list(keys)
        self._rows: pa.Table | None = None
        self._since = self._version = 0

    @phase("read")
    def within(self, near: Stretches, *, bytes_max: int) -> pa.Table:
        """Keys of the rows in the stretches.

        Raises TooMuchError if more than about `bytes_max` bytes would have to be read into memory.
        """
        if self._version != self.table.data_version:  # another way, or somebody's command, has put rows in
            self._rows = None
        if not len(near):
            return pa.schema([self.table.schema.field(name) for name in self.keys]).empty_table()
        if self._rows is None:
            self._since = int(near.low.min()) - self.keep
            try:
                self._rows = self._stored(self._since, None, bytes_max)
            except TooMuchError:  # all that is newer than an old row: without memory then
                there = self._stored(int(near.low.min()), int(near.high.max()), bytes_max)
                return there.filter(near.hold(there, self.time))
            self._version = self.table.data_version
        found = self._rows.filter(near.hold(self._rows, self.time))
        far = near.chosen(near.low < self._since)
        if len(far):
            before = self._stored(int(far.low.min()), min(int(far.high.max()), self._since - 1), bytes_max)
            found = pa.concat_tables([before.filter(far.hold(before, self.time)), found])
        return found

    def replaced(self, near: Stretches, rows: pa.Table, *, bytes_max: int) -> None:
        """A commit has put these rows in the place of those that the stretches had when `within` was asked."""
        if self._rows is None:
            return
        others = self._rows.filter(pc.invert(near.hold(self._rows, self.time)))
        come = rows.select(self.keys).cast(others.schema)
        self._rows = pa.concat_tables([others, come.filter(pa.array(times(come, self.time) >= self._since))])
        self._version = self.table.data_version
        asked = int(near.low.min()) - self.keep if len(near) else self._since
        if (halved := newer_half(self._rows, self.time, asked=asked, bytes_max=bytes_max)) is not None:
            self._rows, self._since = halved
        if self._rows[self.time].num_chunks > CHUNKS_MAX:
            self._rows = self._rows.combine_chunks()

    def _stored(self, low: int, high: int | None, bytes_max: int) -> pa.Table:
        at = ds.field(self.time)
        where = at >= moment(low) if high is None else (at >= moment(low)) & (at <= moment(high))
        return self.table.read(self.keys, where=where, bytes_max=bytes_max)
