"""Rows that have left their keys for others: an update says so, and its row is gone under those of before.

Such a change does two things, so it becomes two rows: the one that is there now, and one of kind `left` with the keys
of before, which ends what was there as a deletion in the change's place would. The ledger counts the first one only.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltaworks.engine.commit import Rows
from deltaworks.engine.parsing.sheet import LEFT

ENDS = ("delete", "left")
"""The kinds of rows that end the row of their keys."""
KEYED = ("row", *ENDS)
"""The kinds of rows that are about the row of their keys."""
_OF_ROWS = ("_sent", "_floor")


def with_left(parsed: Rows, keys: Sequence[str]) -> Rows:
    """The parsed rows, and one for each keys that a row has left."""
    return _with_arrow(parsed, keys) if isinstance(parsed, pa.Table) else _with_spark(parsed, keys)


def _with_arrow(parsed: pa.Table, keys: Sequence[str]) -> pa.Table:
    left = parsed.filter(pc.and_(pc.equal(parsed["_kind"], "row"), pc.is_valid(parsed[LEFT])))
    if not left.num_rows:
        return parsed
    was = left[LEFT].combine_chunks()
    columns = {key: pc.struct_field(was, key) for key in keys}
    columns |= {"_kind": pa.array(["left"] * left.num_rows, pa.string())}
    columns |= {name: pa.nulls(left.num_rows, left.schema.field(name).type) for name in _OF_ROWS}
    for name, column in columns.items():
        left = left.set_column(left.schema.get_field_index(name), name, column)
    return pa.concat_tables([parsed, left])


def _with_spark(parsed: DataFrame, keys: Sequence[str]) -> DataFrame:
    twice = (F.col("_kind") == "row") & F.col(LEFT).isNotNull()
    both, one = F.array(F.lit(False), F.lit(True)), F.array(F.lit(False))
    rows = parsed.select("*", F.explode(F.when(twice, both).otherwise(one)).alias("_is_left"))
    columns = {key: F.when(F.col("_is_left"), F.col(LEFT).getField(key)).otherwise(F.col(key)) for key in keys}
    columns |= {"_kind": F.when(F.col("_is_left"), "left").otherwise(F.col("_kind"))}
    columns |= {name: F.when(~F.col("_is_left"), F.col(name)) for name in _OF_ROWS}
    return rows.withColumns(columns).drop("_is_left")
