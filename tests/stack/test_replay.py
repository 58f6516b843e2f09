"""Days of a table replayed beside the stream, as people do it in Airflow: a backfill, and a run that only looks."""

import http.client
import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from deltaworks.errors import QueryError
from deltaworks.settings import ROOT, Settings
from tests.flows import START
from tests.running_stack import running_stack, wait_until
from tests.stack.test_compute_again import NOTES, RIGHT, SECONDS_MAX, WRONG, said, send, there, tiny, words_of

EACH, DAYS = 40, 3
KEYS = [f"{START + timedelta(days=day):%Y-%m-%d}" for day in range(DAYS)]
DAG = f"replay__{NOTES}"


class Airflow:
    """Airflow's REST interface, as one of its users."""

    def __init__(self, settings: Settings, user: str = "admin") -> None:
        """Log in."""
        self.port, self.token = settings.port_airflow, ""
        _, answer = self.ask("/auth/token", {"username": user, "password": settings.secret(f"airflow_{user}")})
        self.token = answer["access_token"]

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Status and answer."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET" if body is None else "POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.load(answer)

    def runs(self, dag: str) -> dict[str, str]:
        """The state of each run of a DAG."""
        status, answer = self.ask(f"/api/v2/dags/{dag}/dagRuns")
        return {one["dag_run_id"]: one["state"] for one in answer["dag_runs"]} if status == 200 else {}

    def result(self, dag: str, run: str) -> dict[str, Any]:
        """The return value of its only task."""
        status, answer = self.ask(f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/replay/xcomEntries/return_value")
        assert status == 200, answer
        value = answer["value"]
        return dict(value if isinstance(value, dict) else json.loads(value))


def test_days_are_replayed_by_airflows_own_backfill(tmp_path: Path) -> None:
    """A rule was wrong for three days. One is looked at, then all are replayed while the stream goes on."""
    project = tiny(tmp_path / "project")
    for name in ("streams", "maintenance", "replay"):
        (project.folder / "dags").mkdir(exist_ok=True)
        shutil.copy(ROOT / "dags" / f"{name}.py", project.folder / "dags")
    with running_stack(parts=("control", "kafka", "airflow"), project=project.folder) as settings:
        said(settings, "app", "start", "tiny")
        for day in range(DAYS):
            send(settings, EACH * day, EACH, day=day)
        wait_until(lambda: notes(settings) == DAYS * EACH // 2, what="the short notes", seconds_max=SECONDS_MAX)
        project.edit("expectations/silver/notes.yml", WRONG, RIGHT)
        said(settings, "app", "restart", "tiny")
        airflow, viewer = Airflow(settings), Airflow(settings, "viewer")
        wait_until(
            lambda: airflow.ask(f"/api/v2/dags/{DAG}")[0] == 200, what="the DAG is there", seconds_max=SECONDS_MAX
        )
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


def notes(settings: Settings) -> int:
    """How many there are."""
    try:
        return len(there(settings)[0])
    except QueryError:  # not yet
        return -1
