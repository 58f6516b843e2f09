from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deltaworks.control import App, Heartbeat, Lease
from deltaworks.supervise.judge import Limits, Needs, Seen, State, judge
from deltaworks.supervise.launch import Launched

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG = 10_000.0


def ago(seconds: float) -> datetime:
    """A time before NOW."""
    return NOW - timedelta(seconds=seconds)


def wanted(desired: Any = "running", *, since: float = 5000) -> App:
    """The wish of a person."""
    return App(name="shop", desired=desired, desired_by="alice", desired_at=ago(since))


def lease(*, left: float = 12, since: float = 1000) -> Lease:
    """The lease of the driver with pid 7."""
    return Lease(
        app="shop", owner="x", epoch=3, until=NOW + timedelta(seconds=left), pid=7, process_started="s", host="h",
        acquired_at=ago(since), released_at=None, seconds_left=left,
    )  # fmt: skip


def beat(state: Any = "running", *, age: float = 0.5, epoch: int = 3, **progress: object) -> Heartbeat:
    """A heartbeat of that driver."""
    return Heartbeat(app="shop", epoch=epoch, at=ago(age), state=state, progress=progress, age_seconds=age)


def rows(count: int) -> dict[str, object]:
    """A lag of so many rows."""
    return {"shop.changes": {"0": count}}


def iso(seconds: float) -> str:
    """A time before NOW, as drivers write it."""
    return ago(seconds).isoformat()


DRIVER = Launched(pid=7, process_started="s", adopted=True)
FRESH = ago(5)
MOVING = beat(lag=rows(10), last_commit_at=iso(1))
HALTED = beat(lag=rows(5), last_commit_at=iso(700), error="disk full")
FAILING = {"silver.notes": {"error": "thirteen words", "since": iso(60), "failures": 3}}
MOVING_WITHOUT = beat(lag=rows(10), last_commit_at=iso(1), suspended=FAILING)
HALTED_WITHOUT = beat(lag=rows(5), last_commit_at=iso(700), suspended=FAILING)
BROKEN = {
    "gold.days": [
        {"rule": "above(n)", "rows": 2, "critical": True}, {"rule": "above(n)", "rows": 1, "critical": True},
        {"rule": "odd(n)", "rows": 9, "critical": False},
    ]
}  # fmt: skip
POISON = beat("failed", error="poison")
OVER = lease(left=-70)


def on(heartbeat: Heartbeat | None = None, **seen: Any) -> Seen:
    """A driver that was started 1,000 s ago and has its lease."""
    known = Seen(at=NOW, app=wanted(), lease=lease(), driver=DRIVER, launched_at=ago(1000), heartbeat=heartbeat)
    return replace(known, **seen)


def gone(heartbeat: Heartbeat | None = None, **seen: Any) -> Seen:
    """The same, its process gone."""
    return on(heartbeat, driver=None, **seen)


@dataclass(frozen=True)
class Case:
    """What is seen, and what it means."""

    name: str
    seen: Seen
    state: State
    needs: Needs | None = None
    watched: float = LONG
    says: str = ""


CASES = [
    Case("never started", Seen(at=NOW, app=wanted()), "stopped", "start"),
    Case("stopped as wanted", Seen(at=NOW, app=wanted("stopped")), "stopped", says="alice"),
    Case("no lease yet", on(lease=None, launched_at=FRESH), "starting"),
    Case("a predecessor's lease", on(driver=replace(DRIVER, pid=8), launched_at=FRESH), "starting"),
    Case("lease without a beat", on(launched_at=FRESH), "starting"),
    Case("Spark starts", on(beat("starting"), launched_at=ago(90)), "starting"),
    Case("Spark never starts", on(beat("starting")), "stuck", "kill"),
    Case("no lease for long", on(lease=None), "stuck", "kill"),
    Case("rows move", on(MOVING), "healthy"),
    Case("no rows for a moment", on(beat(lag=rows(0), last_commit_at=iso(3))), "healthy"),
    Case("no rows for long", on(beat(lag=rows(0), last_commit_at=iso(90))), "idle"),
    Case("nothing ever came", on(beat()), "idle"),
    Case("more waits than a batch", on(beat(lag=rows(60_000), last_commit_at=iso(1))), "behind", says="60,000 rows"),
    Case("a table is suspended", on(beat(lag=rows(0), suspended=FAILING)), "suspended", says="silver.notes: thirteen"),
    Case("a table is suspended, rows move", on(MOVING_WITHOUT), "suspended", says="rows wait"),
    Case("a table is suspended, a command is at work", on(MOVING_WITHOUT, busy_with="command 4"), "suspended"),
    Case("a table is suspended, nothing moves", on(HALTED_WITHOUT), "stuck", "kill"),
    Case("no progress", on(HALTED), "stuck", "kill", says="disk full"),
    Case("a command is at work", on(HALTED, busy_with="command 4 (compact)"), "healthy", says="command 4"),
    Case("no progress that anybody watched", on(HALTED), "healthy", watched=20),
    Case("silent", on(beat(age=61)), "stuck", "kill", says="not been heard for 61 s"),
    Case("silent while the store was away", on(beat(age=600)), "idle", watched=3),
    Case("lease over, beats on", on(MOVING, lease=OVER), "stuck", "kill"),
    Case("lease over, the store just came back", on(MOVING, lease=OVER), "healthy", watched=2),
    Case("draining as wanted", on(MOVING, app=wanted("stopped")), "draining"),
    Case("draining by itself", on(beat("draining")), "draining"),
    Case("drains and hangs", on(HALTED, app=wanted("stopped", since=650)), "stuck", "kill", says="does not end"),
    Case("drains and hangs, never committed", on(beat("draining"), app=wanted("stopped")), "stuck", "kill"),
    Case("drains for a while", on(HALTED, app=wanted("stopped", since=500)), "draining"),
    Case("drains and hangs, nobody watched", on(HALTED, app=wanted("stopped")), "draining", watched=20),
    Case("a command while stopped", on(beat(), app=wanted("stopped"), busy_with="command 4"), "draining"),
    Case("a person's drain works on", on(MOVING, app=wanted("stopped", since=99_000)), "draining"),
    Case("a person's drain began", on(beat(), app=wanted("stopped", since=99_000), launched_at=FRESH), "draining"),
    Case("wanted stopped before the first beat", on(app=wanted("stopped", since=2), launched_at=FRESH), "draining"),
    Case("wanted stopped, does not hear", on(beat(age=61), app=wanted("stopped")), "stuck", "kill"),
    Case("wanted stopped, never heard", on(lease=None, app=wanted("stopped")), "stuck", "kill"),
    Case("gives up", on(POISON), "failed", says="poison"),
    Case("gave up", gone(POISON), "failed", "burial", says="poison"),
    Case("killed", gone(MOVING), "dead", "burial", says="it was running"),
    Case("killed before its first beat", gone(beat(epoch=2)), "dead", "burial"),
    Case("ended without a lease after a good one", gone(beat("stopped"), launched_at=FRESH), "dead", "burial"),
    Case("killed, but stopped is wanted", gone(MOVING, app=wanted("stopped")), "stopped"),
    Case("ended in order, wanted again", gone(beat("stopped")), "stopped", "start"),
    Case("killed, then wanted anew", gone(MOVING, app=wanted(since=10)), "stopped", "start"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_app_is_judged_from_what_is_seen(case: Case) -> None:
    """Every state has a cause that a person can read, and only some of them need something done."""
    verdict = judge(case.seen, watched_seconds=case.watched, limits=Limits())

    assert (verdict.state, verdict.needs) == (case.state, case.needs), verdict
    assert case.says in verdict.reason
    assert verdict.reason


def test_every_state_has_a_case() -> None:
    """The table above leaves out none."""
    assert {case.state for case in CASES} == set(State.__args__)  # type: ignore[attr-defined]  # of a Literal


@pytest.mark.parametrize(
    ("careful", "told"),
    [
        (None, "1 row waits, 0 rows/s"),
        (
            {"deaths": 2, "tables": ["a.b", "a.c"]},
            "out of memory: 2): first a batch by Spark in a.b, a.c, and small batches until all is caught up",
        ),
        ({"deaths": 1, "tables": ["a.b"]}, "out of memory: 1): first a batch by Spark in a.b"),
        ({"deaths": 1, "tables": []}, "1 row waits, 0 rows/s"),
        ({"deaths": 2, "tables": []}, "out of memory: 2): small batches until all is caught up"),
        ({"deaths": 0, "tables": ["a.b"]}, "careful (there was no memory for a batch): first a batch by Spark in a.b"),
    ],
)
def test_a_driver_that_goes_carefully_says_why(careful: dict[str, object] | None, told: str) -> None:
    """Beside what it is otherwise; ordinary ones say nothing of it."""
    seen = on(beat(lag=rows(1), last_commit_at=iso(1), careful=careful))

    verdict = judge(seen, watched_seconds=LONG, limits=Limits())

    assert verdict.state == "healthy"
    assert verdict.reason.endswith(told)
    assert ("careful" in verdict.reason) == ("careful" in told or "memory" in told)


@pytest.mark.parametrize(
    ("heartbeat", "state", "well"),
    [
        (beat(lag=rows(10), last_commit_at=iso(1), waited_seconds={"shop.changes": 61.0}), "behind", False),
        (beat(lag=rows(0), last_commit_at=iso(1), waited_seconds={"gold.days": 61.0}), "behind", False),
        (beat(lag=rows(10), last_commit_at=iso(1), waited_seconds={"shop.changes": 59.0}), "healthy", True),
        (beat(lag=rows(60_000), last_commit_at=iso(1), waited_seconds={"shop.changes": 5.0}), "behind", True),
        (beat(lag=rows(5), last_commit_at=iso(700), waited_seconds={"shop.changes": 700.0}), "stuck", False),
    ],
)
def test_what_waits_for_too_long_is_not_well(heartbeat: Heartbeat, state: State, *, well: bool) -> None:
    """A worse state stays; many rows that wait for a moment are no harm."""
    found = judge(on(heartbeat), watched_seconds=LONG, limits=Limits())

    assert (found.state, found.well) == (state, well)
    if state == "behind" and not well:
        assert "for 61 s" in found.reason


@pytest.mark.parametrize(
    ("desired", "since", "worked", "state"),
    [("stopped", 5_000, 2, "draining"), ("running", 1, 2, "draining"), ("stopped", 5_000, 700, "stuck")],
)
def test_owner_of_a_stopped_app_is_left_alone_while_it_works(
    desired: Any, since: float, worked: float, state: State
) -> None:
    """For hours, between its orders, and when somebody wants the app running, as it leaves then by itself."""
    seen = on(beat("draining", worked_at=iso(worked)), app=wanted(desired, since=since))

    found = judge(seen, watched_seconds=LONG, limits=Limits())

    assert found.state == state


@pytest.mark.parametrize(
    ("heartbeat", "state"),
    [
        (beat(lag=rows(0), broken=BROKEN), "idle"),
        (beat(lag=rows(10), last_commit_at=iso(1), broken=BROKEN), "healthy"),
        (beat(lag=rows(0), broken=BROKEN, suspended=FAILING), "suspended"),
    ],
)
def test_an_app_whose_rows_break_what_is_critical_is_not_well(heartbeat: Heartbeat, state: State) -> None:
    """Whatever it does; warnings are left out, and two rules of one name are told together."""
    verdict = judge(on(heartbeat), watched_seconds=LONG, limits=Limits())

    assert (verdict.state, verdict.broken, verdict.well) == (state, True, False)
    assert verdict.reason.endswith("; gold.days: 3 rows break above(n)")


def test_what_is_not_counted_yet_is_told() -> None:
    """It is no fault, and nothing that is known to be well."""
    heartbeat = beat(lag=rows(0), uncounted={"gold.days": 12}, broken={"gold.days": BROKEN["gold.days"][2:]})

    verdict = judge(on(heartbeat), watched_seconds=LONG, limits=Limits())

    assert verdict.well
    assert verdict.reason.endswith("; rows that break rules are still counted in gold.days (12 files)")
