"""What is known of the drivers that were started here, beside their leases: data/run/driver-<app>.json.

No lease can say which process was started last and has not taken its lease yet, nor how many before it failed early.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from deltaworks.control import Heartbeat, Lease, Store
from deltaworks.settings import Settings

GOOD_SECONDS = 60  # a driver that lived so long, or committed, did not fail early


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The last start of an app's driver here; `failures` counts the drivers before it that failed early, in a row."""

    pid: int
    process_started: str
    at: float  # seconds since 1970
    failures: int = 0


@dataclass(frozen=True, kw_only=True)
class Past:
    """How many drivers in a row, up to the last one, failed early, and when the last one was seen alive last."""

    failures: int
    ended_at: float  # seconds since 1970


def last_launch(settings: Settings, app: str) -> Launch | None:
    """What is known of the last start; None if the app was never started here."""
    try:
        return Launch(**json.loads(path(settings, app).read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return None  # torn by a full disk: the lease still knows the driver


def remember(settings: Settings, app: str, launch: Launch) -> None:
    """Replace what is known, in one step."""
    fresh = path(settings, app).with_suffix(".new")
    fresh.write_text(json.dumps(asdict(launch)))
    fresh.replace(path(settings, app))


def launched_apps(settings: Settings) -> list[str]:
    """The apps that were ever started here."""
    return [found.stem.removeprefix("driver-") for found in sorted(settings.run.glob("driver-*.json"))]


def owned(lease: Lease | None, last: Launch) -> bool:
    """Whether the driver that was started last is the one that had the lease last."""
    return lease is not None and (lease.pid, lease.process_started) == (last.pid, last.process_started)


def past(settings: Settings, store: Store, app: str) -> Past:
    """Judge the last driver that was started here, which is dead."""
    return judged_past(last_launch(settings, app), store, app)


def judged_past(last: Launch | None, store: Store, app: str) -> Past:
    """Judge a driver, which is dead. What a person wished since then, and a driver of another's, start anew."""
    lease, heartbeat = store.lease(app), store.heartbeat(app)
    if last is None or store.app(app).desired_at.timestamp() > last.at:
        return Past(failures=0, ended_at=0)
    if not owned(lease, last):
        newer = lease is not None and lease.acquired_at.timestamp() > last.at
        return Past(failures=0 if newer else last.failures + 1, ended_at=last.at)
    assert lease is not None
    ended_at = heartbeat.at.timestamp() if heartbeat is not None and heartbeat.epoch == lease.epoch else last.at
    return Past(failures=0 if good_life(last, lease, heartbeat) else last.failures + 1, ended_at=ended_at)


def good_life(last: Launch, lease: Lease, heartbeat: Heartbeat | None) -> bool:
    """Whether a driver ended in order, committed anything, or lived long enough to be no early failure."""
    if heartbeat is None or heartbeat.epoch != lease.epoch:
        return False
    if heartbeat.state == "stopped" or heartbeat.progress.get("last_commit_at"):
        return True
    return heartbeat.at.timestamp() - last.at >= GOOD_SECONDS


def path(settings: Settings, app: str) -> Path:
    """Where the last start of an app's driver is written down."""
    return settings.run / f"driver-{app}.json"
