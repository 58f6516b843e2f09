"""The words of the supervisor: parts to run, and what is known of them. Plain values, kept as JSON in data/run."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

State = Literal[
    "waiting",  # for the parts that it needs
    "starting",
    "ready",
    "unresponsive",  # was ready, does not answer
    "backing-off",
    "done",  # a step that ended well
    "stopping",
    "stopped",
]
UP: frozenset[State] = frozenset({"ready", "done", "unresponsive"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """How a part shows that it is ready; `probes.py` has one function for each kind."""

    kind: Literal["postgres", "kafka", "http", "connect", "airflow"]
    port: int
    host: str = "127.0.0.1"  # no settings in here: the supervisor stays small
    path: str = "/"
    component: str = ""
    every_seconds_starting: float = 0.25
    every_seconds_ready: float = 2.0
    seconds_max: float = 5.0  # loopback answers in milliseconds; a machine under full load in a second or two


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A process to keep alive (`step` false), or a step: a command to run until it once ends well."""

    name: str
    of: str  # the part that a step belongs to: whoever waits for that part waits for its steps
    command: tuple[str, ...]
    folder: Path
    log: Path
    step: bool = False
    again: bool = False  # a step that every "up" runs again
    after: tuple[str, ...] = ()
    probe: Probe | None = None
    port: int | None = None
    user: str | None = None
    stop_signal: str = "SIGTERM"
    stop_seconds: float = 15
    hung_seconds: float = 60  # a part that was ready and does not answer for so long is killed
    own_sessions: bool = False  # its children open sessions of their own and work in `folder`


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What the supervisor shall run; `held` parts are kept stopped."""

    generation: int
    parts: tuple[Part, ...]
    held: tuple[str, ...] = ()

    def write(self, run: Path) -> None:
        """Replace the plan in one step."""
        _replace(run / "plan.json", json.dumps(asdict(self), default=str, indent=1))

    @classmethod
    def read(cls, run: Path) -> Self | None:
        """Read the plan, None if there is none."""
        raw = _load(run / "plan.json")
        if raw is None:
            return None
        parts = tuple(_part(one) for one in raw["parts"])
        return cls(generation=raw["generation"], parts=parts, held=tuple(raw["held"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class PartState:
    """What the supervisor knows of a part. Times are seconds since 1970."""

    name: str
    of: str
    step: bool
    state: State
    since: float
    pid: int | None = None
    started: str | None = None
    port: int | None = None
    restarts: int = 0
    ready_seconds: float | None = None  # from its start to ready, this time
    last_exit: str | None = None
    mended: int = 0  # failed tasks inside it that the supervisor restarted
    folder: str = ""  # set if its children are to be found by working folder


@dataclass(frozen=True, kw_only=True, slots=True)
class StackState:
    """What stack.json says: the supervisor's process and its parts."""

    generation: int = 0
    pid: int | None = None
    started: str | None = None
    written: float = 0
    parts: Mapping[str, PartState] = field(default_factory=dict)

    def write(self, run: Path) -> None:
        """Replace the state in one step, so that a reader never sees half of it."""
        _replace(run / "stack.json", json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, run: Path) -> Self:
        """Read the state; an empty one if the stack was never started."""
        raw = _load(run / "stack.json")
        if raw is None:
            return cls()
        parts = {name: PartState(**_known(PartState, one)) for name, one in raw.pop("parts").items()}
        return cls(parts=parts, **_known(cls, raw))


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def _part(raw: dict[str, Any]) -> Part:
    raw |= {"command": tuple(raw["command"]), "after": tuple(raw["after"])}
    raw |= {"folder": Path(raw["folder"]), "log": Path(raw["log"])}
    probe = Probe(**_known(Probe, raw["probe"])) if raw["probe"] else None
    return Part(**_known(Part, raw) | {"probe": probe})


def _known(kind: type[Part | Probe | PartState | StackState], raw: dict[str, Any]) -> dict[str, Any]:
    """The fields that this code knows: the file may be of newer code than a supervisor that still runs."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in raw.items() if name in names}


def _load(path: Path) -> dict[str, Any] | None:
    try:
        loaded: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return loaded


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
