"""What people see and do in Airflow: its pages in a browser, days replayed, operations by the form, who may what."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.local import stack
from deltaworks.operations import ALL, NONE
from deltaworks.settings import Settings
from tests import browser
from tests.airflow_rest import Airflow
from tests.flows import START
from tests.running_stack import is_back, part, running_stack, wait_until
from tests.stack.test_compute_again import DAYS as DAYS_TABLE
from tests.stack.test_compute_again import NOTES, RIGHT, SECONDS_MAX, WRONG, known, said, send, there, tiny, words_of
from tests.tiny_project import Project

EACH, DAYS = 40, 3
KEYS = [f"{START + timedelta(days=day):%Y-%m-%d}" for day in range(DAYS)]
DAG, FORM = f"replay__{NOTES}", "operate__tiny"
HEALTH = "health__tiny"


@pytest.fixture(scope="module")
def tiny_in_airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Project]]:
    """Give a stack with Airflow whose app is not started yet."""
    project = tiny(tmp_path_factory.mktemp("airflow") / "project")
    project.take_dags("streams", "maintenance", "replay", "operate", "health")
    with running_stack(parts=("control", "kafka", "airflow"), project=project.folder) as settings:
        yield settings, project


def test_dags_are_listed_and_a_stream_waits_without_a_worker(tiny_in_airflow: tuple[Settings, Project]) -> None:
    """In a browser: nothing failed to import; the task of an app that nobody wants is deferred, not failed."""
    if not browser.is_there():
        pytest.skip('no browser here: "apt-get install chromium chromium-driver"')
    settings, _ = tiny_in_airflow
    wanted = {f"{kind}__tiny" for kind in ("stream", "maintain", "vacuum", "operate", "health")} | {DAG}

    airflow = Airflow(settings)
    wait_until(
        lambda: all(airflow.ask(f"/api/v2/dags/{one}")[0] == 200 for one in wanted), what="the DAGs are there",
        seconds_max=SECONDS_MAX,
    )  # fmt: skip

    with browser.logged_in(settings) as pages:
        pages.get(f"{settings.airflow_url}/dags")
        browser.until(pages, lambda: wanted <= {*browser.text_of(pages).split()})
        listed = browser.text_of(pages)
        pages.get(f"{settings.airflow_url}/dags/stream__tiny/tasks/supervise/task_instances")
        browser.until(pages, lambda: states_of_stream(settings) == {"deferred"})  # the page has the word elsewhere too
        browser.until(pages, lambda: "deferred" in browser.text_of(pages).lower())

    assert "Import Error" not in listed


def test_days_are_replayed_by_airflows_own_backfill(tiny_in_airflow: tuple[Settings, Project]) -> None:
    """A rule was wrong for three days. One is looked at, then all are replayed while the stream goes on."""
    settings, project = tiny_in_airflow
    said(settings, "app", "start", "tiny")
    for day in range(DAYS):
        send(settings, EACH * day, EACH, day=day)
    wait_until(lambda: notes(settings) == DAYS * EACH // 2, what="the short notes", seconds_max=SECONDS_MAX)
    project.edit("expectations/silver/notes.yml", WRONG, RIGHT)
    said(settings, "app", "restart", "tiny")
    airflow, viewer = Airflow(settings), Airflow(settings, "viewer")
    wait_until(lambda: airflow.ask(f"/api/v2/dags/{DAG}")[0] == 200, what="the DAG is there", seconds_max=SECONDS_MAX)
    days = {"from_date": f"{KEYS[0]}T00:00:00Z", "to_date": f"{KEYS[-1]}T00:00:00Z", "max_active_runs": DAYS}

    look = {"logical_date": None, "partition_key": KEYS[1], "conf": {"plan_only": True}}
    status, looked = airflow.ask(f"/api/v2/dags/{DAG}/dagRuns", look)
    assert status == 200, looked
    wait_until(lambda: airflow.runs(DAG)[looked["dag_run_id"]] == "success", what="a look", seconds_max=SECONDS_MAX)
    planned, before = airflow.result(DAG, looked["dag_run_id"]), notes(settings)
    forbidden, _ = viewer.ask("/api/v2/backfills", {"dag_id": DAG, **days})
    senseless, _ = airflow.ask("/api/v2/backfills", {"dag_id": "maintain__tiny", **days})
    status, filled = airflow.ask("/api/v2/backfills", {"dag_id": DAG, **days, "reprocess_behavior": "completed"})
    assert status == 200, filled
    send(settings, EACH * DAYS, EACH, day=DAYS - 1)  # meanwhile
    ended = ["success"] * (DAYS + 1)
    wait_until(lambda: list(airflow.runs(DAG).values()) == ended, what="the backfill", seconds_max=SECONDS_MAX)
    results = {
        one["from"][:10]: one
        for run in airflow.runs(DAG)
        if run != looked["dag_run_id"]
        for one in [airflow.result(DAG, run)]
    }
    wait_until(lambda: notes(settings) == (DAYS + 1) * EACH, what="what came meanwhile", seconds_max=SECONDS_MAX)
    rows, per_day = there(settings)
    said(settings, "ledger")
    orders = json.loads(said(settings, "commands", "list", "--json", "--kind", "recompute"))
    range_of_cli = ("--dag-id", DAG, "--from-date", KEYS[0], "--to-date", KEYS[-1])
    shown = said(settings, "airflow", "backfill", "create", *range_of_cli, "--dry-run")

    assert f"dag_id = {DAG}" in shown
    assert before == DAYS * EACH // 2
    assert (planned["rows_written"], planned["rows_unchanged"], planned["published"]) == (EACH // 2, EACH // 2, None)
    assert forbidden == 403
    assert senseless in (400, 422)
    assert sorted(results) == KEYS
    assert all(one["rows_written"] == EACH // 2 for one in results.values())
    assert {one["together"] for one in results.values()} == {DAYS}
    assert rows == {(f"n{number}", words_of(number)) for number in range((DAYS + 1) * EACH)}
    assert [one["notes"] for one in sorted(per_day, key=lambda one: str(one["day"]))] == [EACH, EACH, 2 * EACH]
    assert {one["state"] for one in orders} == {"done"}
    assert len(orders) == DAYS + 1


def test_an_operator_operates_by_a_form(tiny_in_airflow: tuple[Settings, Project]) -> None:
    """One operation after the other, with the app running and stopped; the viewer may not, and all is on record."""
    settings, _ = tiny_in_airflow
    operator, viewer = Airflow(settings, "operator"), Airflow(settings, "viewer")
    wait_until(
        lambda: operator.ask(f"/api/v2/dags/{FORM}")[0] == 200, what="the form is there", seconds_max=SECONDS_MAX
    )
    said(settings, "app", "start", "tiny")
    send(settings, 1_000, EACH)
    wait_until(lambda: ("n1000", 0) in known(settings), what="a note of now", seconds_max=SECONDS_MAX)
    before = known(settings)

    def operated(operation: str, table: str = NONE, **given: object) -> tuple[str, dict[str, Any]]:
        filled = {"operation": operation, "table": table, "reason": f"try {operation}", **given}
        status, run = operator.ask(f"/api/v2/dags/{FORM}/dagRuns", {"logical_date": None, "conf": filled})
        assert status == 200, run
        name = run["dag_run_id"]
        wait_until(
            lambda: operator.runs(FORM)[name] in ("success", "failed"), what=operation, seconds_max=SECONDS_MAX
        )  # fmt: skip
        return operator.runs(FORM)[name], operator.result(FORM, name)

    asked = {"logical_date": None, "conf": {"operation": "stop", "reason": "mine"}}
    refused = [viewer.ask(f"/api/v2/dags/{FORM}/dagRuns", asked)[0]]
    refused.append(operator.ask(f"/api/v2/dags/{FORM}/dagRuns", {**asked, "conf": {"operation": "stop"}})[0])
    results = {
        "compact": operated("compact", ALL),
        "rebuild": operated("rebuild", NOTES),
        "drain": operated("drain"),
        "vacuum": operated("vacuum", NOTES, hours=0),
        "start": operated("start"),
    }
    rows = known(settings)
    orders = json.loads(said(settings, "commands", "list", "--json", "--by", "operator in Airflow"))
    said(settings, "ledger")

    assert refused == [403, 400]
    assert {name: state for name, (state, _) in results.items()} == dict.fromkeys(results, "success")
    assert [one["table"] for one in results["compact"][1]["commands"]] == ["bronze.letters", NOTES, DAYS_TABLE]
    (rebuilt,) = results["rebuild"][1]["commands"]
    assert rebuilt["result"]["tables"] == [NOTES, DAYS_TABLE]
    assert results["drain"][1]["state"] == "stopped"
    assert [one["state"] for one in results["vacuum"][1]["commands"]] == ["done"]
    assert results["start"][1]["state"] in ("healthy", "idle")
    assert rows == before
    assert [(one["kind"], one["reason"]) for one in orders if one["kind"] != "publish"] == [
        ("start", "try start"), ("vacuum", "try vacuum"), ("drain", "try drain"), ("recompute", "try rebuild"),
        *[("compact", "try compact")] * 3,
    ]  # fmt: skip


def test_a_driver_that_is_killed_is_red_and_green_again(tiny_in_airflow: tuple[Settings, Project]) -> None:
    """Within half a minute each, although the next driver runs a moment after the death."""
    settings, _ = tiny_in_airflow
    airflow = Airflow(settings, "viewer")
    said(settings, "app", "start", "tiny")
    wait_until(lambda: airflow.newest(HEALTH) == "success", what="all is well", seconds_max=SECONDS_MAX)
    with Store(settings.control_dsn()) as store:
        lease = store.lease("tiny")
        assert lease is not None
        os.kill(lease.pid, signal.SIGKILL)
        wait_until(lambda: airflow.newest(HEALTH) == "failed", what="it is red", seconds_max=30)
        wait_until(lambda: airflow.newest(HEALTH) == "success", what="it is green", seconds_max=SECONDS_MAX)
        successor = store.lease("tiny")

    assert successor is not None
    assert successor.epoch == lease.epoch + 1


def test_a_killed_scheduler_comes_back_without_strays(tiny_in_airflow: tuple[Settings, Project]) -> None:
    """After kill -9 its workers do not live on, and all four processes of Airflow are well."""
    settings, _ = tiny_in_airflow
    before = part(settings, "airflow-scheduler")
    assert before.pid is not None
    workers = [pid for pid in processes.members(before.pid) if pid != before.pid]
    assert workers

    os.kill(before.pid, signal.SIGKILL)
    wait_until(lambda: is_back(settings, "airflow-scheduler", before.pid), what="it is back", seconds_max=SECONDS_MAX)

    assert [pid for pid in workers if processes.started(pid) is not None] == []
    states = {name: one.state for name, one in stack.state(settings).parts.items() if name.startswith("airflow-")}
    assert states.pop("airflow-database") == "done"
    assert states == dict.fromkeys(
        ("airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"), "ready"
    )


def states_of_stream(settings: Settings) -> set[str]:
    """Of every instance of the task that supervises, by Airflow's own books."""
    asked = "select state from task_instance where dag_id = 'stream__tiny' and task_id = 'supervise'"
    with psycopg.connect(settings.dsn("airflow")) as connection:
        return {str(state) for (state,) in connection.execute(asked)}


def notes(settings: Settings) -> int:
    """How many there are."""
    return len(known(settings))
