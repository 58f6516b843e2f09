"""Command line of the simulator: python -m shop.simulate."""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from deltaworks.cli.show import err, listing
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from shop.events import TOPICS
from shop.faults import Faults
from shop.orders import ShopSize
from shop.simulator import Run, Step, Tally, Totals, backlog, perform, timeline
from shop.source import Source
from shop.topic import TOPIC, Topics

_PROGRESS_SECONDS = 5.0
_Share = Annotated[float, typer.Option(min=0, max=1, help="Share of the messages of each topic.", show_default=True)]


def main(
    seed: Annotated[int, typer.Option(help="The same seed, run, start time and shop give the same events.")] = 1,
    run: Annotated[str | None, typer.Option(help="Begins every event id; default: the time of this start.")] = None,
    rate: Annotated[float, typer.Option(min=0, help="Page views per second; 0: none.")] = 20,
    order_rate: Annotated[float, typer.Option(min=0, help="Orders per second; 0: the database is not touched.")] = 1,
    event_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Other events per second (searches, clicks, advertisements, purchases, requests, cart commands);"
            " default: half of --rate; 0: none. Without any events Kafka is not touched.",
        ),
    ] = None,
    views: Annotated[int | None, typer.Option(min=0, help="End after so many page views.")] = None,
    orders: Annotated[int | None, typer.Option(min=0, help="End after so many orders beyond the history.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="End after so many seconds.")] = None,
    start_time: Annotated[datetime | None, typer.Option(help="Time of the first event, UTC; default: now.")] = None,
    history_days: Annotated[float, typer.Option(min=0, help="An empty shop gets orders of so many days.")] = 3,
    history_orders: Annotated[int, typer.Option(min=0, help="So many.")] = 300,
    customers: Annotated[int, typer.Option(min=1, help="Customers of an empty shop, and visitors.")] = 100,
    products: Annotated[int, typer.Option(min=1, help="Products of an empty shop.")] = 20,
    past_days: Annotated[float, typer.Option(min=0.01, help="How long ago the past begins.")] = 7,
    past_views: Annotated[
        int,
        typer.Option(
            min=0,
            help="Page views of the past, sent at once. Kafka is told that they came then, which topics with"
            " message.timestamp.type=CreateTime believe.",
        ),
    ] = 0,
    past_events: Annotated[int, typer.Option(min=0, help="Other events of the past.")] = 0,
    duplicates: _Share = 0,
    out_of_order: _Share = 0,
    late: _Share = 0,
    malformed: _Share = 0,
    backlog: Annotated[int | None, typer.Option(min=1, help="Only so many page views, as fast as possible.")] = None,
    backlog_minutes: Annotated[float, typer.Option(min=0.01, help="Event times of a backlog: so long till now.")] = 60,
    patience: Annotated[float, typer.Option(min=1, help="Seconds to wait for Kafka or Postgres to come back.")] = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Totals as JSON; progress goes to stderr.")] = False,
    project: Annotated[Path | None, typer.Option(help="Folder with deltaworks.toml.")] = None,
) -> None:
    """Play the shop's customers: orders into its database, events into Kafka. Stops cleanly at Ctrl-C.

    Two of --views, --orders, --seconds: the run ends at --seconds, or when both of the others are reached.
    Nothing is sent twice to two systems: what is in the database reaches Kafka by change data capture alone.
    """
    if (views is not None and rate == 0) or (orders is not None and order_rate == 0):
        raise typer.BadParameter("--views needs a --rate and --orders an --order-rate")
    if backlog and (past_views or past_events):
        raise typer.BadParameter("--backlog sends nothing else: leave --past-views and --past-events out")
    settings = Settings.load(project)
    now = datetime.now(UTC)
    try:
        faults = Faults(duplicates=duplicates, out_of_order=out_of_order, late=late, malformed=malformed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    planned = Run(
        seed=seed,
        name=run or f"{now:%Y%m%dT%H%M%S%f}",
        start=now if start_time is None else _utc(start_time),
        rate=rate,
        order_rate=order_rate,
        event_rate=rate / 2 if event_rate is None else event_rate,
        size=ShopSize(customers=customers, products=products, history_days=history_days, history_orders=history_orders),
        faults=faults,
        past_days=past_days,
        past_views=past_views,
        past_events=past_events,
        views_max=views,
        orders_max=orders,
        seconds_max=seconds,
    )
    _print(_play(planned, settings, backlog=backlog, backlog_minutes=backlog_minutes, patience=patience), as_json)


def _play(planned: Run, settings: Settings, *, backlog: int | None, backlog_minutes: float, patience: float) -> Totals:
    stopping = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    progress = _Progress(planned)
    with ExitStack() as held:
        topics = source = None
        names = [TOPIC] if planned.rate > 0 or planned.past_views or backlog else []
        names += TOPICS if (planned.event_rate > 0 or planned.past_events) and not backlog else ()
        if names:
            producer = Topics(settings.kafka, topics=names, stopping=stopping, patience_seconds=patience)
            topics = held.enter_context(producer)
        if planned.order_rate > 0 and not backlog:
            dsn = settings.source_dsn("shop")
            source = held.enter_context(Source(dsn, stopping=stopping, patience_seconds=patience))
        steps: Iterable[Step]
        if backlog:
            steps = _backlog(planned, views_count=backlog, minutes=backlog_minutes)
        else:
            steps = timeline(planned, source.state() if source else None)
        perform(
            steps, start=planned.start, source=source, topics=topics, stopping=stopping, done=progress.step,
            paced=not backlog,
        )  # fmt: skip
    return progress.tally.totals(planned)


_backlog = backlog  # the option of the same name hides it


class _Progress:
    """Counts, and says every few seconds how far the run is."""

    def __init__(self, planned: Run) -> None:
        self.tally = Tally()
        self._run, self._began = planned, time.monotonic()
        self._next, self._messages = self._began + _PROGRESS_SECONDS, 0

    def step(self, step: Step) -> None:
        self.tally.add(step)
        now = time.monotonic()
        if now >= self._next:
            totals = self.tally.totals(self._run)
            rate = (totals.messages - self._messages) / (now - self._next + _PROGRESS_SECONDS)
            err.print(
                f"{now - self._began:6.0f} s  {totals.messages:,} page views ({rate:,.0f}/s), "
                f"{sum(sent.messages for sent in totals.events.values()):,} other events, "
                f"{totals.orders_placed:,} orders, {totals.orders_paid:,} paid, {totals.orders_cancelled:,} cancelled"
            )
            self._next, self._messages = now + _PROGRESS_SECONDS, totals.messages


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _print(totals: Totals, as_json: bool) -> None:
    found: dict[str, Any] = asdict(totals)
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        found |= {f"events {topic}": sent.messages for topic, sent in totals.events.items()}
        del found["events"]
        rows = [{"what": name.replace("_", " "), "count": value} for name, value in found.items()]
        listing(rows, title="Simulated", as_json=False)


def run() -> None:
    """Run the command line; exit codes: 0 ok, 2 usage, 3 cannot."""
    try:
        typer.run(main)
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(3)


if __name__ == "__main__":
    run()
