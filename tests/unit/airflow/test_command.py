import asyncio
from pathlib import Path

import psycopg
import pytest
from airflow.triggers.base import TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from deltaworks.control import Store
from deltaworks.settings import Settings
from deltaworks.supervise import launch
from deltaworks.supervise.command import CommandOperator, CommandTrigger
from tests.unit.airflow.triggers import ended, of_run


def test_an_order_is_given_and_its_result_ends_the_task(store: Store, settings: Settings) -> None:
    """The driver does it between two batches; the result is the task's XCom."""
    launch.start(settings, "shop")

    event = ended(compact(settings))

    assert isinstance(event, TaskSuccessEvent)
    assert event.xcoms == {"return_value": {"files_before": 9, "files_after": 1, "rows": 100}}
    sent = store.commands("shop", kind="compact")[0]
    assert (sent.table_name, sent.requested_by, sent.reason) == ("silver.orders", "airflow maintain__shop", "run-1")


def test_a_trigger_that_starts_again_does_not_give_the_order_twice(store: Store, settings: Settings) -> None:
    """A triggerer restart in the middle finds the order of its run."""
    first = ended(compact(settings), seconds_max=1.5)
    launch.start(settings, "shop")

    second = ended(compact(settings))

    assert first is None
    assert isinstance(second, TaskSuccessEvent)
    assert len(store.commands("shop", kind="compact")) == 1


def test_many_orders_share_a_connection(store: Store, settings: Settings) -> None:
    """Maintenance waits for those of every table at once, and a server has but so many connections."""
    triggers = [compact(settings, table=f"silver.orders_{number}") for number in range(20)]

    async def waited() -> int:
        waiting = [asyncio.create_task(first_event(trigger)) for trigger in triggers]
        for _ in range(100):
            if len(store.commands("shop", "queued")) == len(triggers):
                break
            await asyncio.sleep(0.1)
        with psycopg.connect(settings.control_dsn()) as own:
            found = own.execute("select count(*) from pg_stat_activity where usename = current_user").fetchone()
        for task in waiting:
            task.cancel()
        assert found is not None
        return int(found[0])

    assert asyncio.run(waited()) <= 3  # theirs, the test's own two


def test_an_order_that_fails_fails_the_task(store: Store, settings: Settings) -> None:
    """With the owner's own words in the log."""
    trigger = compact(settings)
    ended(trigger, seconds_max=1.5)
    command = store.take("shop")
    assert command is not None
    store.fail(command.id, "disk full")

    event = ended(trigger)

    assert isinstance(event, TaskFailedEvent)


def test_a_task_that_is_cleared_gives_its_order_again(store: Store, settings: Settings) -> None:
    """Its next try is one that may pass; the order of before stays as it ended."""
    ended(compact(settings), seconds_max=1.5)
    command = store.take("shop")
    assert command is not None
    store.fail(command.id, "disk full")
    launch.start(settings, "shop")

    event = ended(compact(settings, number=2))

    assert isinstance(event, TaskSuccessEvent)
    assert [(one.reason, one.state) for one in store.commands("shop", kind="compact")] == [
        ("run-1, try 2", "done"),
        ("run-1", "failed"),
    ]


def test_a_task_that_is_cleared_meanwhile_goes_on_waiting(store: Store, settings: Settings) -> None:
    """Two compactions of one table are one too many."""
    ended(compact(settings), seconds_max=1.5)
    launch.start(settings, "shop")

    event = ended(compact(settings, number=2))

    assert isinstance(event, TaskSuccessEvent)
    assert [one.reason for one in store.commands("shop", kind="compact")] == ["run-1"]


@pytest.mark.parametrize("sent_before", [False, True])
def test_a_stopped_app_is_skipped(store: Store, settings: Settings, *, sent_before: bool) -> None:
    """Nothing waits in the queue for the day when it is started again."""
    if sent_before:
        ended(compact(settings), seconds_max=1.5)
    store.desire("shop", "stopped", by="alice", reason="a test")

    event = ended(compact(settings))

    assert isinstance(event, TaskSkippedEvent)
    assert store.commands("shop", "queued") == []
    assert len(store.commands("shop", "cancelled")) == sent_before


def test_the_task_starts_in_the_triggerer(settings: Settings) -> None:
    """No worker process for sending and waiting: what the scheduler stores makes the same trigger."""
    task = CommandOperator(task_id="t", trigger=compact(settings))

    assert task.start_from_trigger
    assert task.start_trigger_args is not None
    made = CommandTrigger(**(task.start_trigger_args.trigger_kwargs or {}))
    assert made.serialize() == compact(settings).serialize()
    assert task.start_trigger_args.trigger_cls == made.serialize()[0]


def compact(settings: Settings, table: str = "silver.orders", *, number: int = 1) -> CommandTrigger:
    """The trigger of so many a try of a task of the run `run-1`."""
    project = str(Path(settings.project))
    trigger = CommandTrigger(app="shop", table=table, kind="compact", project=project)
    return of_run(trigger, "maintain__shop", number=number)


async def first_event(trigger: CommandTrigger) -> TriggerEvent:
    """What the trigger says at last."""
    return await anext(trigger.run())
