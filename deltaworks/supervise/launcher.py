"""Who starts an app's driver, and tells how it is, and who has a suite judged: a port with two forms.

`Beside` starts it as a process on this machine, as the command line does. `AtAgent` asks the agent (`agent.py`) on the
host where the lake is, by the control store: Airflow's side then needs neither Spark nor the lake.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from deltaworks.control import Command, DriverThere, Lease, Store
from deltaworks.control.launching import RequestKind
from deltaworks.errors import ControlError, StackError
from deltaworks.settings import Settings
from deltaworks.supervise import launch
from deltaworks.supervise.judging import Judging, Said, Wanted
from deltaworks.supervise.launch import Launched
from deltaworks.supervise.launches import Launch, Past, judged_past, last_launch, past

SILENT_SECONDS_MAX = 10.0  # an agent tells every second; a busy machine, or a store that was away, takes longer
ANSWER_SECONDS_MAX = 30.0  # to kill takes up to launch.DEAD_SECONDS_MAX
_POLL_SECONDS = 0.1
_PLACE = "driver host"


class Owner(Protocol):
    """An owner of a stopped app, which ends by itself."""

    def poll(self) -> int | None:
        """Its exit code; None while it lives."""


class BeingJudged(Protocol):
    """A suite that is being judged."""

    def poll(self) -> Said | None:
        """What was said in the end; None while it is at it. Raises ControlError while it cannot be known."""

    def end(self) -> None:
        """Do not go on, if that can be."""


@dataclass(frozen=True, kw_only=True)
class Drivers:
    """Of an app: the living driver, one whose lease is over, and when the last one was started."""

    running: Launched | None
    lingering: Launched | None
    launched_at: datetime | None


class Launcher(Protocol):
    """Starts, adopts and ends drivers. Each call raises ControlError while it cannot be known."""

    def drivers(self, app: str, lease: Lease | None) -> Drivers:
        """What there is of an app's drivers; `lease` is its lease of now."""

    def past(self, app: str) -> Past:
        """How the last driver, which is dead, did."""

    def start(self, app: str, *, drain: bool = False) -> Launched:
        """Adopt the living driver, else start one; with `drain` one that ends by itself. Raises StackError."""

    def start_owner(self, command: Command) -> Owner:
        """Start an owner of a stopped app up to this order. Raises StackError or OSError."""

    def kill(self, app: str, driver: Launched) -> int:
        """Kill what is left of this driver, if it is still the one; how many processes there were."""

    def judge(self, app: str, wanted: Wanted) -> BeingJudged:
        """Begin to judge the suite of a table of this app. Raises StackError or OSError."""

    def log(self, app: str, *, upto: int | None = None) -> str:
        """The end of the last driver's log, or of the one that was the last when the log had `upto` bytes."""

    def log_bytes(self, app: str) -> int:
        """How many bytes the log has."""


def launcher_of(settings: Settings, store: Store) -> Launcher:
    """The form that the settings name."""
    return AtAgent(settings, store) if settings.launcher == "agent" else Beside(settings, store)


def running(launcher: Launcher, store: Store, app: str) -> Launched | None:
    """The living driver of an app."""
    return launcher.drivers(app, store.lease(app)).running


class Beside:
    """Drivers are processes of this machine."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store

    def drivers(self, app: str, lease: Lease | None) -> Drivers:
        """By the process table."""
        last = last_launch(self._settings, app)
        return Drivers(
            running=launch.living(self._settings, app, lease),
            lingering=launch.lingering(lease),
            launched_at=_at(last),
        )

    def past(self, app: str) -> Past:
        """By what was written down at the start."""
        return past(self._settings, self._store, app)

    def start(self, app: str, *, drain: bool = False) -> Launched:
        """As a session of its own."""
        return launch.start(self._settings, app, drain=drain)

    def start_owner(self, command: Command) -> Owner:
        """As a session of its own."""
        return launch.start_owner(self._settings, command)

    def kill(self, app: str, driver: Launched) -> int:
        """By SIGKILL, with all that it started."""
        return kill_this(self._settings, self._store, app, (driver.pid, driver.process_started))

    def judge(self, app: str, wanted: Wanted) -> BeingJudged:  # noqa: ARG002  # the port's: an agent is asked by app
        """As a session of its own."""
        return Judging(self._settings, wanted)

    def log(self, app: str, *, upto: int | None = None) -> str:
        """From the file."""
        return launch.log_tail(self._settings, app, upto=upto)

    def log_bytes(self, app: str) -> int:
        """Of the file."""
        return launch.log_size(self._settings, app)


class AtAgent:
    """Drivers are processes of the host where an agent runs; it is asked by the control store."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store

    def drivers(self, app: str, lease: Lease | None) -> Drivers:
        """By what the agent told last; of an agent that is silent, by the lease for as long as that holds."""
        there = self._store.driver_there(app)
        if there is None or there.age_seconds > SILENT_SECONDS_MAX:
            if lease is not None and lease.live:
                return Drivers(running=_owner(lease), lingering=None, launched_at=_launched_at(there))
            raise _silent(there)
        return Drivers(
            running=_living(there, lease), lingering=_launched(there.lingering), launched_at=_launched_at(there)
        )

    def past(self, app: str) -> Past:
        """By what the agent wrote down at the start."""
        return judged_past(_last(self._store.driver_there(app)), self._store, app)

    def start(self, app: str, *, drain: bool = False) -> Launched:
        """By the agent."""
        told = self._asked(app, "drain" if drain else "start", {})
        return Launched(pid=told["pid"], process_started=told["process_started"], adopted=told["adopted"])

    def start_owner(self, command: Command) -> Owner:
        """By the agent, which also tells how it ended."""
        number, _ = self._request(command.app, "owner", {"command": command.id})
        return _OwnerThere(self._store, number)

    def kill(self, app: str, driver: Launched) -> int:
        """By the agent."""
        told = self._asked(app, "kill", {"pid": driver.pid, "process_started": driver.process_started})
        return int(told["killed"])

    def judge(self, app: str, wanted: Wanted) -> BeingJudged:
        """By the agent, which also tells what was said."""
        number, _ = self._request(app, "judge", {**asdict(wanted), "days": list(wanted.days)})
        return _JudgedThere(self._store, number)

    def log(self, app: str, *, upto: int | None = None) -> str:
        """From the agent's file; in its place why it cannot be read."""
        try:
            return str(self._asked(app, "log", {"upto": upto})["text"])
        except (ControlError, StackError) as error:
            return f"(not to be read now: {error})"

    def log_bytes(self, app: str) -> int:
        """As told last."""
        there = self._store.driver_there(app)
        return there.log_bytes if there is not None else 0

    def _asked(self, app: str, kind: RequestKind, arguments: Mapping[str, object]) -> dict[str, Any]:
        return self._request(app, kind, arguments)[1]

    def _request(self, app: str, kind: RequestKind, arguments: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        """Ask, and wait for the answer; what nobody takes in time is withdrawn."""
        number = self._store.ask_agent(app, kind, arguments, call=uuid.uuid4())
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while time.monotonic() < deadline:
            found = self._store.launch_request(number)
            if found is not None and found.error is not None:
                raise StackError(*(str(found.error[name]) for name in ("place", "finding", "next_step")))
            if found is not None and found.answer is not None:
                return number, found.answer
            time.sleep(_POLL_SECONDS)
        if self._store.withdraw_request(number):
            raise _silent(self._store.driver_there(app))
        finding = f"has not done what was asked of app {app} ({kind}) after {ANSWER_SECONDS_MAX:.0f} s"
        raise ControlError(_PLACE, finding, "See its log")


class _OwnerThere:
    """An owner that the agent has started."""

    def __init__(self, store: Store, request: int) -> None:
        self._store, self._request = store, request

    def poll(self) -> int | None:
        """As the agent told."""
        found = self._store.launch_request(self._request)
        if found is None:
            return 0  # of yesterday
        code = (found.answer or {}).get("code")
        return None if code is None else int(code)


class _JudgedThere:
    """A suite that the agent has judged; it ends what takes too long."""

    def __init__(self, store: Store, request: int) -> None:
        self._store, self._request = store, request

    def poll(self) -> Said | None:
        """As the agent told."""
        found = self._store.launch_request(self._request)
        answer: dict[str, Any] = {"code": None} if found is None else found.answer or {}  # it is forgotten after a day
        if "code" not in answer:
            return None
        return Said(outcome=answer.get("outcome", ""), errors=answer.get("errors", "its agent has ended"))

    def end(self) -> None:
        """It goes on: what it finds is only added to `ops.quality`."""


def kill_this(settings: Settings, store: Store, app: str, driver: tuple[int, str]) -> int:
    """Kill what is left of a driver here; nothing where another one owns the app meanwhile."""
    lease = store.lease(app)
    found = launch.living(settings, app, lease) or launch.lingering(lease)
    if found is not None and (found.pid, found.process_started) != driver:
        return 0
    return launch.kill(settings, store, app)


def _living(there: DriverThere, lease: Lease | None) -> Launched | None:
    """As `launch.living`, by what the agent has told: a lease that is younger than that is believed."""
    told = _launched(there.running)
    owner = None if lease is None else (lease.pid, lease.process_started)
    if lease is not None and lease.live:
        same = told is not None and (told.pid, told.process_started) == owner
        if same or lease.host != there.host or lease.acquired_at > there.told_at:
            return _owner(lease)
    if told is None or (told.pid, told.process_started) == owner:
        return None
    return told


def _owner(lease: Lease) -> Launched:
    return Launched(pid=lease.pid, process_started=lease.process_started, adopted=True)


def _launched(known: list[Any] | None) -> Launched | None:
    return None if known is None else Launched(pid=known[0], process_started=known[1], adopted=True)


def _last(there: DriverThere | None) -> Launch | None:
    return None if there is None or there.launch is None else Launch(**there.launch)


def _launched_at(there: DriverThere | None) -> datetime | None:
    return _at(_last(there))


def _at(last: Launch | None) -> datetime | None:
    return None if last is None else datetime.fromtimestamp(last.at, UTC)


def _silent(there: DriverThere | None) -> ControlError:
    finding = "was never heard" if there is None else f"{there.host} has not been heard for {there.age_seconds:.0f} s"
    return ControlError(_PLACE, finding, "See whether it runs: docker compose ps driver-host")
