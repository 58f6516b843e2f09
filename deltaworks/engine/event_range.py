"""A range of event time, as Arrow and Spark ask for it; a date counts as its midnight (UTC)."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from deltaworks.engine.datasets import ds


@dataclass(frozen=True, kw_only=True)
class EventRange:
    """Event times [since, until), both aware."""

    since: datetime
    until: datetime

    def holds(self, column: str) -> ds.Expression:
        """Whether a column is in the range; null is not."""
        low, high = (pa.scalar(time, pa.timestamp("us", "UTC")) for time in (self.since, self.until))
        return (ds.field(column) >= low) & (ds.field(column) < high)

    def holds_spark(self, column: str) -> Column:
        """The same for Spark."""
        low, high = (F.expr(f"timestamp'{time.isoformat()}'") for time in (self.since, self.until))
        return (F.col(column) >= low) & (F.col(column) < high)
