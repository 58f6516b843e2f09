"""Bring a small result to the driver as Arrow; say so when it is too large."""

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from deltaworks.engine.phases import Phase, phase
from deltaworks.engine.spark.internals import unchecked_arrow


def as_arrow(rows: DataFrame) -> pa.Table:
    """The rows as Arrow, also where a column has nulls of which Spark says that it has none.

    Of `array(1)[place]` it says so, also for a place that is null; then `toArrow` raises.
    """
    try:
        return rows.toArrow()
    except ValueError as error:
        if "non-nullable" not in str(error):
            raise
        return unchecked_arrow(rows)


def collected(rows: DataFrame, *, during: Phase = "compute") -> pa.Table | None:
    """The rows as Arrow, or None when they exceed `spark.driver.maxResultSize` (Spark then ends the job).

    `during`: what this is to the turn that is measured, as Spark does only now what was asked of it before.
    """
    try:
        with phase(during):
            return as_arrow(rows)
    except Exception as error:  # Py4J wraps the JVM's exception in types that depend on where it was raised
        if _too_large(error):
            return None
        raise


def _too_large(error: BaseException) -> bool:
    text = str(error) if not isinstance(error, PySparkException) else f"{error.getMessage()} {error}"
    return "maxResultSize" in text
