"""What every writer has in common: its table, its inputs, how far it has come, how it leaves an entry."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry, Position
from deltaworks.engine.lake import OwnedTable


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """Rows that this process has just committed, still in memory: those in (after, upto]."""

    after: int
    upto: int
    rows: pa.Table


@dataclass(kw_only=True)
class Input:
    """A table that others read, with its fresh rows if it has any."""

    table: OwnedTable
    fresh: Fresh | None = None


@dataclass(kw_only=True)
class Turn:
    """What one table did in one turn."""

    table: str
    counts: Counts = field(default_factory=Counts)
    more: bool = False


class Writer(Protocol):
    """Takes what its inputs have beyond its position, one bounded slice per turn."""

    declared: Declared
    table: OwnedTable

    def behind(self) -> bool:
        """Whether the inputs have rows that this table has not taken."""
        ...

    def take(self, spark: SparkSession, committer: Committer) -> Turn | None:
        """Take one slice and commit it; None when there was nothing to take."""
        ...

    def settle(self, committer: Committer) -> None:
        """Commit a position that is only remembered, before the driver stops."""
        ...


class Progress:
    """A table's place among its inputs, kept in the entry and, between commits, in memory."""

    def __init__(self, table: OwnedTable, *, code: str) -> None:
        """Start from what the table's last entry says."""
        self.table, self.code = table, code
        self.position: Position = table.entry.position
        self.ingest_seq = table.entry.ingest_seq
        self.pending = Counts()
        self.unsettled = False
        """Whether the remembered position is ahead of the committed one."""

    def entry(self, counts: Counts, *, low: Any = None, high: Any = None) -> Entry:
        """The entry of a batch: this position, these counts and those remembered since the last commit."""
        return self.table.entry.follow(
            "batch",
            counts=self.pending + counts,
            position=self.position,
            ingest_seq=self.ingest_seq,
            event_low=_text(low),
            event_high=_higher(self.table.entry.event_high, _text(high)),
            code=self.code,
        )

    def committed(self) -> None:
        """Nothing is pending any more."""
        self.pending, self.unsettled = Counts(), False

    def remember(self, counts: Counts) -> None:
        """Move on without a commit: the batch had no row for this table."""
        self.pending += counts
        self.unsettled = True

    def over_bronze(self, bronze: str, upto: int) -> None:
        """All ingest batches up to this one are taken."""
        self.position = replace(self.position, batches={**self.position.batches, bronze: upto})
        self.ingest_seq = upto

    def over_tables(self, versions: Mapping[str, int]) -> None:
        """The inputs are taken up to these versions."""
        self.position = replace(self.position, versions={**self.position.versions, **versions})


def code_of(declared: Declared) -> str:
    """Short hash of the table's code: which version of it judged a row."""
    digest = hashlib.sha256()
    for file in sorted(declared.folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def span(rows: pa.Table, column: str | None) -> tuple[Any, Any]:
    """Lowest and highest value of a column, None where there is none."""
    if column is None or column not in rows.column_names or rows.num_rows == 0:
        return None, None
    both = pc.min_max(rows[column]).as_py()
    return both["min"], both["max"]


def frame(spark: SparkSession, rows: pa.Table | DataFrame) -> DataFrame:
    """Rows as a batch DataFrame of this session."""
    return spark.createDataFrame(rows) if isinstance(rows, pa.Table) else rows


def _text(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, datetime | date) else None


def _higher(one: str | None, other: str | None) -> str | None:
    # ISO texts of one zone and one type sort as the times do
    return max((text for text in (one, other) if text is not None), default=None)
