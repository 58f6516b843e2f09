"""The whole shop of one checkout, measured from outside: how old rows are when gold has them, and what that costs."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import psycopg

from bench import queries
from bench.age import Ages, Watch, read
from bench.checkout import Checkout
from bench.marks import NAME, PAGE, Customers, Marker, PageViews, Sender, even
from bench.program import Program, busy_seconds, resident_bytes_of
from bench.site import Driver, Site, site
from bench.watched import Watched
from bench.written import Written, look, written
from deltaworks.errors import StackError
from shop.topic import PageViewTopic

BYTES_MAX = 8 * 10**9
_SAMPLE_SECONDS = 5.0
_LOOK_SECONDS = 60.0  # what a log was given is counted before its owner cuts it off
_START_SECONDS_MAX = 600.0  # the first turns of all tables take minutes on two busy cores
_SHOP_SECONDS_MAX = 120.0
_SEEN_SECONDS_MAX = 600.0
"""A mark that is not in its table so long after the window, or after a kill, is given up."""
_EARLY_SECONDS = 5.0
"""Before the window marks are so far apart: enough for the first row in gold, and to have all that marks touch warm."""
_KILLED_SECONDS = 1.0
_CUSTOMERS_MORE = 100
"""Marked customers beyond the marks of the window: those of before may not have been seen yet when it begins."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Route:
    """From a marked event to a table that shows it."""

    app: str
    event: str
    table: str
    column: str
    """The one that has the mark."""

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.event} → {self.table}"

    @property
    def gold(self) -> bool:
        """Whether it ends where analysts look."""
        return self.table.startswith("gold.")


ROUTES = (
    Route(app="web", event="page view", table="silver.page_views", column="page"),
    Route(app="web", event="page view", table="gold.page_views_per_minute", column="page"),
    Route(app="shop", event="customer", table="gold.orders_with_customers", column="name"),
)
_PREFIXES = {"page view": PAGE, "customer": NAME}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a shop is measured."""

    simulator: tuple[str, ...]
    """Module and arguments."""
    minutes: float
    warm_up: float
    """Seconds from the drivers' start to the window."""
    marks: int
    """Of each event, in the window."""
    kill: bool
    port_first: int
    keep: bool
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Window:
    """What was seen while the shop was watched."""

    apps: Mapping[str, Watched]
    ages: Mapping[str, Ages]
    to_gold: Ages
    """Of the marks of all routes that end in gold."""
    written: Written
    """Per hour."""
    memory_bytes_max: int
    """Of everything together."""
    elsewhere_cores: float
    """What the machine did meanwhile beside the drivers: the other parts, simulator, this program, strangers."""
    own_cores: float
    """Of that, this program: marks, reader, samples."""
    late_seconds_max: float
    """How long after it was due a mark was sent, at the most. It is part of the ages."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was found of one checkout."""

    first_gold_seconds: Mapping[str, float]
    """By app, from the order to start the drivers to the first mark in gold."""
    driver_seconds: Mapping[str, float]
    """By app, from the start of its driver's process to the same: without what Airflow takes to start it."""
    window: Window
    query_seconds: Mapping[str, float]
    """By question that an analyst asks gold after the window, while the apps go on."""
    recovery_seconds: Mapping[str, float | None]
    """By app, from `kill -9` of its driver to the first later mark in gold; None if there was none."""

    @property
    def ok(self) -> bool:
        """Whether all apps keep up, all marks were seen, also after a kill, and the memory suffices."""
        window = self.window
        return (
            window.memory_bytes_max <= BYTES_MAX
            and all(app.keeps_up for app in window.apps.values())
            and not any(ages.unseen for ages in window.ages.values())
            and None not in self.recovery_seconds.values()
        )

    def figures(self) -> dict[str, float | None]:
        """What two checkouts are compared by."""
        window = self.window
        ages = {**window.ages, "event to gold": window.to_gold}
        return {
            **{
                f"{name}, p{share} s": getattr(one, f"p{share}") for name, one in ages.items() for share in (50, 95, 99)
            },
            "marks not seen": sum(one.unseen for one in window.ages.values()),
            **{f"{app}, cores": one.cores for app, one in window.apps.items()},
            "drivers, cores": sum(one.cores for one in window.apps.values()),
            "elsewhere, cores": window.elsewhere_cores,
            **{f"{app}, s between batches": one.batch_seconds for app, one in window.apps.items()},
            **{f"{app}, memory GB": max(one.memory) / 10**9 for app, one in window.apps.items()},
            **{f"{app}, first gold s": seconds for app, seconds in self.first_gold_seconds.items()},
            **{f"{app}, driver to first gold s": seconds for app, seconds in self.driver_seconds.items()},
            **{f"{app}, fresh gold after kill -9 s": seconds for app, seconds in self.recovery_seconds.items()},
            "queries, s": sum(self.query_seconds.values()),
            "slowest query, s": max(self.query_seconds.values()),
            "files an hour": window.written.files,
            "commits an hour": window.written.commits,
            "MB an hour": window.written.bytes / 10**6,
        }


def measure(checkout: Checkout, plan: Plan) -> Measurement:
    """Start the shop, let it work, watch it, kill its drivers; raises StackError when it does not come up."""
    with (
        site(checkout, port_first=plan.port_first, keep=plan.keep) as there,
        there.program("simulator", plan.simulator) as simulator,
        _marking(there, simulator, plan) as marks,
    ):
        started = time.monotonic()
        there.command("app", "start", "--all")
        firsts = _first_gold(there, marks, started)
        began = {app: driver.began - started for app, driver in there.drivers().items()}
        marks.until(lambda: time.monotonic() >= started + plan.warm_up, every=_EARLY_SECONDS)
        window = _watch(there, marks, simulator, plan)
        gold = {route.app: route for route in ROUTES if route.gold} if plan.kill else {}
        return Measurement(
            first_gold_seconds=firsts,
            driver_seconds={app: seconds - began[app] for app, seconds in firsts.items()},
            window=window,
            query_seconds=queries.seconds(there.settings.lake),
            recovery_seconds={app: _recovery(there, marks, route) for app, route in gold.items()},
        )


class _Marks:
    """The marks that are sent, and who looks for them."""

    def __init__(self, there: Site, simulator: Program, markers: Mapping[str, Marker]) -> None:
        lake = there.settings.lake
        self.markers = markers
        self.watches = {
            route: Watch(lake.joinpath(*route.table.split(".")), column=route.column, prefix=_PREFIXES[route.event])
            for route in ROUTES
        }
        self._simulator = simulator
        self._work: list[Future[None]] = []

    def start(self, pool: ThreadPoolExecutor, stopping: threading.Event) -> None:
        """Let senders and the reader work."""
        self._work = [pool.submit(marker.run, stopping) for marker in self.markers.values()]
        self._work.append(pool.submit(read, self.watches.values(), stopping))

    def must_work(self) -> None:
        """Raise what one of them, or the simulator, failed with."""
        self._simulator.must_run()
        for work in self._work:
            if work.done():
                work.result()

    def plan(self, times: Callable[[], Sequence[float]]) -> None:
        """Have marks of each kind sent at times of their own."""
        for marker in self.markers.values():
            marker.plan(times())

    def until(self, met: Callable[[], bool], *, every: float | None = None, seconds_max: float = float("inf")) -> bool:
        """Let time pass, with a mark of each kind every so many seconds; False if what is to be met took longer."""
        begin, planned = time.monotonic(), 0
        while not met():
            passed = time.monotonic() - begin
            if passed > seconds_max:
                return False
            self.must_work()
            if every is not None and planned * every <= passed:
                planned += 1
                self.plan(lambda: [time.monotonic()])
            time.sleep(_POLL_SECONDS)
        return True

    def first(self, route: Route, since: float) -> float | None:
        """When the first mark that was due since then was seen; None if none was yet."""
        due = self.markers[route.event].between(since, float("inf"))
        return min((at for mark, at in self.watches[route].seen.copy().items() if mark in due), default=None)

    def seconds(self, route: Route, begin: float, end: float) -> list[float]:
        """The ages of the marks of a time that were seen."""
        due, seen = self.markers[route.event].between(begin, end), self.watches[route].seen.copy()
        return [seen[mark] - at for mark, at in due.items() if mark in seen]


@contextmanager
def _marking(there: Site, simulator: Program, plan: Plan) -> Iterator[_Marks]:
    """Register who is to be marked, and have senders and the reader at work."""
    stopping, random = threading.Event(), Random(plan.seed)
    with (
        psycopg.connect(there.settings.source_dsn(), autocommit=True, application_name="bench") as shop,
        PageViewTopic(there.settings.kafka, stopping=stopping) as topic,
        ThreadPoolExecutor(3) as pool,
    ):
        _wait_for_shop(shop, simulator)
        customers = Customers(shop, count=plan.marks + _CUSTOMERS_MORE)
        customers.register()
        senders: dict[str, Sender] = {"page view": PageViews(topic, random=random), "customer": customers}
        marks = _Marks(
            there,
            simulator,
            {event: Marker(sender, prefix=_PREFIXES[event]) for event, sender in senders.items()},
        )
        try:
            marks.start(pool, stopping)
            yield marks
        finally:
            stopping.set()


def _wait_for_shop(shop: psycopg.Connection[tuple[object, ...]], simulator: Program) -> None:
    """Wait until the simulator has found the shop empty and fills it: whoever comes before takes its history away."""
    deadline = time.monotonic() + _SHOP_SECONDS_MAX
    while not shop.execute("select from orders limit 1").rowcount:
        simulator.must_run()
        if time.monotonic() > deadline:
            raise StackError("simulator", "places no order", "Run again with --keep and read its log")
        time.sleep(_POLL_SECONDS)


def _first_gold(there: Site, marks: _Marks, started: float) -> dict[str, float]:
    """Wait until every app has done a batch and has marks in gold; seconds from the start to the first one."""
    gold = [route for route in ROUTES if route.gold]

    def at_work() -> bool:
        there_all = all(marks.first(route, started) is not None for route in gold)
        return there_all and all(driver.works for driver in there.drivers().values())

    if not marks.until(at_work, every=_EARLY_SECONDS, seconds_max=_START_SECONDS_MAX):
        states = ", ".join(f"{one.app} is {one.state}" for one in there.drivers().values()) or "no driver came"
        raise StackError("gold", f"has no row of each app yet ({states})", "Run again with --keep and read the logs")
    firsts = {route.app: marks.first(route, started) for route in gold}
    return {app: first - started for app, first in firsts.items() if first is not None}


def _watch(there: Site, marks: _Marks, simulator: Program, plan: Plan) -> Window:
    """Watch the apps for the time of the window, and wait until its marks were seen."""
    random, seconds = Random(plan.seed), plan.minutes * 60
    first = there.drivers()
    others = there.sessions() | {simulator.session}
    apps, most = {app: Watched() for app in first}, 0
    lake, seen = Written(), look(there.settings.lake)
    busy, own, begin = busy_seconds(), time.process_time(), time.monotonic()
    looked = begin
    marks.plan(lambda: even(begin, seconds=seconds, count=plan.marks, random=random))
    while (passed := time.monotonic() - begin) < seconds:
        most = max(most, _look(there, apps, first, others, seconds=passed))
        marks.must_work()
        if (now := time.monotonic()) >= looked + _LOOK_SECONDS:
            before, seen, looked = seen, look(there.settings.lake), now
            lake += written(before, seen)
        time.sleep(min(_SAMPLE_SECONDS, max(0.0, begin + seconds - time.monotonic())))
    end = time.monotonic()
    _look(there, apps, first, others, seconds=end - begin)
    elsewhere, own = (busy_seconds() - busy) / (end - begin), (time.process_time() - own) / (end - begin)
    elsewhere -= sum(one.cores for one in apps.values())
    lake += written(seen, look(there.settings.lake))
    ages, to_gold = _ages(marks, plan, begin, end)
    return Window(
        apps=apps,
        ages=ages,
        to_gold=to_gold,
        written=lake.per_hour(end - begin),
        memory_bytes_max=most,
        elsewhere_cores=elsewhere,
        own_cores=own,
        late_seconds_max=max(marker.late_seconds_max for marker in marks.markers.values()),
    )


def _ages(marks: _Marks, plan: Plan, begin: float, end: float) -> tuple[dict[str, Ages], Ages]:
    """Wait for the marks of the window; their ages by route, and of all that went to gold together."""

    def seen() -> dict[Route, list[float]]:
        return {route: marks.seconds(route, begin, end) for route in ROUTES}

    marks.until(lambda: min(map(len, seen().values())) >= plan.marks, seconds_max=_SEEN_SECONDS_MAX)
    found = seen()
    ages = {route: Ages.of(one, unseen=plan.marks - len(one)) for route, one in found.items()}
    gold = [route for route in ROUTES if route.gold]
    to_gold = Ages.of([age for route in gold for age in found[route]], unseen=sum(ages[route].unseen for route in gold))
    return {route.name: one for route, one in ages.items()}, to_gold


def _look(
    there: Site, apps: Mapping[str, Watched], first: Mapping[str, Driver], others: set[int], *, seconds: float
) -> int:
    """Take a sample of each app; returns the memory of everything. Raises StackError if a driver was replaced."""
    drivers = there.drivers()
    for app, watched in apps.items():
        if drivers[app].epoch != first[app].epoch or not drivers[app].works:
            raise StackError(f"app {app}", "lost its driver meanwhile", "Run again with --keep and read its log")
        watched.look(drivers[app], seconds=seconds)
    return resident_bytes_of(*others) + sum(app.memory[-1] for app in apps.values())


def _recovery(there: Site, marks: _Marks, route: Route) -> float | None:
    """Kill the driver of a route's app; seconds until a mark that was due after that is in gold, None if none comes."""
    killed = time.monotonic()
    there.drivers()[route.app].kill()
    if not marks.until(
        lambda: marks.first(route, killed) is not None, every=_KILLED_SECONDS, seconds_max=_SEEN_SECONDS_MAX
    ):
        return None
    first = marks.first(route, killed)
    return None if first is None else first - killed
