"""States that come as JSON: where each stands among the others of its key.

A database tells the place of each change in its log. A state tells nothing, so it is placed by its arrival: by the
ingest batch that brought it to bronze, which it keeps for good; within one by the time that the broker gave it; and
within one partition always by its offset, whatever the clocks say. So a key that moves to another partition goes on
there, and whoever takes bronze again, in whatever slices, finds the same order. Where `by=` names a column, its value
comes first, and the arrival tells equal ones apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.engine.commit import Rows
from deltaworks.engine.parsing.debezium import BY_ITS_LOG
from deltaworks.engine.parsing.sheet import sequence
from deltaworks.engine.writers.partial import keyed

Key = tuple[Any, ...]
_WIDTHS = {"_seq": 16, "_clock": 20, "_partition": 10, "_offset": 20}
"""Of the parts of an arrival, in their order: as many digits as their types have, of the ingest batch all it ever has.

With what comes before it that is 32 characters, as many as Spark's statistics have of a text: by them a batch without
`by=` is known to be newer than all that is there.
"""
ARRIVAL = sum(_WIDTHS.values()) + len(_WIDTHS) - 1
"""Characters that an arrival has, at the end of a sequence."""
_GROUP = ("_seq", "_partition")


def place(source: str) -> str:
    """How a row is placed, by its sequence: by its arrival, by a column, by a log, or as older versions did it."""
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


def arrival(source: str) -> str:
    """When a state or deletion arrived, by its sequence; "" for none."""
    return source[-ARRIVAL:]


def highest_arrow(
    rows: pa.Table, keys: Sequence[str], *, stored: Mapping[Key, str], ended: Mapping[Key, str]
) -> tuple[list[int], list[int]]:
    """Where the value of a column places states: the places of the rows that are merged, and of ends to be remembered.

    A deletion has no such value. It ends what arrived before it; of the states that arrived after the last one the
    highest counts. `stored`, `ended`: by key the sequence of the row that is there, and of the last end remembered.
    """
    found: dict[Key, list[tuple[str, str, int]]] = {}
    each = zip(keyed(rows, keys), rows["_kind"].to_pylist(), rows["_source"].to_pylist(), strict=True)
    for at, (key, kind, source) in enumerate(each):
        found.setdefault(key, []).append((kind, source, at))
    merged, remembered = [], []
    for key, mine in found.items():
        known = arrival(ended.get(key, ""))
        last, end = max(((arrival(source), at) for kind, source, at in mine if kind == "delete"), default=("", -1))
        cut = max(known, last)
        alive = [(source, at) for kind, source, at in mine if kind == "row" and arrival(source) > cut]
        there = stored.get(key, "")
        there = there if arrival(there) > cut else ""
        best, at = max(alive, default=("", -1))
        if last > known:
            remembered.append(end)
        if best > there:
            merged.append(at)
        elif not there and last > known:
            merged.append(end)
    return merged, remembered


def highest_spark(rows: DataFrame, keys: Sequence[str], *, stored: DataFrame, ended: DataFrame) -> DataFrame:
    """The same for rows that are too many to collect: with `_merged` and `_remembered`, both true or false.

    `stored` has by key `_there`, `ended` has `_ended`: the sequences above.
    """
    rows = rows.join(ended, list(keys), "left").join(stored, list(keys), "left")
    of_key, is_end = Window.partitionBy(*keys), F.col("_kind") == "delete"

    def arrived(column: str) -> Column:
        return F.coalesce(F.substring(column, -ARRIVAL, ARRIVAL), F.lit(""))

    rows = rows.withColumn("_arrival", arrived("_source")).withColumn("_known", arrived("_ended"))
    last = F.coalesce(F.max(F.when(is_end, F.col("_arrival"))).over(of_key), F.lit(""))
    rows = rows.withColumn("_last", last).withColumn("_cut", F.greatest("_last", "_known"))
    rows = rows.withColumn("_there", F.when(arrived("_there") > F.col("_cut"), F.col("_there")).otherwise(F.lit("")))
    alive = F.when(~is_end & (F.col("_arrival") > F.col("_cut")), F.col("_source"))
    rows = rows.withColumn("_best", F.coalesce(F.max(alive).over(of_key), F.lit("")))
    ends = is_end & (F.col("_arrival") == F.col("_last")) & (F.col("_last") > F.col("_known"))
    wins = ~is_end & (F.col("_source") == F.col("_best")) & (F.col("_best") > F.col("_there"))
    leaves = ends & (F.col("_best") == "") & (F.col("_there") == "")
    return rows.withColumn("_merged", wins | leaves).withColumn("_remembered", ends)
