"""Fixtures of Airflow's side: it runs with Airflow's Python, while Postgres' binaries are in Spark's environment."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# before anything imports Airflow: it writes its default configuration where this points
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-home-")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(Path(__file__).parents[3] / "deltaworks" / "supervise" / "plugins")

from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from tests.unit.launching import scratch_project, wanting_store

_SERVER = """
import json, sys
from tests.scratch_postgres import scratch_postgres
with scratch_postgres() as server:
    print(json.dumps([server.dsn, server.port]), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[str, int]]:
    """Give the superuser's address and the port of a scratch Postgres."""
    command = [str(ROOT / ".venv/spark/bin/python"), "-c", _SERVER]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        dsn, port = json.loads(process.stdout.readline())
        yield dsn, port
        process.communicate()


@pytest.fixture
def settings(server: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Give a project whose driver is the stand-in; Settings.load() gives it, too."""
    with scratch_project(*server, tmp_path) as settings:
        for name, value in settings.environment().items():
            monkeypatch.setenv(name, value)
        yield settings


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """Give its control store, in which both apps are wanted."""
    with wanting_store(settings) as store:
        yield store
