"""Rows that crash the parser: found by halves and refused with the error's name, so that the others go on.

The parser raises nothing about data, as far as anybody knows. Should a row make it raise all the same, one row must not
hold up a table for good. An error that many rows meet is a bug that somebody has to mend: it is raised.
"""

import logging
from collections.abc import Callable
from traceback import extract_tb

import pyarrow as pa

from deltaworks.engine.halves import TooManyError, raising
from deltaworks.engine.parsing.bronze import Chunk

POISON_MAX = 16
"""More rows than this in a chunk are no poison, but a bug that hits everything."""
Attempt = Callable[[Chunk], pa.RecordBatch]
Refuse = Callable[[Chunk, str], pa.RecordBatch]
log = logging.getLogger("deltaworks.poison")


def isolated(chunk: Chunk, attempt: Attempt, refuse: Refuse, error: Exception) -> pa.RecordBatch:
    """The chunk's rows, one for one and in order: those that raise alone as `refuse` makes them.

    `error` is what the whole chunk raised. Raises it again if more than `POISON_MAX` rows do.
    """
    parts: dict[int, pa.RecordBatch] = {}

    def some(low: int, high: int) -> None:
        parts[low] = attempt(Chunk(chunk.rows.slice(low, high - low)))

    try:
        found = raising(len(chunk), some, ours=_is_of_rows, found_max=POISON_MAX)
    except TooManyError:
        raise error from None
    for at, raised in found.items():
        row = Chunk(chunk.rows.slice(at, 1))
        name = type(raised).__name__
        where = extract_tb(raised.__traceback__)[-1]
        topic, partition, offset = (row.column(name)[0] for name in ("topic", "partition", "offset"))
        # the error's own text may quote the row
        log.error(
            "%s/%s/%s crashes the parser: %s in %s:%s", topic, partition, offset, name, where.filename, where.lineno
        )
        parts[at] = refuse(row, f"crashes the parser: {name}")
    return pa.Table.from_batches([parts[at] for at in sorted(parts)]).combine_chunks().to_batches()[0]


def _is_of_rows(error: Exception) -> bool:
    """Whatever it is, only these rows have it; but the machine's fault is nobody's."""
    return not isinstance(error, MemoryError | OSError)
