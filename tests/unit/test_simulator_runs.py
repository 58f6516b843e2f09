"""Runs of the simulator as one timeline: bounds, totals, backlog."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from shop.clock import DAY
from shop.events import TOPICS, Event
from shop.faults import LATE_US, Faults
from shop.orders import PlaceOrder, Shop, ShopSize
from shop.page_views import PageView
from shop.simulator import Run, Step, Tally, backlog, past, timeline
from shop.wellformed import page_view

RUN = Run(
    seed=1,
    name="r",
    start=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
    rate=50,
    order_rate=5,
    size=ShopSize(customers=20, products=5, history_orders=40),
    faults=Faults(duplicates=0.02, out_of_order=0.05, late=0.05, malformed=0.01),
)


def counted(steps: list[Step]) -> Counter[str]:
    """Positions of page views, and live orders."""
    count: Counter[str] = Counter()
    for step in steps:
        if isinstance(step, PageView):
            count["views"] += step.kind != "copy"
        elif isinstance(step, PlaceOrder):
            count["orders"] += step.due_us >= 0
    return count


def test_a_timeline_is_the_same_for_the_same_run_and_in_order() -> None:
    """Orders and page views are one sequence, which can be repeated."""
    first, again = list(islice(timeline(RUN, Shop()), 5_000)), list(islice(timeline(RUN, Shop()), 5_000))

    assert len(first) == 5_000
    assert first == again
    assert [step.due_us for step in first] == sorted(step.due_us for step in first)


def test_the_rate_of_page_views_does_not_change_the_orders() -> None:
    """Each plan has its own source of chance."""
    slow = [step for step in islice(timeline(RUN, Shop()), 5_000) if not isinstance(step, PageView)]
    fast = [step for step in islice(timeline(replace(RUN, rate=200), Shop()), 5_000) if not isinstance(step, PageView)]

    assert len(fast) > 100
    assert slow[: len(fast)] == fast


@pytest.mark.parametrize("event_rate", [1, 300])
def test_other_events_change_neither_page_views_nor_orders(event_rate: float) -> None:
    """Each plan has its own source of chance, and other events count for no bound."""
    run = replace(RUN, views_max=500, orders_max=60)

    alone = list(timeline(run, Shop()))
    together = list(timeline(replace(run, event_rate=event_rate), Shop()))

    assert sum(isinstance(step, Event) for step in together) >= 10 * event_rate
    assert [step for step in together if not isinstance(step, Event)] == alone
    assert [step.due_us for step in together] == sorted(step.due_us for step in together)


def test_other_events_end_with_the_run() -> None:
    """Without page views and a shop, seconds are what ends them; at ten a second."""
    steps = list(timeline(replace(RUN, rate=0, event_rate=10, seconds_max=30, faults=Faults()), None))

    assert {type(step) for step in steps} == {Event}
    assert len(steps) == 300
    assert max(step.due_us for step in steps) < 30_000_000


def test_a_run_ends_at_its_number_of_page_views() -> None:
    """Copies do not count, and the orders go on until then."""
    count = counted(list(timeline(replace(RUN, views_max=500), Shop())))

    assert count["views"] == 500
    assert count["orders"] > 20


def test_a_run_ends_when_both_numbers_are_reached() -> None:
    """The one that is reached first waits for the other."""
    count = counted(list(timeline(replace(RUN, views_max=100, orders_max=60), Shop())))

    assert count == {"views": 100, "orders": 60}


def test_a_run_ends_at_its_time() -> None:
    """Seconds are those of the timeline: a pause in between changes no total."""
    steps = list(timeline(replace(RUN, seconds_max=4), Shop()))

    assert counted(steps)["views"] == 200
    assert max(step.due_us for step in steps) < 4_000_000


def test_without_a_shop_there_are_only_page_views_and_without_a_rate_only_orders() -> None:
    """Each system can be played alone."""
    views = list(timeline(replace(RUN, seconds_max=2), None))
    orders = list(timeline(replace(RUN, seconds_max=2, rate=0), Shop()))

    assert views
    assert all(isinstance(step, PageView) for step in views)
    assert orders
    assert not any(isinstance(step, PageView) for step in orders)


def test_totals_add_up_to_what_was_sent() -> None:
    """Messages are views, copies and malformed ones; each order of the timeline is in one of the sums."""
    steps, tally = list(timeline(replace(RUN, seconds_max=60), Shop())), Tally()

    for step in steps:
        tally.add(step)

    totals = tally.totals(RUN)
    assert totals.messages == sum(isinstance(step, PageView) for step in steps) > 3_000
    assert totals.messages == totals.views_sent + totals.duplicates + totals.malformed
    assert min(totals.duplicates, totals.late, totals.out_of_order, totals.malformed) > 0
    assert totals.orders_placed == counted(steps)["orders"] + 40
    assert totals.orders_paid > totals.orders_cancelled > 0


def test_totals_tell_of_each_topic() -> None:
    """Page views keep their sums beside other events, and each other topic has its own."""
    run = replace(RUN, seconds_max=60)
    plain, mixed = Tally(), Tally()

    events = [step for step in timeline(replace(run, event_rate=200), Shop()) if isinstance(step, Event)]
    for step in timeline(run, Shop()):
        plain.add(step)
    for step in timeline(replace(run, event_rate=200), Shop()):
        mixed.add(step)

    totals = mixed.totals(run)
    assert replace(totals, events=plain.totals(run).events) == plain.totals(run)
    assert set(totals.events) == set(TOPICS)
    for topic, sent in totals.events.items():
        kinds = Counter(event.kind for event in events if event.topic == topic)
        assert sent.messages == kinds.total() == sent.sent + sent.duplicates + sent.malformed
        assert sent.sent == kinds["event"] + kinds["out_of_order"] + kinds["late"]
        told = (sent.duplicates, sent.out_of_order, sent.late, sent.malformed)
        assert told == (kinds["copy"], kinds["out_of_order"], kinds["late"], kinds["malformed"])
        assert min(told) > 0, topic
    assert {sent.messages for sent in plain.totals(run).events.values()} == {0}


def test_a_backlog_has_its_number_of_views_in_the_minutes_before_the_start() -> None:
    """Ten minutes of event time, none of it in the future."""
    views = list(backlog(replace(RUN, faults=Faults(duplicates=0.1)), views_count=10_000, minutes=10))

    sent = [page_view(view.value) for view in views if view.kind != "copy"]
    times = [view.event_time for view in sent if view is not None]
    assert len(times) == 10_000
    assert min(times) == RUN.start - timedelta(minutes=10)
    assert max(times) < RUN.start
    assert len(views) > 10_500


PAST = replace(RUN, past_days=2, past_views=3_000, past_events=6_000)


def test_a_past_is_spread_over_its_days_and_ends_at_the_start() -> None:
    """So many of both, evenly; late ones and those out of order are among them; no view's id is one of the run's."""
    steps = list(past(PAST))

    sent = [step for step in steps if step.kind != "copy"]
    assert Counter(type(step) for step in sent) == {PageView: 3_000, Event: 6_000}
    assert {step.topic for step in sent if isinstance(step, Event)} == set(TOPICS)
    assert {step.kind for step in steps} == {"view", "event", "copy", "late", "out_of_order", "malformed"}
    assert [step.due_us for step in steps] == sorted(step.due_us for step in steps)
    assert -2 * DAY <= steps[0].due_us < steps[-1].due_us < 0
    assert len({step.due_us // (2 * DAY // 1_000) for step in sent}) == 1_000
    views = [view for step in sent if (view := page_view(step.value)) is not None]
    assert min(view.event_time for view in views) >= RUN.start - timedelta(days=2, microseconds=LATE_US[1])
    assert max(view.event_time for view in views) < RUN.start
    assert {view.event_id.rpartition("-")[0] for view in views} == {"r-past"}


def test_a_past_changes_nothing_that_comes_after_it() -> None:
    """Each plan has its own source of chance, and what is past counts for no bound."""
    run = replace(RUN, event_rate=30, views_max=500, orders_max=60)

    alone = list(timeline(run, Shop()))
    together = list(timeline(replace(run, past_views=700, past_events=900), Shop()))

    before = [step for step in together if isinstance(step, PageView | Event) and step.due_us < 0]
    assert Counter(type(step) for step in before if step.kind != "copy") == {PageView: 700, Event: 900}
    assert [step for step in together if not isinstance(step, PageView | Event) or step.due_us >= 0] == alone


def test_bounds_are_for_what_comes_after_the_past() -> None:
    """A run of no views still has all of its past."""
    steps = list(timeline(replace(RUN, views_max=0, past_views=300, faults=Faults()), None))

    assert sum(step.kind != "copy" for step in steps if isinstance(step, PageView) and step.due_us < 0) == 300
    assert not [step for step in steps if isinstance(step, PageView) and step.kind != "copy" and step.due_us >= 0]
