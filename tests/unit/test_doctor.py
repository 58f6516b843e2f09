"""What the doctor looks at without a stack: the sockets of Spark's drivers, played by the stand-in."""

import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.local import doctor, kafka
from deltaworks.local.part import PartState, StackState, State
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise import launch
from tests.scratch_postgres import ScratchPostgres
from tests.unit.launching import run_in_this_session, scratch_project, wait_owned


@pytest.fixture
def settings(postgres: ScratchPostgres, tmp_path: Path) -> Iterator[Settings]:
    """Give a project whose driver listens for every machine, and in which it is wanted."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        (settings.data / "manners").write_text("listens")
        yield settings


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """Give its control store."""
    with Store(settings.control_dsn()) as store:
        store.desire("shop", "running", by="test", reason="a test")
        yield store


def test_driver_that_listens_for_other_machines_is_found(settings: Settings, store: Store) -> None:
    """A driver is a session of its own and no part of the stack; its ports are looked at all the same."""
    started = launch.start(settings, "shop")
    wait_owned(store, "shop", started.pid)

    found = list(doctor._loopback(settings))

    assert [(one.verdict, one.finding) for one in found] == [("fail", told(settings))]


def test_driver_of_a_shell_that_listens_for_other_machines_is_found(settings: Settings, store: Store) -> None:
    """Of a driver that nobody launched only the lease knows: the control store of the stack is asked."""
    own = processes.started(os.getpid())
    control = PartState(name="control", of="control", step=False, state="ready", since=0)
    settings.run.mkdir()
    StackState(generation=1, pid=os.getpid(), started=own, parts={"control": control}).write(settings.run)
    with run_in_this_session(settings, "shop") as drain:
        wait_owned(store, "shop", drain.pid)

        found = list(doctor._loopback(settings))

        launch.kill(settings, store, "shop")
    assert [(one.verdict, one.finding) for one in found] == [("fail", told(settings))]


@pytest.mark.parametrize(
    ("state", "seconds", "restarts", "verdict"),
    [
        ("starting", 1, 0, "warn"),
        ("starting", 90, 0, "fail"),
        ("starting", 1, 2, "fail"),
        ("backing-off", 1, 0, "fail"),
    ],
)
def test_part_that_has_just_begun_is_no_fault(
    tmp_path: Path, state: State, seconds: float, restarts: int, verdict: str
) -> None:
    """Each "up" runs some steps again; one that takes long, or failed before, is a fault."""
    settings = Settings.load(environment={}, data=tmp_path)
    settings.run.mkdir()
    part = PartState(name="topics", of="kafka", step=True, state=state, since=time.time() - seconds, restarts=restarts)
    own = processes.started(os.getpid())  # stands in for the supervisor: with none, every part is stopped
    StackState(generation=1, pid=os.getpid(), started=own, parts={"topics": part}).write(settings.run)

    assert [one.verdict for one in doctor._parts(settings)] == [verdict]


def test_errors_of_the_connector_are_told_and_their_texts_are_not(tmp_path: Path) -> None:
    """It goes on after a value that it cannot read; what is a day old is past."""
    settings = Settings.load(environment={}, data=tmp_path)
    connect = PartState(name="connect", of="connect", step=False, state="ready", since=0)
    settings.run.mkdir()
    settings.logs.mkdir()
    own = processes.started(os.getpid())
    StackState(generation=1, pid=os.getpid(), started=own, parts={"connect": connect}).write(settings.run)
    lines = [
        (timedelta(days=2), "ERROR TableSchemaBuilder it was"), (timedelta(hours=5), "ERROR Replication try again"),
        (timedelta(hours=3), "WARN TableSchemaBuilder cannot read 'ann@home.example'"),
        (timedelta(hours=2), "INFO Task ERROR TableSchemaBuilder is a word"),
        (timedelta(hours=1), "ERROR PostgresValueConverter no type"),
        (timedelta(minutes=3), "INFO AbstractIncrementalSnapshotChangeEventSource Incremental snapshot will end"),
        (timedelta(minutes=2), "WARN AbstractIncrementalSnapshotChangeEventSource 'ann' skipped: no primary keys"),
    ]  # fmt: skip
    now, log = datetime.now(UTC).astimezone(), settings.logs / "connect.log"  # Java writes local times

    def found(count: int) -> list[tuple[str, str]]:
        log.write_text("".join(f"{now - ago:%Y-%m-%d %H:%M:%S}.123 {text}\n\tat java\n" for ago, text in lines[:count]))
        return [(one.verdict, one.finding) for one in doctor._connect_log(settings)]

    assert found(2) == [("ok", "no value in a day that could not be read")]
    [(verdict, told)] = found(5)
    assert verdict == "warn"
    assert told.startswith("2 value(s) not read since ")
    assert told.endswith(" by PostgresValueConverter")
    assert "ann" not in told
    assert found(6) == [(verdict, told)]
    [first, (verdict, left_out)] = found(7)
    assert (first, verdict) == (("warn", told), "warn")
    assert left_out.startswith("1 time(s) a table may have been left out that was to be read beside the stream since ")
    assert "ann" not in left_out


@pytest.mark.parametrize(("then", "verdict"), [("RUNNING", "ok"), ("FAILED", "fail")])
def test_connector_between_two_assignments_is_asked_again(
    tmp_path: Path, scripted_connect: "ScriptedConnect", then: str, verdict: str
) -> None:
    """A rebalance of the workers lasts seconds and is no fault; what it ends in may be one."""
    scripted_connect.states = ["UNASSIGNED", "UNASSIGNED", then]
    settings = Settings.load(environment={}, data=tmp_path, port_connect=scripted_connect.server_port)

    assert doctor._connector_states(settings, "shop") == (200, [then, then])
    assert [one.verdict for one in doctor._judged_states("shop", [then, then])] == [verdict]


class ScriptedConnect(HTTPServer):
    """Answers as Kafka Connect does for a connector with one task that goes through `states`."""

    states: list[str]


class _Status(BaseHTTPRequestHandler):
    server: ScriptedConnect

    def do_GET(self) -> None:
        """Answer the next state."""
        states = self.server.states
        state = {"state": states.pop(0) if len(states) > 1 else states[0]}
        body = json.dumps({"connector": state, "tasks": [state]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def scripted_connect() -> Iterator[ScriptedConnect]:
    """Serve on a free port."""
    with ScriptedConnect(("127.0.0.1", 0), _Status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def told(settings: Settings) -> str:
    """What is to be said of the stand-in's port."""
    return f"port {(settings.data / 'port').read_text()} is open to other machines"


def test_topics_that_nobody_declares_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of the parts, of the source in each of its lives and of copies are made by themselves."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path)
    made = (
        "__consumer_offsets", "connect_offsets", "deltaworks.published.silver.products", "shop.public.heartbeat",
        "shop-2.public.heartbeat",
    )  # fmt: skip
    topics = dict.fromkeys([*settings.topics, *made, "shopping", "large_sales"])
    admin = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=topics))
    monkeypatch.setattr(kafka, "admin_client", lambda _: admin)

    found = kafka.undeclared(settings, prefix="shop")

    assert "page_views" in settings.topics
    assert found == ["large_sales", "shopping"]
    assert "shop.public.heartbeat" in kafka.undeclared(settings, prefix=None)
