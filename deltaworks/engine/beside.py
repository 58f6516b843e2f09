"""The process beside an app's owner in which its recomputations run: one at a time, and it ends with its owner.

It needs a Spark of its own, behind the streams. What it computed the owner publishes, as any other order.
"""

import logging
import signal
import subprocess
import sys
from contextlib import suppress

from deltaworks.control.commands import RECOMPUTE
from deltaworks.control.store import Store
from deltaworks.errors import CommandError
from deltaworks.settings import ROOT, Settings

TOGETHER_MAX = 31
"""So many ranges of a table are computed in one go."""
END_SECONDS_MAX = 5.0
log = logging.getLogger("deltaworks.beside")


class Beside:
    """Takes an app's recomputations for the owner of this epoch, and has them worked on."""

    def __init__(self, store: Store, settings: Settings, *, app: str, epoch: int) -> None:
        """Nothing runs before `look`."""
        self.store, self.settings, self.app, self.epoch = store, settings, app, epoch
        self._child: subprocess.Popen[bytes] | None = None
        self._numbers: list[int] = []

    def look(self) -> None:
        """Begin what waits if nothing runs; write how it ended what has ended without a word of its own."""
        if self._child is None:
            orders = self.store.take_recomputations(self.app, epoch=self.epoch, many=TOGETHER_MAX)
            if orders:
                self._start([one.id for one in orders])
                log.info("commands %s: recompute %s", self._numbers, orders[0].table_name)
        elif (code := self._child.poll()) is not None:
            self._end(code)
            self._child = None

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._child is None else self._child.pid

    def kill(self) -> None:
        """End it at once, if there is one; its orders fail at the next look."""
        if self._child is not None:
            self._child.kill()

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
            self.store.requeue_running(self.app, self.epoch + 1, kind=RECOMPUTE)

    def _start(self, numbers: list[int]) -> None:
        self._numbers = numbers
        self._child = subprocess.Popen(
            [
                sys.executable, str(ROOT / "spark_apps" / "recompute.py"), "--app", self.app,
                "--project", str(self.settings.project), "--epoch", str(self.epoch),
                *(str(number) for number in numbers),
            ],
            stdin=subprocess.DEVNULL,
            env=self.settings.inherited(),
        )  # fmt: skip

    def _end(self, code: int) -> None:
        killed = code == -signal.SIGKILL
        how = "was killed, perhaps for want of memory" if killed else f"ended with {code}"
        for number in self._numbers:
            with suppress(CommandError):  # it has ended in order
                finding = f"its process {how}: see the log of app {self.app}. Order it again"
                self.store.fail(number, finding, epoch=self.epoch)
