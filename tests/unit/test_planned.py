"""Plans that are made ahead of their turn, beside it."""

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.spark import planned
from deltaworks.engine.spark.planned import Planned, Plans
from deltaworks.engine.spark.refusals import NotDirectError

SPARK: Any = SimpleNamespace(sparkContext=object())
KEYS = pa.schema([("day", pa.date32())])
PLAN: Any = "a plan"


def test_none_is_begun_while_all_wait_for_something_else() -> None:
    """It is begun after that, also where that fails."""
    plans, begun = Plans(), threading.Event()

    with pytest.raises(OSError, match="gone"), plans.paused():
        plans.begin(begun.set, SPARK)
        assert not begun.wait(0.2)
        raise OSError("gone")

    assert begun.wait(10)


class Making:
    """Makes a plan, or fails; counts how often it was asked to."""

    def __init__(self, *outcomes: object) -> None:
        """Give these outcomes one after the other, then nothing but the last."""
        self.outcomes, self.asked = list(outcomes), 0

    def __call__(self, *_: object) -> Any:
        """Give the next one, or raise it."""
        outcome = self.outcomes[min(self.asked, len(self.outcomes) - 1)]
        self.asked += 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the time by which plans are made again, and no Spark to plan in."""
    given = [0.0]
    monkeypatch.setattr(planned, "time", SimpleNamespace(monotonic=lambda: given[0]))
    monkeypatch.setattr(Plans, "_room", lambda _plans, _spark: (None, None))
    return given


def test_what_failed_is_planned_again_after_a_while(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """There may have been too few files or too little memory for it; it is told once."""
    plans, make = Plans(), Making(OSError("too many open files"), OSError("again"), PLAN)

    def found() -> tuple[object, str | None]:
        way = plans.way("gold.days", ("code",), make, SPARK)
        return way.plan, way.why_not

    with caplog.at_level(logging.WARNING):
        first = [found(), found()]
        now[0] += planned.AGAIN_SECONDS
        second = [found(), found()]
        now[0] += planned.AGAIN_SECONDS

    assert first == second == [(None, "cannot be planned: OSError")] * 2
    assert caplog.messages == ["gold.days is computed in the ordinary way for now: cannot be planned: OSError"]
    assert (found(), make.asked) == ((PLAN, None), 3)


def test_what_is_dropped_is_planned_again_after_a_while(now: list[float]) -> None:
    """Until then why is told."""
    plans, make = Plans(), Making(PLAN)
    way = plans.way("gold.days", ("code",), make, SPARK)

    plans.drop(way, "its plan failed: SparkOutOfMemoryError")

    assert plans.way("gold.days", ("code",), make, SPARK).why_not == "its plan failed: SparkOutOfMemoryError"
    now[0] += planned.AGAIN_SECONDS
    way = plans.way("gold.days", ("code",), make, SPARK)
    assert (way.plan, way.why_not, make.asked) == (PLAN, None, 2)


@pytest.mark.parametrize("passes", [True, False])
def test_what_cannot_be_kept_is_planned_once(now: list[float], *, passes: bool) -> None:
    """That is so for as long as its code is the same, but for what may pass."""
    plans, make = Plans(), Making(NotDirectError("a broadcast keeps its first rows", passes=passes))

    for _ in range(3):
        assert plans.way("gold.days", ("code",), make, SPARK).why_not == "a broadcast keeps its first rows"
        now[0] += 10 * planned.AGAIN_SECONDS

    assert make.asked == (3 if passes else 1)


def test_what_decides_keys_is_asked_again_after_it_failed(
    now: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Inputs are given whole meanwhile, and which keys it is about is told, once."""
    plans, asking = Plans(), Making(KeyError("scan"), KeyError("scan"), "what decides")
    monkeypatch.setattr(Plans, "begin", lambda _plans, task, _spark: task())
    monkeypatch.setattr(planned, "PLANS", plans)
    monkeypatch.setattr(Planned, "_make", lambda *_: SimpleNamespace(pushed_keys=asking))
    never: Any = None
    mine = Planned(place="gold.days", code="code", inputs={}, function=never)

    found = []
    for _ in range(3):
        found += [mine.pushed_keys(SPARK, KEYS) for _ in range(2)]
        now[0] += planned.AGAIN_SECONDS

    assert (found, asking.asked) == ([None] * 4 + ["what decides"] * 2, 3)
    assert caplog.messages == ["gold.days: what of its inputs decides day is not found out: KeyError"]


@pytest.mark.usefixtures("now")
def test_another_spark_has_its_plans_made_ahead(caplog: pytest.LogCaptureFixture) -> None:
    """Though nothing was asked of it yet; what was begun for the one before is not done any more."""
    plans, done = Plans(), list[str]()
    other: Any = SimpleNamespace(sparkContext=object())
    plans.way("gold.days", ("code",), Making(NotDirectError("chance")), SPARK)
    end = threading.Event()

    with plans.paused():
        plans.begin(lambda: done.append("before"), SPARK)
        plans.begin(lambda: done.append("after"), other)
        plans.begin(end.set, other)

    assert end.wait(10)
    assert done == ["after"]
    assert caplog.messages == []


@pytest.mark.parametrize("seconds", [0.0, planned.UNUSED_SECONDS])
def test_plans_are_bounded(now: list[float], monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Those that were not used for long go first; of very many the oldest goes, however young."""
    monkeypatch.setattr(planned, "PLANS_KEPT_MAX", 3)
    monkeypatch.setattr(planned, "PLANS_MOST", 5)
    plans, make = Plans(), Making(PLAN)
    for number in range(10):
        now[0] += 1 + seconds
        plans.way("gold.days", (number,), make, SPARK)

    there = 5 if not seconds else 3
    for number in range(10 - there, 10):
        plans.way("gold.days", (number,), make, SPARK)
    kept = make.asked
    plans.way("gold.days", (9 - there,), make, SPARK)

    assert (kept, make.asked) == (10, 11)
