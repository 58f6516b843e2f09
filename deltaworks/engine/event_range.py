"""Ranges of event time, as Arrow and Spark ask for them; a date counts as its midnight (UTC)."""

import operator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Self

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from deltaworks.engine.datasets import ds

Part = tuple[datetime, datetime]
"""From when (with it) until when (without it), both aware."""


@dataclass(frozen=True, kw_only=True)
class EventRange:
    """Event times of one part or of several, in order, of which none touches the next."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, *parts: Part) -> Self:
        """The times of these parts; those that touch or overlap become one."""
        found: list[Part] = []
        for since, until in sorted(parts):
            if found and since <= found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], until))
            else:
                found.append((since, until))
        return cls(parts=tuple(found))

    @property
    def since(self) -> datetime:
        """The first time of all."""
        return self.parts[0][0]

    def widened(self, *, before: timedelta, after: timedelta) -> Self:
        """These times, and so much before each part and after it."""
        return self.of(*((since - before, until + after) for since, until in self.parts))

    def holds(self, column: str) -> ds.Expression:
        """Whether a column is in one of the parts; null is not."""
        kind = pa.timestamp("us", "UTC")
        return reduce(
            operator.or_,
            (
                (ds.field(column) >= pa.scalar(since, kind)) & (ds.field(column) < pa.scalar(until, kind))
                for since, until in self.parts
            ),
        )

    def holds_spark(self, column: str) -> Column:
        """The same for Spark."""
        return reduce(
            operator.or_,
            (
                (F.col(column) >= F.expr(f"timestamp'{since.isoformat()}'"))
                & (F.col(column) < F.expr(f"timestamp'{until.isoformat()}'"))
                for since, until in self.parts
            ),
        )
