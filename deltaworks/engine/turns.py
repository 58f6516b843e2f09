"""`ops.turns_<app>`: where the turns of an app's tables went, minute by minute.

The owner sums up what it measures and appends it about once a minute; analysts see all apps' as `ops.turns`. Nothing
decides anything by these rows, so they are no part of the books: the table has no entries, fence or crash points, the
ledger and the checker do not know it. A death loses what was not told yet, an append that fails is told in the log, and
the turns go on. Of two owners one can append: the guard is asked before, and each append is for one version. Every row
has its owner's epoch.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pyarrow as pa

from deltaworks.engine import disk
from deltaworks.engine.commit import Guard
from deltaworks.engine.copies import LAYER
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.lake import HOOKS_OFF
from deltaworks.engine.phases import PHASES, Clock, Phase, Stopwatch, measured
from deltaworks.errors import LeaseLostError

SCHEMA = pa.schema(
    [
        ("told_at", pa.timestamp("us", "UTC")),
        ("app", pa.string()),
        ("epoch", pa.int64()),
        ("table_name", pa.string()),
        ("turns", pa.int64()),
        ("rows", pa.int64()),
        *((f"{name}_ms", pa.float64()) for name in PHASES),
        ("way", pa.string()),
        ("why", pa.string()),
    ]
)
"""A row per minute, table, way and reason: sums over its turns. (`at` and `table` are words of SQL.)"""
MICRO_BATCH = "micro-batch"
"""In the place of a table: fetching rows from Kafka, committing them to bronze, and what no table's turn is."""
KEEP = timedelta(days=3)
"""Older rows go. So there are at most 4,320 rows of a table, as a rule, some hundred thousand of an app."""
RENEW_EACH = 60
"""After so many commits the rows that are kept are written anew, as one file..."""
_FILES_HOURS = 1
"""...and files that are not needed any more go once no query reads them: none lasts that long..."""
_LOG = {"delta.logRetentionDuration": "interval 1 days"}
"""...as the log does: nobody asks this table as of a version."""
log = logging.getLogger("deltaworks.turns")


@dataclass(kw_only=True)
class _Sum:
    turns: int = 0
    rows: int = 0
    seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def add(self, watch: Stopwatch) -> None:
        self.turns += 1
        self.rows += watch.rows or 0
        for name, seconds in watch.seconds.items():
            self.seconds[name] += seconds


_Sums = dict[tuple[str, str, str | None], _Sum]


class Turns:
    """Sums up an app's turns. They may be measured by several threads; one tells them."""

    def __init__(self, *, app: str, epoch: int, lake: Path, guard: Guard, clock: Clock = time.perf_counter) -> None:
        """Nothing is made before there is something to tell. `clock` gives seconds."""
        self.app, self.epoch, self.guard, self.clock = app, epoch, guard, clock
        self.path = lake / LAYER / f"turns_{app}"
        self._sums: _Sums = {}
        self._lock = threading.Lock()
        self._failed = False

    @contextmanager
    def measure(self, table: str) -> Iterator[Stopwatch]:
        """Measure a turn of a table; it counts where it says that it took rows, or fails."""
        with ExitStack() as after, measured(self.clock) as watch:
            after.callback(self._add, table, watch)
            try:
                yield watch
            except Exception:
                watch.rows = watch.rows or 0
                raise

    def _add(self, table: str, watch: Stopwatch) -> None:
        if watch.rows is not None:
            with self._lock:
                self._sums.setdefault((table, watch.way, watch.why), _Sum()).add(watch)

    def seconds(self) -> dict[str, float]:
        """By table, how long its turns took that were not told yet."""
        found: dict[str, float] = {}
        with self._lock:
            for (table, _, _), one in self._sums.items():
                found[table] = found.get(table, 0.0) + sum(one.seconds.values())
        return found

    def forget(self) -> None:
        """Tell nothing of what was."""
        with self._lock:
            self._sums = {}

    def tell(self, *, now: datetime | None = None) -> None:
        """Append the sums since the last time; raises LeaseLostError: who is told that owns nothing.

        And what ends a process; nothing else.
        """
        with self._lock:
            sums, self._sums = self._sums, {}
        if not sums:
            return
        now = datetime.now(UTC) if now is None else now
        try:
            self.guard()
            self._append(self._rows(sums, now), now)
        except (LeaseLostError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # a measurement is worth no turn; a panic in delta-rs is no Exception
            if not self._failed:  # once: it may be so each minute
                log.warning("where turns went is not told in %s: %s", self.path, error)
            self._failed = True
        else:
            self._failed = False

    def _rows(self, sums: _Sums, now: datetime) -> pa.Table:
        rows = [
            {
                "told_at": now,
                "app": self.app,
                "epoch": self.epoch,
                "table_name": table,
                "turns": one.turns,
                "rows": one.rows,
                **{f"{name}_ms": round(seconds * 1_000, 3) for name, seconds in one.seconds.items()},
                "way": way,
                "why": why,
            }
            for (table, way, why), one in sums.items()
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def _append(self, rows: pa.Table, now: datetime) -> None:
        if not deltalake.DeltaTable.is_deltatable(str(self.path)):
            deltalake.write_deltalake(
                self.path, rows, mode="error", configuration=_LOG, post_commithook_properties=HOOKS_OFF
            )
            return
        delta = deltalake.DeltaTable(str(self.path))
        if pa.schema(delta.schema()) != SCHEMA:  # of another version of this engine
            self._commit(delta, rows, whole=True)
            return
        renews = (delta.version() + 1) % RENEW_EACH == 0
        if renews:
            young = dataset_of(delta).to_table(filter=ds.field("told_at") >= pa.scalar(now - KEEP))
            rows = pa.concat_tables([young.select(SCHEMA.names).cast(SCHEMA), rows])
        self._commit(delta, rows, whole=renews)
        if renews:
            self._clear(delta)

    def _commit(self, delta: deltalake.DeltaTable, rows: pa.Table, *, whole: bool) -> None:
        properties = deltalake.CommitProperties(max_commit_retries=0)  # by default delta-rs rebases over another owner
        deltalake.write_deltalake(
            delta,
            rows,
            mode="overwrite" if whole else "append",
            schema_mode="overwrite" if whole else None,
            commit_properties=properties,
            post_commithook_properties=HOOKS_OFF,
        )

    def _clear(self, delta: deltalake.DeltaTable) -> None:
        """Delete what the log's last checkpoint, which is made now, and queries do not need."""
        disk.sync(self.path)
        delta.create_checkpoint()
        disk.sync(self.path)
        delta.cleanup_metadata()
        # its own deleting would be a commit
        for name in delta.vacuum(retention_hours=_FILES_HOURS, enforce_retention_duration=False, dry_run=True):
            with suppress(OSError):
                (self.path / name).unlink()
