"""Start, stop and look at the local stack. The supervisor does the work; this tells it what, and waits."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deltaworks import processes
from deltaworks.errors import StackError
from deltaworks.local import airflow, connect, credentials, kafka, postgres, programs, steps
from deltaworks.local.part import UP, Part, PartState, Plan, StackState
from deltaworks.local.ports import check_free
from deltaworks.local.private import open_log, private_folder
from deltaworks.settings import ROOT, Settings, port_setting

SERVICES = ("source", "control", "kafka", "connect", "airflow")
_SETTINGS_OF_PORTS = {
    "source": ("port_source",),
    "control": ("port_control",),
    "kafka": ("port_kafka", "port_kafka_controller"),
    "connect": ("port_connect",),
    "airflow": ("port_airflow",),
}
# made here, so that whoever needs them first finds them closed
_FOLDERS = ("airflow", "checkpoints", "config", "lake", "logs", "reports", "run", "secrets", "spark")
_FAILURES_MAX = 6  # times a part may end before it is ready, or a step may fail, until "up" gives up waiting
_START_SECONDS_MAX = 300.0
_DRAIN_SECONDS_MAX = 30.0
_STOP_SECONDS_MAX = 90.0  # the longest way: connect 20 s, kafka 20 s, and the same in kills
_FOLLOW_SECONDS_MAX = 15.0  # it takes milliseconds
_POLL_SECONDS = 0.1
Watcher = Callable[[StackState], None]


@dataclass(frozen=True, kw_only=True)
class Down:
    """What "down" met: each app's driver "drained" or "killed", and how many left-over processes were killed."""

    apps: Mapping[str, str]
    killed: int


def up(
    settings: Settings,
    *,
    parts: Collection[str] = SERVICES,
    wait_for: Collection[str] | None = None,
    seconds_max: float = _START_SECONDS_MAX,
    watcher: Watcher | None = None,
) -> StackState:
    """Start the named services with what they need, wait until `wait_for` (default: all of `parts`) are usable.

    What runs already stays as it is. `watcher` is shown the state again and again while this waits.
    """
    _refuse_in_containers(settings, "docker compose up --detach")
    wanted = _closure(settings, parts)
    _check_installed(settings, wanted)
    with _lock(settings):
        running = alive(settings)
        if not running:
            _clear(settings)
        known = Plan.read(settings.run) if running else None
        before = {part.name: part for part in known.parts} if known else {}
        _refuse_changed_ports(wanted, before)
        fresh = dict.fromkeys(part.of for part in wanted if part.name not in before)
        check_free(settings, [port for name in fresh for port in _ports_of(settings, name)])
        _prepare(settings)
        kept = tuple(part for part in (known.parts if known else ()) if part.name not in {one.name for one in wanted})
        generation = (known.generation if known else StackState.read(settings.run).generation) + 1
        held = tuple(name for name in (known.held if known else ()) if name not in parts)
        Plan(generation=generation, parts=(*kept, *wanted), held=held).write(settings.run)
        _tell(settings) if running else _launch(settings)
    return wait(settings, parts if wait_for is None else wait_for, seconds_max=seconds_max, watcher=watcher)


def wait(
    settings: Settings,
    services: Collection[str],
    *,
    seconds_max: float = _START_SECONDS_MAX,
    watcher: Watcher | None = None,
) -> StackState:
    """Wait until the services and their steps are usable; raises StackError naming the part that does not come up."""
    plan = Plan.read(settings.run)
    deadline, followed_by = time.monotonic() + seconds_max, time.monotonic() + _FOLLOW_SECONDS_MAX
    while plan is not None:
        state = StackState.read(settings.run)
        if watcher:
            watcher(state)
        if not alive(settings):
            raise StackError("supervisor", "ended", 'Run "deltaworks logs supervisor"')
        awaited = [one for one in state.parts.values() if one.of in services or one.name in services]
        late = [one for one in awaited if one.state not in UP]
        if state.generation >= plan.generation and (awaited or not services) and not late:
            return state
        _refuse_crash_loop(settings, state)
        if time.monotonic() > followed_by and state.generation < plan.generation:
            raise StackError("supervisor", "does not follow the plan, it may run older code", 'Run "deltaworks down"')
        if time.monotonic() > deadline:
            names = ", ".join(f"{one.name} ({one.state})" for one in late)
            log = log_of(late[0].name) if late else "supervisor"
            raise StackError(names, f"not ready after {seconds_max:g} s", f'Run "deltaworks logs {log}"')
        time.sleep(_POLL_SECONDS)
    raise StackError("local stack", "was never started", 'Run "deltaworks up"')


def down(settings: Settings, *, watcher: Watcher | None = None) -> Down:
    """Drain the apps, stop every part and the supervisor, end what is left, and look that nothing is.

    Works as well after the supervisor was killed. Raises StackError if a process of ours cannot be ended.
    """
    _refuse_in_containers(settings, "docker compose down")
    with _lock(settings):
        apps = _drain_apps(settings)
        if alive(settings):
            _stop_supervisor(settings, watcher)
        return Down(apps=apps, killed=_clear(settings))


def hold(settings: Settings, *names: str, seconds_max: float = 60) -> None:
    """Stop some parts and keep them stopped until `up` names their service again (for tests of failures)."""
    with _lock(settings):
        plan = Plan.read(settings.run)
        if plan is None or not alive(settings):
            raise StackError("local stack", "does not run", 'Run "deltaworks up"')
        held = tuple(sorted({*plan.held, *names}))
        Plan(generation=plan.generation + 1, parts=plan.parts, held=held).write(settings.run)
        _tell(settings)
        deadline = time.monotonic() + seconds_max
        while any(StackState.read(settings.run).parts[name].state != "stopped" for name in names):
            if time.monotonic() > deadline:
                raise StackError(", ".join(names), f"not stopped after {seconds_max:g} s", "See deltaworks logs")
            time.sleep(_POLL_SECONDS)


def state(settings: Settings) -> StackState:
    """What runs; parts of a supervisor that is gone are shown as stopped. Of containers: what answers."""
    if settings.place == "containers":
        from deltaworks.local import container

        return container.state(settings)
    found = StackState.read(settings.run)
    if alive(settings):
        return found
    gone = {name: _gone(one) for name, one in found.parts.items()}
    return StackState(generation=found.generation, written=found.written, parts=gone)


def alive(settings: Settings) -> bool:
    """Whether the supervisor of this data folder runs; containers are kept alive by Docker."""
    if settings.place == "containers":
        return True
    found = StackState.read(settings.run)
    return processes.lives(found.pid, found.started)


def all_parts(settings: Settings) -> tuple[Part, ...]:
    """Everything the stack can run."""
    own = (
        *steps.parts(settings),
        *postgres.parts(settings),
        *kafka.parts(settings),
        *connect.parts(settings),
        airflow.migration(settings),
        *airflow.parts(settings),
    )
    return (*own, *programs.parts(settings, own))


def _refuse_in_containers(settings: Settings, command: str) -> None:
    if settings.place == "containers":
        raise StackError("local stack", "its parts are containers", f'Run "{command}" on their host')


def _ports_of(settings: Settings, name: str) -> tuple[str, ...]:
    """The settings with the ports of a service or of a program of the project."""
    if name in _SETTINGS_OF_PORTS:
        return _SETTINGS_OF_PORTS[name]
    return tuple(port_setting(name, port) for port in settings.processes[name].ports)


def _closure(settings: Settings, services: Collection[str]) -> tuple[Part, ...]:
    """The parts and steps of the services, and all that they come after."""
    every = {part.name: part for part in all_parts(settings)}
    known = dict.fromkeys(part.of for part in every.values())
    unknown = sorted(set(services) - set(known))
    if unknown:
        raise StackError(unknown[0], "no such part", f"Known are {', '.join(known)}")
    of = set(services)
    while True:
        needed = {part.name for part in every.values() if part.of in of}
        more = {every[name].of for one in needed for name in every[one].after} - of
        if not more:
            return tuple(part for part in every.values() if part.name in needed)
        of |= more


def _check_installed(settings: Settings, wanted: Collection[Part]) -> None:
    """Refuse before anything starts when a program is missing."""
    if any(part.of in postgres.SERVERS for part in wanted):
        postgres.check_reachable(settings)
    for part in wanted:
        if not Path(part.command[0]).exists():
            raise StackError(part.command[0], f"missing, needed for {part.name}", 'Run "make setup"')
    for name, folder in (("kafka", "broker"), ("connect", "connect/lib"), ("connect", "connect/plugins")):
        if any(part.name == name for part in wanted) and not (settings.jars / folder).is_dir():
            raise StackError(str(settings.jars / folder), f"missing, needed for {name}", 'Run "make setup"')


def _refuse_changed_ports(wanted: Collection[Part], before: Mapping[str, Part]) -> None:
    """A running part keeps its port; its neighbours would look for it at the new one."""
    for part in wanted:
        old = before.get(part.name)
        if old is not None and old.port != part.port:
            finding = f"runs on port {old.port}, the settings now say {part.port}"
            raise StackError(part.name, finding, 'Run "deltaworks down" with the old settings first')


def _prepare(settings: Settings) -> None:
    """Folders, secrets and settings files; the data folder may be entered by Postgres' user, but not listed.

    What is below it is for us alone, also what a driver or a DAG would make later with the user's umask; only Postgres'
    folders are its user's, and initdb closes them.
    """
    settings.data.mkdir(mode=0o711, parents=True, exist_ok=True)
    settings.data.chmod(0o711)
    there = {folder.name for folder in settings.data.iterdir() if folder.is_dir()}
    for name in sorted({*_FOLDERS, *there} - {*postgres.FOLDERS}):
        private_folder(settings.data / name)
    credentials.generate(settings)
    kafka.write_config(settings)
    connect.write_config(settings)
    airflow.write_config(settings)


def _launch(settings: Settings) -> None:
    environment = airflow.environment(settings) | {processes.MARK: str(settings.data)}
    with open_log(settings.logs / "supervisor.log") as log:
        process = subprocess.Popen(
            [str(settings.spark_python), "-m", "deltaworks.local.supervisor", str(settings.run)],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + 30
    while StackState.read(settings.run).pid != process.pid:
        if process.poll() is not None or time.monotonic() > deadline:
            raise StackError("supervisor", "did not start", 'Run "deltaworks logs supervisor"')
        time.sleep(0.02)


def _tell(settings: Settings) -> None:
    """Have the supervisor read the plan again."""
    pid = StackState.read(settings.run).pid
    if pid is not None:
        os.kill(pid, signal.SIGHUP)


def _drain_apps(settings: Settings) -> Mapping[str, str]:
    """Stop the Spark drivers in good order; those that nobody can ask (control store away) are killed."""
    if not (settings.secrets / "deltaworks").exists():
        return {}
    from deltaworks.supervise.launch import stop_all

    return stop_all(settings, seconds_max=_DRAIN_SECONDS_MAX)


def _stop_supervisor(settings: Settings, watcher: Watcher | None) -> None:
    found = StackState.read(settings.run)
    assert found.pid is not None
    os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS_MAX
    while alive(settings):
        if watcher:
            watcher(StackState.read(settings.run))
        if time.monotonic() > deadline:
            os.kill(found.pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    _reap(found.pid)


def _clear(settings: Settings) -> int:
    """End every process that an earlier supervisor left; returns how many. Only by pid **and** start time, or mark."""
    found = StackState.read(settings.run)
    time.sleep(0.2 if found.pid is not None else 0)  # the guard may be at it
    left = 0
    for part in found.parts.values():
        if part.pid is not None and processes.lives(part.pid, part.started):
            left += len(processes.members(part.pid, part.folder))
            processes.kill_session(part.pid, part.folder)
    left += _kill_marked(settings)
    if found.parts:
        gone = {name: _gone(one) for name, one in found.parts.items()}
        StackState(generation=found.generation, written=time.time(), parts=gone).write(settings.run)
    return left


def _kill_marked(settings: Settings) -> int:
    """Drivers that lost their lease's entry, commands that DAGs started: whatever has our mark in its environment."""
    killed: set[int] = set()
    deadline = time.monotonic() + 10
    while marked := processes.marked(settings.data):
        if time.monotonic() > deadline:
            pids = ", ".join(str(one.pid) for one in marked)
            raise StackError(f"processes {pids}", "cannot be killed", "See their state with ps; a disk may hang")
        for one in marked:
            if processes.lives(one.pid, one.started):
                killed.add(one.pid)
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
        time.sleep(0.1)
    return len(killed)


def _gone(part: PartState) -> PartState:
    return PartState(
        name=part.name, of=part.of, step=part.step, state="stopped", since=part.since, port=part.port,
        restarts=part.restarts, last_exit=part.last_exit, mended=part.mended,
    )  # fmt: skip


def _refuse_crash_loop(settings: Settings, state: StackState) -> None:
    for part in state.parts.values():
        hopeless = part.step and part.last_exit == f"code {steps.NEEDS_A_PERSON}"
        if part.state == "backing-off" and (hopeless or part.restarts >= _FAILURES_MAX):
            log = log_of(part.name)
            finding = f"ended with {part.last_exit} ({part.restarts} times): {_last_line(settings, log)}"
            raise StackError(part.name, finding, f'Run "deltaworks logs {log}"')


def log_of(part: str) -> str:
    """Name of the log that a part or step writes to."""
    return "steps" if part in steps.NAMES else part


def _last_line(settings: Settings, log: str) -> str:
    try:
        lines = (settings.logs / f"{log}.log").read_text(errors="replace").splitlines()
    except OSError:
        return "no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "empty log")[:300]


def _reap(pid: int) -> None:
    """Only needed if the supervisor is our own child, as in a test that starts and stops it."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@contextmanager
def _lock(settings: Settings) -> Iterator[None]:
    """One "up" or "down" at a time for a data folder."""
    private_folder(settings.run)
    with (settings.run / "stack.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
