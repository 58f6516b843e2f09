"""What the heartbeat tells of an app at work."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deltaworks.engine.flow import FlowStatus, TableStatus
from deltaworks.engine.heart import Heart, Rate
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.flows import Log
from tests.shop_rows import broken, view


def test_rate_is_of_the_last_minute_however_long_a_batch_takes() -> None:
    """Rows that came with one batch in twenty seconds are no burst and then nothing."""
    now = 0.0
    rate = Rate(seconds=60.0, clock=lambda: now)
    assert rate.per_second == 0.0

    told = list[float]()
    for look in range(1, 61):
        now = 5.0 * look
        rate.note(100 * (look // 4))
        told.append(rate.per_second)

    assert told[3] == told[-1] == 5.0
    assert min(told[20:]) >= 4.0
    assert max(told[20:]) <= 6.0
    now += 120.0
    rate.note(1_500)
    assert rate.per_second == 0.0


def test_status_is_that_after_the_last_turn_and_never_changes(tmp_path: Path) -> None:
    """Who reads it from another thread holds one that is whole."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").without_gold().settings(tmp_path / "data"), "web"), Log()
    first = owner.flow.status
    log.send([view(1), view(2), broken(b"{")])
    owner.flow.bronze[0].take_arrow(log.batch(), owner.flow._committer(None))
    assert owner.flow.status is first  # nobody has told the flow
    owner.flow._tell()
    since = owner.flow.status.behind
    owner.flow._tell()
    assert owner.flow.status.behind == since
    assert list(since) == ["silver.page_views"]

    owner.go_on("silver.page_views")
    status = owner.flow.status

    before, views = (one.tables["silver.page_views"] for one in (first, status))
    assert (before.read, first.offsets, first.behind) == (0, {}, {})
    assert (views.read, views.refused) == (3, 1)
    assert (
        views.version
        == owner.flow.inputs["silver.page_views"].table.version
        > first.tables["silver.page_views"].version
    )
    assert sum(offset for parts in status.offsets.values() for offset in parts.values()) == 3
    assert "silver.page_views" not in status.behind
    assert status.last_commit_at is not None


def test_heartbeat_reads_nothing_of_a_flow_but_its_status() -> None:
    """Everything else belongs to whoever holds the app's lock."""
    nobody: Any = None  # it is never started
    heart: Any = Heart(nobody)
    status = FlowStatus(
        batches=2, rows=7, offsets={"t": {"0": 5}}, behind={"gold.a": 1.0}, last_commit_at=0.0,
        tables={"gold.a": TableStatus(version=3, read=7, refused=1)},
    )  # fmt: skip
    heart._flow = SimpleNamespace(status=status)
    heart._ends = {"t": {"0": SimpleNamespace(low=0, high=9)}}

    told = heart._progress()

    assert (told["batches"], told["rows"], told["lag"], told["behind"]) == (2, 7, {"t": {"0": 4}}, ["gold.a"])
    assert told["tables"] == {"gold.a": {"version": 3, "rows_in": 7, "refused": 1}}
    assert told["last_commit_at"] == "1970-01-01T00:00:00+00:00"


def test_heartbeat_tells_for_how_long_something_has_waited() -> None:
    """In a topic by looks at the broker, in a table since it is behind; also while the broker does not answer."""
    nobody: Any = None  # it is never started
    heart: Any = Heart(nobody)
    now = heart._ages._clock()
    flow = SimpleNamespace(topics=("t",), status=FlowStatus(offsets={"t": {"0": 5}}, behind={"gold.a": now - 70}))
    heart._flow, answers = flow, [{"t": {"0": SimpleNamespace(low=0, high=9)}}, None]

    def edges(_: object) -> Any:
        found = answers.pop(0)
        if found is None:
            raise OSError("away")
        return found

    broker = SimpleNamespace(edges=edges, reachable=lambda found, _: found, commit=lambda _: None)
    told = []
    for _ in range(2):
        heart._look(flow, broker)
        told.append(heart._progress()["waited_seconds"])

    assert [sorted(one) for one in told] == [["gold.a", "t"], ["gold.a", "t", "the broker's answer"]]
    assert all(70 <= one["gold.a"] < 80 for one in told)
