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
RUNNING = Seen(at=NOW, app=wanted(), lease=lease(), driver=DRIVER, launched_at=ago(1000))
GONE = replace(RUNNING, driver=None)
MOVING = beat(lag=rows(10), last_commit_at=iso(1))


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is seen, and what it means."""

    name: str
    seen: Seen
    state: State
    needs: Needs | None = None
    watched: float = LONG
    says: str = ""


CASES = [
    Case(name="never started", seen=Seen(at=NOW, app=wanted()), state="stopped", needs="start"),
    Case(name="stopped as wanted", seen=Seen(at=NOW, app=wanted("stopped")), state="stopped", says="alice"),
    Case(name="no lease yet", seen=replace(RUNNING, lease=None, launched_at=ago(5)), state="starting"),
    Case(name="a predecessor's lease", seen=replace(RUNNING, driver=replace(DRIVER, pid=8), launched_at=ago(5)), state="starting"),
    Case(name="lease without a beat", seen=replace(RUNNING, launched_at=ago(5)), state="starting"),
    Case(name="Spark starts", seen=replace(RUNNING, heartbeat=beat("starting"), launched_at=ago(90)), state="starting"),
    Case(name="Spark never starts", seen=replace(RUNNING, heartbeat=beat("starting")), state="stuck", needs="kill"),
    Case(name="no lease for long", seen=replace(RUNNING, lease=None), state="stuck", needs="kill"),
    Case(name="rows move", seen=replace(RUNNING, heartbeat=MOVING), state="healthy"),
    Case(name="no rows for a moment", seen=replace(RUNNING, heartbeat=beat(lag=rows(0), last_commit_at=iso(3))), state="healthy"),
    Case(name="no rows for long", seen=replace(RUNNING, heartbeat=beat(lag=rows(0), last_commit_at=iso(90))), state="idle"),
    Case(name="nothing ever came", seen=replace(RUNNING, heartbeat=beat()), state="idle"),
    Case(name="more waits than a batch", seen=replace(RUNNING, heartbeat=beat(lag=rows(60_000), last_commit_at=iso(1))),
         state="behind", says="60,000 rows"),
    Case(name="no progress", seen=replace(RUNNING, heartbeat=beat(lag=rows(5), last_commit_at=iso(700), error="disk full")),
         state="stuck", needs="kill", says="disk full"),
    Case(name="no progress, but a command is at work", state="healthy", says="command 4",
         seen=replace(RUNNING, heartbeat=beat(lag=rows(5), last_commit_at=iso(700)), busy_with="command 4 (compact)")),
    Case(name="no progress that anybody watched", watched=20, state="healthy",
         seen=replace(RUNNING, heartbeat=beat(lag=rows(5), last_commit_at=iso(700)))),
    Case(name="silent", seen=replace(RUNNING, heartbeat=beat(age=61)), state="stuck", needs="kill", says="not been heard for 61 s"),
    Case(name="silent while the store was away", seen=replace(RUNNING, heartbeat=beat(age=600)), watched=3, state="idle"),
    Case(name="lease over, beats on", seen=replace(RUNNING, lease=lease(left=-70), heartbeat=MOVING), state="stuck", needs="kill"),
    Case(name="lease over since the store came back", seen=replace(RUNNING, lease=lease(left=-70), heartbeat=MOVING), watched=2,
         state="healthy"),
    Case(name="draining as wanted", seen=replace(RUNNING, app=wanted("stopped"), heartbeat=MOVING), state="draining"),
    Case(name="draining by itself", seen=replace(RUNNING, heartbeat=beat("draining")), state="draining"),
    Case(name="wanted stopped before the first beat", seen=replace(RUNNING, app=wanted("stopped", since=2), launched_at=ago(3)),
         state="draining"),
    Case(name="wanted stopped, does not hear", state="stuck", needs="kill",
         seen=replace(RUNNING, app=wanted("stopped"), heartbeat=beat(age=61))),
    Case(name="gives up", seen=replace(RUNNING, heartbeat=beat("failed", error="poison")), state="failed", says="poison"),
    Case(name="gave up", seen=replace(GONE, heartbeat=beat("failed", error="poison")), state="failed", needs="burial", says="poison"),
    Case(name="killed", seen=replace(GONE, heartbeat=MOVING), state="dead", needs="burial", says="it was running"),
    Case(name="killed before its first beat", seen=replace(GONE, heartbeat=beat(epoch=2)), state="dead", needs="burial"),
    Case(name="killed, but stopped is wanted", seen=replace(GONE, app=wanted("stopped"), heartbeat=MOVING), state="stopped"),
    Case(name="ended in order, wanted again", seen=replace(GONE, heartbeat=beat("stopped")), state="stopped", needs="start"),
    Case(name="killed, then wanted anew", seen=replace(GONE, app=wanted(since=10), heartbeat=MOVING), state="stopped", needs="start"),
]  # fmt: skip


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
