"""What a turn is spent on: each second in one phase, the inner one."""

import threading

import pytest

from deltaworks.engine.phases import Stopwatch, measured, phase, went_directly, went_ordinarily
from tests.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    """Give a clock of this test's own."""
    return Clock()


def spent(watch: Stopwatch) -> dict[str, float]:
    """The phases that took time."""
    return {name: seconds for name, seconds in watch.seconds.items() if seconds}


def test_each_second_is_in_the_inner_phase(clock: Clock) -> None:
    """A read within a commit is no commit, and what is in no phase is other."""
    with measured(clock) as watch:
        clock.pass_by(1)
        with phase("commit"):
            clock.pass_by(2)
            with phase("read"):
                clock.pass_by(4)
            clock.pass_by(8)
        clock.pass_by(16)

    assert spent(watch) == {"other": 17, "commit": 10, "read": 4}


def test_time_until_an_error_counts(clock: Clock) -> None:
    """After it, in the turn that goes on, the phase is the one of before."""
    with measured(clock) as watch:
        with pytest.raises(OSError, match="full"), phase("commit"):
            clock.pass_by(1)
            raise OSError("full")
        clock.pass_by(2)

    assert spent(watch) == {"commit": 1, "other": 2}


def test_a_turn_within_another_is_no_part_of_it(clock: Clock) -> None:
    """As of a table's turn in a micro-batch, in whichever phase that is, and though it fails."""
    with measured(clock) as outer, phase("read"):
        clock.pass_by(1)
        with pytest.raises(OSError, match="full"), measured(clock) as inner, phase("commit"):
            clock.pass_by(2)
            went_directly()
            raise OSError("full")
        clock.pass_by(4)

    assert (spent(outer), outer.way) == ({"read": 5}, "none")
    assert (spent(inner), inner.way) == ({"commit": 2}, "direct")


def test_function_is_measured_at_each_call(clock: Clock) -> None:
    """A phase decorates functions, which say what they did before."""

    @phase("parse")
    def parse(seconds: float) -> float:
        clock.pass_by(seconds)
        return seconds

    with measured(clock) as watch:
        given = [parse(1), parse(2)]

    assert given == [1, 2]
    assert spent(watch) == {"parse": 3}


def test_other_threads_are_not_measured(clock: Clock) -> None:
    """Each measures its own turn, at the same time too."""
    found: list[Stopwatch] = []

    def take() -> None:
        with phase("commit"):  # nobody measures yet
            clock.pass_by(1)
        with measured(Clock()) as watch, phase("parse"):
            found.append(watch)

    with measured(clock) as watch, phase("read"):
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()

    assert spent(watch) == {"read": 1}
    assert [spent(one) for one in found] == [{}]


def test_transform_that_went_the_ordinary_way_once_did_so(clock: Clock) -> None:
    """The first reason counts, that of the transform more than that of a part of it."""
    with measured(clock) as part:
        went_ordinarily("a worker", part="keys_from silver.notes 0")
        went_directly()
    with measured(clock) as whole:
        went_ordinarily("a worker", part="keys_from silver.notes 0")
        went_directly()
        went_ordinarily("a broadcast")
        went_ordinarily("a subquery")
    went_ordinarily("nobody measures")

    assert (part.way, part.why) == ("direct", "keys_from silver.notes 0: a worker")
    assert (whole.way, whole.why) == ("ordinary", "a broadcast")
