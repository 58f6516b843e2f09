"""How soon Airflow is red when an app is not well, and green when it is again: each state is made, and timed.

    .venv/spark/bin/python -m tests.chaos.health

A stack with Airflow and the tiny project, on free ports and in a scratch folder. Exit code 1 if one is not red within
half a minute of when it can be known, or does not turn green by itself.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from deltaworks.cli import show
from deltaworks.control import Store
from deltaworks.local import stack
from deltaworks.settings import Settings
from tests.airflow_rest import Airflow
from tests.running_stack import running_stack, wait_until
from tests.stack.test_compute_again import DAYS, NOTES, known, said, send, tiny
from tests.tiny_project import Project

HEALTH = "health__tiny"
RED_SECONDS_MAX = 30.0
GREEN_SECONDS_MAX = 300.0
BEHIND_SECONDS = 20.0
"""Of this project: with a minute nothing else would be shown."""
SILENT_SECONDS = 60.0
"""So long a driver may be silent before it hangs (`supervise/judge.py`)."""
_RIGHT, _WRONG = 'F.sum("words")', 'F.sum("wards")'
_DECLARED, _MISSPELT = 'owner="tests"', 'ower="tests"'


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A way of not being well; `known_after`: seconds until anybody could know."""

    name: str
    make: Callable[[], None]
    mend: Callable[[], None]
    known_after: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What was seen of one; all in seconds."""

    state: str
    known_after: float
    red_after: float
    green_after: float


class Scene:
    """The app at work, and what is done to it."""

    def __init__(self, settings: Settings, project: Project) -> None:
        """Nothing is done yet."""
        self.settings, self.project, self._sent = settings, project, 0

    def notes(self, count: int = 8) -> None:
        """More of them come."""
        send(self.settings, self._sent, count)
        self._sent += count

    def settled(self) -> bool:
        """Whether anything that was sent is there."""
        return len(known(self.settings)) > 0

    def pid(self) -> int:
        """The driver's."""
        with Store(self.settings.control_dsn()) as store:
            lease = store.lease("tiny")
        assert lease is not None
        return lease.pid

    def broker(self) -> int:
        """The broker's process."""
        pid = stack.state(self.settings).parts["kafka"].pid
        assert pid is not None
        return pid

    def break_transform(self) -> None:
        """A table above fails from its next batch on."""
        self.project.edit(f"tables/{DAYS.replace('.', '/')}/transform.py", _RIGHT, _WRONG)
        said(self.settings, "app", "restart", "tiny")
        self.notes()

    def mend_transform(self) -> None:
        """It is tried again by itself."""
        self.project.edit(f"tables/{DAYS.replace('.', '/')}/transform.py", _WRONG, _RIGHT)

    def crash(self) -> None:
        """A declaration does not parse: no driver starts."""
        self.project.edit(f"tables/{NOTES.replace('.', '/')}/table.py", _DECLARED, _MISSPELT)
        os.kill(self.pid(), signal.SIGKILL)

    def mend_declaration(self) -> None:
        """The next one starts."""
        self.project.edit(f"tables/{NOTES.replace('.', '/')}/table.py", _MISSPELT, _DECLARED)


def troubles(scene: Scene) -> Iterator[Trouble]:
    """Each of them."""
    yield Trouble(name="a driver killed", make=lambda: os.kill(scene.pid(), signal.SIGKILL), mend=lambda: None)
    yield Trouble(name="a table suspended", make=scene.break_transform, mend=scene.mend_transform)
    yield Trouble(name="a crash loop", make=scene.crash, mend=scene.mend_declaration)
    yield Trouble(
        name="a driver that hangs", known_after=SILENT_SECONDS,
        make=lambda: os.kill(scene.pid(), signal.SIGSTOP), mend=lambda: None,
    )  # fmt: skip
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(scene.broker())
        os.kill(stopped[0], signal.SIGSTOP)

    def go_on() -> None:
        with suppress(ProcessLookupError):  # the stack's supervisor has started another one
            os.kill(stopped[0], signal.SIGCONT)

    yield Trouble(name="a broker that does not answer", known_after=BEHIND_SECONDS, make=stop, mend=go_on)


def timed(scene: Scene, airflow: Airflow, trouble: Trouble) -> Timed:
    """Make it, see red, mend it, see green."""
    wait_until(lambda: airflow.newest(HEALTH) == "success", what="all is well", seconds_max=GREEN_SECONDS_MAX)
    trouble.make()
    made = time.monotonic()
    red = partial(airflow.newest, HEALTH)
    wait_until(lambda: red() == "failed", what=f"{trouble.name}: red", seconds_max=trouble.known_after + 120)
    seen = time.monotonic()
    trouble.mend()
    mended = time.monotonic()
    wait_until(lambda: red() == "success", what=f"{trouble.name}: green", seconds_max=GREEN_SECONDS_MAX)
    scene.notes()
    found = Timed(
        state=trouble.name, known_after=trouble.known_after, red_after=round(seen - made, 1),
        green_after=round(time.monotonic() - mended, 1),
    )  # fmt: skip
    show.err.print(str(found), markup=False)
    return found


@contextmanager
def at_work() -> Iterator[Scene]:
    """The stack, with the app running and its first notes there."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-health-") as folder:
        project = tiny(Path(folder) / "project")
        file = project.folder / "deltaworks.toml"
        file.write_text(f"behind_seconds = {BEHIND_SECONDS}\n{file.read_text()}")
        project.take_dags("streams", "health")
        with running_stack(parts=("control", "kafka", "airflow"), project=project.folder) as settings:
            scene = Scene(settings, project)
            said(settings, "app", "start", "tiny")
            scene.notes(40)
            wait_until(scene.settled, what="the first notes", seconds_max=GREEN_SECONDS_MAX)
            yield scene


def main() -> int:
    """Print a line for each; the exit code."""
    with at_work() as scene:
        airflow = Airflow(scene.settings, "viewer")
        found = [timed(scene, airflow, trouble) for trouble in troubles(scene)]
    show.listing(list(map(asdict, found)), title="seconds until Airflow is red, and green again", as_json=False)
    late = [one.state for one in found if one.red_after > one.known_after + RED_SECONDS_MAX]
    for name in late:
        show.err.print(f"red too late: {name}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
