"""States that come as JSON: where each stands among the others of its key.

A database tells the place of each change in its log. A state tells nothing, so it is placed by its arrival: by the
ingest batch that brought it to bronze, which it keeps for good; within one by the time that the broker gave it; and
within one partition always by its offset, whatever the clocks say. So a key that moves to another partition goes on
there, and whoever takes bronze again, in whatever slices, finds the same order.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.engine.commit import Rows
from deltaworks.engine.parsing.debezium import BY_ITS_LOG
from deltaworks.engine.parsing.sheet import sequence
from deltaworks.engine.writers.partial import keyed

_WIDTHS = {"_seq": 16, "_clock": 20, "_partition": 10, "_offset": 20}
"""Of the parts of an arrival, in their order: as many digits as their types have, of the ingest batch all it ever has.

With what comes before it that is `latest.SURE` characters: a batch by arrival is known to be newer by them.
"""
_GROUP = ("_seq", "_partition")


def place(source: str) -> str:
    """How a row is placed, by its sequence: by its arrival, by its database's log, or as older versions did it."""
    first = source.partition("/")[0]
    return first if first.startswith("by ") else BY_ITS_LOG if first.isdigit() else "by partition"


@contextmanager
def placed(parsed: Rows, keys: Sequence[str]) -> Iterator[Rows]:
    """The states and deletions among parsed rows, whole ingest batches of them, with their arrival in `_source`."""
    if isinstance(parsed, pa.Table):
        yield _placed_arrow(parsed.filter(pc.is_in(parsed["_kind"], pa.array(["row", "delete"]))), keys)
        return
    made = _placed_spark(parsed.where(F.col("_kind").isin("row", "delete")), keys).persist(StorageLevel.DISK_ONLY)
    try:
        yield made
    finally:
        made.unpersist()


def _placed_arrow(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    rows = rows.combine_chunks().sort_by([(name, "ascending") for name in (*_GROUP, "_offset")])
    parts = {"_clock": _clock(rows, keys)} | {name: rows[name] for name in _WIDTHS if name != "_clock"}
    arrival = sequence(*((parts[name], width) for name, width in _WIDTHS.items()))
    source = pc.binary_join_element_wise(rows["_source"], arrival, "/")
    return rows.set_column(rows.schema.get_field_index("_source"), "_source", source)


def _clock(rows: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray | pa.Array:
    """The broker's time of each row; of rows of one key and partition it never falls. They are in the order above."""
    micros = pc.max_element_wise(rows["_timestamp"].cast(pa.int64()), 0)  # a record may lack its time: it has -1
    if _rises(rows, micros):
        return micros
    highest: dict[tuple[object, ...], int] = {}
    found = []
    groups = zip(*(rows[name].to_pylist() for name in _GROUP), keyed(rows, keys), strict=True)
    for group, at in zip(groups, micros.to_pylist(), strict=True):
        highest[group] = max(at, highest.get(group, at))
        found.append(highest[group])
    return pa.array(found, pa.int64())


def _rises(rows: pa.Table, micros: pa.ChunkedArray) -> bool:
    """Whether no time is before that of the row before it in its partition, as with a broker that gives the times."""
    count = rows.num_rows
    if count < 2:
        return True
    same = [pc.equal(rows[name].slice(1), rows[name].slice(0, count - 1)) for name in _GROUP]
    falls = pc.less(micros.slice(1), micros.slice(0, count - 1))
    return not pc.any(pc.and_(falls, pc.and_(*same))).as_py()


def _placed_spark(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The same for rows that are too many to collect."""
    of_key = Window.partitionBy(*keys, *_GROUP).orderBy("_offset").rowsBetween(Window.unboundedPreceding, 0)
    micros = F.greatest(F.unix_micros("_timestamp"), F.lit(0))
    rows = rows.repartition(*keys).withColumn(
        "_clock", F.max(micros).over(of_key)
    )  # for what is asked of keys next too
    digits = [F.lpad(F.col(name).cast("string"), width, "0") for name, width in _WIDTHS.items()]
    return rows.withColumn("_source", F.concat_ws("/", "_source", *digits)).drop("_clock")
