import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.triggers.base import TriggerEvent

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.settings import Settings
from deltaworks.supervise import launch
from deltaworks.supervise.backoff import FAILURES_MAX
from deltaworks.supervise.launches import last_launch, remember
from deltaworks.supervise.stream import QUIET_SECONDS, StreamOperator, StreamTrigger
from tests.unit.launching import kill_leader, wait_for, wait_owned

CONTEXT = Context()


@pytest.fixture
def task(settings: Settings) -> StreamOperator:
    """Give the task of stream__shop."""
    return StreamOperator(task_id="supervise", app="shop", project=settings.project)


def test_a_wanted_app_is_started_and_watched(task: StreamOperator, store: Store, settings: Settings) -> None:
    """The first try starts the driver and leaves the worker."""
    trigger = deferred(task)

    driver = launch.running(settings, store, "shop")
    assert driver is not None
    wait_owned(store, "shop", driver.pid)
    assert trigger.app == "shop"


def test_the_next_try_adopts_the_living_driver(task: StreamOperator, store: Store, settings: Settings) -> None:
    """Cleared, marked failed, run anew: the driver is the same."""
    deferred(task)
    before = launch.running(settings, store, "shop")

    deferred(task)

    assert launch.running(settings, store, "shop") == before


def test_two_tries_at_once_start_one_driver(task: StreamOperator, store: Store, settings: Settings) -> None:
    """A run that was marked failed and the next one race; the lease is not there yet to tell them apart."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: deferred(task), range(2)))

    wait_for(lambda: store.lease("shop") is not None)
    lease = store.lease("shop")
    assert lease is not None
    assert lease.epoch == 1
    assert settings.logs.joinpath("app-shop.log").read_text().count("stand-in of shop") == 1


def test_an_app_that_is_stopped_stays_stopped_until_it_is_wanted(
    task: StreamOperator, store: Store, settings: Settings
) -> None:
    """The task waits without a driver; the wish wakes it."""
    store.desire("shop", "stopped", by="alice", reason="a test")
    trigger = deferred(task)

    early = fired(trigger, seconds_max=2.5)
    before = launch.running(settings, store, "shop")
    store.desire("shop", "running", by="alice", reason="a test")
    event = fired(trigger, seconds_max=4)

    assert (early, before) == (None, None)
    assert event is None, "no worker is needed"
    assert launch.running(settings, store, "shop") is not None


def test_what_the_trigger_cannot_start_fails_a_try(
    task: StreamOperator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, for people to see."""
    store.desire("shop", "stopped", by="alice", reason="a test")
    trigger = deferred(task)
    monkeypatch.setenv("DELTAWORKS_SPARK_PYTHON", "/nowhere/python")
    store.desire("shop", "running", by="alice", reason="a test")

    event = fired(trigger)

    assert event is not None
    assert (event["needs"], event["state"]) == ("start", "stopped")
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        task.resume(CONTEXT, event)


def test_a_killed_driver_fails_the_try_and_another_runs(
    task: StreamOperator, store: Store, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failed try is what people see in the grid; the new driver runs by then, and the next try adopts it."""
    trigger, pid = working(task, store, settings)
    says_last(settings, "its last words")
    kill_leader(pid)

    event = fired(trigger)
    successor = launch.running(settings, store, "shop")
    assert event is not None
    with pytest.raises(AirflowException, match="driver of shop dead") as failure:
        task.resume(CONTEXT, event)
    deferred(task)

    assert not isinstance(failure.value, AirflowFailException)
    assert "its last words" in capsys.readouterr().out
    driver = launch.running(settings, store, "shop")
    assert driver is not None
    assert successor is not None
    assert driver.pid == successor.pid != pid
    assert processes.members(pid) == []


def test_a_death_whose_successor_cannot_start_is_told_first(
    task: StreamOperator,
    store: Store,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the dead one said is not hidden by what was tried after it."""
    trigger, pid = working(task, store, settings)
    says_last(settings, "its last words")
    monkeypatch.setenv("DELTAWORKS_SPARK_PYTHON", "/nowhere/python")
    kill_leader(pid)

    event = fired(trigger)

    assert event is not None
    with pytest.raises(AirflowException, match="driver of shop dead"):
        task.resume(CONTEXT, event)
    assert "its last words" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        task.execute(CONTEXT)


def test_nothing_fires_in_the_first_seconds_of_a_deferral(
    task: StreamOperator, store: Store, settings: Settings
) -> None:
    """An event before the scheduler has seen the deferring process end would fail the task."""
    trigger, pid = working(task, store, settings)
    kill_leader(pid)
    fresh = StreamTrigger(app="shop", project=trigger.project, deferred_at=time.time() - QUIET_SECONDS + 3)

    began = time.monotonic()
    event = fired(fresh)

    assert event is not None
    assert event["needs"] == "burial"
    assert time.monotonic() - began > 2.5


def test_a_wish_ends_a_pause(task: StreamOperator, store: Store, settings: Settings) -> None:
    """Who asks for a restart need not wait for what a crash loop waits for."""
    trigger, pid = working(task, store, settings)
    kill_leader(pid)
    trigger.not_before = time.time() + 600
    held = fired(trigger, seconds_max=2.5)
    before = last_launch(settings, "shop")

    store.desire("shop", "stopped", by="alice", reason="a test")
    store.desire("shop", "running", by="alice", reason="a test")
    event = fired(trigger, seconds_max=4)

    assert (held, event) == (None, None)
    assert before is not None
    assert before.pid == pid
    assert launch.running(settings, store, "shop") is not None


def test_a_death_after_a_pause_is_told_by_a_trigger_made_anew(
    task: StreamOperator, store: Store, settings: Settings
) -> None:
    """What Airflow keeps of a trigger still has the pause, which was over before this driver was started."""
    trigger, pid = working(task, store, settings)
    last = last_launch(settings, "shop")
    assert last is not None
    _, kept = trigger.serialize()
    anew = StreamTrigger(**{**kept, "not_before": last.at - 1})
    kill_leader(pid)

    event = fired(anew)

    assert event is not None
    assert event["needs"] == "burial"


def test_the_trigger_sits_out_an_outage_of_the_control_store(
    task: StreamOperator, store: Store, settings: Settings, server: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """No event, no failure, one line of log; afterwards it sees again."""
    trigger, pid = working(task, store, settings)

    with closed_database(server[0]):
        during = fired(trigger, seconds_max=3.5)
    kill_leader(pid)
    after = fired(trigger)

    assert during is None
    assert after is not None
    assert after["needs"] == "burial"
    assert capsys.readouterr().out.count("Watching on") == 1  # Airflow's loggers write there


@pytest.mark.usefixtures("store")
def test_a_try_while_the_control_store_is_away_waits_for_it(
    task: StreamOperator, settings: Settings, server: tuple[str, int]
) -> None:
    """Not a failed try each second."""
    with closed_database(server[0]):
        trigger = deferred(task)
    before = last_launch(settings, "shop")

    event = fired(trigger, seconds_max=4)

    assert (before, event) == (None, None)
    assert last_launch(settings, "shop") is not None


@pytest.mark.usefixtures("store")
def test_a_crash_loop_fails_the_run_and_goes_on_with_pauses(
    task: StreamOperator, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """People see a failed run with the reason; the next run starts a driver, but not before its time."""
    (settings.data / "manners").write_text("crashes")
    trigger = deferred(task)
    last = last_launch(settings, "shop")
    assert last is not None
    remember(settings, "shop", replace(last, failures=FAILURES_MAX - 1))
    event = fired(trigger)
    assert event is not None

    with pytest.raises(AirflowFailException, match="6 in a row ended early"):
        task.resume(CONTEXT, event)
    paused = deferred(task)
    pause = paused.not_before
    early = fired(paused, seconds_max=2.5)
    paused.not_before = time.time() + 1.5
    held = fired(paused, seconds_max=4)

    assert "a reason in the log" in capsys.readouterr().out
    assert pause > time.time()
    assert early is None
    assert held is None
    assert paused.not_before == pause, "another trigger's word is no reason to start before its time"
    assert last_launch(settings, "shop") == replace(last, failures=FAILURES_MAX - 1), "nothing was started"


def test_a_driver_that_hangs_is_killed(task: StreamOperator, store: Store, settings: Settings) -> None:
    """Only the process that was judged, not one that came since."""
    (settings.data / "manners").write_text("hangs")
    deferred(task)
    wait_for(lambda: launch.running(settings, store, "shop") is not None and store.lease("shop") is not None)
    driver = launch.running(settings, store, "shop")
    assert driver is not None
    event = {"needs": "kill", "state": "stuck", "reason": "silent", "driver": [driver.pid + 1, "another"]}

    with pytest.raises(AirflowException, match="stuck"):
        task.resume(CONTEXT, event)
    spared = processes.lives(driver.pid, driver.process_started)
    with pytest.raises(AirflowException, match="stuck"):
        task.resume(CONTEXT, event | {"driver": [driver.pid, driver.process_started]})

    assert spared
    assert processes.members(driver.pid) == []


def test_marking_or_clearing_the_task_leaves_the_driver_alone(
    task: StreamOperator, store: Store, settings: Settings
) -> None:
    """Airflow calls on_kill for them, and for a trigger that it only moves."""
    trigger, pid = working(task, store, settings)

    asyncio.run(trigger.on_kill())

    driver = launch.running(settings, store, "shop")
    assert driver is not None
    assert driver.pid == pid


def test_the_trigger_is_made_again_from_what_it_says_of_itself(task: StreamOperator) -> None:
    """Airflow stores it and makes it anew in another process."""
    trigger = deferred(task)
    path, kwargs = trigger.serialize()

    assert path == "deltaworks.supervise.stream.StreamTrigger"
    assert StreamTrigger(**kwargs).serialize() == trigger.serialize()


def deferred(task: StreamOperator) -> StreamTrigger:
    """Run a try up to its deferral; the trigger is as if deferred long ago."""
    with pytest.raises(TaskDeferred) as raised:
        task.execute(CONTEXT)
    return _aged(raised.value)


def says_last(settings: Settings, words: str) -> None:
    """Have this at the end of the driver's log."""
    with (settings.logs / "app-shop.log").open("a") as log:
        print(words, file=log)


def working(task: StreamOperator, store: Store, settings: Settings) -> tuple[StreamTrigger, int]:
    """Have a driver at work; give its trigger and pid."""
    trigger = deferred(task)
    driver = launch.running(settings, store, "shop")
    assert driver is not None
    wait_owned(store, "shop", driver.pid)
    return trigger, driver.pid


def fired(trigger: StreamTrigger, *, seconds_max: float = 15) -> dict[str, Any] | None:
    """Run the trigger until its event; None if there is none in time."""

    async def first(events: AsyncIterator[TriggerEvent]) -> dict[str, Any]:
        async for event in events:
            payload: dict[str, Any] = event.payload
            return payload
        raise AssertionError("it ended without an event")

    async def run() -> dict[str, Any] | None:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(first(trigger.run()), seconds_max)
        return None

    return asyncio.run(run())


@contextlib.contextmanager
def closed_database(dsn: str) -> Any:
    """Let nobody into the control store, and throw out who is in."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter database deltaworks allow_connections false")
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = 'deltaworks'")
        try:
            yield
        finally:
            connection.execute("alter database deltaworks allow_connections true")


def _aged(deferral: TaskDeferred) -> StreamTrigger:
    trigger = deferral.trigger
    assert isinstance(trigger, StreamTrigger)
    assert deferral.method_name == "resume"
    trigger.deferred_at = 0
    return trigger
