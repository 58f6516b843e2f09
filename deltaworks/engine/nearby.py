"""The rows of an append table near given stretches of event time: out of memory as far back as it reaches, else read.

Recent rows are asked for with every batch. They are kept as they were taken, so a batch in steady state opens no file;
what memory lacks after a start, or further back, comes from the table. Losing the memory changes nothing.
"""

from collections.abc import Callable, Collection
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.datasets import ds
from deltaworks.engine.lake import OwnedTable, TooMuchError
from deltaworks.engine.phases import phase
from deltaworks.engine.stretches import Stretches, times
from deltaworks.engine.writers.late_rows import LateRows

SPANS_LISTED_MAX = 50
"""More spans than this are read as one: each is a condition on every row."""
CHUNKS_MAX = 100
"""Every batch is a chunk of memory, and each chunk costs a little."""
REMEMBERED_BYTES = 4 * 2**20
"""So much of memory is kept though no row in time asks for it any more: each batch looks through all of it."""
_PACKED = 8
"""Parquet holds about this many times its size as Arrow."""


class Nearby:
    """Rows of one input, as a table with these columns sees them."""

    def __init__(
        self,
        table: OwnedTable,
        *,
        time: str,
        columns: list[str],
        late_max: int | None,
        keep: int,
        late: LateRows | None = None,
        unfit: Callable[[], Collection[str]] = tuple,
        narrow: bool = False,
    ) -> None:
        """Know nothing yet; memory begins `keep` microseconds before what is asked for first.

        Rows that are later than `late_max` microseconds are left out (None: none are), unless they are used in `late`;
        so are those whose coordinates are in `unfit`. `narrow`: so few of the columns are asked for that the size of
        the files does not tell how much they are.
        """
        self.narrow = narrow
        self.table, self.time, self.columns, self.late_max, self.keep = table, time, columns, late_max, keep
        self.late, self.unfit = late, unfit
        self.forget()

    def forget(self) -> None:
        """Read from the table again at the next batch."""
        self._rows: pa.Table | None = None
        self._since = self._upto = 0

    def begin(self, new: pa.Table) -> None:
        """A batch begins that brings these rows; those of earlier ingest batches are not looked for in memory."""
        if self._rows is not None and new.num_rows and pc.min(new["_seq"]).as_py() <= self._upto:
            self.forget()  # they were refused then, or came too late, or belong to a batch that failed

    @phase("read")
    def rows(self, near: Stretches, new: pa.Table, *, seq: int, bytes_max: int) -> pa.Table:
        """The rows in the stretches, of the ingest batches up to `seq`; `new` are those of the batch in hand.

        Raises TooMuchError if more than about `bytes_max` bytes would have to be read into memory.
        """
        if not len(near):
            return self._empty()
        oldest = int(near.low.min())
        if self._rows is None:
            since = oldest - self.keep
            self._rows = self._stored([(since, None)], seq=seq, bytes_max=bytes_max)
            self._since, self._upto = since, seq
        else:
            self._add(new, seq)
        found = self._rows.filter(near.hold(self._rows, self.time))
        far = near.chosen(near.low < self._since)
        if len(far):
            before = self._stored(_bounded(far), seq=seq, bytes_max=bytes_max)
            known = pa.array(times(before, self.time) >= self._since)
            before = before.filter(pc.invert(known))
            found = pa.concat_tables([before.filter(far.hold(before, self.time)), found])
        if (halved := newer_half(self._rows, self.time, asked=oldest - self.keep, bytes_max=bytes_max)) is not None:
            self._rows, self._since = halved
        return found.select(self.columns)

    def _add(self, new: pa.Table, seq: int) -> None:
        """Take up the rows of the batch in hand that are not there yet."""
        assert self._rows is not None
        fresh = new.select([*self.columns, "_seq"]).filter(pc.greater(new["_seq"], self._upto))
        fresh = fresh.filter(pa.array(times(fresh, self.time) >= self._since))
        self._rows = pa.concat_tables([self._rows, fresh])
        self._upto = max(self._upto, seq)
        if self._rows[self.time].num_chunks > CHUNKS_MAX:
            self._rows = self._rows.combine_chunks()

    def _stored(self, spans: list[tuple[int, int | None]], *, seq: int, bytes_max: int) -> pa.Table:
        """Rows of the table in the spans, up to the ingest batch."""
        field = ds.field(self.time)
        low, highs = spans[0][0], [high for _, high in spans]
        high = None if None in highs else max(h for h in highs if h is not None)
        if not self.narrow and _bytes_between(self.table, self.time, low, high) > bytes_max:
            raise TooMuchError(bytes_max)
        wanted = [
            field >= moment(low) if high is None else (field >= moment(low)) & (field <= moment(high))
            for low, high in spans
        ]
        where = reduce(lambda one, other: one | other, wanted) & (ds.field("_seq") <= seq)
        if self.late_max is not None:
            where &= ds.field("_late_by") <= self.late_max
        if unfit := self.unfit():
            where &= ~ds.field("_source").isin(sorted(unfit))
        rows = self.table.read([*self.columns, "_seq"], where=where, bytes_max=bytes_max)
        if self.late is not None:
            late = self.late.used(self.columns, where=reduce(lambda one, other: one | other, wanted))
            rows = pa.concat_tables([rows, late.append_column("_seq", pa.array([0] * late.num_rows, pa.int64()))])
        return rows

    def _empty(self) -> pa.Table:
        return pa.schema([self.table.schema.field(name) for name in self.columns]).empty_table()


def _bounded(far: Stretches) -> list[tuple[int, int | None]]:
    spans: list[tuple[int, int | None]] = list(far.spans())
    if len(spans) > SPANS_LISTED_MAX:
        return [(spans[0][0], int(far.high.max()))]
    return spans


def newer_half(rows: pa.Table, time: str, *, asked: int, bytes_max: int) -> tuple[pa.Table, int] | None:
    """The later half of rows that are too many, and the event time from which on it has them all; None if all stay.

    More than `bytes_max` bytes are too many, and much if nobody asks for the older half any more: rows from `asked` on
    are asked for. Times are microseconds since 1970.
    """
    if rows.nbytes <= min(REMEMBERED_BYTES, bytes_max):
        return None
    at = times(rows, time)
    since = int(np.median(at)) + 1
    if rows.nbytes <= bytes_max and since > asked:
        return None
    return rows.filter(pa.array(at >= since)).combine_chunks(), since


def moment(time: int) -> pa.Scalar:
    """Microseconds since 1970 as a value that a timestamp column is compared with."""
    return pa.scalar(time, pa.timestamp("us", "UTC"))


def _bytes_between(table: OwnedTable, column: str, low: int, high: int | None) -> int:
    """About how many bytes of memory the rows between two times need, if those of a file are spread evenly."""
    actions = pa.table(table.delta.get_add_actions(flatten=True))
    sizes = actions["size_bytes"].to_numpy().astype(float)
    if f"min.{column}" not in actions.column_names:
        return int(sizes.sum()) * _PACKED
    ends = [actions[f"{which}.{column}"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for which in ("min", "max")]
    first = pc.fill_null(ends[0], low).to_numpy().astype(float)  # a file without statistics counts whole
    last = pc.fill_null(ends[1], low).to_numpy().astype(float) + 1
    upper = float("inf") if high is None else float(high) + 1
    inside = np.clip(np.minimum(last, upper) - np.maximum(first, low), 0, None) / (last - first)
    return int((sizes * inside).sum()) * _PACKED
