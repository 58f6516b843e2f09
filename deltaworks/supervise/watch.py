"""One look at an app: what the control store says of it, and who starts its drivers."""

import math
import time
from datetime import UTC, datetime
from pathlib import Path

from deltaworks.control import App, Heartbeat, Lease, Store
from deltaworks.control.commands import RECOMPUTE
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from deltaworks.supervise.judge import Limits, Seen, Verdict, judge, lag_rows
from deltaworks.supervise.launcher import launcher_of


def look(settings: Settings, store: Store, app: str) -> Seen:
    """Look at an app; raises ControlError while the control store, or who starts drivers, is away."""
    known, lease, heartbeat = store.app(app), store.lease(app), store.heartbeat(app)
    drivers = launcher_of(settings, store).drivers(app, lease)
    driver = drivers.running or drivers.lingering
    return Seen(
        at=datetime.now(UTC),
        app=known,
        lease=lease,
        heartbeat=heartbeat,
        driver=driver,
        launched_at=_launched_at(drivers.launched_at, lease),
        busy_with=_busy_with(store, known, heartbeat) if driver else None,
    )


def judged(settings: Settings, store: Store, app: str) -> tuple[Seen, Verdict]:
    """A look at an app, and how it is as far as one look tells: the store is taken to have been heard all the time."""
    seen = look(settings, store, app)
    return seen, judge(seen, watched_seconds=math.inf, limits=limits(settings, app))


def limits(settings: Settings, app: str) -> Limits:
    """From when on which state, for an app of these settings."""
    one = settings.app(app)
    late = settings.behind_seconds + 2 * one.trigger_seconds  # what comes after a batch waits for the next one to end
    return Limits(behind_rows=one.rows_per_batch_max, behind_seconds=late)


class Eyes:
    """Looks and judges; knows since when it has seen without a break."""

    def __init__(self, app: str, project: Path) -> None:
        self._app, self.settings = app, Settings.load(project)
        self._limits = limits(self.settings, app)
        self._store = Store(self.settings.control_dsn())
        self._since: float | None = None

    def look(self) -> tuple[Seen, Verdict]:
        """Look once, in a thread; raises ControlError while the control store is away."""
        try:
            seen = look(self.settings, self._store, self._app)
        except DeltaworksError:
            self._since = None
            raise
        self._since = self._since or time.monotonic()
        return seen, judge(seen, watched_seconds=time.monotonic() - self._since, limits=self._limits)

    def close(self) -> None:
        """Close the connection to the control store."""
        self._store.close()


def _launched_at(last: datetime | None, lease: Lease | None) -> datetime | None:
    times = [last] if last else []
    return max([*times, lease.acquired_at] if lease else times, default=None)


def _busy_with(store: Store, app: App, heartbeat: Heartbeat | None) -> str | None:
    """Name the command at work; asked only where rows wait for it, or the end of the driver."""
    if heartbeat is None or (lag_rows(heartbeat) == 0 and app.desired == "running"):
        return None
    # a recomputation holds no stream up; an owner that is there for it tells itself that it has it in hand
    running = [one for one in store.commands(app.name, "running") if one.kind != RECOMPUTE]
    return f"command {running[0].id} ({running[0].kind} {running[0].table_name or app.name})" if running else None
