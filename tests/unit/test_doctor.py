"""What the doctor looks at without a stack: the sockets of Spark's drivers, played by the stand-in."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.local import doctor
from deltaworks.local.part import PartState, StackState, State
from deltaworks.settings import Settings
from deltaworks.supervise import launch
from tests.scratch_postgres import ScratchPostgres
from tests.unit.launching import run_in_this_session, scratch_project, wait_owned


@pytest.fixture
def settings(postgres: ScratchPostgres, tmp_path: Path) -> Iterator[Settings]:
    """Give a project whose driver listens for every machine, and in which it is wanted."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        (settings.data / "manners").write_text("listens")
        yield settings


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """Give its control store."""
    with Store(settings.control_dsn()) as store:
        store.desire("shop", "running", by="test")
        yield store


def test_driver_that_listens_for_other_machines_is_found(settings: Settings, store: Store) -> None:
    """A driver is a session of its own and no part of the stack; its ports are looked at all the same."""
    started = launch.start(settings, "shop")
    wait_owned(store, "shop", started.pid)

    found = list(doctor._loopback(settings))

    assert [(one.verdict, one.finding) for one in found] == [("fail", told(settings))]


def test_driver_of_a_shell_that_listens_for_other_machines_is_found(settings: Settings, store: Store) -> None:
    """Of a driver that nobody launched only the lease knows: the control store of the stack is asked."""
    own = processes.started(os.getpid())
    control = PartState(name="control", of="control", step=False, state="ready", since=0)
    settings.run.mkdir()
    StackState(generation=1, pid=os.getpid(), started=own, parts={"control": control}).write(settings.run)
    with run_in_this_session(settings, "shop") as drain:
        wait_owned(store, "shop", drain.pid)

        found = list(doctor._loopback(settings))

        launch.kill(settings, store, "shop")
    assert [(one.verdict, one.finding) for one in found] == [("fail", told(settings))]


@pytest.mark.parametrize(
    ("state", "seconds", "restarts", "verdict"),
    [
        ("starting", 1, 0, "warn"),
        ("starting", 90, 0, "fail"),
        ("starting", 1, 2, "fail"),
        ("backing-off", 1, 0, "fail"),
    ],
)
def test_part_that_has_just_begun_is_no_fault(
    tmp_path: Path, state: State, seconds: float, restarts: int, verdict: str
) -> None:
    """Each "up" runs some steps again; one that takes long, or failed before, is a fault."""
    settings = Settings.load(environment={}, data=tmp_path)
    settings.run.mkdir()
    part = PartState(name="topics", of="kafka", step=True, state=state, since=time.time() - seconds, restarts=restarts)
    own = processes.started(os.getpid())  # stands in for the supervisor: with none, every part is stopped
    StackState(generation=1, pid=os.getpid(), started=own, parts={"topics": part}).write(settings.run)

    assert [one.verdict for one in doctor._parts(settings)] == [verdict]


def told(settings: Settings) -> str:
    """What is to be said of the stand-in's port."""
    return f"port {(settings.data / 'port').read_text()} is open to other machines"
