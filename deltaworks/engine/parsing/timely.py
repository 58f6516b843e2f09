"""Event times that are taken: there, not further ahead of their arrival than a clock may be wrong, not expired."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

_MICROS = pa.timestamp("us", "UTC")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class Timely:
    """The column that says when an event happened, how far ahead of the broker's time it may be, and how far behind."""

    column: str
    future_max: timedelta
    past_max: timedelta | None = None

    def refused(self, times: pa.Array, arrived: pa.Array) -> Iterator[tuple[int, str]]:
        """Places of the times that are not taken, each with the reason.

        Compared with the broker's time, which bronze keeps, so that a replay says the same.
        """
        if times.null_count:
            yield from ((at, "null") for at in pc.indices_nonzero(pc.is_null(times)).to_pylist())
        ahead = pc.subtract(times.cast(_MICROS).cast(pa.int64()), arrived.cast(pa.int64()))
        too_far = pc.greater(ahead, self.future_max // _MICROSECOND)
        yield from ((at, "future") for at in pc.indices_nonzero(pc.fill_null(too_far, False)).to_pylist())
        if self.past_max is not None:
            too_old = pc.less(ahead, -(self.past_max // _MICROSECOND))
            yield from ((at, "expired") for at in pc.indices_nonzero(pc.fill_null(too_old, False)).to_pylist())
