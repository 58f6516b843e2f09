"""Declared columns as Arrow and Spark types."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from deltaworks.engine.own_columns import OWN
from deltaworks.engine.parse import arrow_type
from deltaworks.words.keeping import KeptAs
from deltaworks.words.table import Column


def arrow_schema(columns: tuple[Column, ...], *, system: pa.Schema | None = None) -> pa.Schema:
    """The columns of a table as Arrow fields, followed by the engine's own."""
    declared = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    return pa.schema([*declared, *(system or [])])


def own_schema(kept_as: type[KeptAs]) -> pa.Schema:
    """The engine's own columns of tables that are kept like this."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in OWN.get(kept_as, {}).items()])


def spark_schema(schema: pa.Schema) -> StructType:
    """The same schema for Spark."""
    return from_arrow_schema(schema)
