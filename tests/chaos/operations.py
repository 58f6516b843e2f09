"""Every operation on an app and its tables, given as Airflow's form sends it, as `operator`, on a stack at work.

    .venv/spark/bin/python -m tests.chaos.operations

A part of the shop, Kafka and Airflow, on free ports and in a scratch folder; page views of which some are refused and
some come too late. Each operation that there is has a run, and each is refused for the viewer. Exit code 1 if a run
does not end well, if an operation was left out, or if who wanted it and why is not on record.
"""

import json
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from deltaworks.analyst import connect
from deltaworks.cli import show
from deltaworks.control import Store
from deltaworks.errors import QueryError
from deltaworks.operations import ALL, ANY, CANCEL, NONE, OF_APP, OPERATIONS
from deltaworks.settings import Settings
from shop.part import FIRST, part_of_shop
from tests.airflow_rest import Airflow
from tests.running_stack import running_stack, wait_until
from tests.stack.test_compute_again import said
from tests.tiny_project import Project

APP, DAG = "web", "operate__web"
VIEWS, PER_MINUTE, ASIDE = "silver.page_views", "gold.page_views_per_minute", "gold.page_views_set_aside"
SECONDS_MAX = 600.0
COUNT, EACH_BATCH = 400, 100


@dataclass(frozen=True, kw_only=True)
class Given:
    """How the form is filled in."""

    operation: str
    table: str = NONE
    to: str | None = None
    cause: str | None = None
    plan_only: bool = False
    command: int | None = None
    reason: str = field(default_factory=lambda: f"try {uuid.uuid4()}")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What came of it."""

    operation: str
    table: str
    run: str
    seconds: float
    viewer: int
    on_record: bool


class Scene:
    """The app at work, and two of Airflow's users."""

    def __init__(self, settings: Settings) -> None:
        """Log in."""
        self.settings = settings
        self.operator, self.viewer = Airflow(settings, "operator"), Airflow(settings, "viewer")

    def send(self, first: int) -> None:
        """Send views: one of ten is no path, and is refused; one of ten is of an hour ago, and comes too late."""
        producer = Producer({"bootstrap.servers": self.settings.kafka, "enable.idempotence": True})
        now = datetime.now(UTC)
        for number in range(first, first + EACH_BATCH):
            at = now - timedelta(hours=number % 10 == 3)
            page = "no path" if number % 10 == 7 else f"/{number % 5}"
            row = {"event_id": f"e{number}", "event_time": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}", "user_id": number % 7,
                   "session_id": f"s{number % 7}", "page": page, "referrer": None}  # fmt: skip
            producer.produce("page_views", json.dumps(row), key="1")
        assert producer.flush(30) == 0

    def views(self) -> int:
        """How many are in silver; 0 before there is a table."""
        try:
            with connect(self.settings.lake) as lake:
                return int(str(lake.sql(f"select count(*) from {VIEWS}").rows[0][0]))
        except QueryError:
            return 0

    def has(self, views: int) -> bool:
        """Whether so many are there."""
        return self.views() >= views

    def operated(self, given: Given) -> Seen:
        """Ask for it by REST, as the viewer and as the operator, and wait for the run's end."""
        conf = {name: value for name, value in asdict(given).items() if value not in (None, False)}
        body = {"logical_date": None, "conf": conf}
        refused, _ = self.viewer.ask(f"/api/v2/dags/{DAG}/dagRuns", body)
        began = time.monotonic()
        status, run = self.operator.ask(f"/api/v2/dags/{DAG}/dagRuns", body)
        assert status == 200, run
        name = run["dag_run_id"]
        ended = {"success", "failed"}
        wait_until(lambda: self.operator.runs(DAG)[name] in ended, what=given.operation, seconds_max=SECONDS_MAX)
        return Seen(
            operation=given.operation + (", plan_only" if given.plan_only else ""), table=given.table,
            run=self.operator.runs(DAG)[name], seconds=round(time.monotonic() - began, 1), viewer=refused,
            on_record=self._is_on_record(given),
        )  # fmt: skip

    def _is_on_record(self, given: Given) -> bool:
        with Store(self.settings.control_dsn()) as store:
            if given.operation == CANCEL:
                found = store.command(given.command or 0)
                return (found.cancelled_by, found.cancel_reason) == ("operator in Airflow", given.reason)
            return bool([one for one in store.commands(APP, by="operator in Airflow") if one.reason == given.reason])


def forms(waiting: int) -> Iterator[Given]:
    """Each operation; what may also be only looked at twice; `waiting` is an order to be withdrawn."""
    hour_ago = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    day_ago = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT%H:%M}"
    yield Given(operation=CANCEL, command=waiting)
    yield Given(operation="start")
    yield Given(operation="compact", table=ALL)
    yield Given(operation="vacuum", table=ALL)
    yield Given(operation="expire", table=ALL)
    yield Given(operation="late apply", table=ASIDE)
    yield Given(operation="quarantine accept", table=VIEWS)
    yield Given(operation="quarantine replay", table=VIEWS)
    yield Given(operation="quarantine discard", table=VIEWS, cause=ANY)
    for plan_only in (True, False):
        yield Given(operation="rebuild", table=PER_MINUTE, plan_only=plan_only)
        yield Given(operation="rewind", table=PER_MINUTE, to="1", plan_only=plan_only)
        yield Given(operation="replay", table=VIEWS, to=day_ago, plan_only=plan_only)
    yield Given(operation="late revise", table=VIEWS, to=hour_ago)
    yield Given(operation="restart")
    yield Given(operation="drain")
    yield Given(operation="start")
    yield Given(operation="stop")


@contextmanager
def at_work() -> Iterator[Scene]:
    """The stack, with all kinds of rows taken in several commits, and the app stopped again."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-operations-") as folder:
        project = Project.at(part_of_shop(Path(folder) / "project", *FIRST, ASIDE))
        project.take_dags("streams", "operate")
        with running_stack(parts=("control", "kafka", "airflow"), project=project.folder) as settings:
            scene = Scene(settings)
            there = f"/api/v2/dags/{DAG}"
            wait_until(lambda: scene.operator.ask(there)[0] == 200, what="the form is there", seconds_max=SECONDS_MAX)
            said(settings, "app", "start", APP)
            for first in range(0, COUNT, EACH_BATCH):
                scene.send(first)
                taken = (first + EACH_BATCH) * 9 // 10
                wait_until(partial(scene.has, taken), what=f"{taken} views", seconds_max=SECONDS_MAX)
            said(settings, "app", "stop", APP, "--wait")
            yield scene


def wrong(found: Sequence[Seen]) -> Iterator[str]:
    """What is not as it should be."""
    for one in found:
        if one.run != "success":
            yield f"{one.operation}: its run is {one.run}"
        if one.viewer != 403:
            yield f"{one.operation}: the viewer was answered {one.viewer}"
        if not one.on_record:
            yield f"{one.operation}: it is not on record who wanted it and why"
    for name in {*OF_APP, *OPERATIONS, CANCEL} - {one.operation for one in found}:
        yield f"{name}: it was left out"


def main() -> int:
    """Print a line for each; the exit code."""
    with at_work() as scene:
        with Store(scene.settings.control_dsn()) as store:
            waiting = store.send(app=APP, table=VIEWS, kind="compact", arguments={}, by="ann", reason="by mistake")
        before = scene.views()
        found = list[Seen]()
        for given in forms(waiting):
            found.append(scene.operated(given))
            show.err.print(str(found[-1]), markup=False)
        told = [*wrong(found)]
        said(scene.settings, "app", "start", APP)
        wait_until(lambda: scene.views() == before, what="the same views are there", seconds_max=SECONDS_MAX)
        said(scene.settings, "ledger")
    rows: list[dict[str, Any]] = [asdict(one) for one in found]
    show.listing(rows, title="operations as Airflow's form sends them", as_json=False)
    for one in told:
        show.err.print(one, markup=False)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
