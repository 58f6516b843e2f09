"""Event times that are believed: there, and not further ahead of their arrival than a clock may be wrong."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

_MICROS = pa.timestamp("us", "UTC")


@dataclass(frozen=True, kw_only=True)
class Timely:
    """The column that says when an event happened, and how far ahead of the broker's time it may be."""

    column: str
    future_max: timedelta

    def refused(self, times: pa.Array, arrived: pa.Array) -> Iterator[tuple[int, str]]:
        """Places of the times that are not believed, each with the reason.

        Compared with the broker's time, which bronze keeps, so that a replay says the same.
        """
        if times.null_count:
            yield from ((at, "null") for at in pc.indices_nonzero(pc.is_null(times)).to_pylist())
        ahead = pc.subtract(times.cast(_MICROS).cast(pa.int64()), arrived.cast(pa.int64()))
        too_far = pc.greater(ahead, self.future_max // timedelta(microseconds=1))
        yield from ((at, "future") for at in pc.indices_nonzero(pc.fill_null(too_far, False)).to_pylist())
