"""Tables that fail are suspended with their error and tried again later; the others go on without them.

Suspended is what fails by its own fault: its rows, its transform, its files. What tells that this process may not
write, or that the machine is at fault, ends the driver instead.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from traceback import walk_tb

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from deltaworks.engine.origin import told
from deltaworks.engine.poison import as_pyspark, is_of_rows
from deltaworks.errors import (
    CommitLostError,
    DeclarationError,
    DeltaworksError,
    ForeignCommitError,
    LakeError,
    NewerEntryError,
    SuspendedError,
    UnfitError,
    UnmetError,
)

FIRST_SECONDS, LAST_SECONDS = 5.0, 300.0
"""Between two tries: doubled from the one to the other."""
ERROR_LENGTH_MAX = 500
log = logging.getLogger("deltaworks.suspended")
Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Suspended:
    """A table that is suspended; `retry_at` by the clock of `Suspensions`."""

    error: str
    since: datetime
    failures: int
    retry_at: float


class Suspensions:
    """Which tables of a flow are suspended, and when each is tried again."""

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        """None is; `clock` gives seconds."""
        self.clock = clock
        self.tables: dict[str, Suspended] = {}

    def __contains__(self, table: str) -> bool:
        """Whether the table is suspended."""
        return table in self.tables

    def waits(self, table: str) -> bool:
        """Whether the table is suspended and it is not yet time to try again."""
        found = self.tables.get(table)
        return found is not None and self.clock() < found.retry_at

    def failed(self, table: str, error: Exception, *, transform: Path | None = None) -> None:
        """Suspend the table, for longer each time; `transform`: the file whose lines are named."""
        before = self.tables.get(table)
        failures = 1 if before is None else before.failures + 1
        seconds = min(FIRST_SECONDS * 2 ** (failures - 1), LAST_SECONDS)
        since = datetime.now(UTC) if before is None else before.since
        text = first_line(error, transform=transform)
        self.tables[table] = Suspended(error=text, since=since, failures=failures, retry_at=self.clock() + seconds)
        trace = before is None and not isinstance(error, UnfitError | UnmetError) and not is_of_rows(error)
        log.error("%s is suspended, tried again in %.0f s: %s", table, seconds, text, exc_info=trace)

    def recovered(self, table: str) -> None:
        """The table was tried again and goes on."""
        found = self.tables.pop(table, None)
        if found is not None:
            log.info("%s goes on after %d failure(s)", table, found.failures)

    def error(self) -> SuspendedError | None:
        """What is to be told when the driver ends while tables are suspended."""
        if not self.tables:
            return None
        table, found = next(iter(self.tables.items()))
        others = f" (and {len(self.tables) - 1} more)" if len(self.tables) > 1 else ""
        return SuspendedError(table, f"is suspended{others}: {found.error}", "Mend it; it catches up from its inputs")


def is_tables_own(error: Exception, transform: Path | None) -> bool:
    """Whether an error is one table's fault: its rows, its transform's code, its files."""
    if isinstance(error, ForeignCommitError | CommitLostError | NewerEntryError):
        return False
    own = (LakeError, DeclarationError, PySparkException, pa.ArrowException, DeltaError, FileNotFoundError)
    return isinstance(error, own) or is_of_rows(error) or raised_in(error, transform)


def raised_in(error: Exception, file: Path | None) -> bool:
    """Whether an error came up through this file."""
    return any(Path(frame.f_code.co_filename) == file for frame, _ in walk_tb(error.__traceback__))


def first_line(error: Exception, *, transform: Path | None = None) -> str:
    """An error in one line: Spark's carry a whole JVM trace. A row's is told without its text, which may quote values.

    `transform`: the file that it may have come from.
    """
    error = as_pyspark(error)
    if is_of_rows(error):
        return told(error, transform)
    if isinstance(error, UnfitError | UnmetError):  # it is of the whole table, whose name stands beside it
        return f"{error.finding}. {error.next_step}."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    kind = "" if isinstance(error, DeltaworksError) else f"{type(error).__name__}: "
    return f"{kind}{text}"[:ERROR_LENGTH_MAX]
