"""Ordered recomputations of a table, worked on in a process of their own: ranges computed beside the lake, published.

Each order is for one range. Those that wait for the same table are computed together, in one go over its inputs, and
each ends with what came of its own range. What is published goes through the owner, as `deltaworks backfill` has it.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from deltaworks import catalog as catalogs
from deltaworks import processes
from deltaworks.control.commands import Command
from deltaworks.control.store import Store
from deltaworks.engine.backfill import Backfilled, Recomputed, stage
from deltaworks.engine.publish import SINCE
from deltaworks.engine.recomputing import recomputing
from deltaworks.engine.staging import TRIES, Staging, staging
from deltaworks.engine.suspended import first_line
from deltaworks.errors import CommandError, ControlError, DeltaworksError
from deltaworks.settings import Settings

LOOK_SECONDS = 1.0
"""Between two looks whether the orders are still wanted and their owner lives."""
END_SECONDS = 3.0
"""So long a JVM may take to end by itself."""
log = logging.getLogger("deltaworks.recompute")


class _WithdrawnError(Exception):
    """All of the orders were withdrawn."""


class Recompute:
    """Orders of one table, taken by an owner of this epoch; all have the same `plan_only`."""

    def __init__(self, settings: Settings, store: Store, *, app: str, epoch: int, numbers: Sequence[int]) -> None:
        """Look the orders up; raises CommandError where one is not running by this epoch."""
        self.settings, self.store, self.app, self.epoch = settings, store, app, epoch
        self.orders = [store.command(number) for number in numbers]
        for one in self.orders:
            if (one.state, one.epoch) != ("running", epoch):
                finding = f"is {one.state}, not taken by epoch {epoch}"
                raise CommandError(f"command {one.id}", finding, 'See "deltaworks commands list"')
        first = self.orders[0]
        self.table, self.plan_only = str(first.table_name), bool(first.arguments.get("plan_only"))
        self._owner = os.getppid()
        self._began = time.monotonic()
        self._step, self._withdrawn = "computing", False
        self._turn = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        """Carry the orders out and write how each ended; raises what is nobody's mistake."""
        try:
            with self._watched():
                done = self._work()
        except _WithdrawnError:
            self._each(lambda one: self.store.cancelled(one.id, epoch=self.epoch))
        except Exception as error:
            finding = first_line(error)
            self._each(lambda one: self.store.fail(one.id, finding, epoch=self.epoch))
            if not isinstance(error, DeltaworksError):
                raise
        else:
            self._each(lambda one: self.store.finish(one.id, done[one.id], epoch=self.epoch))

    def _work(self) -> Mapping[int, Mapping[str, Any]]:
        """The result of each order, by its number."""
        ranges = [_range(one) for one in self.orders]
        error = ""
        for _ in range(TRIES):
            with staging(self.settings) as staged:
                made = self._computed(staged, ranges)
                if self._withdrawn:
                    raise _WithdrawnError
                if self.plan_only or not (made.gone or made.come):
                    return self._told(made)
                published = self._published(staged, made)
            if published.state == "done":
                return self._told(made, published)
            if published.state == "cancelled":
                raise _WithdrawnError
            error = f"command {published.id} (publish) failed: {published.error}"
            if SINCE not in error:  # another order about the table was faster
                break
            log.info("%s Once more", error)
        raise CommandError(f"recomputation of {self.table}", error.rstrip("."), "Order it again")

    def _computed(self, staged: Staging, ranges: Sequence[tuple[datetime, datetime]]) -> Backfilled:
        catalog = catalogs.load(self.settings.project)
        self._at("computing")
        try:
            with recomputing(self.settings, name=f"recompute-{self.app}", folder=staged.folder) as (spark, own):
                return stage(
                    catalog[self.table].name, ranges=ranges, catalog=catalog, lake=self.settings.lake, spark=spark,
                    anew=own,
                )  # fmt: skip
        finally:
            self._at("publishing")  # from here on its end is waited for

    def _published(self, staged: Staging, made: Backfilled) -> Command:
        """Have the owner publish what was staged; how that ended."""
        by, reason = self.orders[0].requested_by, self.orders[0].reason
        if len(self.orders) > 1:
            reason = f"{reason} and {len(self.orders) - 1} more"
        numbers = [one.id for one in self.orders]
        arguments = {"what": "recompute", "commands": numbers, "folder": staged.folder.name, "come": made.come}
        number = self.store.send(
            app=self.app, table=self.table, kind="publish", arguments=arguments, by=by, reason=reason
        )
        staged.is_ordered()
        asked = False
        while True:
            with suppress(ControlError):  # away for a while
                found = self.store.command(number)
                if found.finished:
                    staged.ordered = False
                    return found
                if self._withdrawn and not asked:
                    self.store.cancel(number, by=by, reason="what it publishes was withdrawn")
                    asked = True
            time.sleep(LOOK_SECONDS)

    def _told(self, made: Backfilled, published: Command | None = None) -> Mapping[int, Mapping[str, Any]]:
        given = dict(zip((one.id for one in self.orders), made.ranges, strict=True))
        about = {"together": len(self.orders), "above": list(made.above) if made.gone or made.come else []}
        about["published"] = None if published is None else published.id
        return {number: {**_counts(one), **about} for number, one in given.items()}

    def _each(self, end: Any) -> None:
        """End each order; one that has ended otherwise, or is another owner's by now, is not touched."""
        for one in self.orders:
            while True:
                try:
                    end(one)
                except CommandError as error:
                    log.warning("%s", error)
                except ControlError as error:
                    log.warning("%s", error)
                    self._leave_orphaned()
                    time.sleep(LOOK_SECONDS)
                    continue
                break

    def _at(self, step: str) -> None:
        with self._turn:
            self._step = step

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Meanwhile a thread tells how far it is, and ends the work when nobody wants it any more."""
        signal.signal(signal.SIGTERM, _leave)
        watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        watcher.start()
        try:
            yield
        except _Left:
            _end_children()
            if not self._withdrawn:
                raise SystemExit(1) from None  # its owner puts the orders back
            raise _WithdrawnError from None
        finally:
            self._over.set()
            watcher.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._leave_orphaned()
            progress = {"step": self._step, "seconds": round(time.monotonic() - self._began), "days": len(self.orders)}
            try:
                found = [self.store.report(one.id, progress, epoch=self.epoch) for one in self.orders]
            except CommandError as error:  # ended or taken by somebody else
                log.warning("%s", error)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except ControlError as error:
                log.warning("%s", error)
                continue
            if all(one.cancel_asked_at is not None for one in found):
                with self._turn:
                    self._withdrawn = True
                    if self._step == "computing":
                        os.kill(os.getpid(), signal.SIGTERM)
                        return

    def _leave_orphaned(self) -> None:
        """Who took the orders is gone: the next owner takes them anew."""
        if os.getppid() != self._owner:
            log.warning("the owner is gone")
            os.kill(os.getpid(), signal.SIGTERM)


def _end_children() -> None:
    """End what this process started: a JVM that loses its Python while it starts would live on for ever."""

    def look() -> set[processes.Known]:
        found = ((pid, processes.started(pid)) for pid in processes.family(os.getpid()) if pid != os.getpid())
        return {(pid, started) for pid, started in found if started is not None}

    for pid, _ in look():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)  # it removes its folders
    deadline = time.monotonic() + END_SECONDS
    while look() and time.monotonic() < deadline:
        time.sleep(0.1)
    processes.kill_all(look)


class _Left(BaseException):
    """This process is to end."""


def _leave(*_: object) -> None:
    raise _Left


def _range(order: Command) -> tuple[datetime, datetime]:
    since, until = (datetime.fromisoformat(str(order.arguments[name])) for name in ("from", "to"))
    return since, until


def _counts(one: Recomputed) -> dict[str, Any]:
    return {
        "from": one.since.isoformat(), "to": one.until.isoformat(), "rows_read": one.read, "rows_written": one.come,
        "rows_gone": one.gone, "rows_unchanged": one.unchanged,
    }  # fmt: skip
