"""Whether an app keeps up, told from samples; and two sides compared."""

import os
import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from bench.age import Ages
from bench.measurement import Measurement, Window
from bench.revisions import Sitting
from bench.site import Driver
from bench.watched import Watched, student
from bench.written import Written

from deltaworks.processes import started


def _watched(minutes: float, *, grows: float, seed: int) -> Watched:
    """Samples each five seconds of a lag that goes up and down by chance, and grows by so many records an hour."""
    random, count = Random(seed), int(minutes * 12) + 1
    seconds = [place * 5.0 for place in range(count)]
    lag = [round(100 + grows * second / 3600 + random.uniform(-30, 30)) for second in seconds]
    return Watched(
        seconds=seconds, cpu=[second / 2 for second in seconds], memory=[10**9] * count, lag=lag,
        behind=[0] * count, batches=[int(second // 10) for second in seconds],
    )  # fmt: skip


def _measured(*, p50: float, recovery: float | None = 30.0, unseen: int = 0) -> Measurement:
    ages = Ages(count=3, unseen=unseen, p50=p50, p95=p50, p99=p50)
    window = Window(
        apps={"web": _watched(5, grows=0, seed=1)}, ages={"view": ages}, to_gold=ages, written=Written(files=10),
        memory_bytes_max=10**9, elsewhere_cores=0.5, own_cores=0.1, late_seconds_max=0.0,
    )  # fmt: skip
    first = {"web": 60.0}
    return Measurement(
        first_gold_seconds=first,
        driver_seconds=first,
        window=window,
        query_seconds={"one": 1.0, "two": 2.0},
        recovery_seconds={"web": recovery},
    )


def test_driver_began_when_its_process_did() -> None:
    """By the clock that everything else is timed by: this process stands for one."""
    pid, before = os.getpid(), time.monotonic()
    own = Driver(app="a", epoch=1, pid=pid, process_started=str(started(pid)), state="running", progress={})

    assert before - 3600 < own.began < before


@pytest.mark.parametrize(("freedom", "exact"), [(2, 4.303), (3, 3.182), (4, 2.776), (8, 2.306), (28, 2.048)])
def test_student_is_the_quantile_of_tables(freedom: int, exact: float) -> None:
    """As printed in books, one-sided, for one in forty."""
    assert student(1 - 1 / 40, freedom=freedom) == pytest.approx(exact, rel=0.04)


@pytest.mark.parametrize("critical", [True, False])
def test_only_rows_that_break_a_critical_rule_are_noted(critical: bool) -> None:
    """As the driver's heartbeat tells them; one look is enough, and the app does not keep up."""
    rule = {"rule": "expect_column_values_to_be_between", "critical": critical, "rows": 3, "suspends": False}
    progress = {"lag": {}, "batches": 1, "broken": {"gold.a": [rule]}}
    pid, watched = os.getpid(), _watched(5, grows=0, seed=1)
    assert watched.keeps_up

    watched.look(
        Driver(app="a", epoch=1, pid=pid, process_started=str(started(pid)), state="running", progress=progress),
        seconds=301,
    )

    assert watched.broken == ({"gold.a: expect_column_values_to_be_between"} if critical else set())
    assert watched.keeps_up == (not critical)


@pytest.mark.parametrize("minutes", [2, 5, 30])
def test_chance_seldom_makes_a_lag_grow(minutes: int) -> None:
    """One in forty, also where few means tell the error; a lag that does grow is noticed each time."""
    quiet = [_watched(minutes, grows=0, seed=seed) for seed in range(200)]
    growing = [_watched(minutes, grows=60_000, seed=seed) for seed in range(20)]

    assert sum(not one.keeps_up for one in quiet) <= 10
    assert not any(one.keeps_up for one in growing)


def test_means_of_a_watch_cover_all_of_it() -> None:
    """Each sample is in one of them, also the last, which comes when the time is up."""
    watched = _watched(2, grows=3600, seed=1)

    assert watched.slope(watched.lag).points == 4
    assert watched.cores == 0.5
    assert watched.batch_seconds == 10


def test_ratio_is_the_median_of_the_pairs() -> None:
    """Pair by pair, so that what disturbs one pair disturbs no other; without a value on both sides there is none."""
    old = [_measured(p50=20), _measured(p50=10), _measured(p50=100)]
    new = [_measured(p50=10, recovery=None), _measured(p50=1), _measured(p50=20)]

    sitting = Sitting(measured={"old": old, "new": new})

    assert sitting.ratios()["view, p50 s"] == 0.2
    assert sitting.ratios()["web, fresh gold after kill -9 s"] is None
    assert {row["measure"]: row["new / old"] for row in sitting.rows()}["view, p50 s"] == "0.2"


@pytest.mark.parametrize("wrong", [{"unseen": 1}, {"recovery": None}])
def test_only_the_new_side_is_judged(wrong: dict[str, Any]) -> None:
    """What is compared with may be as bad as it was."""
    bad, good = _measured(p50=1, **wrong), _measured(p50=1)

    assert Sitting(measured={"old": [bad], "new": [good]}).ok
    assert not Sitting(measured={"old": [good], "new": [bad]}).ok
    assert not replace(good, window=replace(good.window, memory_bytes_max=9 * 10**9)).ok
