"""Which processes live, and which of them are ours. Standard library only: the guard loads nothing else.

A process is known by its pid **and** its start time, because pids are reused.
A part is a session: what it forks stays in it, except Postgres' children, which open sessions of their own and are
found by their working folder, and Spark drivers, which leave it on purpose so that they survive their launcher. A
driver that somebody runs in a shell leads no session: what it started is found by parents.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "STACK_OF_DELTAWORKS"  # not DELTAWORKS_...: those are settings, and a user's shell may have them
Known = tuple[int, str]  # pid and start time: this very process
_PROC = Path("/proc")
_LINUX = sys.platform == "linux"


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """One line of the process table; `started` has no meaning but equality."""

    pid: int
    parent: int
    session: int
    started: str
    zombie: bool


def table() -> list[Process]:
    """Every process that can be seen."""
    if _LINUX:
        found = (_read(int(name)) for name in os.listdir(_PROC) if name.isdigit())
        return [process for process in found if process is not None]
    return _from_ps()


def started(pid: int) -> str | None:
    """Start time of a living process, None if it is gone or only waits to be reaped."""
    process = _read(pid) if _LINUX else next((one for one in _from_ps() if one.pid == pid), None)
    return None if process is None or process.zombie else process.started


def lives(pid: int | None, start: str | None) -> bool:
    """Whether this very process, not a later one with the same pid, is alive."""
    return pid is not None and start is not None and started(pid) == start


def members(session: int, folder: str = "") -> list[int]:
    """Living processes of a session; with a folder also the Postgres processes that work in it."""
    return [one.pid for one in table() if not one.zombie and (one.session == session or _works_in(one.pid, folder))]


def family(pid: int) -> list[int]:
    """A living process and all that descends from it; who lost a parent on the way is not found."""
    every = table()
    found = [one for one in every if one.pid == pid]
    for parent in found:  # grows while it is read: children, then theirs
        found += [one for one in every if one.parent == parent.pid]
    return [one.pid for one in found if not one.zombie]


def own_line() -> set[int]:
    """This process and its ancestors: who kills others is not to kill these."""
    every = {one.pid: one for one in table()}
    own, pid = {os.getpid()}, os.getpid()
    while pid in every:
        own.add(pid)
        pid = every[pid].parent
    return own


def kill_all(look: Callable[[], set[Known]]) -> set[Known]:
    """SIGKILL the processes that `look` finds; returns them.

    All are halted first, and looked for again: one that forks, or loses its parent, would get out of sight.
    """
    found: set[Known] = set()
    while fresh := look() - found:
        for pid, _ in fresh:
            _send(pid, signal.SIGSTOP)
        found |= fresh
    for pid, _ in found:
        _send(pid, signal.SIGKILL)
    return found


def kill_session(session: int, folder: str = "") -> None:
    """SIGKILL until nothing of the session is left; a process may fork between two looks, hence the loop."""
    for _ in range(50):
        left = [pid for pid in members(session, folder) if pid != os.getpid()]
        if not left:
            return
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(0.02)


def marked(data: Path) -> list[Process]:
    """Living processes that a supervisor of this data folder started, at any depth, and that kept the mark.

    The caller and its parents are left out: "deltaworks down" may itself run inside a task.
    """
    if not _LINUX:
        return []
    wanted, own = f"{MARK}={data}".encode(), own_line()
    return [one for one in table() if one.pid not in own and not one.zombie and wanted in _environment(one.pid)]


def command_of(pid: int, *, length_max: int = 80) -> str:
    """The command line, shortened; empty if it cannot be read."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
    return words if len(words) <= length_max else f"{words[: length_max - 3]}..."


def listening() -> dict[tuple[str, int], str]:
    """(address in hex as the kernel writes it, port) of every listening TCP socket, with its inode."""
    found: dict[tuple[str, int], str] = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == "0A":  # TCP_LISTEN, include/net/tcp_states.h
                address, port = fields[1].split(":")
                found[address, int(port, 16)] = fields[9]
    return found


def sockets_of(pid: int) -> set[str]:
    """Inodes of the sockets that a process has open; empty if it is not ours to look into."""
    found: set[str] = set()
    try:
        descriptors = os.listdir(_PROC / str(pid) / "fd")
    except OSError:
        return found
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile: of our own process at least the one that listed them
            target = str((_PROC / str(pid) / "fd" / descriptor).readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def listener(port: int) -> int | None:
    """Pid of a process that listens on a port, None if it cannot be found."""
    inodes = {inode for (_, open_port), inode in listening().items() if open_port == port}
    return next((one.pid for one in table() if inodes and inodes & sockets_of(one.pid)), None)


def _read(pid: int) -> Process | None:
    try:
        after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return Process(
        pid=pid,
        parent=int(after_name[1]),
        session=int(after_name[3]),
        started=after_name[19],  # field 22 of proc(5): clock ticks after boot
        zombie=after_name[0] in "ZX",
    )


def _from_ps() -> list[Process]:
    lines = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    found = []
    for line in lines:
        pid, parent, state, *start = line.split()
        try:
            session = os.getsid(int(pid))
        except OSError:
            continue
        one = Process(
            pid=int(pid), parent=int(parent), session=session, started=" ".join(start), zombie=state.startswith("Z")
        )
        found.append(one)
    return found


def _works_in(pid: int, folder: str) -> bool:
    """Postgres processes only: a shell may stand in the same folder."""
    if not folder:
        return False
    try:
        binary, works_in = (_PROC / str(pid) / "exe").readlink(), (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return False
    return binary.name == "postgres" and str(works_in) == folder


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
