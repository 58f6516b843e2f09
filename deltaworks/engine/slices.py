"""How much a table that is behind takes at once: whole ingest batches, or whole versions, up to a bound."""

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import ROW_KINDS
from deltaworks.engine.lake import OwnedTable, TooMuchError, all_there, read_commit
from deltaworks.engine.log import is_told
from deltaworks.engine.phases import phase
from deltaworks.engine.schemas import spark_schema
from deltaworks.engine.writers.writer import Input
from deltaworks.errors import LakeError

PACKED = 8
"""Parquet holds about this many times its size as Arrow: the bound on files is the bound on memory over this.

Rows that are much alike are packed closer: so what was read is measured too, before it goes to anybody else. More than
a heap holds, handed to Spark as Arrow, is out of memory in its dispatcher's thread, and the call never returns.
"""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Rows in (after, upto], as Arrow when they fit the bound, else as a Spark DataFrame.

    `expired`: so many had gone before they could be taken.
    """

    upto: int
    rows: pa.Table | DataFrame
    expired: int = 0


@phase("read")
def batches(spark: SparkSession | None, source: Input, *, after: int, bytes_max: int, last: int) -> Slice | None:
    """The next ingest batches of a bronze table beyond `after`, up to `last`; None when there are none.

    Raises LakeError where they are too large for Arrow, and there is no session.
    """
    bronze, upto = source.table, last
    if after >= upto:
        return None
    fresh = source.fresh
    if fresh is not None and fresh.after == after and fresh.upto == upto and _is_for_arrow(fresh.rows, bytes_max):
        return Slice(upto=upto, rows=fresh.rows)
    upto, size = _next_batches(bronze, after, upto, bytes_max // PACKED)
    while size <= bytes_max // PACKED:
        mine = (ds.field("_seq") > after) & (ds.field("_seq") <= upto)
        with suppress(TooMuchError):
            return Slice(upto=upto, rows=bronze.read(where=mine, bytes_max=bytes_max))
        if upto == after + 1:
            break
        upto = (after + upto) // 2
    if spark is None:
        raise LakeError(
            bronze.name, f"has {size:,} bytes that were not taken yet", "Start the app, then order it again"
        )
    rows = spark.read.format("delta").load(str(bronze.path)).where(F.col("_seq").between(after + 1, upto))
    return Slice(upto=upto, rows=rows)


@phase("read")
def versions(
    spark: SparkSession, source: Input, *, after: int, bytes_max: int, reader: str, one: bool = False
) -> Slice | None:
    """What batch commits added to a table beyond version `after`; None when nothing can have come.

    `reader`: the table that takes it. `one`: of a single version. Who has taken nothing yet gets all that is there,
    where what was added is not there any more.
    Raises LakeError for a reader of rows that gave way to others since, or whose place is not in the log any more.
    """
    table = source.table
    upto = table.data_version
    if after >= upto:
        return None
    refuse_replaced(table, after, reader=reader)
    if after == 0 and (table.entry.replaced_at or not all_there(table.path, 0, upto)):
        return Slice(upto=upto, rows=present(spark, table, bytes_max), expired=table.entry.totals.expired)
    fresh = source.fresh
    if fresh is not None and fresh.after <= after and fresh.upto == upto and _is_for_arrow(fresh.rows, bytes_max):
        return Slice(upto=upto, rows=fresh.rows, expired=_expired(table, after, upto))
    if after and not is_told(table.path, after + 1):
        finding = f"its log begins after version {after}, up to which it was taken"
        raise LakeError(table.name, finding, f'Run "deltaworks rebuild {reader}"')
    size, end = 0, after
    while end < upto and (end == after or (not one and size + table.bytes_added(end, end + 1) <= bytes_max // PACKED)):
        size += table.bytes_added(end, end + 1)
        end += 1
    while size <= bytes_max // PACKED:
        with suppress(TooMuchError):
            rows = table.read_added(after, end, bytes_max=bytes_max)
            return Slice(upto=end, rows=rows, expired=_expired(table, after, end))
        if end == after + 1:
            break
        end = (after + end) // 2
    files = table.rows_added(after, end)
    rows = spark.read.schema(spark_schema(table.schema)).parquet(*files)
    return Slice(upto=end, rows=rows, expired=_expired(table, after, end))


def _is_for_arrow(rows: pa.Table, bytes_max: int) -> bool:
    """Whether who takes up to `bytes_max` as Arrow takes these, which are there: all but who takes nothing so."""
    return bytes_max > 0 or rows.num_rows == 0


def _expired(table: OwnedTable, after: int, upto: int) -> int:
    """How many rows these versions did not bring, as they had expired when they came."""
    if not table.entry.totals.expired:  # spares the log
        return 0
    entries = (read_commit(table.path, version).entry for version in range(after + 1, upto + 1))
    return sum(entry.counts.expired for entry in entries if entry is not None and entry.kind in ROW_KINDS)


def refuse_replaced(table: OwnedTable, after: int, *, reader: str) -> None:
    """Raise LakeError if the rows of a table that `reader` took, up to version `after`, gave way to others since.

    Whoever publishes a table publishes those above it too: an order that is not done yet brings the reader's new rows.
    """
    replaced = table.entry.replaced_at
    if 0 < after < replaced:
        finding = f"what was taken of it up to version {after} gave way to other rows in version {replaced}"
        next_step = (
            f'If "deltaworks commands list" shows no publish that is under way, run "deltaworks rebuild {reader}"'
        )
        raise LakeError(table.name, finding, next_step)


@phase("read")
def present(
    spark: SparkSession, table: OwnedTable, bytes_max: int, names: list[str] | None = None
) -> pa.Table | DataFrame:
    """Columns (None: all) of the rows that are there now, as Arrow when they fit the bound, else as a DataFrame."""
    names = table.schema.names if names is None else names
    if table.bytes() <= bytes_max // PACKED:
        with suppress(TooMuchError):
            return table.read(names, bytes_max=bytes_max)
    return spark.read.format("delta").option("versionAsOf", table.version).load(str(table.path)).select(*names)


def _next_batches(bronze: OwnedTable, after: int, last: int, size_max: int) -> tuple[int, int]:
    """Last ingest batch of the next slice, `last` at most, and the bytes of the files that have its rows."""
    actions = pa.table(bronze.delta.get_add_actions(flatten=True)).select(["min._seq", "max._seq", "size_bytes"])
    files = sorted((low, high, size) for low, high, size in zip(*(c.to_pylist() for c in actions), strict=True))
    upto, size = after, 0
    for low, high, file_size in files:
        if high <= after or low > last:
            continue
        if low > upto > after and size + file_size > size_max:
            return upto, size
        upto, size = min(max(upto, high), last), size + file_size
    return last, size  # the last ones may have brought no row
