"""Rows that crash the parser: found by halves and refused with the error's name, so that the others go on.

The parser raises nothing about data, as far as anybody knows. Should a row make it raise all the same, one row must not
hold up a table for good. An error that many rows meet is a bug that somebody has to mend: it is raised.
"""

import logging
from collections.abc import Callable
from traceback import extract_tb

import pyarrow as pa

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
    found = 0

    def parts(some: Chunk, raised: Exception) -> list[pa.RecordBatch]:
        nonlocal found
        if len(some) > 1:
            half = len(some) // 2
            return [part for rows in (some.rows.slice(0, half), some.rows.slice(half)) for part in tried(Chunk(rows))]
        found += 1
        if found > POISON_MAX:
            raise error
        name = type(raised).__name__
        at = extract_tb(raised.__traceback__)[-1]
        topic, partition, offset = (some.column(name)[0] for name in ("topic", "partition", "offset"))
        # the error's own text may quote the row
        log.error("%s/%s/%s crashes the parser: %s in %s:%s", topic, partition, offset, name, at.filename, at.lineno)
        return [refuse(some, f"crashes the parser: {name}")]

    def tried(some: Chunk) -> list[pa.RecordBatch]:
        try:
            return [attempt(some)]
        except (MemoryError, OSError):
            raise
        except Exception as raised:  # noqa: BLE001  # whatever it is, only these rows have it
            return parts(some, raised)

    return pa.Table.from_batches(parts(chunk, error)).combine_chunks().to_batches()[0]
