"""The age of rows: how long after its event was due a reader of the lake sees a row.

The reader knows nothing of who writes. It looks for the next entry of a table's log, and reads one column of the files
that the entry added: for tables of a shop's size that costs next to nothing, however often they change.
"""

import json
import math
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

_POLL_SECONDS = 0.02


class Watch:
    """Watches one table, from its first version on, for the texts of one column that begin with a prefix."""

    def __init__(self, table: Path, *, column: str, prefix: str) -> None:
        """Look at the table there, which need not exist yet."""
        self.table = table
        self.seen: dict[str, float] = {}
        """Each text, and when it was first read on the monotonic clock."""
        self._column, self._prefix = column, prefix
        self._version = 0

    def poll(self) -> None:
        """Read what versions have come since."""
        while (entry := self.table / "_delta_log" / f"{self._version:020d}.json").exists():
            for name in added(entry.read_text()):
                self._read(self.table / name)
            self._version += 1

    def _read(self, file: Path) -> None:
        try:
            texts = pq.read_table(file, columns=[self._column])[self._column].to_pylist()
        except FileNotFoundError:  # a later version took it away: there its rows are in another file
            return
        now = time.monotonic()
        for text in texts:
            if text is not None and text.startswith(self._prefix):
                self.seen.setdefault(text, now)


def read(watches: Iterable[Watch], stopping: threading.Event) -> None:
    """Let all watches look, again and again, until stopped."""
    every = tuple(watches)
    while not stopping.wait(_POLL_SECONDS):
        for watch in every:
            watch.poll()


def added(entry: str) -> list[str]:
    """Files, relative to the table, that an entry of a Delta log adds, as the file system has their names."""
    actions = (json.loads(line) for line in entry.splitlines() if line.strip())
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


@dataclass(frozen=True, kw_only=True)
class Ages:
    """Seconds from when events were due to when their rows were seen.

    Those that were not seen are older than all others: a percentile that falls among them is None.
    """

    count: int
    unseen: int
    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, seconds: Collection[float], *, unseen: int = 0) -> "Ages":
        """Of the events that were seen, with the number of those that were not."""
        ordered = [*sorted(seconds), *[math.inf] * unseen]
        ranks = [percentile(ordered, percent) if ordered else math.inf for percent in (50, 95, 99)]
        p50, p95, p99 = (None if math.isinf(rank) else rank for rank in ranks)
        return cls(count=len(seconds), unseen=unseen, p50=p50, p95=p95, p99=p99)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of sorted values: one that was measured, none in between."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
