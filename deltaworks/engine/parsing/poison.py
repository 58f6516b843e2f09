"""Rows that crash the parser: found by halves and refused with the error's name, so that the others go on.

The parser raises nothing about data, as far as anybody knows. Should a row make it raise all the same, one row must not
hold up a table for good. An error that many rows meet is a bug that somebody has to mend: the table is suspended.
"""

import logging
from collections.abc import Callable
from traceback import extract_tb

import pyarrow as pa

from deltaworks.engine.halves import TooManyError, raising
from deltaworks.engine.parsing.bronze import Chunk
from deltaworks.errors import LakeError

POISON_MAX = 16
"""More rows than this in a chunk are no poison, but a bug that hits everything."""
_BUG = "The rows are in bronze; this is a bug of the parser: please report it"
Attempt = Callable[[Chunk], pa.RecordBatch]
Refuse = Callable[[Chunk, str], pa.RecordBatch]
log = logging.getLogger("deltaworks.poison")


def isolated(chunk: Chunk, attempt: Attempt, refuse: Refuse) -> pa.RecordBatch:
    """The chunk's rows, one for one and in order: those that raise alone as `refuse` makes them.

    Raises LakeError if more than `POISON_MAX` rows raise.
    """
    parts: dict[int, pa.RecordBatch] = {}

    def some(low: int, high: int) -> None:
        parts[low] = attempt(Chunk(chunk.rows.slice(low, high - low)))

    try:
        found = raising(len(chunk), some, ours=_is_of_rows, found_max=POISON_MAX)
    except TooManyError as stopped:
        at = min(stopped.found)
        finding = f"crashes the parser: {_named(stopped.found[at])}, as more than {POISON_MAX} rows near it do"
        # without what it came from: its own text may quote a row
        raise LakeError(_place(chunk, at), finding, _BUG) from None
    for at, raised in found.items():
        log.error("%s crashes the parser: %s", _place(chunk, at), _named(raised))
        parts[at] = refuse(Chunk(chunk.rows.slice(at, 1)), f"crashes the parser: {type(raised).__name__}")
    return pa.Table.from_batches([parts[at] for at in sorted(parts)]).combine_chunks().to_batches()[0]


def _place(chunk: Chunk, at: int) -> str:
    row = Chunk(chunk.rows.slice(at, 1))
    return "/".join(str(row.column(name)[0]) for name in ("topic", "partition", "offset"))


def _named(error: Exception) -> str:
    """An error by its name and where it was raised: its own text may quote the row."""
    where = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {where.filename}:{where.lineno}"


def _is_of_rows(error: Exception) -> bool:
    """Whatever it is, only these rows have it; but the machine's fault is nobody's."""
    return not isinstance(error, MemoryError | OSError)
