"""Eight kinds of faults are sent into the running shop; each must be caught, have its consequence, and be on record.

    .venv/spark/bin/python -m tests.chaos.quality [--picture docs/pictures/data-docs.png]

A copy of the shop, whole, on free ports and in a scratch folder, with its simulator and Airflow. Its suites get what
they lack, among it how statuses are spread, learnt from what is there; validated before, all pass. Then each fault
comes, and `validate__<table>` runs in Airflow. Exit code 1 if one was not caught, or something else was found.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import psycopg
from confluent_kafka import Producer

from deltaworks.analyst import connect
from deltaworks.cli import show
from deltaworks.errors import QueryError
from deltaworks.local.stack import SERVICES
from deltaworks.quality.verdict import Where
from deltaworks.settings import ROOT, Settings
from deltaworks.validation.pages import server
from tests.airflow_rest import Airflow
from tests.browser import without_window
from tests.running_stack import running_stack, wait_until
from tests.stack.test_compute_again import said
from tests.tiny_project import Project

VIEWS, REQUESTS, ORDERS, PER_MINUTE = (
    "silver.page_views", "silver.api_requests", "silver.orders", "gold.page_views_per_minute",
)  # fmt: skip
FLOOD = 900
"""So many views of a page in a minute, and errors in a row, the shop never has."""
SECONDS_MAX = 600.0
_PARTS = ("tables", "expectations", "shop")
_FILES = ("deltaworks.toml", "topics.toml")
REST, STREAM = get_args(Where)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of fault: the expectation that must notice, and where."""

    kind: str
    table: str
    expectation: str
    judged: str
    send: Callable[["Scene"], None]


@dataclass(frozen=True, kw_only=True)
class Caught:
    """What came of it."""

    fault: str
    table: str
    expectation: str
    judged: str
    before: str
    after: str
    rows: int | None
    consequence: str


class Scene:
    """The shop at work."""

    def __init__(self, settings: Settings, project: Project) -> None:
        """Log in."""
        self.settings, self.project, self.airflow = settings, project, Airflow(settings)

    def send(self, topic: str, *rows: Mapping[str, Any]) -> None:
        """Send events."""
        producer = Producer({"bootstrap.servers": self.settings.kafka, "enable.idempotence": True})
        for row in rows:
            producer.produce(topic, json.dumps(row), key="1")
        assert producer.flush(30) == 0

    def count(self, sql: str) -> int:
        """One number; 0 before there is a table."""
        try:
            with connect(self.settings.lake) as lake:
                return int(str(lake.sql(sql).rows[0][0]))
        except QueryError:
            return 0

    def validated(self, table: str) -> str:
        """Have Airflow validate a table; the state that its run comes to."""
        dag = f"validate__{table}"
        status, run = self.airflow.ask(f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})
        assert status == 200, run
        over = {"success", "failed"}
        wait_until(
            lambda: self.airflow.runs(dag)[run["dag_run_id"]] in over, what=f"{dag} is over", seconds_max=SECONDS_MAX
        )
        return self.airflow.runs(dag)[run["dag_run_id"]]

    def verdicts(self) -> dict[tuple[str, str, str], tuple[str, int | None]]:
        """The newest of each table, expectation and where: verdict, and how many rows."""
        asked = """
            select table_name, expectation, judged, arg_max(verdict, judged_at), arg_max(result, judged_at)
            from ops.quality group by all"""
        with connect(self.settings.lake) as lake:
            rows = lake.sql(asked).rows
        return {
            (str(table), str(name), str(where)): (str(verdict), json.loads(str(told))["result"].get("unexpected_count"))
            for table, name, where, verdict, told in rows
        }


def view(number: int, **other: Any) -> dict[str, Any]:
    """A page view."""
    now = datetime.now(UTC)
    return {
        "event_id": f"fault-{number}-{time.time_ns()}", "event_time": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}", "user_id": 1,
        "session_id": "s-fault", "page": "/", "referrer": None, **other,
    }  # fmt: skip


def request(number: int, **other: Any) -> dict[str, Any]:
    """A request to a server."""
    now = datetime.now(UTC)
    return {
        "request_id": f"fault-{number}-{time.time_ns()}", "requested_at": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
        "client_id": "10.0.0.1", "endpoint": "/", "status": 200, "milliseconds": 5, **other,
    }  # fmt: skip


def _flood(scene: Scene) -> None:
    minute = (datetime.now(UTC) - timedelta(minutes=1)).replace(second=0, microsecond=0)
    scene.send(
        "page_views",
        *(view(n, page="/flood", session_id=f"s-{n}", event_time=f"{minute:%Y-%m-%dT%H:%M:%SZ}") for n in range(FLOOD)),
    )


def _twice(scene: Scene) -> None:
    """Two events of two ids, which are one view."""
    same = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    scene.send("page_views", *(view(n, session_id="s-twice", event_time=same) for n in range(2)))


def _unknown_status(scene: Scene) -> None:
    """The database has no rule for it: somebody has dropped it."""
    with psycopg.connect(scene.settings.source_dsn(), autocommit=True) as source:
        rules = source.execute(
            "select conname from pg_constraint where conrelid = 'orders'::regclass and contype = 'c'"
            " and pg_get_constraintdef(oid) like '%status%'"
        ).fetchall()
        for (rule,) in rules:
            source.execute(f'alter table orders drop constraint "{rule}"')
        source.execute("update orders set status = 'lost' where order_id = (select max(order_id) from orders)")


FAULTS = (
    Fault(kind="null", table=VIEWS, judged=STREAM, expectation="expect_column_values_to_not_be_null(event_id)",
          send=lambda scene: scene.send("page_views", view(1, event_id=None))),
    Fault(kind="range", table=REQUESTS, judged=STREAM, expectation="expect_column_values_to_be_between(status)",
          send=lambda scene: scene.send("api_requests", request(1, status=999))),
    Fault(kind="set", table=ORDERS, judged=STREAM, expectation="expect_column_values_to_be_in_set(status)",
          send=_unknown_status),
    Fault(kind="pattern", table=VIEWS, judged=STREAM, expectation="expect_column_values_to_match_regex(page)",
          send=lambda scene: scene.send("page_views", view(1, page="no path"))),
    Fault(kind="type", table=REQUESTS, judged=STREAM, expectation="expect_column_values_to_be_of_type(milliseconds)",
          send=lambda scene: scene.send("api_requests", request(2, milliseconds="fast"))),
    Fault(kind="duplicate", table=VIEWS, judged=REST,
          expectation="expect_compound_columns_to_be_unique(session_id, event_time, page)", send=_twice),
    Fault(kind="volume", table=PER_MINUTE, judged=REST, expectation="expect_column_max_to_be_between(views)",
          send=_flood),
    Fault(kind="drift of a distribution", table=REQUESTS, judged=REST,
          expectation="expect_column_kl_divergence_to_be_less_than(status)",
          send=lambda scene: scene.send("api_requests", *(request(n, status=503) for n in range(3, FLOOD)))),
)  # fmt: skip
TABLES = tuple(dict.fromkeys(one.table for one in FAULTS))
_DAGS = '''"""validate__<table> of those that faults are sent to: one validation goes after the other."""

# Airflow looks only into files in which it finds the words "airflow" and "dag".
from deltaworks.settings import Settings
from deltaworks.supervise.dag_building import validate_dags

globals().update({{dag.dag_id: dag for dag in validate_dags(Settings.load(), tables={tables})}})
'''


def added(scene: Scene) -> dict[str, list[dict[str, Any]]]:
    """What the suites get; how statuses are spread is learnt from what is there."""
    with connect(scene.settings.lake) as lake:
        found = lake.sql(f"select status, count(*) from {REQUESTS} group by all").rows
    counts = {int(str(status)): int(str(count)) for status, count in found}
    spread = {"values": [*counts], "weights": [count / sum(counts.values()) for count in counts.values()]}
    return {
        VIEWS: [
            {
                "type": "expect_compound_columns_to_be_unique",
                "kwargs": {"column_list": ["session_id", "event_time", "page"]},
            }
        ],
        REQUESTS: [
            {
                "type": "expect_column_values_to_be_of_type",
                "kwargs": {"column": "milliseconds", "type_": "IntegerType"},
            },
            {
                "type": "expect_column_kl_divergence_to_be_less_than",
                "kwargs": {
                    "column": "status", "partition_object": spread, "threshold": 0.2, "tail_weight_holdout": 0.01,
                },
            },
        ],
        PER_MINUTE: [
            {"type": "expect_column_max_to_be_between", "kwargs": {"column": "views", "max_value": FLOOD // 2}},
        ],
    }  # fmt: skip


def add(scene: Scene) -> None:
    """Write them into the project's suites; the apps judge by them from their next start on."""
    for table, expectations in added(scene).items():
        file = scene.project.folder / "expectations" / f"{table.replace('.', '/')}.yml"
        lines = [f"  - {json.dumps({**one, 'severity': 'critical'})}" for one in expectations]
        file.write_text("\n".join([file.read_text().rstrip(), *lines, ""]))


def arrived(scene: Scene) -> bool:
    """Whether all of the faults are where they go."""
    aside = {
        table: scene.count(f"select count(distinct reason) from {table}__quarantine")
        for table in (VIEWS, REQUESTS, ORDERS)
    }
    counts = [
        scene.count(f"select count(*) from {VIEWS} where session_id = 's-twice'") >= 2,
        scene.count(f"select count(*) from {REQUESTS} where status = 503 and endpoint = '/'") >= FLOOD - 3,
        scene.count(f"select max(views) from {PER_MINUTE}") >= FLOOD,
    ]
    return all(counts) and aside[VIEWS] >= 2 and aside[REQUESTS] >= 2 and aside[ORDERS] >= 1


def caught(scene: Scene) -> tuple[list[Caught], list[str]]:
    """Validate, send all the faults, validate again; with what else is another than before."""
    for table in TABLES:
        scene.validated(table)
    before = scene.verdicts()
    for fault in FAULTS:
        fault.send(scene)
    wait_until(lambda: arrived(scene), what="the faults have come", seconds_max=SECONDS_MAX)
    states = {table: scene.validated(table) for table in TABLES}
    after = scene.verdicts()
    found = []
    for fault in FAULTS:
        key = (fault.table, fault.expectation, fault.judged)
        verdict, rows = after.get(key, ("not judged", None))
        found.append(
            Caught(
                fault=fault.kind,
                table=fault.table,
                expectation=fault.expectation,
                judged=fault.judged,
                before=before.get(key, ("not judged", None))[0],
                after=verdict,
                rows=rows,
                consequence="set aside" if fault.judged == STREAM else f"its run in Airflow: {states[fault.table]}",
            )
        )
    meant = {(one.table, one.expectation, one.judged) for one in FAULTS}
    others = [f"{' '.join(key)}: {after[key][0]}" for key in after.keys() - meant if after[key][0] != before[key][0]]
    if states[ORDERS] != "success":
        others.append(f"{ORDERS}: a row that was set aside turned its run to {states[ORDERS]}")
    return found, others


def wrong(found: Sequence[Caught]) -> Iterator[str]:
    """What is not as it should be."""
    for one in found:
        if (one.before, one.after) != ("passed", "failed"):
            yield f"{one.fault}: {one.before}, then {one.after}"
        if one.judged == STREAM and not one.rows:
            yield f"{one.fault}: no row is set aside"
        if one.judged == REST and not one.consequence.endswith("failed"):
            yield f"{one.fault}: {one.consequence}"


def picture(settings: Settings, file: Path) -> None:
    """Take one of the first page of Data Docs."""
    with server(settings.quality_docs, results=settings.quality_results, port=0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        with without_window(size="1100,560") as browser:
            browser.get(f"http://127.0.0.1:{serving.server_port}/")
            browser.save_screenshot(str(file))
        serving.shutdown()


@contextmanager
def at_work() -> Iterator[Scene]:
    """The shop, with rows in gold, its suites extended, and its apps started anew by them."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-quality-") as folder:
        copy = Path(folder) / "project"
        copy.mkdir()
        for name in _PARTS:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in _FILES:
            shutil.copy(ROOT / name, copy)
        project = Project.at(copy)
        project.take_dags("streams")
        project.write("dags/validate.py", _DAGS.format(tables=TABLES))
        with running_stack(parts=(*SERVICES, "simulator"), project=copy) as settings:
            scene = Scene(settings, project)
            said(settings, "app", "start", "shop", "web")
            wait_until(
                lambda: all(scene.count(f"select count(*) from {table}") >= 30 for table in TABLES),
                what="rows are in gold", seconds_max=SECONDS_MAX,
            )  # fmt: skip
            add(scene)
            said(settings, "app", "restart", "web")
            yield scene


def main(arguments: Sequence[str]) -> int:
    """Print a line for each; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.quality", description=__doc__)
    parser.add_argument("--picture", type=Path, help="take one of the first page of Data Docs")
    given = parser.parse_args(arguments)
    with at_work() as scene:
        found, others = caught(scene)
        if given.picture:
            picture(scene.settings, given.picture)
    show.listing(list(map(asdict, found)), title="faults that were sent", as_json=False)
    told = [*wrong(found), *others]
    for one in told:
        show.err.print(one, markup=False)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
