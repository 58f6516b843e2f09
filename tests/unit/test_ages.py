"""For how long something has waited, told from looks at the broker and at the tables."""

from deltaworks.engine import ages
from deltaworks.engine.ages import BROKER, Ages
from tests.clocks import Clock


def test_what_waits_has_waited_since_the_look_that_saw_it() -> None:
    """A topic into which rows come all the time is as old as the oldest of them."""
    clock = Clock()
    seen = Ages(clock=clock)
    told = []
    for high, taken in ((10, 10), (20, 10), (30, 10), (40, 20), (50, 50)):
        seen.note(ends={"t": {"0": high, "1": 5}}, taken={"t": {"0": taken, "1": 5}}, behind={})
        told.append(dict(seen.seconds))
        clock.pass_by(5)

    assert told == [{}, {"t": 0.0}, {"t": 5.0}, {"t": 5.0}, {}]


def test_a_partition_of_which_nothing_was_taken_waits() -> None:
    """And a topic that nobody has read from."""
    clock = Clock()
    seen = Ages(clock=clock)
    for _ in range(2):
        seen.note(ends={"t": {"0": 3}, "u": {"0": 1}}, taken={"u": {}}, behind={})
        clock.pass_by(7)

    assert seen.seconds == {"t": 7.0, "u": 7.0}


def test_a_table_is_as_old_as_since_it_is_behind() -> None:
    """Which whoever works on tables tells."""
    clock = Clock()
    seen = Ages(clock=clock)
    since = clock.now
    clock.pass_by(61)

    seen.note(ends={}, taken={}, behind={"gold.days": since})

    assert seen.seconds == {"gold.days": 61.0}


def test_days_of_looks_are_bounded() -> None:
    """The oldest stays: it says for how long."""
    clock = Clock()
    seen = Ages(clock=clock)
    for high in range(1, 3_000):
        seen.note(ends={"t": {"0": high}}, taken={}, behind={})
        clock.pass_by(5)

    assert seen.seconds == {"t": 5.0 * 2_998}
    assert len(seen._looks["t"]) <= ages.LOOKS_MAX


def test_a_broker_that_is_away_counts_and_holds_nothing_else_back() -> None:
    """What was taken meanwhile waits no longer; tables are told in any case."""
    clock = Clock()
    seen = Ages(clock=clock)
    seen.note(ends={"t": {"0": 3}}, taken={}, behind={})
    clock.pass_by(5)
    since = clock.now
    seen.note(ends=None, taken={"t": {"0": 3}}, behind={"gold.days": since})
    clock.pass_by(5)
    seen.note(ends=None, taken={"t": {"0": 3}}, behind={"gold.days": since})
    away = dict(seen.seconds)
    clock.pass_by(5)
    seen.note(ends={"t": {"0": 3}}, taken={"t": {"0": 3}}, behind={})

    assert away == {BROKER: 10.0, "gold.days": 5.0}
    assert seen.seconds == {}
