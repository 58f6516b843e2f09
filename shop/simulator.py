"""A run of the simulator: the plans merged into one timeline, and a pace at which it happens."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import merge
from random import Random
from typing import TypeVar, get_args

from deltaworks.errors import StackError
from shop.clock import DAY, MINUTE, SECOND, microseconds
from shop.events import TOPICS, Event, events
from shop.faults import Faults
from shop.orders import Action, CancelOrder, PayOrder, PlaceOrder, Shop, ShopSize, actions
from shop.page_views import PageView, page_views
from shop.source import Source
from shop.topic import TOPIC, Topics
from shop.visits import Kind

Step = Action | PageView | Event
_Message = TypeVar("_Message", PageView, Event)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides what happens. The same run in the same shop is the same, event by event.

    The run ends when each of the given bounds is reached; without a bound it goes on until it is stopped.
    """

    seed: int
    name: str
    start: datetime
    rate: float = 20.0  # page views per second
    order_rate: float = 1.0  # orders per second
    event_rate: float = 0.0  # events of all other topics together per second
    size: ShopSize = field(default_factory=ShopSize)
    faults: Faults = field(default_factory=Faults)
    past_days: float = 7.0
    past_views: int = 0  # page views of the past, without copies
    past_events: int = 0  # events of all other topics together, likewise
    views_max: int | None = None  # malformed ones count; copies and those of the past do not
    orders_max: int | None = None  # those of the history do not count
    seconds_max: float | None = None  # of the timeline


@dataclass(frozen=True, kw_only=True)
class Sent:
    """Messages of one topic; late and out_of_order are among `sent`."""

    sent: int
    duplicates: int
    out_of_order: int
    late: int
    malformed: int

    @property
    def messages(self) -> int:
        """All together."""
        return self.sent + self.duplicates + self.malformed


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a run did. messages = views_sent + duplicates + malformed; late and out_of_order are among views_sent.

    All these are page views; `events` tells of the other topics, each by its name.
    """

    run: str
    seed: int
    messages: int
    views_sent: int
    duplicates: int
    out_of_order: int
    late: int
    malformed: int
    orders_placed: int
    orders_paid: int
    orders_cancelled: int
    products_added: int
    prices_changed: int
    restocks: int
    customers_added: int
    customers_changed: int
    customers_removed: int
    events: dict[str, Sent]


class Tally:
    """Counts what was done."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._counts: Counter[str] = Counter()

    def add(self, step: Step) -> None:
        """Count one step."""
        match step:
            case PageView():
                self._counts[step.kind] += 1
            case Event():
                self._counts[f"{step.topic} {step.kind}"] += 1
            case _:
                self._counts[type(step).__name__] += 1

    def totals(self, run: Run) -> Totals:
        """Return the sums so far."""
        count = self._counts
        views = count["view"] + count["out_of_order"] + count["late"]
        return Totals(
            run=run.name,
            seed=run.seed,
            messages=views + count["copy"] + count["malformed"],
            views_sent=views,
            duplicates=count["copy"],
            out_of_order=count["out_of_order"],
            late=count["late"],
            malformed=count["malformed"],
            orders_placed=count[PlaceOrder.__name__],
            orders_paid=count[PayOrder.__name__],
            orders_cancelled=count[CancelOrder.__name__],
            products_added=count["AddProduct"],
            prices_changed=count["ChangePrice"],
            restocks=count["Restock"],
            customers_added=count["AddCustomer"],
            customers_changed=count["ChangeCustomer"],
            customers_removed=count["RemoveCustomer"],
            events={topic: self._sent(topic) for topic in TOPICS},
        )

    def _sent(self, topic: str) -> Sent:
        count = {kind: self._counts[f"{topic} {kind}"] for kind in get_args(Kind)}
        return Sent(
            sent=count["event"] + count["out_of_order"] + count["late"],
            duplicates=count["copy"],
            out_of_order=count["out_of_order"],
            late=count["late"],
            malformed=count["malformed"],
        )


def timeline(run: Run, shop: Shop | None) -> Iterator[Step]:
    """Yield what happens in order of time, up to the run's bounds; without a shop only messages. Pure."""
    plans: list[Iterable[Step]] = []
    if shop is not None:
        chance = Random(f"{run.seed}/orders")  # one source of chance each: the rate of views does not change the orders
        plans.append(actions(random=chance, shop=shop, start=run.start, order_rate=run.order_rate, size=run.size))
    if run.rate > 0:
        plans.append(views(run, start=run.start, rate=run.rate))
    if run.event_rate > 0:
        plans.append(others(run))
    plans.append(past(run))
    return _bounded(merge(*plans, key=lambda step: step.due_us), run)


def past(run: Run) -> Iterator[PageView | Event]:
    """Yield the messages of the days before the run's start, all due before it, in order of time. Pure."""
    if not run.past_views and not run.past_events:
        return
    length_us = int(run.past_days * DAY)
    chance = Random(f"{run.seed}/past")  # visitors of the past do not do what those of the run will
    before = replace(
        run,
        seed=chance.getrandbits(32),
        name=f"{run.name}-past",
        start=run.start - timedelta(microseconds=length_us),
        event_rate=run.past_events * SECOND / length_us,
    )
    plans: list[Iterable[PageView | Event]] = []
    if run.past_views:
        rate = run.past_views * SECOND / length_us
        plans.append(_first(run.past_views, views(before, start=before.start, rate=rate)))
    if run.past_events:
        plans.append(_first(run.past_events, others(before)))
    for step in merge(*plans, key=lambda step: step.due_us):
        yield step._replace(due_us=step.due_us - length_us)


def _first(count: int, sent: Iterable[_Message]) -> Iterator[_Message]:
    """Yield so many, copies not counted."""
    for one in sent:
        if one.kind != "copy":
            count -= 1
            if count < 0:
                return
        yield one


def backlog(run: Run, *, views_count: int, minutes: float) -> Iterator[PageView]:
    """Yield `views_count` page views of the `minutes` before the run's start. Pure."""
    rate = views_count / (minutes * 60)
    start = run.start - timedelta(microseconds=int(minutes * MINUTE))
    yield from _first(views_count, views(run, start=start, rate=rate))


def views(run: Run, *, start: datetime, rate: float) -> Iterator[PageView]:
    """Yield the run's page views without an end. Pure."""
    chance = Random(f"{run.seed}/page views")
    size = run.size
    return page_views(
        random=chance,
        run=run.name,
        start=start,
        rate=rate,
        users=size.customers,
        products=size.products,
        faults=run.faults,
    )


def others(run: Run) -> Iterator[Event]:
    """Yield the run's other events without an end. Pure."""
    return events(
        random=Random(f"{run.seed}/events"),
        run=run.name,
        start=run.start,
        rate=run.event_rate,
        users=run.size.customers,
        products=run.size.products,
        faults=run.faults,
    )


def perform(
    steps: Iterable[Step],
    *,
    start: datetime,
    source: Source | None,
    topics: Topics | None,
    stopping: threading.Event,
    done: Callable[[Step], None],
    paced: bool = True,
) -> None:
    """Do the steps when they are due (the past, and all if not `paced`, at once) and report each; ends when stopped.

    A message of the past, before `start`, tells Kafka that it came then; others come when they are sent.
    A pause (a broker or database away) is made up for afterwards: nothing is left out.
    Raises StackError when one of the two stays away.
    """
    origin, start_us = time.monotonic(), microseconds(start)
    for step in steps:
        early = step.due_us / SECOND - (time.monotonic() - origin) if paced else 0.0
        if early > 0.001:  # shorter than a sleep is exact
            if topics is not None:
                topics.serve()
            stopping.wait(early)
        if stopping.is_set():
            return
        if isinstance(step, PageView | Event):
            topic = step.topic if isinstance(step, Event) else TOPIC
            came_us = start_us + step.due_us if step.due_us < 0 else None
            if topics is None or not topics.send_to(topic, step.key, step.value, came_us=came_us):
                return
        elif source is not None and not _applied(source, step, stopping):
            return
        done(step)


def _applied(source: Source, action: Action, stopping: threading.Event) -> bool:
    try:
        source.apply(action)
    except StackError:
        if stopping.is_set():  # stopped while the database was away: what was not answered is not counted
            return False
        raise
    return True


def _bounded(steps: Iterable[Step], run: Run) -> Iterator[Step]:
    bounds = {"views": run.views_max, "orders": run.orders_max}
    left = {name: bound for name, bound in bounds.items() if bound is not None}
    for step in steps:
        if run.seconds_max is not None and step.due_us >= run.seconds_max * SECOND:
            return
        counted = _counted(step)
        if counted in left:
            if left[counted] == 0:
                if run.seconds_max is None and not any(left.values()):
                    return
                continue  # the other bound is not reached
            left[counted] -= 1
        yield step
        if left and run.seconds_max is None and step.due_us >= 0 and not any(left.values()):
            return


def _counted(step: Step) -> str | None:
    match step:
        case PageView(kind=kind, due_us=due_us) if kind != "copy" and due_us >= 0:
            return "views"
        case PlaceOrder(due_us=due_us) if due_us >= 0:
            return "orders"
        case _:
            return None
