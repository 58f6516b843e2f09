"""Ordered recomputations of a table, worked on in a process of their own: laid out beside the lake, then published.

Ranges that wait for the same table are computed together, in one go over its inputs, and each order ends with what came
of its own. What is published goes through the owner.
"""

import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
)

from deltaworks import processes
from deltaworks.control.commands import BACKFILL, Command
from deltaworks.control.store import Store
from deltaworks.engine.publish import SINCE
from deltaworks.engine.recompute_work import LaidOut, Range, Wanted, lay_out, wanted
from deltaworks.engine.staging import TRIES, Staging, staging
from deltaworks.engine.suspended import first_line
from deltaworks.errors import CommandError, ControlError, DeltaworksError
from deltaworks.settings import Settings

EXIT_LEFT = 75
"""Exit code of a process that ended before its orders: their owner puts them back, and cancels those withdrawn."""
FOLDER = "recompute-{app}-"
"""Begins the names of the folders in which an app's tables are staged."""
LOOK_SECONDS = 1.0
"""Between two looks whether the orders are still wanted and their owner lives."""
END_SECONDS = 3.0
"""So long a JVM may take to end by itself."""
log = logging.getLogger("deltaworks.recomputation")
_Answer = TypeVar("_Answer")


class Recomputation:
    """Orders of one table, taken by an owner of this epoch; all have the same `plan_only`."""

    def __init__(
        self, settings: Settings, store: Store, *, app: str, epoch: int, owner: int, numbers: Sequence[int]
    ) -> None:
        """Look the orders up; `owner` is the process that took them. What is not running by it any more is left out."""
        self.settings, self.store, self.app, self.epoch, self._owner = settings, store, app, epoch, owner
        found = [store.command(number) for number in numbers]
        self.orders = [one for one in found if (one.state, one.epoch) == ("running", epoch)]
        self._began = time.monotonic()
        self._step = "computing"
        self._withdrawn: Command | None = None
        self._is_leaving = False
        self._turn = threading.Lock()
        self._over = threading.Event()

    def run(self) -> int:
        """Carry the orders out and write how each ended; the exit code. Raises what is nobody's mistake."""
        try:
            with self._watched():
                self._work()
        except _Left:
            _end_children()
            return EXIT_LEFT
        return 0

    def _work(self) -> None:
        asked = dict[int, Wanted]()
        for one in self.orders:
            try:
                asked[one.id] = wanted(one)
            except CommandError as error:
                self._tell(partial(self.store.fail, one.id, str(error), epoch=self.epoch))
        self.orders = [one for one in self.orders if one.id in asked]
        if not self.orders:
            return
        try:
            done = self._recomputed(asked)
        except Exception as error:
            if self._is_leaving:  # Spark met it when it was closed: the call in which it was left had no answer
                raise _Left from error
            for number in asked:
                self._tell(partial(self.store.fail, number, first_line(error), epoch=self.epoch))
            if not isinstance(error, DeltaworksError):
                raise
        else:
            for number, result in done.items():
                self._tell(partial(self.store.finish, number, result, epoch=self.epoch))

    def _recomputed(self, asked: Mapping[int, Wanted]) -> Mapping[int, Mapping[str, Any]]:
        """The result of each order, by its number."""
        table, plan_only = str(self.orders[0].table_name), bool(self.orders[0].arguments.get("plan_only"))
        finding = ""
        for attempt in range(TRIES):
            call = self._call(asked, attempt)
            known = None if plan_only else self._answer(partial(self.store.called, call))
            made = LaidOut(results={number: {} for number in asked}, changes=True)  # nobody knows more of a life before
            if known is not None:
                published = self._awaited(known.id)
            else:
                with staging(self.settings, prefix=FOLDER.format(app=self.app)) as staged:
                    made = self._laid_out(staged, table, asked)
                    if plan_only or not made.changes:
                        return _results(made)
                    published = self._published(staged, table, sorted(asked), call)
            if published.state == "done":
                return _results(made, published)
            if published.state == "cancelled":
                raise _Left
            finding = f"command {published.id} (publish) failed: {(published.error or '').rstrip('.')}"
            if made.only_once or SINCE not in finding:  # another order about the table was faster
                break
            log.info("%s. Once more", finding)
        raise CommandError(f"recomputation of {table}", finding, "Order it again")

    @staticmethod
    def _call(asked: Mapping[int, Wanted], attempt: int) -> uuid.UUID:
        """Of what is published: for an order that is carried out alone the same in each life, so that it is done once.

        Ranges change nothing when they are computed again.
        """
        if any(isinstance(one, Range) for one in asked.values()):
            return uuid.uuid4()
        return uuid.uuid5(uuid.NAMESPACE_OID, f"publish {min(asked)} {attempt}")

    def _laid_out(self, staged: Staging, table: str, asked: Mapping[int, Wanted]) -> LaidOut:
        self._step = "computing"
        made = lay_out(table, asked, settings=self.settings, app=self.app, folder=staged.folder)
        with self._turn:  # from here on nobody is interrupted: the end of what is ordered is waited for
            self._step = "publishing"
        return made

    def _published(self, staged: Staging, table: str, numbers: Sequence[int], call: uuid.UUID) -> Command:
        """Have the owner publish what was staged; how that ended."""
        first, more = self.orders[0], len(numbers) - 1
        arguments = {
            "what": first.arguments.get("what", BACKFILL),
            "commands": list(numbers),
            "folder": staged.folder.name,
        }
        send = partial(
            self.store.send, app=self.app, table=table, kind="publish", arguments=arguments, by=first.requested_by,
            reason=f"{first.reason} and {more} more" if more else first.reason, call=call,
        )  # fmt: skip
        staged.is_ordered()
        ended = self._awaited(self._answer(send))
        staged.ordered = False
        return ended

    def _awaited(self, number: int) -> Command:
        """Wait for the end of what is to be published."""

        def look() -> Command:
            found = self._answer(partial(self.store.command, number))
            if (by := self._withdrawn) is not None and found.cancel_asked_at is None:
                who, why = by.cancelled_by or by.requested_by, by.cancel_reason or "what it publishes was withdrawn"
                self._tell(partial(self.store.cancel, number, by=who, reason=why))  # it may have just ended
            return found

        return Retrying(retry=retry_if_result(lambda found: not found.finished), wait=wait_fixed(LOOK_SECONDS))(look)

    def _answer(self, ask: Callable[[], _Answer]) -> _Answer:
        """What the control store says; while it is away, it is waited for."""
        away = retry_if_exception_type(ControlError)
        return Retrying(retry=away, wait=wait_fixed(LOOK_SECONDS), before_sleep=_told)(ask)

    def _tell(self, end: Callable[[], object]) -> None:
        """Write how an order ended; one that has ended otherwise, or is another owner's by now, is not touched."""
        try:
            self._answer(end)
        except CommandError as error:
            log.warning("%s", error)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Meanwhile a thread tells how far it is, and has this process leave when nobody wants it any more."""
        signal.signal(signal.SIGTERM, self._leave)
        watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._over.set()

    def _leave(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: what tidies up is not interrupted
        self._is_leaving = True
        raise _Left

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if os.getppid() != self._owner:
                log.warning("the owner is gone")
                break
            progress = {"step": self._step, "seconds": round(time.monotonic() - self._began)}
            wanted = list[Command]()
            try:
                for one in self.orders:
                    with suppress(CommandError):  # it has ended, or is another owner's by now
                        wanted.append(self.store.report(one.id, progress, epoch=self.epoch))
            except ControlError as error:
                log.warning("%s", error)
                continue
            with self._turn:
                if self._step == "computing" and all(one.cancel_asked_at is not None for one in wanted):
                    break
            if wanted and all(one.cancel_asked_at is not None for one in wanted):
                self._withdrawn = wanted[0]
        if not self._over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)


def _told(state: RetryCallState) -> None:
    log.warning("%s", None if state.outcome is None else state.outcome.exception())


class _Left(BaseException):
    """This process is to end."""


def _end_children() -> None:
    """End what this process started: a JVM that loses its Python while it starts would live on for ever."""

    def look() -> set[processes.Known]:
        found = ((pid, processes.started(pid)) for pid in processes.family(os.getpid()) if pid != os.getpid())
        return {(pid, started) for pid, started in found if started is not None}

    for pid, _ in look():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)  # it removes its folders
    Retrying(
        retry=retry_if_result(bool), stop=stop_after_delay(END_SECONDS), wait=wait_fixed(0.1),
        retry_error_callback=lambda _: None,
    )(look)  # fmt: skip
    processes.kill_all(look)


def _results(made: LaidOut, published: Command | None = None) -> Mapping[int, Mapping[str, Any]]:
    by = {"published": None if published is None else published.id}
    return {number: {**result, **by} for number, result in made.results.items()}
