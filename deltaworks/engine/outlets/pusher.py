"""Brings the copies of an app's tables up to date, each on a thread of its own beside the driver's.

They read what is committed, so they need no lock; a database that is away holds up no table and no other copy.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from deltaworks.catalog import Declared
from deltaworks.engine import disk
from deltaworks.engine.folders import folder_of
from deltaworks.engine.log import read_log
from deltaworks.engine.outlets.feed import Feed
from deltaworks.engine.outlets.publishing import Publishing
from deltaworks.engine.outlets.serving import Serving
from deltaworks.errors import DeltaworksError, LakeError, LeaseLostError
from deltaworks.settings import Settings

LOOK_SECONDS = 0.25
AGAIN_SECONDS = (1.0, 30.0)
"""Between two attempts after a failure: at first, and at most; each time twice as long."""
FAILURES_COUNTED = 20
"""In a row; a database may be away for days, and no number holds two to the power of that."""
CLOSE_SECONDS_MAX = 5.0
log = logging.getLogger("deltaworks.outlets")


class Outlet(Protocol):
    """A table's copy somewhere."""

    declared: Declared
    feed: Feed
    to: str
    version: int

    def push(self, newest: int) -> None:
        """Bring it to this version; raises OutletError."""

    def close(self) -> None:
        """Let go of connections."""


@dataclass
class _Line:
    outlet: Outlet
    newest: int = -1
    error: str | None = None
    failures: int = 0
    due: float = 0.0


class Outlets:
    """All copies of an app's tables."""

    def __init__(self, tables: Iterable[Declared], settings: Settings, *, guard: Callable[[], None]) -> None:
        """Connect to nothing yet. `guard` raises LeaseLostError where somebody else owns the app."""
        self._guard = guard
        self._lines = [line for declared in tables for line in _lines(declared, settings)]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(line,), name=f"copy {line.outlet.declared.name}", daemon=True)
            for line in self._lines
        ]

    def start(self) -> None:
        """Begin, if there are any."""
        for thread in self._threads:
            thread.start()

    def finish(self, *, seconds_max: float) -> DeltaworksError | None:
        """Stop the threads, and bring all copies to where the tables are now, as far as the time goes; what failed."""
        until = time.monotonic() + seconds_max
        if not self._stopped(seconds_max):
            return DeltaworksError("copies", f"not made within {seconds_max:g} s", 'Look at "deltaworks app status"')
        while True:
            for line in self._lines:
                line.due = 0.0
            failed = [error for line in self._lines if (error := self._push(line)) is not None]
            if not failed or time.monotonic() > until:
                return failed[-1] if failed else None
            time.sleep(AGAIN_SECONDS[0])  # nobody tells when a database is back

    def close(self) -> None:
        """Stop the threads and let go of all connections, whatever is not done yet."""
        if self._stopped(CLOSE_SECONDS_MAX):  # else one is amid a push, and ends with the process
            for line in self._lines:
                line.outlet.close()

    def _stopped(self, seconds_max: float) -> bool:
        self._stop.set()
        until = time.monotonic() + seconds_max
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def progress(self) -> list[dict[str, Any]]:
        """Per copy: the table's version and its own, since when it lacks something, the last error."""
        return [
            {
                "table": line.outlet.declared.name,
                "to": line.outlet.to,
                "version": line.outlet.version,
                "newest": line.newest,
                "behind_since": _since(line),
                "error": line.error,
            }
            for line in self._lines
        ]

    def _run(self, line: _Line) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self._push(line)
            except LeaseLostError:  # the driver's own threads meet it too, and end the process
                return

    def _push(self, line: _Line) -> DeltaworksError | None:
        """Push what is due; gives the error. Raises LeaseLostError."""
        try:
            newest = line.outlet.feed.newest()
            if newest is None:
                return None
            line.newest = newest
            current = line.outlet.version >= newest and line.error is None
            if current or time.monotonic() < line.due:
                return None
            self._guard()
            disk.sync(line.outlet.feed.path)  # a copy is never of a version that a power cut may take
            line.outlet.push(newest)
        except (LeaseLostError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # a panic in delta-rs is no Exception, and would end the thread unseen
            return self._failed(line, error)
        if line.error is not None:
            log.info("%s to %s goes on", line.outlet.declared.name, line.outlet.to)
        line.error, line.failures = None, 0
        return None

    def _failed(self, line: _Line, error: BaseException) -> DeltaworksError:
        line.outlet.feed.forget()
        first, most = AGAIN_SECONDS
        line.due = time.monotonic() + min(most, first * 2**line.failures)
        line.failures = min(line.failures + 1, FAILURES_COUNTED)
        told = error if isinstance(error, DeltaworksError) else _unexpected(line, error)
        if str(told) != line.error:
            log.warning("%s", told, exc_info=None if told is error else error)
        line.error = str(told)
        return told


def _lines(declared: Declared, settings: Settings) -> Iterable[_Line]:
    path = folder_of(declared.name, settings.lake)
    if declared.table.serves is not None:
        feed = Feed(declared, path, bytes_max=settings.arrow_bytes_max)
        yield _Line(Serving(declared, feed, dsn=settings.serving_dsn()))
    if declared.table.publishes is not None:
        feed = Feed(declared, path, bytes_max=settings.arrow_bytes_max)
        yield _Line(Publishing(declared, feed, bootstrap=settings.kafka))


def _unexpected(line: _Line, error: BaseException) -> DeltaworksError:
    finding = f"{type(error).__name__}: {str(error)[:300]}"
    return DeltaworksError(f"{line.outlet.declared.name} to {line.outlet.to}", finding, "Look at the app's log")


def _since(line: _Line) -> str | None:
    """When the oldest version was committed that the copy lacks."""
    if line.outlet.version < 0 or line.outlet.version >= line.newest:
        return None
    try:
        logged = read_log(line.outlet.feed.path, line.outlet.version + 1)
    except (OSError, ValueError, LakeError):  # it is told to people: no reason to fail
        return None
    return logged.at.astimezone(UTC).isoformat() if logged is not None and isinstance(logged.at, datetime) else None
