"""One part under supervision: started, asked whether it is ready, started again, stopped."""

import asyncio
import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from deltaworks.local import probes
from deltaworks.local.guard import Guard
from deltaworks.local.part import UP, Part, PartState, State, now
from deltaworks.local.private import open_log
from deltaworks.processes import kill_session, started

_PAUSE_SECONDS_MIN = 0.5
_PAUSE_SECONDS_MAX = 30.0
_HEALTHY_SECONDS = 60.0  # a part that was ready for so long starts again with the shortest pause
_START_SECONDS_MAX = 300.0  # Airflow on a machine under full load took 196 s
_SILENT_SECONDS_MAX = 2.0  # one probe lost on a busy machine is no news
_STANDING_SECONDS = 1.0  # a part without a probe that lives so long is taken as ready
_LOG_BYTES_MAX = 32 * 2**20
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Owner(Protocol):
    """What a watch needs of its supervisor."""

    guard: Guard
    children: dict[int, "Watch"]

    def watch(self, name: str) -> "Watch":
        """Find the watch over another part."""

    def changed(self) -> None:
        """Take note that a state changed."""


class Watch:
    """One part under supervision: starts it, asks whether it is ready, starts it again."""

    def __init__(self, part: Part, *, owner: Owner, up: asyncio.Event | None = None) -> None:
        """Nothing is started before `begin`. `up`: of the watch that this one replaces; others wait on it."""
        self.part = part
        self.up = up or asyncio.Event()
        self.stopped = asyncio.Event()
        self.exited: asyncio.Future[str] | None = None
        self.state = PartState(
            name=part.name, of=part.of, step=part.step, state="waiting", since=now(), port=part.port,
            folder=str(part.folder) if part.own_sessions else "",
        )  # fmt: skip
        self._owner = owner
        self._mend_after, self._mend_pause = 0.0, _PAUSE_SECONDS_MIN
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Keep the part alive from now on; of a step: run it until it ends well."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())
            self._task.add_done_callback(self._survive)

    async def stop(self) -> None:
        """Ask the part to stop, then kill what is left of its session."""
        if self._task is not None:
            self._task.cancel()
        if self.exited is not None and not self.exited.done():
            self._become("stopping")
            _signal(self.state.pid, signal.Signals[self.part.stop_signal])
            done, _ = await asyncio.wait({self.exited}, timeout=self.part.stop_seconds)
            if not done:
                self._log(f"did not stop within {self.part.stop_seconds:g} s, killed")
                _signal(self.state.pid, signal.SIGKILL)
                await asyncio.wait({self.exited})
        self._become("stopped", pid=None, started=None)

    def reap(self, pid: int) -> None:
        """Its process ended, and is still a zombie: nobody else can have its number. End its session, then reap it."""
        kill_session(pid, self.state.folder)
        _, status = os.waitpid(pid, 0)
        self._owner.guard.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        if self.exited is not None:
            self.exited.set_result(f"code {code}" if code >= 0 else signal.Signals(-code).name)

    def _survive(self, task: asyncio.Task[None]) -> None:
        """A defect in here shall not end the care for a part unseen: tell it, and go on with a new process."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log("".join(traceback.format_exception(error)))
            _signal(self.state.pid, signal.SIGKILL)
            asyncio.get_running_loop().call_later(_PAUSE_SECONDS_MAX, self.begin)

    async def _keep(self) -> None:
        pause = _PAUSE_SECONDS_MIN
        while True:
            self._become("waiting")
            for name in self.part.after:
                await self._owner.watch(name).up.wait()
            healthy_seconds, reason = await self._run()
            if self.part.step and reason == "code 0":
                self._become("done", pid=None, started=None, last_exit=reason)
                return
            if healthy_seconds >= _HEALTHY_SECONDS:
                pause = _PAUSE_SECONDS_MIN
            self._log(f"ended with {reason}, again in {pause:g} s")
            restarts = self.state.restarts + 1
            self._become("backing-off", pid=None, started=None, last_exit=reason, restarts=restarts)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    async def _run(self) -> tuple[float, str]:
        """From start to end; returns how many seconds it was ready, and how it ended."""
        began, ready_at, silent_since = time.monotonic(), 0.0, 0.0
        wall_began = now()
        exited = self._spawn()
        while not exited.done():
            verdict = await self._ask(wall_began) if self.part.probe else self._stands(began)
            moment = time.monotonic()
            if verdict and self.state.state != "ready" and not exited.done():
                ready_at, silent_since = ready_at or moment, 0.0
                self._become("ready", ready_seconds=self.state.ready_seconds or round(moment - began, 1))
            elif verdict:
                silent_since = 0.0
            elif verdict is False and ready_at:
                silent_since = silent_since or moment
                if self.state.state == "ready" and moment - silent_since > _SILENT_SECONDS_MAX:
                    self._become("unresponsive")
            too_late = not self.part.step and not ready_at and moment - began > _START_SECONDS_MAX
            if too_late or (silent_since and moment - silent_since > self.part.hung_seconds):
                self._log("does not answer, killed")
                _signal(self.state.pid, signal.SIGKILL)
            await asyncio.wait({exited}, timeout=self._until_next_probe(ready=bool(ready_at)))
        return (time.monotonic() - ready_at if ready_at else 0.0), exited.result()

    def _until_next_probe(self, *, ready: bool) -> float | None:
        if self.part.probe is None:
            return None if self.part.step or ready else _STANDING_SECONDS
        return self.part.probe.every_seconds_ready if ready else self.part.probe.every_seconds_starting

    def _stands(self, began: float) -> probes.Verdict:
        """Without a probe there is only this to see: it did not end at once."""
        return None if self.part.step else time.monotonic() - began >= _STANDING_SECONDS

    async def _ask(self, wall_began: float) -> probes.Verdict:
        assert self.part.probe is not None
        return await probes.ask(self.part.probe, started=wall_began, mending=self)

    def due(self) -> bool:
        """Whether something inside the part may be repaired now; see `probes.Mending`."""
        return time.monotonic() >= self._mend_after

    def did(self, what: str) -> None:
        """Take note of a repair; the next one waits twice as long, unless the last held for a while."""
        moment = time.monotonic()
        if moment - self._mend_after > _HEALTHY_SECONDS:
            self._mend_pause = _PAUSE_SECONDS_MIN
        self._mend_after = moment + self._mend_pause
        self._mend_pause = min(self._mend_pause * 2, _PAUSE_SECONDS_MAX)
        self._log(what)
        self._become(self.state.state, mended=self.state.mended + 1)

    def _spawn(self) -> asyncio.Future[str]:
        exited: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.exited = exited
        try:
            with _log_file(self.part.log) as output:
                process = subprocess.Popen(
                    self.part.command, cwd=self.part.folder, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509  # safe: this process has one thread
                    **_as_user(self.part.user),
                )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            self._become("starting", pid=None, started=None)
            exited.set_result(f"{error}")
            return exited
        self._owner.children[process.pid] = self
        self._owner.guard.add(process.pid, self.state.folder)
        process.returncode = 0  # Popen shall not reap it: `reap` does
        self._become("starting", pid=process.pid, started=started(process.pid), ready_seconds=None)
        return exited

    def _become(self, state: State, **changes: object) -> None:
        since = self.state.since if state == self.state.state else now()
        self.state = replace(self.state, state=state, since=since, **changes)  # type: ignore[arg-type]  # by name
        if state in UP:
            self.up.set()
        else:
            self.up.clear()
        if state == "stopped":
            self.stopped.set()
        self._owner.changed()

    def _log(self, what: str) -> None:
        log(f"{self.part.name}: {what}")


def log(what: str) -> None:
    """Write one line with the time to the supervisor's log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    sys.stderr.write(f"{stamp} {what}\n")
    sys.stderr.flush()


def _die_with(parent: int) -> Callable[[], None] | None:
    """In the child: be killed when the supervisor dies (the guard does it too; this closes the moment before it knows).

    Called after the change of user, which would clear it (prctl(2)).
    """
    if _LIBC is None:
        return None
    prctl = _LIBC.prctl

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return arm


def _as_user(user: str | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _log_file(path: Path) -> BinaryIO:
    if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))
    return open_log(path)


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
