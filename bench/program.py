"""A program under measurement. It leads a session of its own, so that whatever it forks is counted and ended."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from deltaworks import processes
from deltaworks.errors import StackError
from deltaworks.settings import Settings

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes resident at the most: of the JVM, of the driver's Python, and of Spark's Python workers together."""

    jvm: int = 0
    driver: int = 0
    workers: int = 0

    def __or__(self, other: "Memory") -> "Memory":
        """The larger of each."""
        return Memory(
            jvm=max(self.jvm, other.jvm),
            driver=max(self.driver, other.driver),
            workers=max(self.workers, other.workers),
        )


class Program:
    """Started when made, dead when left."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        settings: Settings,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, its output in the log of that name; its environment is by default this one, with the settings."""
        self.name, self.log = name, settings.logs / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=settings.project,
                env=settings.inherited() if environment is None else environment,
            )

    def __enter__(self) -> Self:
        """Return the running program."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what is left of its session."""
        processes.kill_session(self._process.pid)
        self._process.wait()

    @property
    def session(self) -> int:
        """The session that it leads."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the program itself has ended; raises StackError if it did not end well."""
        code = self._process.poll()
        if code:
            said = self.log.read_text(errors="replace").strip().splitlines() or ["nothing"]
            finding = f"ended with code {code}, and said last: {said[-1][:500]}"
            raise StackError(self.name, finding, "Run again with --keep and read its log")
        return code is not None

    def must_run(self) -> None:
        """Raise StackError if it has ended."""
        if self.ended:
            raise StackError(self.name, "ended by itself", "Run again with --keep and read its log")

    def signal(self, number: int) -> None:
        """Send a signal to the program itself."""
        self._process.send_signal(number)

    def wait(self, seconds_max: float) -> None:
        """Wait until it has ended; raises StackError if it did not end well, or not in time."""
        deadline = time.monotonic() + seconds_max
        while not self.ended:
            if time.monotonic() > deadline:
                raise StackError(
                    self.name, f"did not end in {seconds_max:g} s", "Run again with --keep and see its log"
                )
            time.sleep(0.1)

    def cpu_seconds(self) -> float:
        """User and system time of all its processes, of those that ended too: their parents have it."""
        return cpu_seconds_of(self._process.pid)

    def memory(self) -> Memory:
        """Peaks of the processes that live now; pages that workers share are counted in each of them."""
        jvm = workers = 0
        for pid in processes.members(self._process.pid):
            if pid == self._process.pid:
                continue
            if _text(pid, "comm").strip() == "java":
                jvm = max(jvm, _peak_bytes(pid))  # a second one, shortly, builds the first one's command line
            else:
                workers += _peak_bytes(pid)
        return Memory(jvm=jvm, driver=_peak_bytes(self._process.pid), workers=workers)


def cpu_seconds_of(session: int) -> float:
    """User and system time of a session's processes, of those that ended too: their parents have it."""
    return sum(_cpu_ticks(pid) for pid in processes.members(session)) / _TICKS


def cpu_seconds_of_script(session: int, script: str) -> float:
    """The same of those processes of a session that run a script, with what descends from them."""
    running = [pid for pid in processes.members(session) if script in _text(pid, "cmdline").replace("\0", " ")]
    every = {one for pid in running for one in processes.family(pid)}
    return sum(_cpu_ticks(pid) for pid in every) / _TICKS


def resident_bytes_of(*sessions: int) -> int:
    """Memory of the sessions' processes now; of pages that several share each process has its part."""
    pids = (one.pid for one in processes.table() if one.session in sessions)  # one look at the table for all of them
    parts = (_line(pid, "smaps_rollup", "Pss:") for pid in pids)
    return sum(int(line.split()[1]) * 1024 for line in parts if line)


def busy_seconds() -> float:
    """CPU time that the machine has spent on anything, or another machine has taken, since it started."""
    fields = (_PROC / "stat").read_text().splitlines()[0].split()[1:9]  # the ninth and tenth are in the first two
    user, nice, system, _idle, _waiting, *others = map(int, fields)
    return (user + nice + system + sum(others)) / _TICKS


def _cpu_ticks(pid: int) -> int:
    after_name = _text(pid, "stat").rpartition(")")[2].split()
    return sum(map(int, after_name[11:15]))  # fields 14 to 17 of proc(5): user, system, and both of ended children


def _peak_bytes(pid: int) -> int:
    peak = _line(pid, "status", "VmHWM:")
    return int(peak.split()[1]) * 1024 if peak else 0


def _line(pid: int, name: str, start: str) -> str | None:
    return next((line for line in _text(pid, name).splitlines() if line.startswith(start)), None)


def _text(pid: int, name: str) -> str:
    try:
        return (_PROC / str(pid) / name).read_text(errors="replace")
    except OSError:  # it ended in between
        return ""
