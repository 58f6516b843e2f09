"""The agent that starts drivers where the lake is, asked by the control store: a real one, over stand-ins."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.errors import ControlError, StackError
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise import launch, launcher
from deltaworks.supervise.agent import BEAT, Agent
from deltaworks.supervise.judging import Wanted
from deltaworks.supervise.launcher import AtAgent, Beside, launcher_of, running
from deltaworks.supervise.watch import judged, look
from tests.scratch_postgres import ScratchPostgres
from tests.unit.launching import kill_leader, scratch_project, wait_for, wait_owned, wanting_store


@pytest.fixture
def settings(postgres: ScratchPostgres, tmp_path: Path) -> Iterator[Settings]:
    """Give the agent's own settings; its driver is the stand-in."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        yield settings


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """Give the control store, in which both apps are wanted."""
    with wanting_store(settings) as store:
        yield store


@pytest.fixture
def there(settings: Settings, store: Store, tmp_path: Path) -> Iterator[AtAgent]:
    """Give a supervisor's side: it has nothing of the agent's host but the control store and its password."""
    elsewhere = settings.changed(launcher="agent", data=tmp_path / "elsewhere", spark_python=tmp_path / "no python")
    elsewhere.secrets.mkdir(parents=True)
    (elsewhere.secrets / "deltaworks").write_text(settings.secret("deltaworks"))
    found = launcher_of(elsewhere, store)
    assert isinstance(found, AtAgent)
    yield found
    assert not (elsewhere.data / "run").exists()
    assert not (elsewhere.data / "logs").exists()


@pytest.fixture
def agent(settings: Settings, store: Store) -> Iterator["subprocess.Popen[bytes]"]:
    """Give a running agent that has told of every app."""
    process = begin(settings, store)
    yield process
    if process.poll() is None:
        process.kill()
        process.wait()


def begin(settings: Settings, store: Store) -> "subprocess.Popen[bytes]":
    """Start an agent and wait until it has told."""
    (settings.run / BEAT).unlink(missing_ok=True)
    command = [sys.executable, "-m", "deltaworks.supervise.agent"]
    process = subprocess.Popen(command, cwd=ROOT, env=settings.inherited(), stdout=subprocess.DEVNULL)
    wait_for(lambda: (settings.run / BEAT).exists() and store.driver_there("web") is not None)
    return process


def test_without_a_word_drivers_start_beside_their_supervisor(settings: Settings, store: Store) -> None:
    """As ever: a process of this machine."""
    assert isinstance(launcher_of(settings, store), Beside)


@pytest.mark.usefixtures("agent")
def test_a_driver_is_started_where_the_agent_is_and_adopted(settings: Settings, store: Store, there: AtAgent) -> None:
    """Who asks twice gets the same one; a look from elsewhere and one from there agree."""
    first = there.start("shop")
    wait_owned(store, "shop", first.pid)

    second = there.start("shop")
    found = there.drivers("shop", store.lease("shop"))

    assert (first.adopted, second.adopted) == (False, True)
    assert (second.pid, second.process_started) == (first.pid, first.process_started)
    assert processes.lives(first.pid, first.process_started)
    assert found.running is not None
    assert found.running.pid == first.pid
    assert found.launched_at == look(settings, store, "shop").launched_at or found.launched_at is not None


@pytest.mark.usefixtures("agent")
def test_a_death_is_told_with_the_log_and_how_the_driver_did(store: Store, there: AtAgent) -> None:
    """A supervisor elsewhere sees the end within seconds, reads the log's end, and starts the next one at once."""
    old = there.start("shop")
    wait_owned(store, "shop", old.pid)
    kill_leader(old.pid)
    wait_for(lambda: running(there, store, "shop") is None)

    failures, size = there.past("shop").failures, there.log_bytes("shop")
    new = there.start("shop")

    assert failures == 0, "it committed before it died"
    assert size > 0
    assert "driver of shop starts" in there.log("shop")
    assert "stand-in of shop: works" in there.log("shop", upto=size)
    assert new.pid != old.pid
    wait_owned(store, "shop", new.pid)


@pytest.mark.usefixtures("agent")
def test_a_driver_that_ends_early_counts_as_such_elsewhere_too(
    settings: Settings, store: Store, there: AtAgent
) -> None:
    """What the agent wrote down at the start is told, so that pauses grow."""
    (settings.data / "manners").write_text("crashes")

    there.start("shop")
    wait_for(lambda: running(there, store, "shop") is None)

    assert there.past("shop").failures == 1
    assert "a reason in the log" in there.log("shop")


@pytest.mark.usefixtures("agent")
def test_only_the_driver_that_is_meant_is_killed(store: Store, there: AtAgent) -> None:
    """A request about one that has a successor by now does nothing to it."""
    old = there.start("shop")
    wait_owned(store, "shop", old.pid)

    assert there.kill("shop", launch.Launched(pid=old.pid, process_started="another")) == 0
    assert processes.lives(old.pid, old.process_started)
    assert there.kill("shop", old) > 0
    assert not processes.lives(old.pid, old.process_started)
    wait_for(lambda: running(there, store, "shop") is None)


@pytest.mark.usefixtures("agent")
def test_an_owner_for_one_command_is_started_there_and_its_end_is_told(store: Store, there: AtAgent) -> None:
    """Of a stopped app, as beside its supervisor."""
    store.desire("shop", "stopped", by="test", reason="a test")
    number = store.send(app="shop", table="silver.orders", kind="compact", arguments={}, by="test", reason="a test")

    owner = there.start_owner(store.command(number))
    wait_for(lambda: owner.poll() is not None)

    assert owner.poll() == 0
    assert store.command(number).state == "done"


@pytest.mark.usefixtures("agent")
def test_what_cannot_be_done_there_is_told_as_here(settings: Settings, there: AtAgent) -> None:
    """Place, finding and next step come back to who asked."""
    settings.spark_python.unlink()

    with pytest.raises(StackError, match="app shop start: cannot be done"):
        there.start("shop")


def test_a_silent_agent_is_no_dead_driver(
    store: Store, there: AtAgent, agent: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """While its lease holds the driver counts as living, then nothing is known; nobody buries it or starts another."""
    driver = there.start("shop")
    wait_owned(store, "shop", driver.pid)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    monkeypatch.setattr(launcher, "SILENT_SECONDS_MAX", 1.5)
    monkeypatch.setattr(launcher, "ANSWER_SECONDS_MAX", 0.5)
    wait_for(lambda: (store.driver_there("shop") or pytest.fail("it told")).age_seconds > 2)

    while_it_holds = there.drivers("shop", store.lease("shop")).running
    os.kill(driver.pid, signal.SIGKILL)
    lease = store.lease("shop")
    assert lease is not None
    store.release(lease)

    assert while_it_holds is not None
    assert while_it_holds.pid == driver.pid
    with pytest.raises(ControlError, match="driver host: .* has not been heard for"):
        there.drivers("shop", store.lease("shop"))
    with pytest.raises(ControlError, match="has not been heard for"):
        there.start("shop")
    assert store.take_request(call=uuid.uuid4()) is None, "it was withdrawn"


def test_the_end_of_an_agent_drains_and_its_next_start_wants_the_apps_again(
    settings: Settings, store: Store, there: AtAgent, agent: "subprocess.Popen[bytes]"
) -> None:
    """As down and up of the local stack; what a person stopped stays so."""
    store.desire("web", "stopped", by="a person", reason="a test")
    driver = there.start("shop")
    wait_owned(store, "shop", driver.pid)

    agent.send_signal(signal.SIGTERM)
    code = agent.wait(120)
    down = {app.name: app.desired for app in store.apps()}
    drained = store.heartbeat("shop")
    again = begin(settings, store)
    try:
        up = {app.name: app.desired for app in store.apps()}
    finally:
        again.kill()
        again.wait()

    assert code == 0
    assert drained is not None
    assert drained.state == "stopped"
    assert not processes.lives(driver.pid, driver.process_started)
    assert (down["shop"], down["web"]) == ("stopped", "stopped")
    assert (up["shop"], up["web"]) == ("running", "stopped")


def test_an_agent_that_comes_back_adopts_what_lives(
    settings: Settings, store: Store, there: AtAgent, agent: "subprocess.Popen[bytes]"
) -> None:
    """It was killed alone: its drivers are sessions of their own."""
    driver = there.start("shop")
    wait_owned(store, "shop", driver.pid)
    agent.send_signal(signal.SIGKILL)
    agent.wait()

    again = begin(settings, store)
    try:
        adopted = there.start("shop")
    finally:
        again.kill()
        again.wait()

    assert adopted.adopted
    assert adopted.pid == driver.pid


@pytest.mark.usefixtures("agent")
def test_a_lake_has_one_agent(settings: Settings) -> None:
    """To another one, in another container, the first one's drivers would look dead."""
    command = [sys.executable, "-m", "deltaworks.supervise.agent"]

    second = subprocess.run(command, cwd=ROOT, env=settings.inherited(), capture_output=True, text=True, check=False)

    assert second.returncode == 3
    assert "another agent works on this lake" in second.stdout


def test_an_old_request_is_not_done_and_an_owner_whose_agent_is_gone_has_ended(
    settings: Settings, store: Store
) -> None:
    """Who asked for it has given up by then, and waits for no end that nobody can tell."""
    number = store.ask_agent("shop", "owner", {"command": 1}, call=uuid.uuid4())
    assert store.take_request(call=uuid.uuid4()) is not None
    store.answer_request(number, answer={"pid": 4711})

    Agent(settings, store).begin()

    found = store.launch_request(number)
    assert found is not None
    assert found.answer == {"pid": 4711, "code": -9}


@pytest.mark.usefixtures("agent")
def test_a_suite_is_judged_there_and_what_it_said_is_told(settings: Settings, there: AtAgent) -> None:
    """Its words are those of a person; what it said and its errors come back apart."""
    settings.spark_python.unlink()
    settings.spark_python.write_text('#!/bin/sh\necho "$@"\necho gone wrong >&2\n')
    settings.spark_python.chmod(0o755)

    judging = there.judge("shop", Wanted(table="gold.carts", days=("2026-11-20",)))
    wait_for(lambda: judging.poll() is not None)

    said = judging.poll()
    assert said is not None
    assert said.outcome.endswith("quality run gold.carts --json --day 2026-11-20")
    assert said.errors == "gone wrong"


@pytest.mark.usefixtures("agent")
def test_status_and_health_are_judged_the_same_from_elsewhere(store: Store, there: AtAgent) -> None:
    """The words of `app status`, whoever starts the driver."""
    wait_owned(store, "shop", there.start("shop").pid)

    def well() -> bool:
        return judged(there._settings, store, "shop")[1].state == "healthy"

    wait_for(well)
