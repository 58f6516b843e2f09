import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

from deltaworks.control import App, Heartbeat, Lease, Store
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise import health, launch
from deltaworks.supervise.health import (
    RED_SECONDS_MIN,
    STEADY_LOOKS,
    UNDECIDED_SECONDS_MAX,
    Changes,
    HealthOperator,
    HealthStream,
    newest,
)
from deltaworks.supervise.judge import Seen, State, Verdict
from deltaworks.supervise.launch import Launched
from tests.clocks import Clock
from tests.unit.airflow.test_assets import lost, stored
from tests.unit.launching import kill_leader, wait_owned

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
SEVEN = Launched(pid=7, process_started="s")
EIGHT = Launched(pid=8, process_started="t")
RUNNING = App(name="shop", desired="running", desired_by="ann", desired_at=NOW)
STOPPED = replace(RUNNING, desired="stopped", desired_at=NOW + timedelta(seconds=9))

LEASE = Lease(
    app="shop", owner="x", epoch=1, until=NOW, pid=7, process_started="s", host="h", acquired_at=NOW, released_at=None,
    seconds_left=12,
)  # fmt: skip


def on(driver: Launched | None = SEVEN, app: App = RUNNING, **progress: object) -> Seen:
    """A look at an app with that driver, whose heartbeat tells this."""
    beat = Heartbeat(app="shop", epoch=1, at=NOW, state="running", progress=progress, age_seconds=0.1)
    return Seen(at=NOW, app=app, heartbeat=beat, driver=driver)


def told(looks: list[tuple[Seen, Verdict]], *, apart: float = 1.0) -> list[tuple[bool, str]]:
    """What is told of these looks, so many seconds apart."""
    clock = Clock()
    changes, found = Changes("shop", clock=clock), []
    for seen, verdict in looks:
        if (one := changes.look(seen, verdict)) is not None:
            found.append((one.well, one.state))
        clock.pass_by(apart)
    return found


def looks(state: State, seen: Seen | None = None, *, times: int = 20, late: bool = False) -> list[tuple[Seen, Verdict]]:
    """The same look so many times."""
    return [(seen or on(), Verdict(state=state, reason="so", late=late))] * times


def test_what_is_well_is_told_once_it_lasts() -> None:
    """And not again, however its state changes."""
    assert told(looks("healthy", times=STEADY_LOOKS - 1)) == []
    assert told([*looks("healthy"), *looks("idle"), *looks("behind"), *looks("healthy")]) == [(True, "healthy")]


@pytest.mark.parametrize("state", ["suspended", "stuck", "behind"])
def test_what_is_not_well_is_told_at_once_and_green_comes_by_itself(state: State) -> None:
    """But not before a person could have seen it."""
    bad = looks(state, times=1, late=state == "behind")

    assert told([*looks("healthy"), *bad, *looks("healthy", times=int(RED_SECONDS_MIN) - 1)]) == [
        (True, "healthy"), (False, state),
    ]  # fmt: skip
    assert told([*looks("healthy"), *bad, *looks("healthy")]) == [(True, "healthy"), (False, state), (True, "healthy")]


def test_another_table_that_is_suspended_is_told_too() -> None:
    """The same ones are not, whatever their error says by now."""
    one = on(suspended={"silver.notes": {"error": "x"}})
    again = on(suspended={"silver.notes": {"error": "y"}})
    two = on(suspended={"silver.notes": {"error": "y"}, "gold.days": {"error": "z"}})

    found = [*looks("suspended", one), *looks("suspended", again), *looks("suspended", two)]

    assert told(found) == [(False, "suspended")] * 2


def broken(*rules: str, rows: int = 1, state: State = "healthy", late: bool = False) -> list[tuple[Seen, Verdict]]:
    """Looks at an app of which rows break these."""
    told = {"gold.days": [{"rule": rule, "rows": rows, "critical": True} for rule in rules]}
    return [(on(broken=told), Verdict(state=state, reason="so", late=late, broken=bool(rules)))] * 20


def test_what_rows_break_is_told_until_none_does() -> None:
    """More rows that break the same are nothing new; another rule is, and that something waits for too long."""
    first = [*looks("healthy"), *broken("above(n)"), *broken("above(n)", rows=9, state="idle")]
    further = [*broken("above(n)", "below(n)"), *broken("above(n)", "below(n)", state="behind", late=True)]

    assert told([*first, *further, *looks("healthy")]) == [
        (True, "healthy"), (False, "healthy"), (False, "healthy"), (False, "behind"), (True, "healthy"),
    ]  # fmt: skip


def test_nothing_is_told_well_while_rows_are_still_counted() -> None:
    """A driver that has just started does not know yet what the one before it knew."""
    counting = [(on(uncounted={"gold.days": 3}), Verdict(state="healthy", reason="so"))] * 200

    assert told([*broken("above(n)"), *counting]) == [(False, "healthy")]
    assert told([*broken("above(n)"), *counting, *looks("healthy")]) == [(False, "healthy"), (True, "healthy")]


def test_a_driver_that_died_is_told_however_soon_the_next_one_runs() -> None:
    """Also where each look saw a living one; what it leaves (`dead`, `failed`) is the same trouble."""
    successor = [*looks("healthy"), *looks("healthy", on(EIGHT))]
    between = [*looks("healthy"), *looks("dead", on(None)), *looks("starting", on(EIGHT)), *looks("healthy", on(EIGHT))]

    for seen in (successor, between):
        assert told(seen) == [(True, "healthy"), (False, "died"), (True, "healthy")]


def test_one_end_is_told_once() -> None:
    """A driver that hung, or gave up, and then is gone."""
    seen = [*looks("healthy"), *looks("stuck"), *looks("dead", on(None)), *looks("healthy", on(EIGHT))]

    assert told(seen) == [(True, "healthy"), (False, "stuck"), (True, "healthy")]


def test_a_store_that_is_away_for_long_is_not_well() -> None:
    """Nobody knows how it is then; for a moment that is nothing to tell."""
    clock = Clock()
    changes, found = Changes("shop", clock=clock), []
    for _ in range(int(UNDECIDED_SECONDS_MAX) + 20):
        found.append(changes.unsure("unknown", "not reachable"))
        clock.pass_by(1)

    (one,) = filter(None, found)
    assert (one.well, one.state) == (False, "unknown")


def test_a_crash_loop_stays_red() -> None:
    """Each death is told, and it is not green in between."""
    seen = looks("healthy", times=3)
    for pid in range(8, 11):
        seen += looks("starting", on(Launched(pid=pid, process_started="s")), times=5)
        seen += looks("failed", on(None), times=30)

    assert told(seen) == [(True, "healthy"), *[(False, "died")] * 4]


def test_what_a_person_wants_is_well() -> None:
    """A stop, a restart: no driver dies of these, and who waits for the next one says nothing."""
    again = replace(RUNNING, desired_at=NOW + timedelta(seconds=20))
    seen = [
        *looks("healthy"), *looks("draining", on(app=STOPPED)), *looks("stopped", on(None, STOPPED)),
        *looks("stopped", on(None, again)), *looks("starting", on(EIGHT, again)), *looks("healthy", on(EIGHT, again)),
    ]  # fmt: skip

    assert told(seen) == [(True, "healthy")]


@pytest.mark.parametrize("last_words", ["stopped", "draining"])
def test_a_driver_that_ends_in_order_has_not_died(last_words: Any) -> None:
    """As one that a person runs until all is taken: its last words may come after the last look that saw it."""
    one, other = (replace(on(driver), lease=LEASE) for driver in (SEVEN, EIGHT))
    assert one.heartbeat is not None
    gone = replace(one, driver=None, heartbeat=replace(one.heartbeat, state=last_words))
    next_one = replace(other, lease=replace(LEASE, epoch=2))

    assert told([*looks("healthy", one), *looks("stopped", gone, times=3), *looks("healthy", next_one)]) == [
        (True, "healthy")
    ]


@pytest.mark.parametrize("state", ["starting", "stopped"])
def test_what_is_undecided_for_long_is_not_well(state: State) -> None:
    """Where nobody starts the driver that is wanted, or one starts for ever, the last green is not the truth."""
    seen = [*looks("healthy"), *looks(state, times=int(UNDECIDED_SECONDS_MAX)), *looks(state, times=30)]

    assert told(seen) == [(True, "healthy"), (False, state)]
    assert told([*looks("healthy"), *looks(state, times=30), *looks("healthy")]) == [(True, "healthy")]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are for Airflow's scheduler and for people, who are not here."""
    for name, seconds in (("APART_SECONDS", 0.05), ("POLL_SECONDS", 0.1), ("RED_SECONDS_MIN", 0.1)):
        monkeypatch.setattr(health, name, seconds)


@pytest.mark.usefixtures("quick")
def test_the_stream_tells_what_happens_to_a_driver(store: Store, settings: Settings) -> None:
    """A real process that is killed; what Airflow could not store is given out again."""
    first = launch.start(settings, "shop")
    wait_owned(store, "shop", first.pid)

    def killed() -> None:
        kill_leader(first.pid)

    def next_one() -> None:
        wait_owned(store, "shop", launch.start(settings, "shop").pid)

    def nothing() -> None:
        pass

    answers = [(stored(), killed), (lost(), nothing), (stored(), next_one), (stored(), nothing)]
    found = asyncio.run(given(settings, answers))

    assert [(one["well"], one["state"]) for one in found] == [
        (True, "healthy"), (False, "died"), (False, "died"), (True, "healthy"),
    ]  # fmt: skip
    assert f"the driver with pid {first.pid} ended" in found[1]["reason"]


async def given(
    settings: Settings, answers: list[tuple[AdvanceOutcome, Callable[[], None]]]
) -> list[Mapping[str, Any]]:
    """What the stream gives, each of which is stored or lost, after which something is done."""
    stream = HealthStream(app="shop", project=settings.project)
    found = []
    opened = stream.open_stream()
    for outcome, then in answers:
        payload, broker_payload = await asyncio.wait_for(anext(opened), 30)
        found.append(payload)
        await asyncio.to_thread(then)
        await stream.advance([AdvanceItem(broker_payload=broker_payload, outcome=outcome)])
    await stream.aclose()
    return found


def test_a_run_is_as_the_newest_event_says(settings: Settings) -> None:
    """It fails with the reason; by hand it looks itself."""
    task = HealthOperator(task_id="health", app="shop", project=settings.project)
    bad = {"app": "shop", "well": False, "state": "suspended", "reason": "gold.days: no such column"}
    well = {"app": "shop", "well": True, "state": "healthy", "reason": "nothing waits"}

    with pytest.raises(AirflowFailException, match="shop is suspended: gold.days: no such column"):
        task.execute(context(well, bad))
    assert task.execute(context(bad, well)) == well
    assert newest({"a": []}) is None
    assert task.execute(context())["state"] == "stopped"
    with Store(settings.control_dsn()) as store:
        store.desire("shop", "running", by="ann", reason="a test")
    with pytest.raises(AirflowSkipException, match="Look again"):
        task.execute(context())


@pytest.mark.usefixtures("settings")
def test_each_app_has_a_dag_that_can_be_stored() -> None:
    """With its own watcher."""
    bag = DagBag(dag_folder=ROOT / "dags" / "health.py")

    assert bag.import_errors == {}
    assert set(bag.dags) == {"health__shop", "health__web"}
    for dag in bag.dags.values():
        assert DagSerialization.to_dict(dag)


def context(*payloads: Mapping[str, Any]) -> Any:
    """What Airflow hands to a run of these events, the newest last."""
    events = [
        SimpleNamespace(timestamp=NOW + timedelta(seconds=at), extra={"payload": dict(payload)})
        for at, payload in enumerate(payloads)
    ]
    return {"triggering_asset_events": {"asset": list(reversed(events))}}
