"""A part of the stack in a container of its own: what it becomes, and whether it answers."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from deltaworks.errors import StackError
from deltaworks.local import container, credentials, doctor, stack
from deltaworks.settings import ROOT, Settings
from tests.ports import free_ports


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Give the settings of a container, with secrets in a folder of their own."""
    made = Settings.load(ROOT, environment={}, data=tmp_path / "made")
    credentials.generate(made)
    return Settings.load(
        ROOT, environment={}, data=tmp_path / "data", place="containers", secrets_in=made.secrets, host_kafka="kafka"
    )


@pytest.fixture
def page() -> Iterator[int]:
    """Give the port of a page that answers."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", free_ports(1)[0]), Page)
    threading.Thread(target=server.serve_forever).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def started(settings: Settings, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the program of a container to its end."""
    command = [sys.executable, "-m", "deltaworks.local.container", *words]
    return subprocess.run(command, cwd=ROOT, env=settings.inherited(), capture_output=True, text=True, check=False)


def test_a_container_becomes_its_part_with_the_settings_files_it_needs(settings: Settings, tmp_path: Path) -> None:
    """The process is the local stack's own; Airflow's finds its home, and the secrets where the host gave them."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@ $AIRFLOW_HOME"\n')
    python.chmod(0o755)

    done = started(settings.changed(airflow_python=python), "run", "airflow-database")

    assert done.stdout == f"-m airflow db migrate {settings.data / 'airflow'}\n"
    assert settings.secret("airflow_fernet") in (settings.data / "airflow" / "airflow.cfg").read_text()


def test_ready_asks_as_the_supervisor_would(settings: Settings, page: int) -> None:
    """Before the part has begun, while it answers, and when it does not any more."""
    before = started(settings, "ready", "inbox").returncode
    settings.run.mkdir(parents=True)
    probe = {"kind": "http", "port": page}
    (settings.run / "probe-inbox.json").write_text(json.dumps(probe))
    answers = started(settings, "ready", "inbox").returncode
    (settings.run / "probe-inbox.json").write_text(json.dumps(probe | {"port": free_ports(1)[0]}))

    assert (before, answers, started(settings, "ready", "inbox").returncode) == (1, 0, 1)


def test_a_part_that_is_not_there_is_told_with_those_that_are(settings: Settings) -> None:
    """One line, and the exit code of what a person has to mend."""
    done = started(settings, "run", "kafak")

    assert done.returncode == 3
    assert done.stderr.startswith("kafak: part kafak: is not there. Known are source-files")


def test_in_containers_the_stack_is_what_answers_and_docker_starts_it(settings: Settings) -> None:
    """`status` asks each part; `up` and `down` say who does that here."""
    names = ("port_source", "port_control", "port_kafka", "port_connect", "port_airflow")
    unreachable = settings.changed(host_kafka="127.0.0.1", **dict(zip(names, free_ports(5), strict=True)))

    found = stack.state(unreachable).parts

    assert {"source", "control", "kafka", "connect", "airflow-triggerer"} <= {*found}
    assert {one.state for one in found.values()} == {"unresponsive"}
    for refused in (stack.up, stack.down):
        with pytest.raises(StackError, match='its parts are containers. Run "docker compose'):
            refused(unreachable)


def test_doctor_knows_that_containers_listen_in_their_own_network(settings: Settings) -> None:
    """And that secrets are the host's matter, and Airflow's Python in another container."""
    told = [*doctor._loopback(settings), *doctor._secrets(settings), *doctor._environments(settings)]

    assert {one.verdict for one in told} == {"ok"}
    assert len(told) == 3


def test_the_agent_is_the_only_part_that_a_laptop_has_not(settings: Settings) -> None:
    """Everything else is the local stack's."""
    agent = container.part_of(settings, container.DRIVER_HOST)

    assert agent.command[1:] == ("-m", "deltaworks.supervise.agent")
    assert agent.name not in {part.name for part in stack.all_parts(settings)}


def test_airflow_s_side_needs_no_library_of_the_other_parts() -> None:
    """Its image has none of them."""
    program = """
import sys
sys.modules |= {name: None for name in ("confluent_kafka", "psycopg", "tenacity", "pyspark", "deltaworks.local.stack")}
from pathlib import Path
from deltaworks.local import container
from deltaworks.settings import ROOT, Settings
print(container.part_of(Settings.load(ROOT, environment={}, data=Path("/nowhere")), "airflow-triggerer").name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={"PATH": os.defpath}, capture_output=True, text=True, check=False
    )

    assert done.stdout == "airflow-triggerer\n", done.stderr
