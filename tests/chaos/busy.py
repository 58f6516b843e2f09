"""Busy minutes: a stream, and beside it backfills of the same days, compaction, replays and late rows, on one table.

    .venv/spark/bin/python -m tests.chaos.busy --minutes 10

Three of ten events that the source calls good are refused by a rule that is mended half-way. Two operators give orders
without a pause, one only backfills. No order may fail, and afterwards the lake holds each event once. Exit code 1 if
not.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random, SystemRandom
from typing import Annotated

import typer
from confluent_kafka import Producer
from deltalake import DeltaTable

from deltaworks import catalog
from deltaworks.cli.show import out
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.driver import leave
from deltaworks.settings import ROOT, Settings
from tests.broken_rules import Shop
from tests.running_stack import running_stack, wait_until

TABLE, COUNTS = "silver.page_views", "gold.page_views_per_minute"
SECONDS_MAX = 300
_KINDS = {"backfill", "compact", "late", "quarantine", "vacuum"}
"""Orders of which each is to be given at least once while events come."""
WRONG, RIGHT = "'^/'", "'^(/|shop/)'"


@dataclass
class Sent:
    """What the source has sent: good events by name, how many copies and broken ones."""

    good: set[str] = field(default_factory=set)
    copies: int = 0
    broken: int = 0


@dataclass
class Order:
    """One order of an operator: its words, its exit code, what it said last."""

    words: str
    code: int
    said: str
    seconds: float


class Operator:
    """Gives one order after the other until told to stop."""

    def __init__(self, settings: Settings, orders: Sequence[Sequence[str]]) -> None:
        """Nothing is ordered yet."""
        self.settings, self.orders = settings, orders
        self.given: list[Order] = []
        self.free, self.stopped = threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        at = 0
        while not self.stopped.is_set():
            with self.free:
                self.given.append(said(self.settings, *self.orders[at % len(self.orders)]))
            out.print(f"  {self.given[-1].words}: {self.given[-1].code}  {self.given[-1].said[:150]}", markup=False)
            at += 1


def said(settings: Settings, *words: str, all_of_it: bool = False) -> Order:
    """Run the command line in a process of its own; of what it says the last line if it went well, or all of it."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "deltaworks.cli", *words],
            env=settings.inherited(), cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Order(" ".join(words), -1, f"not within {SECONDS_MAX} s", time.monotonic() - began)
    told = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:] or [""]
    if done.returncode or all_of_it:
        told = [" ".join((done.stdout + done.stderr).split())[0 if all_of_it else -600 :]]
    return Order(" ".join(words), done.returncode, told[0], time.monotonic() - began)


def send(settings: Settings, chance: Random, rate: float, stopped: threading.Event, sent: Sent) -> None:
    """Events that happen now: 5 % late by minutes, 2 % twice, 1 % broken, in any order among their neighbours."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    number = 0
    while not stopped.is_set():
        number += 1
        late = timedelta(minutes=chance.uniform(5, 40)) if chance.random() < 0.05 else timedelta(0)
        at = datetime.now(UTC) - timedelta(seconds=chance.uniform(0, 5)) - late
        page = f"/{number % 5}" if chance.random() < 0.7 else f"shop/{number % 3}"
        user = chance.randrange(40)
        name = f"e{number}"
        row = {"event_id": name, "event_time": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}", "user_id": user,
               "session_id": "s", "page": page, "referrer": None}  # fmt: skip
        value = json.dumps(row)
        if chance.random() < 0.01:
            value, sent.broken = value[:-9], sent.broken + 1
        else:
            sent.good.add(name)
        for copy in range(2 if chance.random() < 0.02 else 1):
            sent.copies += copy
            producer.produce("page_views", value, key=str(user))
        producer.poll(0)
        stopped.wait(1 / rate)
    producer.flush(60)


def run(minutes: float, rate: float, seed: int) -> list[str]:
    """The minutes, and what is wrong afterwards."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-busy-") as scratch:
        project = Shop(Path(scratch) / "project")
        declared = project.folder / "tables/gold/page_views_per_minute/table.py"
        text = declared.read_text().replace("late=correct(", "late=side_output(").replace(" correct,", " side_output,")
        assert "side_output(after" in text
        declared.write_text(text)
        with running_stack(parts=("control", "kafka"), project=project.folder) as settings:
            return list(_busy(settings, project, minutes, rate, Random(seed)))


def _busy(settings: Settings, project: Shop, minutes: float, rate: float, chance: Random) -> list[str]:
    day, stopped, sent = f"{datetime.now(UTC):%F}", threading.Event(), Sent()
    one = Operator(settings, [("backfill", TABLE, "--from", day, "--to", day)])
    other = Operator(
        settings,
        [("compact", TABLE), ("quarantine", "replay", TABLE), ("late", "apply", COUNTS), ("compact", COUNTS),
         ("compact", "bronze.web_events"), ("vacuum", TABLE, "--hours", "0")],
    )  # fmt: skip
    wrong = [_well(said(settings, "app", "start", "web", "--here"))]
    sending = threading.Thread(target=send, args=(settings, chance, rate, stopped, sent))
    sending.start()
    try:
        seconds = minutes * 60 / 2
        wait_until(
            lambda: _rows(settings) > 0, what="rows in the table that the orders are about", seconds_max=SECONDS_MAX
        )
        for operator in (one, other):
            operator.thread.start()
        time.sleep(seconds)  # the first half of the minutes asked for: operators and stream are at work
        with one.free, other.free:  # who mends a rule restarts the app before anything is ordered with it
            project.edit("silver/page_views.yml", WRONG, RIGHT)
            wrong.append(_well(said(settings, "app", "restart", "web", "--here")))
        time.sleep(seconds)  # the second half, by the mended rule
    finally:
        for operator in (one, other):
            operator.stopped.set()
        stopped.set()
        sending.join()
    for operator in (one, other):
        operator.thread.join(2 * SECONDS_MAX)
        assert not operator.thread.is_alive()
        wrong += [_well(order) for order in operator.given]
    kinds = Counter(order.words.split()[0] for order in (*one.given, *other.given))
    out.print(f"sent {len(sent.good)} events, {sent.copies} copies, {sent.broken} broken; orders {dict(kinds)}")
    wrong += [f"no order of this kind was given: {kind}" for kind in sorted(_KINDS - kinds.keys())]
    for words in (("late", "apply", COUNTS), ("app", "stop", "web", "--wait"), ("quarantine", "replay", TABLE),
                  ("run", "web", "--drain"), ("ledger",), ("prove", TABLE),
                  ("prove", COUNTS, "--keys-min", "1")):  # fmt: skip
        order = said(settings, *words)
        out.print(f"  {order.words}: {order.code}  {order.said[:200]}", markup=False)
        wrong.append(_well(order))
    return [*(text for text in wrong if text), *_missing(settings, sent)]


def _rows(settings: Settings) -> int:
    path = settings.lake / TABLE.replace(".", "/")
    if not DeltaTable.is_deltatable(str(path)):
        return 0
    return int(DeltaTable(str(path)).to_pyarrow_dataset().count_rows())


def _well(order: Order) -> str:
    return "" if order.code == 0 else f"{order.words}: exit code {order.code}: {order.said}"


def _missing(settings: Settings, sent: Sent) -> list[str]:
    """What differs from what was sent, and what the checker says."""
    with Picture(catalog.load(settings.project), settings.lake) as picture:
        rows = picture.connection.execute(f'select event_id from "{TABLE}"').fetchall()  # a constant
        counted = picture.count(f'select sum(views) from "{COUNTS}"')  # a constant
        found = [str(one) for one in check(picture, at_rest=True)]
    there = {row[0] for row in rows}
    if there != sent.good:
        found.append(f"{len(sent.good - there)} events are missing in {TABLE}, {len(there - sent.good)} too many")
    if counted != len(sent.good):
        found.append(f"{COUNTS} counts {counted} events of {len(sent.good)}")
    return found


def main(
    minutes: Annotated[float, typer.Option(min=1, help="How long.")] = 10.0,
    rate: Annotated[float, typer.Option(min=1, help="Events per second.")] = 30.0,
    seed: Annotated[int | None, typer.Option(help="Draws the events; default: by chance.")] = None,
) -> None:
    """Stream, give orders, look."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    found = run(minutes, rate, seed)
    for one in found:
        out.print(one, markup=False, soft_wrap=True)
    out.print("nothing found" if not found else f"{len(found)} found")
    if found:
        raise typer.Exit(1)


def run_and_leave(main: Callable[..., None]) -> None:
    """Run a drill's command line and end the process with its exit code, whatever threads are left."""
    code = 0
    try:
        typer.run(main)
    except SystemExit as end:
        code = int(end.code or 0)
    leave(code)


if __name__ == "__main__":
    run_and_leave(main)
