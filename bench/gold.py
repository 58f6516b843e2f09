"""A reader of gold who knows nothing of who writes it: when did which probe appear, and what are the totals."""

import threading
import time
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable

from bench.traffic import PROBE, Minute

_POLL_SECONDS = 0.01


class Reader:
    """Watches a gold table and notes when it first saw each probe."""

    def __init__(self, path: Path) -> None:
        """Look at the table there, which need not exist yet."""
        self.path = path
        self.seen: dict[str, float] = {}
        """Each probe that is in gold, and when it was read there on the monotonic clock."""
        self._files: set[str] = set()

    def run(self, stopping: threading.Event) -> None:
        """Read every new version until stopped. A poll looks for the next log file only: that costs next to nothing."""
        while not DeltaTable.is_deltatable(str(self.path)):
            if stopping.wait(0.1):
                return
        table = DeltaTable(str(self.path))
        self._look(table)
        while not stopping.is_set():
            if (self.path / "_delta_log" / f"{table.version() + 1:020d}.json").exists():
                table.update_incremental()
                self._look(table)
            else:
                stopping.wait(_POLL_SECONDS)

    def _look(self, table: DeltaTable) -> None:
        files = set(table.file_uris())
        new = sorted(files - self._files)
        if new:
            pages = ds.dataset(new, format="parquet").to_table(columns=["page"])["page"].to_pylist()
            now = time.monotonic()
            for page in pages:
                if page.startswith(PROBE):
                    self.seen.setdefault(page, now)
        self._files = files


def views_in(path: Path) -> dict[Minute, int]:
    """What gold says. A key that is there twice gives a count that nobody sent, so it is noticed too."""
    found: dict[Minute, int] = {}
    if not DeltaTable.is_deltatable(str(path)):
        return found
    for row in DeltaTable(str(path)).to_pyarrow_table(columns=["page", "minute", "views"]).to_pylist():
        key = (row["page"], row["minute"].strftime("%Y-%m-%dT%H:%M"))
        found[key] = row["views"] if key not in found else -1
    return found
