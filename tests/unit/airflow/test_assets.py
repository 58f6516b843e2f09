import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

from deltaworks.control import Store
from deltaworks.settings import Settings
from deltaworks.supervise import assets
from deltaworks.supervise.assets import ClosedPartitionStream, PartitionClosedTrigger, closed, gold

TABLE = "gold.daily_orders"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause between two events is for Airflow's scheduler, which is not here."""
    monkeypatch.setattr(assets, "APART_SECONDS", 0.05)
    monkeypatch.setattr(assets, "POLL_SECONDS", 0.05)


def test_each_closed_partition_is_given_once_and_in_order(store: Store, settings: Settings) -> None:
    """The next one comes when the one before is stored and marked."""
    for day, version in (("2026-11-19", 3), ("2026-11-20", 7)):
        store.close_partition(TABLE, day, version)

    given = asyncio.run(take(settings, count=2, outcomes=[stored(), stored()]))

    assert given == [{"partition": "2026-11-19", "version": 3}, {"partition": "2026-11-20", "version": 7}]
    assert store.unannounced_partitions(TABLE) == []


def test_a_partition_whose_event_was_not_stored_is_given_again(store: Store, settings: Settings) -> None:
    """At least once, whatever dies: the mark is set after Airflow has it."""
    store.close_partition(TABLE, "2026-11-20", 7)

    given = asyncio.run(take(settings, count=2, outcomes=[lost(), stored()]))

    assert [one["partition"] for one in given] == ["2026-11-20", "2026-11-20"]


def test_a_stream_that_ends_before_the_event_is_stored_marks_nothing(store: Store, settings: Settings) -> None:
    """A triggerer killed in between announces again."""
    store.close_partition(TABLE, "2026-11-20", 7)

    asyncio.run(take(settings, count=1, outcomes=[]))

    assert [one.partition for one in store.unannounced_partitions(TABLE)] == ["2026-11-20"]


def test_the_asset_is_the_same_wherever_it_is_named(settings: Settings) -> None:
    """Airflow knows a watcher by its trigger: two spellings of one asset would take it from each other."""
    one, other = gold(TABLE), gold(TABLE, project=settings.project)

    assert (one.name, one.uri) == (TABLE, "deltaworks://gold/daily_orders")
    assert [watcher.trigger.serialize() for watcher in one.watchers] == [
        watcher.trigger.serialize() for watcher in other.watchers
    ]


def test_the_trigger_is_made_again_from_what_it_says_of_itself() -> None:
    """Airflow stores it and makes it anew in another process."""
    path, kwargs = PartitionClosedTrigger(table=TABLE, project="/p").serialize()

    assert path == "deltaworks.supervise.assets.PartitionClosedTrigger"
    assert PartitionClosedTrigger(**kwargs).serialize() == (path, kwargs)


def test_partitions_are_read_from_the_events_of_a_run() -> None:
    """Several come in one run, twice after a crash, or none if a person marked something."""
    events = {
        gold_key: [event("2026-11-20"), event("2026-11-19"), event("2026-11-20"), event(None)] for gold_key in "a"
    }

    assert closed(events) == ["2026-11-19", "2026-11-20"]


def event(partition: str | None) -> Any:
    """An asset event as a task gets it."""
    payload = {"partition": partition, "version": 1}
    return SimpleNamespace(extra={"from_trigger": True, "payload": payload} if partition else {})


def stored() -> AdvanceOutcome:
    """Airflow has the event."""
    return AdvanceOutcome(acked=1, failed=0, rejected=0)


def lost() -> AdvanceOutcome:
    """Airflow has it not."""
    return AdvanceOutcome(acked=0, failed=1, rejected=0)


async def take(settings: Settings, *, count: int, outcomes: list[AdvanceOutcome]) -> list[dict[str, Any]]:
    """Be the triggerer: take events and say what became of each."""
    stream = ClosedPartitionStream(table=TABLE, project=settings.project)
    given: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        events = stream.open_stream()
        while len(given) < count:
            raw, payload = await anext(events)
            given.append(raw)
            if len(given) <= len(outcomes):
                await stream.advance([AdvanceItem(payload, outcomes[len(given) - 1])])
    await stream.aclose()
    return given
