"""Start and end an app's Spark driver on this machine. No Airflow in here: the command line does the same.

A driver is a session of its own, so it outlives whoever started it, and everything it forks (the JVM, Spark's Python
workers, which leave its process group but not its session) is found by that session. One that a person runs in a shell
(`deltaworks run --drain`, the owner for one command) is of the shell's session: what it started is found by parents.
Who owns an app is said by the lease in the control store; `launches.py` adds what no lease can say.
"""

import fcntl
import os
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from deltaworks import processes
from deltaworks.control import Command, Lease, Store
from deltaworks.errors import ControlError, StackError
from deltaworks.local.private import open_log, private_folder
from deltaworks.processes import Known
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise.launches import Launch, last_launch, launched_apps, owned, past, remember

DOWN = "deltaworks down"  # who wants the apps stopped while the whole stack is down
NOT_OWNER = 75  # exit code of a driver that found the app owned
DEAD_SECONDS_MAX = 15  # SIGKILL takes milliseconds; longer means a process in uninterruptible sleep
_POLL_SECONDS = 0.1
_MARK = "--- "  # begins the line that says when a driver starts
_OF_DELTA_RS = {"TOKIO_WORKER_THREADS": "1"}
"""delta-rs hands each small commit from thread to thread of its runtime: with one for each core that costs a quarter
more processor time. Large ones, which take longer so, are few or Spark's. Who sets the variable has it otherwise."""
_FOREIGN = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW")  # Airflow's settings, secrets and file descriptors
_children: list["subprocess.Popen[bytes]"] = []  # kept so that a launcher that lives on reaps them
_reaping = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A living driver: its process, and whether it was there already."""

    pid: int
    process_started: str
    adopted: bool = False


def start(settings: Settings, app: str, *, drain: bool = False) -> Launched:
    """Make sure that one driver of the app runs: adopt the living one, else start one; `drain`: which ends by itself.

    Before a new one starts, every process of the old one is dead and seen dead, and its lease is given back.
    Raises ControlError while the control store is away, StackError if an old process cannot be killed.
    """
    with Store(settings.control_dsn()) as store, _turn(settings, app):
        found = running(settings, store, app)
        if found is not None:
            return found
        failures = past(settings, store, app).failures
        kill(settings, store, app)
        return _popen(settings, app, failures=failures, drain=drain)


def start_owner(settings: Settings, command: Command) -> "subprocess.Popen[bytes]":
    """Start an owner of a stopped app that carries out its orders up to this one, and ends; it outlives whoever asks.

    Its exit code is NOT_OWNER where it found the app owned, 0 also where it leaves what is ordered to a stream.
    """
    script = [str(ROOT / "spark_apps" / "batch.py"), "--app", command.app, "--project", str(settings.project)]
    with open_driver_log(settings, command.app) as log:
        return subprocess.Popen(
            [str(settings.spark_python), *script, "--command", str(command.id)], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=driver_environment(settings),
        )  # fmt: skip


def running(settings: Settings, store: Store, app: str) -> Launched | None:
    """The living driver: the owner by lease, else the one that was started last and has not had a lease yet."""
    return living(settings, app, store.lease(app))


def living(settings: Settings, app: str, lease: Lease | None) -> Launched | None:
    """The same with the lease at hand. A process whose lease is over is not running: it may commit no more."""
    if lease is not None and lease.live and _alive(lease):
        return Launched(pid=lease.pid, process_started=lease.process_started, adopted=True)
    last = last_launch(settings, app)
    if last is not None and not owned(lease, last) and processes.lives(last.pid, last.process_started):
        return Launched(pid=last.pid, process_started=last.process_started, adopted=True)
    return None


def lingering(lease: Lease | None) -> Launched | None:
    """A process of the app that lives although its lease is over: it stops, or it hangs."""
    if lease is not None and not lease.live and _here(lease) and processes.lives(lease.pid, lease.process_started):
        return Launched(pid=lease.pid, process_started=lease.process_started, adopted=True)
    return None


def kill(settings: Settings, store: Store, app: str, *, seen: Collection[Known] = ()) -> int:
    """SIGKILL what is left of the app's drivers here, wait until it is gone, free the lease; returns how many.

    `seen` are processes of theirs that were seen before. The lease of a driver that is proven dead need not run out:
    its successor may have it at once.
    """
    lease = store.lease(app)
    mine = lease is not None and _here(lease)
    killed = _kill_known(settings, app, lease if mine else None, seen)
    if lease is not None and mine and lease.released_at is None:
        store.release(lease)
    return killed


def stop_all(settings: Settings, *, seconds_max: float = 30.0) -> dict[str, str]:
    """Want every app stopped, let the drivers drain, kill those that do not; returns what became of each driver.

    `resume_all` wants those running again that this stopped.
    """
    became: dict[str, str] = {}
    leases: dict[str, Lease | None] = {}
    before: dict[str, set[Known]] = {}  # one that has nothing to drain is gone before it is looked for again
    try:
        with Store(settings.control_dsn()) as store:
            for app in store.apps():
                before[app.name] = _members(settings, app.name, store.lease(app.name))
                if app.desired == "running":
                    store.desire(app.name, "stopped", by=DOWN, reason="the whole stack goes down")
                leases[app.name] = store.lease(app.name)
            found = {name: before[name] | _members(settings, name, lease) for name, lease in leases.items()}
            live = {name: seen for name, seen in found.items() if seen}
            deadline = time.monotonic() + seconds_max
            while (busy := _led(settings, store, live)) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            for name in sorted(live):
                kill(settings, store, name, seen=live[name])  # also what an orderly driver left behind
                became[name] = "killed" if name in busy else "drained"
    except ControlError:  # then nobody can be asked to drain
        for name in {*leases, *launched_apps(settings)} - {*became}:
            if _kill_known(settings, name, leases.get(name)):
                became[name] = "killed"
    return became


def resume_all(settings: Settings, *, by: str = "deltaworks up") -> tuple[str, ...]:
    """Want those apps running again that `stop_all` stopped; an app that a person stopped stays stopped."""
    with Store(settings.control_dsn()) as store:
        held = tuple(app.name for app in store.apps() if app.desired == "stopped" and app.desired_by == DOWN)
        for name in held:
            store.desire(name, "running", by=by, reason="the stack is up again")
    return held


def log_tail(settings: Settings, app: str, *, lines: int = 30, upto: int | None = None) -> str:
    """The end of the log of the last driver; of the one that was the last when the log had `upto` bytes."""
    try:
        with log_file(settings, app).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            size = size if upto is None else min(size, upto)
            first = log.seek(max(0, size - 500 * lines))
            end = log.read(size - first).decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return ""
    first = max((number for number, line in enumerate(end) if line.startswith(_MARK)), default=0)
    return "\n".join(end[first:])


def log_size(settings: Settings, app: str) -> int:
    """How many bytes the log has."""
    try:
        return log_file(settings, app).stat().st_size
    except FileNotFoundError:
        return 0


def log_file(settings: Settings, app: str) -> Path:
    """Where the driver's output goes."""
    return settings.logs / f"app-{app}.log"


def open_driver_log(settings: Settings, app: str) -> BinaryIO:
    """The same, open for a driver; only we can read it."""
    private_folder(settings.logs)
    return open_log(log_file(settings, app))


def driver_processes(settings: Settings, store: Store | None) -> set[int]:
    """All living processes of drivers here: those started last and, where a store can be asked, the owners."""
    leases = {app.name: store.lease(app.name) for app in store.apps()} if store else {}
    apps = {*leases, *launched_apps(settings)}
    return {pid for app in apps for pid, _ in _members(settings, app, leases.get(app))}


def driver_environment(settings: Settings) -> Mapping[str, str]:
    """What a driver inherits: these settings, and nothing of Airflow, whose variables hold keys and passwords."""
    ours = {name: value for name, value in settings.inherited().items() if not name.startswith(_FOREIGN)}
    return {**_OF_DELTA_RS, **ours}


def _popen(settings: Settings, app: str, *, failures: int, drain: bool) -> Launched:
    private_folder(settings.run)
    with _reaping:  # a thread for each app
        _children[:] = [child for child in _children if child.poll() is None]
    script, more = str(ROOT / "spark_apps" / "stream.py"), ["--drain"] if drain else []
    with open_driver_log(settings, app) as log:
        log.write(f"{_MARK}{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z driver of {app} starts\n".encode())
        log.flush()
        child = subprocess.Popen(
            [str(settings.spark_python), script, "--app", app, "--project", str(settings.project), *more],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=settings.project,
            env=driver_environment(settings),
        )
    with _reaping:
        _children.append(child)
    # a child that ended already still has its start time: only it can be unreaped under this pid
    process_started = processes.started(child.pid) or "ended"
    launch = Launch(pid=child.pid, process_started=process_started, at=time.time(), failures=failures)
    remember(settings, app, launch)
    return Launched(pid=child.pid, process_started=process_started)


def _led(settings: Settings, store: Store, apps: Iterable[str]) -> set[str]:
    """Those of the apps whose driver itself still lives."""
    found = {name: _drivers(settings, name, store.lease(name)) for name in apps}
    return {name for name, known in found.items() if any(processes.lives(pid, started) for pid, started in known)}


def _kill_known(settings: Settings, app: str, lease: Lease | None, seen: Collection[Known] = ()) -> int:
    """Kill the owner and the last one started with all that is theirs, until nothing of them lives."""
    killed: set[Known] = set()

    def look() -> set[Known]:
        # those seen before are looked at by themselves: children whose parent is dead are found by nobody
        return _members(settings, app, lease) | {one for one in {*seen, *killed} if processes.lives(*one)}

    deadline = time.monotonic() + DEAD_SECONDS_MAX
    while left := look():
        if time.monotonic() > deadline:
            pid, _ = min(left)
            raise StackError(f"app {app}", f"process {pid} survives SIGKILL", "Look why it hangs in the kernel")
        killed |= processes.kill_all(look)
        time.sleep(0.02)
    return len(killed)


def _members(settings: Settings, app: str, lease: Lease | None) -> set[Known]:
    """Living processes of the app's drivers on this machine, with their start times."""
    return {one for pid, started in _drivers(settings, app, lease) for one in _ours(settings, pid, started)}


def _drivers(settings: Settings, app: str, lease: Lease | None) -> set[Known]:
    last = last_launch(settings, app)
    known = {(last.pid, last.process_started)} if last else set()
    return known | ({(lease.pid, lease.process_started)} if lease is not None and _here(lease) else set())


def _ours(settings: Settings, pid: int, process_started: str) -> set[Known]:
    """This very process, what descends from it and, if it leads or led a session, that session's members.

    Its leader gone, a session's number may be another's by now; ours have these settings in their environment.
    Never the caller nor those that started it: one of these as owner has nobody here who may end it.
    """
    now, callers = processes.started(pid), processes.own_line()
    if now is None:
        found = {member for member in processes.members(pid) if _has_settings(settings, member)}
    elif now == process_started and pid not in callers:
        found = {*processes.members(pid), *processes.family(pid)}
    else:
        return set()
    starts = ((one, processes.started(one)) for one in found - callers)
    return {(one, start) for one, start in starts if start is not None}


def _has_settings(settings: Settings, pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"DELTAWORKS_DATA={settings.data}".encode() in environment


def _alive(lease: Lease) -> bool:
    """Whether the owner lives; of another machine only the lease can tell."""
    return processes.lives(lease.pid, lease.process_started) if _here(lease) else lease.live


def _here(lease: Lease) -> bool:
    return lease.host == socket.gethostname()


@contextmanager
def _turn(settings: Settings, app: str) -> Iterator[None]:
    """One launcher per app at a time, in all processes of this machine."""
    private_folder(settings.run)
    with (settings.run / f"driver-{app}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
