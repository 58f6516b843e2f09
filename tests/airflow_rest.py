"""Airflow's REST interface, as one of its users sees it."""

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from deltaworks.settings import Settings


class Airflow:
    """One user, logged in."""

    def __init__(self, settings: Settings, user: str = "admin") -> None:
        """Log in."""
        self.port, self.token = settings.port_airflow, ""
        _, answer = self.ask("/auth/token", {"username": user, "password": settings.secret(f"airflow_{user}")})
        self.token = answer["access_token"]

    def ask(self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "") -> tuple[int, Any]:
        """Status and answer; by the method that goes with a body or none, if no other is given."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method or ("GET" if body is None else "POST"), path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.load(answer)

    def runs(self, dag: str) -> dict[str, str]:
        """The state of each run of a DAG."""
        status, answer = self.ask(f"/api/v2/dags/{dag}/dagRuns")
        return {one["dag_run_id"]: one["state"] for one in answer["dag_runs"]} if status == 200 else {}

    def newest(self, dag: str) -> str | None:
        """The state of the newest run."""
        status, answer = self.ask(f"/api/v2/dags/{dag}/dagRuns?order_by=-run_after&limit=1")
        return next((str(one["state"]) for one in answer["dag_runs"]), None) if status == 200 else None

    def result(self, dag: str, run: str) -> dict[str, Any]:
        """The return value of its only task."""
        task = dag.partition("__")[0]
        status, answer = self.ask(f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value")
        assert status == 200, answer
        value = answer["value"]
        return dict(value if isinstance(value, dict) else json.loads(value))
