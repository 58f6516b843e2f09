"""`demo`: the whole product at work on this machine, checked, reported, and left running."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.local.private import open_log
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.engine.ledger import Ledger

VIEWS, ORDERS = 1_500, 60
VIEWS_PER_SECOND, ORDERS_PER_SECOND = 50, 2
FAULTS = ("--duplicates", "0.02", "--out-of-order", "0.05", "--late", "0.05", "--malformed", "0.01")
FRESH_SECONDS_MAX = 300.0
_PATIENCE_SECONDS = 600.0  # with a simulator that is slow: a busy machine, a system that comes back

_NEXT = """Try next
  bin/deltaworks sql "select * from gold.daily_orders order by 1"
  bin/deltaworks ledger         where every row went
  bin/deltaworks app status     then kill -9 the pid of a driver: Airflow starts the next one by itself,
                                and the ledger balances again
  bin/deltaworks table new gold.my_table --reads silver.page_views
  make down                     ends every process, keeps the data"""


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command()(demo)


def demo(
    views: Annotated[int, typer.Option(min=1, help="Page views to send before the check.")] = VIEWS,
    orders: Annotated[int, typer.Option(min=1, help="Orders to place before the check.")] = ORDERS,
) -> None:
    """Start everything, send the shop's events, wait until gold is fresh, compare it with the sources, report."""
    now = settings()
    clock = Clock()
    _sources_up(now, clock)
    simulator = _simulate(now, views, orders)
    try:
        _first_source_rows(now, clock)
        _airflow_up(now, clock)
        _first_gold_rows(now, clock)
        _ended(simulator, clock, seconds_max=sending_seconds_max(views, orders))
    finally:
        simulator.terminate() if simulator.poll() is None else None
    _others_up(now)
    _settled(now, clock)
    equal = _checked(now, clock)
    _report(now)  # before new rows come: it shows what was just compared
    told = _systems(now)
    _left_running(now, clock)
    if not equal:
        raise typer.Exit(1)
    if not told:
        finding = "not each has a line with its numbers, see above"
        raise StackError("the shop's systems", finding, 'Run ".venv/spark/bin/python -m shop.systems"')


class Clock:
    """Says what happened and when, in seconds since the start."""

    def __init__(self) -> None:
        """Start now."""
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """One line with the time."""
        show.out.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/dim]  {text}", soft_wrap=True)

    @contextmanager
    def doing(self, text: str) -> Iterator[None]:
        """Say it while it is done, and again with the time when it is."""
        with show.out.status(text):
            yield
        self.say(text)


def _sources_up(now: Settings, clock: Clock) -> None:
    """Postgres, Kafka and Connect first; Airflow starts beside them and is waited for later."""
    from deltaworks import catalog
    from deltaworks.control.store import Store
    from deltaworks.local import stack

    declared = catalog.load(now.project)
    if "simulator" in stack.state(now).parts and stack.alive(now):
        stack.hold(now, "simulator")  # the check compares what stands still
    with clock.doing("Postgres twice, Kafka and Connect are up; Airflow is starting beside them"):
        stack.up(
            now, parts=("source", "control", "kafka", "connect", "airflow"), wait_for=("source", "control", "kafka")
        )
    with Store(now.control_dsn()) as store:
        store.declare_apps(declared.apps)
        for app in declared.apps:
            store.desire(app, "running", by="deltaworks demo", reason="it shows the shop at work")
    clock.say(f"wanted: {', '.join(declared.apps)} running; Airflow starts the drivers")


def _simulate(now: Settings, views: int, orders: int) -> "subprocess.Popen[str]":
    command = [str(now.spark_python), "-m", "shop.simulate", "--views", str(views), "--orders", str(orders)]
    rates = ["--rate", str(VIEWS_PER_SECOND), "--order-rate", str(ORDERS_PER_SECOND)]
    with open_log(now.logs / "simulator.log") as log:
        return subprocess.Popen(
            [*command, *rates, *FAULTS, "--json"], stdout=subprocess.PIPE, stderr=log, text=True, env=now.inherited()
        )


def _first_source_rows(now: Settings, clock: Clock) -> None:
    """What the sources have, while Airflow's pages are still starting."""
    from deltaworks.engine.broker import Broker

    broker, topics = Broker(bootstrap=now.kafka, group="deltaworks.demo"), _topics(now)

    def sent() -> dict[str, int] | None:
        ends = {t: sum(e.high for e in parts.values()) for t, parts in broker.edges(topics).items()}
        return ends if all(ends.values()) else None

    found = _until(sent, seconds_max=120, place="the shop's topics", log="connect")
    broker.close()
    clock.say("first rows in Kafka: " + ", ".join(f"{count:,} in {topic}" for topic, count in sorted(found.items())))


def _topics(now: Settings) -> list[str]:
    """The topics that tables read and sources write; those that tables publish to fill later."""
    from deltaworks import catalog

    tables = catalog.load(now.project).tables.values()
    published = {one.table.publishes.topic for one in tables if one.table.publishes is not None}
    return [topic for topic in dict.fromkeys(t for one in tables for t in one.topics) if topic not in published]


def _airflow_up(now: Settings, clock: Clock) -> None:
    from deltaworks.local import stack

    with clock.doing("Airflow and Debezium are up"):
        stack.wait(now, ("connect", "airflow"))


def _first_gold_rows(now: Settings, clock: Clock) -> None:
    for app, table in (("web", "gold.page_views_per_minute"), ("shop", "gold.daily_orders")):
        with show.out.status(f"waiting for {table}"):
            rows = _until(partial(_rows_of, now, table), seconds_max=FRESH_SECONDS_MAX, place=table, log=f"app-{app}")
        clock.say(f"first rows in {table}: {rows}")


def _rows_of(now: Settings, table: str) -> int | None:
    """Rows of a table, None while it has none."""
    return next((sheet.rows for sheet in _ledger(now).sheets() if sheet.table == table and sheet.rows), None)


def sending_seconds_max(views: int, orders: int) -> float:
    """How long the simulator may take: twice what its rates say, and some patience."""
    return 2 * max(views / VIEWS_PER_SECOND, orders / ORDERS_PER_SECOND) + _PATIENCE_SECONDS


def _ended(simulator: "subprocess.Popen[str]", clock: Clock, *, seconds_max: float) -> None:
    with clock.doing("the simulator has sent what it should"):
        try:
            text, _ = simulator.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            finding = f"has not ended after {seconds_max:.0f} s"
            raise StackError("simulator", finding, 'Run "deltaworks logs simulator"') from None
    if simulator.returncode != 0:
        raise StackError("simulator", f"exit code {simulator.returncode}", 'Run "deltaworks logs simulator"')
    sent: dict[str, Any] = json.loads(text)
    shown = ("messages", "duplicates", "late", "malformed", "orders_placed", "orders_paid", "orders_cancelled")
    clock.say("sent: " + ", ".join(f"{sent.get(name, 0):,} {name.replace('_', ' ')}" for name in shown))


def _others_up(now: Settings) -> None:
    """Start the project's programs but the simulator, whose rows would come while the sources are compared."""
    from deltaworks.local import stack

    stack.up(now, parts=tuple(name for name in now.processes if name != "simulator"), wait_for=())


def _settled(now: Settings, clock: Clock) -> None:
    """Wait until every table contains what Kafka has now; the source's own beat goes on and is left out."""
    from deltaworks.engine.balance import balance

    with clock.doing("the ledger balances: every offset that was read is accounted for"):
        found = balance(now, seconds_max=FRESH_SECONDS_MAX)
        if found.findings:
            told = "; ".join(found.findings[:3])
            raise StackError("the ledger", f"after {FRESH_SECONDS_MAX:.0f} s: {told}", 'Run "deltaworks app status"')


def _checked(now: Settings, clock: Clock) -> bool:
    command = [str(now.spark_python), "-m", "shop.check", "--wait", "120"]
    with show.out.status("comparing the lake with Kafka and Postgres, read directly"):
        done = subprocess.run(command, env=_as_wide(now), check=False, capture_output=True, text=True)
    clock.say("compared the lake with Kafka and Postgres, read directly:")
    show.out.print(done.stdout.rstrip(), markup=False, soft_wrap=True)
    if done.returncode not in {0, 1}:
        sys.stderr.write(done.stderr)
        raise StackError("the check", f"exit code {done.returncode}", 'Run ".venv/spark/bin/python -m shop.check"')
    return done.returncode == 0


def _left_running(now: Settings, clock: Clock) -> None:
    from deltaworks.local import stack

    stack.up(now, parts=tuple(now.processes), wait_for=())
    clock.say("the shop goes on, slowly; everything is left running")
    clock.say(f"order confirmations are posted and mailed into {now.data / 'inbox'}")
    login = f"user admin, password in {now.secrets / 'airflow_admin'}"
    show.out.print(f"\nAirflow   {now.airflow_url}   {login}\n", soft_wrap=True)
    show.out.print(_NEXT, highlight=False, markup=False, soft_wrap=True)


def _report(now: Settings) -> None:
    from deltaworks.analyst import connect

    books = _ledger(now)
    show.out.print()
    show.listing(
        [{"table": s.table, "rows": s.rows, "version": s.version, "ledger": s.verdict} for s in books.sheets()],
        title="Tables", as_json=False,
    )  # fmt: skip
    show.out.print()
    show.listing(
        [
            {"topic": x.topic, "partition": x.partition, "table": x.table, "read up to": x.read_up_to, "rows": x.rows,
             "gaps": x.gaps, "verdict": x.verdict}
            for x in books.lines()
        ],
        title="Completeness: read up to = rows + gaps", as_json=False,
    )  # fmt: skip
    with connect(now.lake) as lake:
        newest = lake.sql("select max(minute) from gold.page_views_per_minute").rows[0][0]
    show.out.print(f"\nnewest minute in gold: {newest:%Y-%m-%d %H:%M} UTC\n")


def _systems(now: Settings) -> bool:
    """A line per system of the shop, with numbers from its tables; whether each has one."""
    done = subprocess.run(
        [str(now.spark_python), "-m", "shop.systems"], env=_as_wide(now), check=False, capture_output=True, text=True
    )
    show.out.print(done.stdout.rstrip(), markup=False, soft_wrap=True)
    if done.returncode != 0:
        show.err.print(done.stderr.rstrip(), style="red", markup=False, soft_wrap=True)
    return done.returncode == 0


def _ledger(now: Settings) -> "Ledger":
    from deltaworks import catalog
    from deltaworks.engine.ledger import Ledger

    return Ledger(catalog.load(now.project), now.lake)


def _until(answer: Callable[[], Any], *, seconds_max: float, place: str, log: str) -> Any:
    """Ask until there is an answer; raises StackError with the log to look into."""
    deadline = time.monotonic() + seconds_max
    last: DeltaworksError | None = None
    while time.monotonic() < deadline:
        try:
            found = answer()
        except DeltaworksError as error:
            found, last = None, error
        if found is not None:
            return found
        time.sleep(0.5)
    finding = f"nothing after {seconds_max:.0f} s" + (f" ({last})" if last else "")
    raise StackError(place, finding, f'Run "deltaworks logs {log}"')


def _as_wide(now: Settings) -> dict[str, str]:
    """The environment of a program whose output is shown here: its tables fit where ours do."""
    return {**now.inherited(), "COLUMNS": str(show.out.width)}
