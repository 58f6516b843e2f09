"""What every writer has in common: its table, its inputs, how far it has come, how it leaves an entry."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry, Kind, Position, Unfit
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.marks import Walk
from deltaworks.engine.points import reached
from deltaworks.engine.same_input import epoch_of, placed
from deltaworks.engine.snapshot import Snapshot
from deltaworks.engine.values import unsliced
from deltaworks.errors import LakeError


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """Rows that this process has just committed, still in memory: those in (after, upto]."""

    after: int
    upto: int
    rows: pa.Table


@dataclass(frozen=True, kw_only=True)
class InVain:
    """A slice that was looked through for rows that raise, without its being computed after that, by this code.

    `error`: what came of it, where that is not what the slice raises.
    """

    position: Position
    versions: Mapping[str, int]
    code: str
    error: LakeError | None = None


@dataclass(frozen=True, kw_only=True)
class Shown:
    """All that is in a version of a table, without the engine's columns, as a DataFrame of this session."""

    version: int
    spark: SparkSession
    rows: DataFrame


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What changed in a table in the versions (after, upto]."""

    after: int
    upto: int
    rows: pa.Table


@dataclass(kw_only=True)
class Input:
    """A table that others read, with what this turn has of it: its fresh rows, what changed, all of it if small.

    `shared`: by more than one view, so it is worth to keep what one has read. It stays when its writer is made anew.
    `told_by`: columns in which its rows differ.
    """

    table: OwnedTable
    shared: bool = False
    told_by: Sequence[str] = ()
    placed_by: Sequence[str] = ()
    """Columns that name a row: its key, of a history with the time, or of an event its coordinates."""
    feed: Feed | None = None
    snapshot: Snapshot | None = None
    """From turn to turn: what views read of it."""
    too_large: int | None = None
    """Bytes of its files when it was too large for a snapshot: there is none until it has fewer."""
    fresh: Fresh | None = None
    shown: Shown | None = None
    in_vain: InVain | None = None


@dataclass(kw_only=True)
class Turn:
    """What one table did in one turn."""

    table: str
    counts: Counts = field(default_factory=Counts)


class Writer(Protocol):
    """Takes what its inputs have beyond its position, one bounded slice per turn."""

    declared: Declared
    table: OwnedTable
    progress: "Progress"

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
    """A table's place among its inputs, kept in the entry and, between commits, in memory.

    A batch first says where it will come to; the place moves only when the batch is committed or remembered, so that
    a batch that fails leaves nothing behind that a later commit would confirm.
    """

    def __init__(
        self, table: OwnedTable, *, code: str, suite: str | None = None, inputs: Iterable[OwnedTable] = ()
    ) -> None:
        """Start from what the table's last entry says; of these inputs entries say which tables they are."""
        self.table, self.code, self.suite = table, code, suite
        self._inputs = {one.name: one for one in inputs}
        self._warnings: Mapping[str, int] = {}
        self._kind: Kind = "batch"
        self._command: int | None = None
        self.position: Position = table.entry.position
        self.ingest_seq = table.entry.ingest_seq
        self._reaching, self._reaching_seq = self.position, self.ingest_seq
        self._pending = Counts()
        self._raised: tuple[tuple[int, int], ...] = ()
        self._unsettled = False  # whether the remembered position is ahead of the committed one

    def over_bronze(self, bronze: str, upto: int) -> None:
        """The batch in hand takes all ingest batches up to this one."""
        place = self._placed({bronze: upto}, self.position.batches, batch=True)
        self._reaching, self._raised = replace(place, batches={**self.position.batches, bronze: upto}), ()
        self._reaching_seq, self._warnings = upto, {}
        self._kind, self._command = "batch", None

    def replayed(self, command: int) -> None:
        """The batch in hand brings rows again that were refused, as this command has ordered."""
        self._kind, self._command = "replay", command

    def applied(self, rows: int, *, command: int) -> None:
        """What is in hand are so many rows that came too late, used after all as this command has ordered."""
        often, many = self.position.applied or (0, 0)
        self._reaching, self._reaching_seq = replace(self.position, applied=(often + 1, many + rows)), self.ingest_seq
        self._raised, self._warnings = (), {}
        self._kind, self._command = "late", command

    def used(self, rows: int) -> None:
        """The batch in hand makes the rows that came too late and are in the table so many more."""
        often, many = self._reaching.applied or (0, 0)
        if rows:
            self._reaching = replace(self._reaching, applied=(often, many + rows))

    @property
    def upto(self) -> Mapping[str, int]:
        """The versions that the batch in hand takes the inputs up to."""
        return self._reaching.versions

    @property
    def unfit(self) -> tuple[Unfit, ...]:
        """What is left out when the batch in hand is in the table."""
        return self._reaching.unfit

    def leave_out(self, unfit: Collection[Unfit]) -> None:
        """With the batch in hand just these are left out, those of before that still are among them."""
        self._reaching = replace(self._reaching, unfit=tuple(sorted(unfit, key=lambda one: (one.of, one.place))))

    def tries_again(self, command: int) -> None:
        """What is in hand was left out before, and is tried again as this command has ordered."""
        self._reaching, self._reaching_seq = self.position, self.ingest_seq
        self._raised, self._warnings = (), {}
        self._kind, self._command = "replay", command

    def marked(self, walked: Walk) -> None:
        """The batch in hand brings event time forward."""
        closed = self._reaching.closed if walked.closed is None else walked.closed
        self._reaching = replace(self._reaching, mark=walked.mark, closed=closed)
        self._raised = walked.raised

    def warned(self, warnings: Mapping[str, int]) -> None:
        """So many rows of the batch in hand break these warnings."""
        self._warnings = warnings

    def truncated(self, sequence: str) -> None:
        """The batch in hand empties the table of all that is older."""
        self._reaching = replace(self._reaching, truncated=max(sequence, self._reaching.truncated or ""))

    def newest(self, sequence: str) -> None:
        """The batch in hand comes to this sequence."""
        self._reaching = replace(self._reaching, newest=max(sequence, self._reaching.newest or ""))

    def strays(self, names: tuple[str, ...], *, most: int | None) -> None:
        """The batch in hand has met these undeclared fields, and those known before; `most`: where they are counted."""
        self._reaching = replace(self._reaching, strays=names, strays_most=most)

    def over_tables(self, versions: Mapping[str, int], *, ingest_seq: int | None) -> None:
        """The batch in hand takes the inputs up to these versions; `ingest_seq` None: not yet a whole ingest batch."""
        place = self._placed(versions, self.position.versions, batch=False)
        self._reaching = replace(place, versions={**self.position.versions, **versions})
        self._reaching_seq = self.ingest_seq if ingest_seq is None else ingest_seq
        self._kind, self._command = "batch", None

    def entry(self, counts: Counts, *, low: Any = None, high: Any = None) -> Entry:
        """The entry of the batch in hand: where it comes to, its counts and those remembered since the last commit."""
        return self.table.entry.follow(
            self._kind,
            command=self._command,
            counts=self._pending + counts,
            position=self._reaching,
            ingest_seq=self._reaching_seq,
            marks=self._raised,
            warnings=self._warnings,
            event_low=_text(low),
            event_high=_higher(self.table.entry.event_high, _text(high)),
            code=self.code,
            suite=self.suite,
        )

    def committed(self) -> None:
        """The batch in hand is in the table: nothing is pending any more."""
        self._arrive()
        self._pending, self._unsettled = Counts(), False

    def remember(self, counts: Counts) -> None:
        """Move on without a commit: the batch in hand had no row for this table."""
        self._arrive()
        self._pending += counts
        self._unsettled = True

    def pass_by(self, committer: Committer, counts: Counts) -> None:
        """None of the batch's rows are used: those that were left out are committed as counts, a bare place waits."""
        if counts.read:
            committer.mark(self.table, self.entry(counts))
            self.committed()
        else:
            self.remember(counts)

    def come_along(self, inputs: Iterable[OwnedTable]) -> None:
        """Move on over many commits of inputs that brought no rows, where there is nothing else to take.

        A log is kept from the place of its readers on.
        """
        taken = self.position.versions
        passed = [one for one in inputs if one.version - taken.get(one.name, one.version) >= COMMITS_PASSED]
        if passed:
            self.over_tables({one.name: one.version for one in passed}, ingest_seq=None)
            self.remember(Counts())

    def settle(self, committer: Committer) -> None:
        """Commit the remembered position, if it is ahead of the committed one."""
        if self._unsettled:
            reached(self.table.name, "settle", "before-commit")
            self._reaching, self._reaching_seq, self._raised = self.position, self.ingest_seq, ()
            committer.mark(self.table, self.entry(Counts()))
            self.committed()

    def _placed(self, taken: Mapping[str, int], before: Mapping[str, int], *, batch: bool) -> Position:
        """The place of now, with which tables these inputs are, and who has committed what is taken."""
        come = {
            name: self._inputs[name]
            for name, upto in taken.items()
            if name in self._inputs and (upto != before.get(name) or name not in self.position.inputs)
        }
        epochs = {
            name: one.entry.epoch if one.is_own(taken[name], batch=batch) else epoch_of(one, taken[name], batch=batch)
            for name, one in come.items()
        }
        return placed(self.position, {name: one.made for name, one in come.items()}, epochs)

    def _arrive(self) -> None:
        self.position, self.ingest_seq = self._reaching, self._reaching_seq
        self._raised, self._warnings = (), {}
        self._kind, self._command = "batch", None


EVENT = "_source"
"""The coordinates of an event, or of the change that made a row."""
COMMITS_PASSED = 500
"""So many commits without rows, as of copies and of files put together, are passed by at once."""
ONE_TASK_BYTES_MAX = 2**20
"""So much of an input is transformed by one task."""


def code_of(declared: Declared) -> str:
    """Short hash of the table's code: which version of it judged a row."""
    digest = hashlib.sha256()
    for file in sorted(declared.folder.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def suite_of(declared: Declared) -> str | None:
    """Short hash of the table's suite; None if it has none."""
    if declared.suite is None:
        return None
    return hashlib.sha256(declared.suite.read_bytes()).hexdigest()[:12]


def span(rows: pa.Table, column: str | None) -> tuple[Any, Any]:
    """Lowest and highest value of a column, None where there is none."""
    if column is None or column not in rows.column_names or rows.num_rows == 0:
        return None, None
    both = pc.min_max(rows[column]).as_py()
    return both["min"], both["max"]


def frame(spark: SparkSession, rows: pa.Table | DataFrame) -> DataFrame:
    """Rows as a batch DataFrame of this session.

    Few rows are one part, and so is what a transform makes of them: Spark needs no shuffle, and a query is one task.
    """
    if not isinstance(rows, pa.Table):
        return rows
    made = spark.createDataFrame(unsliced(rows))
    return made.coalesce(1) if rows.nbytes <= ONE_TASK_BYTES_MAX else made


def _text(value: Any) -> str | None:
    if isinstance(value, datetime) and value.tzinfo is None:  # from Spark's rows; the driver runs in UTC
        value = value.replace(tzinfo=UTC)
    return value.isoformat() if isinstance(value, datetime | date) else None


def _higher(one: str | None, other: str | None) -> str | None:
    # ISO texts of one zone and one type sort as the times do
    return max((text for text in (one, other) if text is not None), default=None)
