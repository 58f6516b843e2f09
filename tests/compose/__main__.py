"""The platform in containers: built, brought up, compared with its sources, killed, compared, taken down.

    .venv/spark/bin/python -m tests.compose [--base IMAGE|FILE.tar] [--no-build]

Exit code 1 if something did not hold.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from deltaworks.cli.demo import FAULTS
from deltaworks.cli.show import err, out
from deltaworks.errors import DeltaworksError, StackError
from tests.compose.engine import engine
from tests.compose.project import Project, certificates

UP_SECONDS_MAX = 1800.0  # a busy machine; on a quiet one two minutes
_DRIVERS_SECONDS_MAX = 900.0
_BALANCE = """
import sys
from deltaworks.engine.balance import balance
from deltaworks.settings import Settings
sys.exit("; ".join(balance(Settings.load(), seconds_max=900).findings))
"""
_APPS = ("shop", "web")
Say = Callable[[str], None]


def main(
    base: Annotated[str | None, typer.Option(help="Image, or a file to import as one, that ours start from.")] = None,
    build: Annotated[bool, typer.Option(help="Build the images, else take those that are there.")] = True,
) -> None:
    """Do all of it."""
    began = time.monotonic()

    def say(text: str) -> None:
        out.print(f"{time.monotonic() - began:7.1f} s  {text}", markup=False, soft_wrap=True)

    with (
        tempfile.TemporaryDirectory(prefix="deltaworks-compose-") as folder,
        engine(os.environ) as environment,  # this is the program
    ):
        project = Project(f"deltaworks-test-{os.getpid()}", environment, Path(folder), say)
        if build:
            project.build(base, certificates(environment))
        with _cleared(project):
            _proof(project, say)
        left = project.left()
        if left:
            raise StackError("containers", f"left: {', '.join(left)}", "Remove them with docker")
    say("it held, and nothing is left")


def _proof(project: Project, say: Say) -> None:
    project.up(seconds_max=UP_SECONDS_MAX)
    say(f"up: {', '.join(project.servers())}")
    project.inside("deltaworks", "table", "check")
    project.inside("deltaworks", "app", "start", "--all")
    _driven(project)
    say("Airflow has had both drivers started by the agent")
    _sent(project, say, views=600, orders=30)
    _compared(project, say)

    killed = _pid(project, "web")
    project.inside("sh", "-c", f"kill -9 {killed}")
    project.until(lambda: _pid(project, "web") not in (None, killed), "a next driver", seconds_max=_DRIVERS_SECONDS_MAX)
    say("kill -9 of a driver: the next one runs")
    for services in (["driver-host"], ["kafka"], project.servers()):
        project.kill(services)
        _sent_again(project, say, services)

    rows = _rows(project)
    project.compose("down", "--timeout", "60")
    kept = project.volumes()
    lost = {"airflow", "control", "kafka", "lake", "source"} - {one.rpartition("_")[2] for one in kept}
    if lost or project.left() != [f"volume {one}" for one in kept]:
        raise StackError("down", f"left {project.left()}", "See docker-compose.yml")
    project.up(seconds_max=UP_SECONDS_MAX)
    _driven(project)
    _compared(project, say)
    if (now := _rows(project)) < rows:
        raise StackError("down", f"kept {now} rows of {rows}", "See the volumes")
    project.inside("deltaworks", "app", "restart", "web")
    _driven(project)
    say("down keeps the data; app restart works")
    project.compose("down", "--volumes", "--timeout", "60")


@contextmanager
def _cleared(project: Project) -> Iterator[None]:
    """Take everything down, however it ends."""
    try:
        yield
    except BaseException:
        out.print(project.compose("ps", "--all", check=False), markup=False)
        raise
    finally:
        project.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", check=False)


def _driven(project: Project) -> None:
    """Wait until both apps have a driver that has been heard."""
    what = "drivers of both apps run"
    project.until(lambda: None not in [_pid(project, app) for app in _APPS], what, seconds_max=_DRIVERS_SECONDS_MAX)


def _pid(project: Project, app: str) -> int | None:
    """Pid of an app's driver that is well; None while there is none, or the command line has no answer."""
    text = project.inside("deltaworks", "app", "status", app, "--json", check=False)
    found = json.loads(text)[0] if text.startswith("[") else {}
    return found.get("pid") if found.get("state") in ("healthy", "idle", "behind") else None


def _sent(project: Project, say: Say, *, views: int, orders: int) -> None:
    rates = ["--rate", "50", "--order-rate", "2", *FAULTS, "--json"]
    project.python("-m", "shop.simulate", "--views", str(views), "--orders", str(orders), *rates)
    say(f"sent {views} page views and {orders} orders, with what else the shop does")


def _sent_again(project: Project, say: Say, services: list[str]) -> None:
    """After a death: all healthy again by itself, drivers too, then more rows, then the books."""
    project.until(lambda: not project.unwell(), "all healthy again", seconds_max=UP_SECONDS_MAX)
    _driven(project)
    say(f"kill -9 of {', '.join(services)}: healthy again")
    _sent(project, say, views=100, orders=5)
    _compared(project, say)


def _compared(project: Project, say: Say) -> None:
    """Wait until the ledger balances, then compare as the demo does."""
    told = project.python("-c", _BALANCE, check=False)
    if told.returncode != 0:
        raise StackError("the ledger", told.stdout[-2000:] + told.stderr[-1000:], "See above")
    done = project.python("-m", "shop.check", "--wait", "300", check=False)
    if done.returncode != 0:
        raise StackError("the comparison", done.stdout[-3000:] + done.stderr[-1000:], "See above")
    say("the ledger balances, and the lake is what Kafka and Postgres have")


def _rows(project: Project) -> int:
    text = project.inside("deltaworks", "sql", "select count(*) as n from bronze.web_events", "--json")
    return int(json.loads(text)[0]["n"])


if __name__ == "__main__":
    try:
        typer.run(main)
    except DeltaworksError as error:
        err.print(str(error), markup=False, soft_wrap=True)
        sys.exit(1)
