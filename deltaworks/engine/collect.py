"""Bring a small result to the driver as Arrow; say so when it is too large."""

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame


def collected(rows: DataFrame) -> pa.Table | None:
    """The rows as Arrow, or None when they exceed `spark.driver.maxResultSize` (Spark then ends the job)."""
    try:
        return rows.toArrow()
    except Exception as error:  # Py4J wraps the JVM's exception in types that depend on where it was raised
        if _too_large(error):
            return None
        raise


def _too_large(error: BaseException) -> bool:
    text = str(error) if not isinstance(error, PySparkException) else f"{error.getMessage()} {error}"
    return "maxResultSize" in text
