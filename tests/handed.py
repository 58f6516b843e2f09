"""Micro-batches and frames without Spark: all that the Arrow path asks of it."""

from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql.types import StructType


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


class Written:
    """Rows that Spark appends to a Delta table, as delta-rs does it; a txn that is there it leaves out, silently.

    `fails`: what is raised once the commit is there.
    """

    sparkSession = None  # noqa: N815  # Spark's name
    schema = StructType([])
    """Of its columns nothing is asked."""

    def __init__(self, rows: pa.Table, *, fails: Exception | None = None) -> None:
        """Be about to be written."""
        self.rows, self.fails, self.write = rows, fails, self
        self.options: dict[str, Any] = {}

    def isEmpty(self) -> bool:  # noqa: N802  # Spark's name
        """As Spark's."""
        return not self.rows.num_rows

    def select(self, *names: str) -> "Written":
        """As Spark's: these columns."""
        self.rows = self.rows.select(names)
        return self

    def format(self, _name: str) -> "Written":
        """As Spark's: it is Delta."""
        return self

    def mode(self, _name: str) -> "Written":
        """As Spark's: it is an append."""
        return self

    def option(self, name: str, value: Any) -> "Written":
        """As Spark's."""
        self.options[name] = value
        return self

    def save(self, path: str) -> None:
        """As Spark's."""
        app, version, entry = (self.options[name] for name in ("txnAppId", "txnVersion", "userMetadata"))
        table = deltalake.DeltaTable(path)
        known = table.transaction_version(app)
        if known is None or known < version:
            said = deltalake.CommitProperties(
                custom_metadata={"userMetadata": entry}, app_transactions=[deltalake.Transaction(app, version)]
            )
            deltalake.write_deltalake(table, self.rows, mode="append", commit_properties=said)
        if self.fails is not None:
            raise self.fails
