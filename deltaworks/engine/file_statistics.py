"""Which columns files have statistics of: by a lowest and highest value readers leave files out.

Not of doubles. JSON, which a log is written in, has no infinity: delta-rs writes null, and then no row of the file
fulfils any condition on the column. NaN is in no statistics, so a file that has it is left out where NaN is asked for,
or what is greater than a number, which NaN is in DuckDB and Spark.
"""

from typing import TypedDict

import pyarrow as pa
from deltalake import ColumnProperties, WriterProperties

PROPERTY = "delta.dataSkippingStatsColumns"


def told_by(schema: pa.Schema, parts_by: list[str]) -> dict[str, str]:
    """The property of a table whose files tell only of other columns than doubles; none where there is no double."""
    if not _doubles(schema):
        return {}
    without = [field for field in schema if pa.types.is_floating(field.type) or pa.types.is_binary(field.type)]
    untold = {*(field.name for field in without), *parts_by}  # of a partition the log itself tells
    return {PROPERTY: ",".join(name for name in schema.names if name not in untold)}


class Written(TypedDict, total=False):
    """How delta-rs is to write files; where nothing is said, as it does by itself."""

    writer_properties: WriterProperties


def written(schema: pa.Schema) -> Written:
    """How files of this schema tell nothing of doubles."""
    untold = {name: ColumnProperties(statistics_enabled="NONE") for name in _doubles(schema)}
    # the compression that it has by itself, but not where properties are given
    return {"writer_properties": WriterProperties(compression="SNAPPY", column_properties=untold)} if untold else {}


def _doubles(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if pa.types.is_floating(field.type)]
