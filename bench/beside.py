"""A backfill beside the live stream: what it costs the stream, and what its rows cost beside a plain batch job.

    .venv/spark/bin/python bench/beside.py

One stack, one stream of page views. A backlog, the views of a day, is taken by a rule that refuses some good ones; the
rule is mended. Then the stream runs alone, then with a backfill of that day beside it, which brings those views to
silver and gold. When the stream has ended, `bench/plain.py` computes the same rows of bronze.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import typer

from bench.age import percentile
from bench.backlog import fill
from bench.gold import Reader, views_in
from bench.program import Program, cpu_seconds_of_script
from bench.sides import Deltaworks
from bench.stand import PORT_FIRST, run, stand
from bench.traffic import Traffic
from deltaworks.cli.show import err, listing
from deltaworks.errors import StackError
from deltaworks.settings import ROOT, AppSettings, Settings

TABLE = "silver.page_views"
SUITE = "expectations/silver/page_views.yml"
RIGHT, WRONG = "'^/'", "'^/($|[abd-z])'"
"""The wrong one refuses /cart and /checkout."""
SLOWER_MAX, CHEAP_MIN = 1.5, 0.9
"""The bounds: the stream's median latency over that of the stream alone, rows per CPU second over the plain job's."""
_A_DAY = ("--backlog-minutes", "1440", "--customers", "5000")
"""Of so many customers each comes a few times a day, as in a shop; of fewer one long visit would be made."""
_DAYS_AGO = timedelta(days=2)
"""A backfill looks at what arrived an hour after its day, too: not at what the stream brings meanwhile."""
_SAMPLE_SECONDS = 0.2  # between two looks at the CPU time of a program: what it spends after the last is not counted
_LOOK_SECONDS = 0.5  # between two looks whether the driver lives
_STILL_SECONDS = 10.0  # gold that has not changed for so long has all of the backlog
_PROGRAM_SECONDS_MAX = 1_800.0
_FIRST_SECONDS_MAX = 300.0
_ON_THEIR_WAY_SECONDS = 15.0  # after a window, for the probes that were due at its end


@dataclass(frozen=True, kw_only=True)
class Spent:
    """A program that computed rows again: rows of bronze that it took, its user and system time, start included."""

    rows: int
    cpu_seconds: float
    seconds: float

    @property
    def rows_per_cpu_second(self) -> float:
        """What is compared."""
        return self.rows / self.cpu_seconds


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What was found: median latencies in milliseconds, from when a view was due until it was read in gold."""

    alone_ms: float
    beside_ms: float
    probes: int
    backfill: Spent
    plain: Spent
    came: int
    """Views that gold gained by the backfill."""

    @property
    def slower(self) -> float:
        """How much slower the stream was beside the backfill."""
        return self.beside_ms / self.alone_ms

    @property
    def cheap(self) -> float:
        """Rows per CPU second of the backfill over those of the plain job."""
        return self.backfill.rows_per_cpu_second / self.plain.rows_per_cpu_second

    @property
    def ok(self) -> bool:
        """Whether both ratios are within their bounds, and the backfill did something."""
        return self.slower < SLOWER_MAX and self.cheap >= CHEAP_MIN and self.came > 0


def measure(settings: Settings, *, events: int, rate: float, seconds: float) -> Beside:
    """Fill, mend the rule, stream alone, stream with the backfill, plain job."""
    side, suite = Deltaworks(), settings.project / SUITE
    suite.write_text(suite.read_text().replace(RIGHT, WRONG))
    began = datetime.now(UTC)
    day = began.date() - _DAYS_AGO
    fill(settings, events, "--start-time", f"{day + timedelta(days=1)}", *_A_DAY)
    filled = datetime.now(UTC)
    with side.start(settings) as driver:
        _wait(lambda: _settled(settings), driver, what="the backlog is not taken")
        side.ask_to_stop(settings, driver)
        driver.wait(_PROGRAM_SECONDS_MAX)
    suite.write_text(suite.read_text().replace(WRONG, RIGHT))
    before = sum(views_in(side.gold(settings)).values())
    with side.start(settings) as driver:
        traffic, reader = Traffic(rate=rate, seed=1), Reader(side.gold(settings))
        with _at_work(traffic, reader, settings):
            _wait(lambda: bool(reader.seen), driver, what="no probe in gold")
            _pass(seconds / 2, driver)  # to warm up
            err.print("the stream alone ...")
            alone = _window(reader, traffic, lambda: _pass(seconds, driver))
            err.print("the stream with a backfill beside it ...")
            spent: list[Spent] = []
            beside = _window(reader, traffic, lambda: spent.append(_backfill(settings, day, driver)))
            driver.must_run()
        side.ask_to_stop(settings, driver)
        driver.wait(_PROGRAM_SECONDS_MAX)
    came = sum(views_in(side.gold(settings)).values()) - before - traffic.sent
    err.print("the plain job ...")
    return Beside(
        alone_ms=percentile(alone, 50), beside_ms=percentile(beside, 50), probes=len(beside), backfill=spent[0],
        plain=_plain(settings, began, filled), came=came,
    )  # fmt: skip


def _settled(settings: Settings) -> bool:
    """Whether gold has stood still for a while."""
    gold = Deltaworks().gold(settings)
    first = views_in(gold)
    time.sleep(_STILL_SECONDS)
    return bool(first) and views_in(gold) == first


def _window(reader: Reader, traffic: Traffic, work: Callable[[], None]) -> list[float]:
    """The latencies of the probes that were due while this was done, sorted; those that never came count as late."""
    begin = time.monotonic()
    work()
    end = time.monotonic()
    time.sleep(_ON_THEIR_WAY_SECONDS)
    now = time.monotonic()
    found = sorted(
        (reader.seen.get(page, now) - due) * 1000 for page, due in list(traffic.due.items()) if begin <= due < end
    )
    if not found:
        raise StackError("gold", "no probe was due in the window", "Measure for longer")
    return found


def _backfill(settings: Settings, day: date, driver: Program) -> Spent:
    words = ["backfill", TABLE, "--from", f"{day}", "--to", f"{day}"]
    command = [str(settings.spark_python), "-m", "deltaworks.cli", *words]
    # "command 1 recompute silver.page_views: done after 60.0 s  ...  rows read 300,000  rows written ..."
    return _spent(
        "backfill", command, settings, lambda said: said.partition("  rows read ")[2].split()[0],
        beside=lambda: cpu_seconds_of_script(driver.session, "spark_apps/recompute.py"),
    )  # fmt: skip


def _plain(settings: Settings, since: datetime, until: datetime) -> Spent:
    options = {
        "--project": settings.project, "--lake": settings.lake, "--to": settings.data / "plain",
        "--since": since.isoformat(), "--until": until.isoformat(),
    }  # fmt: skip
    command = [str(settings.spark_python), str(ROOT / "bench" / "plain.py")]
    return _spent("plain", [*command, *(str(word) for pair in options.items() for word in pair)], settings, str.strip)


def _spent(
    name: str, command: Sequence[str], settings: Settings, rows: Callable[[str], str],
    beside: Callable[[], float] = lambda: 0.0,
) -> Spent:  # fmt: skip
    """What a program spends, with what works for it in other sessions."""
    began, cpu = time.monotonic(), 0.0
    with Program(name, command, settings=settings) as program:
        while not program.ended:
            cpu = max(cpu, program.cpu_seconds() + beside())
            if time.monotonic() - began > _PROGRAM_SECONDS_MAX:
                raise StackError(name, f"is not done after {_PROGRAM_SECONDS_MAX:g} s", "Take fewer events")
            time.sleep(_SAMPLE_SECONDS)
    said = program.log.read_text()
    return Spent(rows=int(rows(said).split()[-1].replace(",", "")), cpu_seconds=cpu, seconds=time.monotonic() - began)


@contextmanager
def _at_work(traffic: Traffic, reader: Reader, settings: Settings) -> Iterator[None]:
    stopping = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        hands = [pool.submit(traffic.run, settings.kafka, stopping), pool.submit(reader.run, stopping)]
        try:
            yield
        finally:
            stopping.set()
    for hand in hands:
        hand.result()


def _pass(seconds: float, driver: Program) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        driver.must_run()
        time.sleep(_LOOK_SECONDS)


def _wait(true: Callable[[], bool], driver: Program, *, what: str) -> None:
    deadline = time.monotonic() + _FIRST_SECONDS_MAX
    while not true():
        driver.must_run()
        if time.monotonic() > deadline:
            raise StackError(driver.name, f"{what} after {_FIRST_SECONDS_MAX:g} s", "Run again with --keep")
        time.sleep(_LOOK_SECONDS)


def show(found: Beside, *, as_json: bool) -> None:
    """Print what was found."""
    if as_json:
        print(json.dumps({"ok": found.ok, "slower": found.slower, "cheap": found.cheap, **asdict(found)}, indent=2))
        return
    rows = [
        {"measure": "median latency, beside over alone", "ratio": found.slower, "bound": f"below {SLOWER_MAX}"},
        {"measure": "rows per CPU second, over a plain job", "ratio": found.cheap, "bound": f"{CHEAP_MIN} or more"},
    ]  # fmt: skip
    listing(rows, title="A backfill beside the stream", as_json=False)
    print(f"{found.backfill.rows:,} rows taken again, {found.came:,} views came to gold, {found.probes} probes")
    print(f"verdict: {'ok' if found.ok else 'fail'}")


def main(
    events: Annotated[int, typer.Option(min=1000, help="Page views in the backlog.")] = 400_000,
    rate: Annotated[float, typer.Option(min=1, help="Views per second of the stream.")] = 100,
    seconds: Annotated[float, typer.Option(min=1, help="Window of the stream alone.")] = 60,
    memory: Annotated[str, typer.Option(help="Heap of the driver's JVM.")] = "1g",
    port_first: Annotated[int, typer.Option(help="The stack takes six ports from here on.")] = PORT_FIRST,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data folder, with the logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Measure the stream alone, with a backfill, and the backfill beside a plain job.

    Exit codes: 0 within the bounds, 1 not, 2 usage, 3 cannot.
    """

    def judged() -> bool:
        with stand(web=AppSettings(trigger_seconds=0.5, memory=memory), port_first=port_first, keep=keep) as settings:
            found = measure(settings, events=events, rate=rate, seconds=seconds)
        show(found, as_json=as_json)
        return found.ok

    sys.exit(run(judged))


if __name__ == "__main__":
    typer.run(main)
