"""A table that refuses most of what comes stops its app: something is wrong that quarantine would only hide."""

from collections import deque

from deltaworks.catalog import Declared
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable
from deltaworks.errors import BadRowsError

COMMITS_MAX = 500  # how far back a start looks for the rows of the window; more would only delay it
_HUNDRED = 100


class Breaker:
    """Watches the last batches of one table: as few as hold the rows that `bad_rows_max` is about.

    The window is what the table's log says, so that a restart neither forgets nor repeats it. Other code or another
    suite judges anew: then it begins empty. So do batches that somebody accepted.
    """

    def __init__(self, declared: Declared, table: OwnedTable, *, code: str, suite: str | None) -> None:
        """Find the window in the table's log."""
        self.table, self.bound = table, declared.table.bad_rows_max
        self.window: deque[tuple[int, int]] = deque()
        """Rows that were this table's, and how many of them were refused; oldest first."""
        for number, commit in enumerate(table.commits_backwards()):
            entry = commit.entry
            if entry is None or number >= COMMITS_MAX or self._rows() >= self.bound.of:
                break
            if (entry.kind == "batch" and (entry.code, entry.suite) != (code, suite)) or entry.kind == "accept":
                break
            if entry.kind == "batch":
                self.window.appendleft(_bad_of(entry.counts))

    def judge(self, counts: Counts, *, after: int) -> None:
        """Raise BadRowsError if too many rows would be refused, before any of them is set aside.

        The batch in hand begins after ingest batch `after`.
        """
        if after < self.table.entry.accepted:
            return
        rows, bad = _bad_of(counts)
        if not rows:  # nothing of the table has come: what was let through before is no reason to stop now
            return
        rows, bad = rows + self._rows(), bad + sum(bad for _, bad in self.window)
        if rows < self.bound.of or bad <= self.bound.share * rows:
            return
        finding = f"{bad:,} of its last {rows:,} rows were refused, above {self.bound.share * _HUNDRED:g} %"
        step = (
            "Bronze has them all, nothing is lost. Mend the source, the declaration or the suite and start the app; "
            f'to set them aside all the same, run "deltaworks quarantine accept {self.table.name}"'
        )
        raise BadRowsError(self.table.name, finding, step)

    def committed(self, counts: Counts, *, after: int) -> None:
        """The batch is in the table; drop what the window does not need any more."""
        if after < self.table.entry.accepted:
            self.window.clear()
            return
        self.window.append(_bad_of(counts))
        while self._rows() - self.window[0][0] >= self.bound.of:
            self.window.popleft()

    def _rows(self) -> int:
        return sum(rows for rows, _ in self.window)


def _bad_of(counts: Counts) -> tuple[int, int]:
    return counts.read - counts.not_mine, counts.refused
