"""The process beside an app's owner in which its recomputations run: one at a time, and it ends with its owner.

It needs a Spark of its own, behind the streams. What it computed the owner publishes, as any other order.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from deltaworks.control.commands import RECOMPUTE
from deltaworks.control.store import Store
from deltaworks.engine.recomputation import EXIT_LEFT, FOLDER
from deltaworks.engine.trimming import STAGED
from deltaworks.errors import CommandError
from deltaworks.settings import ROOT, Settings

TOGETHER_MAX = 31
"""So many ranges of a table are computed in one go."""
SETTLED_SECONDS = 2.0
"""A backfill's runs come one after the other: so long after the last one they are taken, together."""
LOOK_SECONDS = 2.0
"""Between two questions whether any wait."""
END_SECONDS_MAX = 8.0
"""Spark's end, and what the process then removes."""
log = logging.getLogger("deltaworks.recompute_process")


class RecomputeProcess:
    """Takes an app's recomputations for the owner of this epoch, and has them worked on."""

    def __init__(
        self, store: Store, settings: Settings, *, app: str, epoch: int, settled_seconds: float = SETTLED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Nothing runs before `look`; `clock` gives seconds."""
        self._settled_seconds = settled_seconds
        self.store, self.settings, self.app, self.epoch, self._clock = store, settings, app, epoch, clock
        self._child: subprocess.Popen[bytes] | None = None
        self._numbers: list[int] = []
        self._looked_at = -LOOK_SECONDS
        self._is_sure = False  # that no order is taken which nobody works on: an answer of the store may have been lost

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._child is None else self._child.pid

    def look(self) -> None:
        """Begin what waits if nothing runs; see to what has ended."""
        if self._child is not None:
            self.see_to_its_end()
            return
        if self._clock() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = self._clock()
        if not self._is_sure:
            self._put_back()
        self._is_sure = False
        orders = self.store.take_recomputations(
            self.app, epoch=self.epoch, many=TOGETHER_MAX, settled_seconds=self._settled_seconds
        )
        self._is_sure = True
        if orders:
            self._start([one.id for one in orders])
            log.info("commands %s: recompute %s", self._numbers, orders[0].table_name)

    def see_to_its_end(self) -> None:
        """If it has ended, see to what it leaves; begin nothing."""
        if self._child is not None and (code := self._child.poll()) is not None:
            self._ended(code)
            self._child = None

    def close(self) -> None:
        """End it: what it had in hand waits for the next owner."""
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None
            self._put_back()

    def _start(self, numbers: list[int]) -> None:
        self._numbers = numbers
        command = [
            sys.executable, str(ROOT / "spark_apps" / "recompute.py"), "--app", self.app,
            "--project", str(self.settings.project), "--epoch", str(self.epoch), "--owner", str(os.getpid()),
            *(str(number) for number in numbers),
        ]  # fmt: skip
        try:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=self.settings.inherited())
        except OSError as error:  # no memory, no process left: the stream goes on
            self._fail(f"its process cannot be started ({error.strerror})")

    def _ended(self, code: int) -> None:
        if code in (0, EXIT_LEFT):
            self._put_back()
        else:
            killed = code == -signal.SIGKILL
            self._fail(f"its process {'was killed, perhaps for want of memory' if killed else f'ended with {code}'}")
            self._clear()

    def _fail(self, finding: str) -> None:
        """Fail what has not ended in order."""
        logs = f"the logs of app {self.app} and recompute-{self.app}"
        for number in self._numbers:
            with suppress(CommandError):
                self.store.fail(number, f"{finding}: see {logs}. Order it again", epoch=self.epoch)

    def _put_back(self) -> None:
        """Queue what nobody works on any more, but what was withdrawn: that is cancelled."""
        self.store.requeue_running(self.app, self.epoch + 1, kind=RECOMPUTE)
        self._clear()

    def _clear(self) -> None:
        """Remove what a process that was killed has staged, unless an order names it that may be carried out yet."""
        left = list((self.settings.data / STAGED).glob(FOLDER.format(app=self.app) + "*"))
        if not left:
            return
        ordered = [one for one in self.store.commands(self.app, kind="publish") if not one.finished]
        named = {one.arguments.get("folder") for one in ordered}
        for folder in left:
            if folder.name not in named:
                shutil.rmtree(folder, ignore_errors=True)
