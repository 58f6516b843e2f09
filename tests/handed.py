"""Micro-batches and frames without Spark: all that the Arrow path asks of it."""

import pyarrow as pa


class Handed:
    """A micro-batch that is small enough to be collected."""

    sparkSession = None  # noqa: N815  # Spark's name

    def __init__(self, rows: pa.Table) -> None:
        """Hand on these rows."""
        self.rows = rows

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        """As Spark's."""
        return self.rows

    def coalesce(self, _parts: int) -> "Handed":
        """As Spark's: they are one part."""
        return self


class Hand:
    """What makes micro-batches. It reads nothing."""

    def createDataFrame(self, rows: pa.Table) -> Handed:  # noqa: N802  # Spark's name
        """As Spark's."""
        return Handed(rows)
