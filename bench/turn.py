"""One turn: one side alone on a fresh stand, warmed up and measured, its totals checked."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from bench.age import percentile
from bench.gold import Reader, views_in
from bench.program import Program, busy_seconds
from bench.sides import Side
from bench.stand import stand
from bench.traffic import Traffic
from deltaworks.errors import StackError
from deltaworks.settings import AppSettings, Settings

_START_SECONDS_MAX = 300.0  # a session and a first batch take half a minute; the rest is for a busy machine
_CATCH_UP_SECONDS_MAX = 300.0
_STOP_SECONDS_MAX = 90.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a turn goes."""

    rate: float
    seconds: float
    warm_up_seconds: float
    web: AppSettings
    port_first: int
    keep: bool
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What a turn found; latencies in milliseconds from when a view was due to when it was read in gold."""

    side: str
    p50_ms: float
    p95_ms: float
    p99_ms: float
    probes: int
    cpu_seconds: float
    cores: float
    elsewhere_cores: float
    """What everything else on the machine used meanwhile: broker, sender and reader, and whoever else is there."""
    sender_late_ms_max: float
    catch_up_seconds: float
    """From the last view until gold had them all: grows with the rate's time if the side does not keep up."""
    sent: int
    counted: int
    exact: bool
    """Whether gold says of each page and minute what was sent."""


def take_turn(side: Side, plan: Plan) -> Turn:
    """Measure one side; raises StackError when its driver fails or does not come up."""
    with stand(web=plan.web, port_first=plan.port_first, keep=plan.keep) as settings, side.start(settings) as program:
        traffic, reader = Traffic(rate=plan.rate, seed=plan.seed), Reader(side.gold(settings))
        with _running(traffic, reader, settings) as hands:
            _wait(lambda: bool(reader.seen), hands, program, seconds_max=_START_SECONDS_MAX, what="no row in gold")
            _pass(plan.warm_up_seconds, hands, program)
            window = _measure(plan.seconds, hands, program)
            hands.stop_sending()
            ended = time.monotonic()
            gold = side.gold(settings)
            _catch_up(lambda: sum(views_in(gold).values()) >= traffic.sent, hands, program)
            catch_up = time.monotonic() - ended
            _catch_up(lambda: reader.seen.keys() >= traffic.due.keys(), hands, program)
        side.ask_to_stop(settings, program)
        program.wait(_STOP_SECONDS_MAX)
        counted = views_in(gold)  # after the end: what is counted twice late is noticed too
    delays = sorted(
        (reader.seen[page] - due) * 1000
        for page, due in traffic.due.items()
        if window.begin <= due < window.end and page in reader.seen
    )
    if not delays:
        raise StackError(side.name, "no probe of the window reached gold", "Run again with --keep and read its log")
    seconds = window.end - window.begin
    return Turn(
        side=side.name,
        p50_ms=percentile(delays, 50),
        p95_ms=percentile(delays, 95),
        p99_ms=percentile(delays, 99),
        probes=len(delays),
        cpu_seconds=window.cpu_seconds,
        cores=window.cpu_seconds / seconds,
        elsewhere_cores=(window.busy_seconds - window.cpu_seconds) / seconds,
        sender_late_ms_max=traffic.late_seconds_max * 1000,
        catch_up_seconds=catch_up,
        sent=traffic.sent,
        counted=sum(counted.values()),
        exact=counted == dict(traffic.counted),
    )


@dataclass(frozen=True, kw_only=True)
class _Window:
    begin: float
    end: float
    cpu_seconds: float
    busy_seconds: float


class _Hands:
    """The sender and the reader at work."""

    def __init__(self, pool: ThreadPoolExecutor, traffic: Traffic, reader: Reader, settings: Settings) -> None:
        self._sent, self._read = threading.Event(), threading.Event()
        self._sending: Future[None] = pool.submit(traffic.run, settings.kafka, self._sent)
        self._reading: Future[None] = pool.submit(reader.run, self._read)

    def must_work(self) -> None:
        """Raise what one of them failed with."""
        for work in (self._sending, self._reading):
            if work.done():
                work.result()

    def stop_sending(self) -> None:
        self._sent.set()
        self._sending.result()

    def stop(self) -> None:
        self._sent.set()
        self._read.set()


@contextmanager
def _running(traffic: Traffic, reader: Reader, settings: Settings) -> Iterator[_Hands]:
    with ThreadPoolExecutor(2) as pool:
        hands = _Hands(pool, traffic, reader, settings)
        try:
            yield hands
        finally:
            hands.stop()


def _measure(seconds: float, hands: _Hands, program: Program) -> _Window:
    begin, cpu, busy = time.monotonic(), program.cpu_seconds(), busy_seconds()
    _pass(seconds, hands, program)
    end = time.monotonic()
    return _Window(begin=begin, end=end, cpu_seconds=program.cpu_seconds() - cpu, busy_seconds=busy_seconds() - busy)


def _pass(seconds: float, hands: _Hands, program: Program) -> None:
    """Let time pass while all work."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        hands.must_work()
        program.must_run()
        time.sleep(min(1.0, left))


def _wait(true: Callable[[], bool], hands: _Hands, program: Program, *, seconds_max: float, what: str) -> None:
    deadline = time.monotonic() + seconds_max
    while not true():
        hands.must_work()
        program.must_run()
        if time.monotonic() > deadline:
            raise StackError(program.name, f"{what} after {seconds_max:g} s", "Run again with --keep and read its log")
        time.sleep(0.25)


def _catch_up(true: Callable[[], bool], hands: _Hands, program: Program) -> None:
    """Wait until gold is complete, or for so long that the totals may say what is missing."""
    deadline = time.monotonic() + _CATCH_UP_SECONDS_MAX
    while not true() and time.monotonic() < deadline:
        hands.must_work()
        program.must_run()
        time.sleep(0.25)
