"""The real local stack: what it promises to whoever starts it."""

import json
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from confluent_kafka import Consumer, KafkaError, Producer
from msgspec import structs
from typer.testing import CliRunner

from deltaworks import processes
from deltaworks.cli import stack as commands
from deltaworks.cli.context import remember
from deltaworks.errors import StackError
from deltaworks.local import connect, doctor, kafka
from deltaworks.local import stack as local_stack
from deltaworks.local.doctor import LOOPBACK, examine
from deltaworks.settings import ROOT, Settings
from tests.ports import free_ports
from tests.running_stack import is_back, left_over, part, running_stack, wait_until
from tests.stack.conftest import StartParts


def test_secrets_are_for_us_only(stack: StartParts) -> None:
    """Each secret is a 0600 file in a 0700 folder; files that hold copies of them are 0600 too."""
    settings = stack(parts=("source",))
    copies = [settings.data / "airflow/airflow.cfg", settings.data / "airflow/passwords.json"]

    files = [*settings.secrets.iterdir(), *copies]

    assert len(files) > 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(settings.secrets.stat().st_mode) == 0o700


def test_data_is_for_us_only(stack: StartParts) -> None:
    """Other users of the machine can enter the data folder, as Postgres' user must, and nothing that is in it."""
    settings = stack(parts=("connect",))

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.data.iterdir() if path.is_dir()}

    assert {"source", "kafka", "lake", "checkpoints", "spark", "config", "logs"} <= {*modes}
    assert {name: f"{mode:04o}" for name, mode in modes.items() if mode != 0o700} == {}
    assert {stat.S_IMODE(path.stat().st_mode) for path in settings.logs.iterdir()} == {0o600}


def test_no_secret_is_on_a_command_line_or_in_a_log_or_in_kafka(stack: StartParts) -> None:
    """Passwords go through files only; even the connector's stored configuration has just a reference."""
    settings = stack(parts=("connect",))
    secrets = {path.name: path.read_bytes() for path in settings.secrets.iterdir()}
    places = [*settings.logs.iterdir(), *settings.run.iterdir(), *settings.data.glob("kafka/connect_configs-*/*.log")]

    written = {path.name: path.read_bytes() for path in places}
    shown = "\n".join(processes.command_of(one.pid, length_max=100_000) for one in processes.table()).encode()

    assert b"database.password" in b"".join(written.values())
    assert [
        (name, place) for name, secret in secrets.items() for place, text in written.items() if secret in text
    ] == []
    assert [name for name, secret in secrets.items() if secret in shown] == []


def test_taken_port_is_named_before_anything_starts(settings: Settings) -> None:
    """The error says which port, for which part, who has it and which setting changes it; nothing was started."""
    with socket.create_server(("127.0.0.1", settings.port_kafka)), pytest.raises(StackError) as refused:
        local_stack.up(settings, parts=("kafka",))

    assert f"port {settings.port_kafka} (kafka)" in str(refused.value)
    assert f"process {os.getpid()}" in str(refused.value)
    assert "DELTAWORKS_PORT_KAFKA" in str(refused.value)
    assert not local_stack.alive(settings)


def test_up_twice_is_harmless(stack: StartParts) -> None:
    """What runs is left alone: the same processes, no restart."""
    settings = stack(parts=("connect",))
    before = local_stack.state(settings)

    local_stack.up(settings, parts=("connect",))

    after = local_stack.state(settings)
    services = [name for name, one in before.parts.items() if not one.step]
    assert len(services) >= 3
    assert [after.parts[name].pid for name in services] == [before.parts[name].pid for name in services]
    assert after.pid == before.pid


def test_up_without_waiting_returns_at_once(stack: StartParts) -> None:
    """With nothing to wait for it only says what shall run."""
    settings = stack(parts=("source",))

    state = local_stack.up(settings, parts=("kafka",), wait_for=(), seconds_max=10)

    assert {"source", "kafka"} <= {*state.parts}


def test_changed_port_of_a_running_part_is_refused(stack: StartParts) -> None:
    """The neighbours of a running part would look for it at the new port."""
    settings = stack(parts=("source",))
    moved = settings.changed(port_source=free_ports(1)[0])

    with pytest.raises(StackError, match=f"source: runs on port {settings.port_source}"):
        local_stack.up(moved, parts=("source",))


def test_only_loopback_listens(stack: StartParts) -> None:
    """No listening socket of any process of the stack can be reached from another machine."""
    settings = stack(parts=("control", "connect"))
    pids = [
        pid
        for one in local_stack.state(settings).parts.values()
        if one.pid is not None
        for pid in processes.members(one.pid, one.folder)
    ]

    sockets = {inode for pid in pids for inode in processes.sockets_of(pid)}
    open_to = {port: address for (address, port), inode in processes.listening().items() if inode in sockets}

    assert {settings.port_source, settings.port_control, settings.port_kafka, settings.port_connect} <= {*open_to}
    assert set(open_to.values()) <= LOOPBACK


def test_wrong_password_is_refused(stack: StartParts) -> None:
    """SCRAM for everybody: no trusted address and no default password."""
    settings = stack(parts=("source",))

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host="127.0.0.1", port=settings.port_source, user="postgres", password="postgres")


def test_topics_are_as_declared_and_no_other_is_made_by_accident(stack: StartParts) -> None:
    """Partitions, retention and cleanup come from topics.toml; writing to a misspelt topic is an error."""
    settings = stack(parts=("kafka",))
    assert settings.topics
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": settings.kafka, "message.timeout.ms": 3000, "log_level": 0})

    producer.produce("pageviews", b"1", on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)

    assert list(kafka.differences(settings)) == []
    assert len(errors) == 1
    assert errors[0] is not None


def test_change_in_the_source_reaches_the_topic(stack: StartParts) -> None:
    """A committed row is in the one topic of changes, read back as read_committed."""
    settings = stack(parts=("connect",))

    name = insert_customer(settings)

    assert changes_with(settings, name) == ["c"]


def test_source_database_is_owned_by_the_shop_and_closed_to_others(stack: StartParts) -> None:
    """The capturing role may read, and write nothing but the heartbeat."""
    settings = stack(parts=("source",))

    with psycopg.connect(settings.source_dsn("debezium")) as connection:
        connection.execute("select count(*) from customers")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("delete from customers")


def test_serving_database_is_owned_by_its_role_and_closed_to_others(stack: StartParts) -> None:
    """The role may make schemas there, and can enter no other database of the server."""
    settings = stack(parts=("control",))

    with psycopg.connect(settings.serving_dsn()) as connection:
        connection.execute("create schema own")
        connection.rollback()

    for other in ("deltaworks", "airflow"):
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(settings.serving_dsn(), dbname=other)


def test_doctor_finds_nothing_wrong_and_then_what_is_wrong(stack: StartParts) -> None:
    """A healthy stack has no finding; a topic with other settings than declared is named with its next step."""
    settings = stack(parts=("connect",))
    healthy = [one for one in examine(settings) if one.verdict == "fail"]

    declared = structs.replace(settings.topics["page_views"], retention_hours=1.0)
    other = settings.changed(topics={**settings.topics, "page_views": declared})
    found = [one for one in examine(other) if one.verdict == "fail"]

    captured = list(doctor._captured(structs.replace(settings, project=ROOT)))  # which has tables

    assert healthy == []
    assert [(one.verdict, one.finding) for one in captured] == [("ok", "all that 5 tables read")]
    assert len(found) == 1
    assert "page_views has retention.ms 604800000, declared 3600000" in found[0].finding
    assert "deltaworks up" in found[0].next_step


def test_logs_and_status_can_be_read(stack: StartParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """`logs` lists and prints the parts' logs, `status --json` gives every part; also Kafka and Connect write one."""
    settings = stack(parts=("connect",))
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    remember(None)
    main = typer.Typer()
    commands.register(main)

    listed = CliRunner().invoke(main, ["logs", "--json"])
    printed = CliRunner().invoke(main, ["logs", "kafka", "-n", "10000"])
    status = CliRunner().invoke(main, ["status", "--json"])

    assert {"source", "kafka", "connect", "steps", "supervisor"} <= {row["log"] for row in json.loads(listed.stdout)}
    assert "KafkaServer" in printed.stdout or "KafkaRaftServer" in printed.stdout
    assert {row["part"]: row["state"] for row in json.loads(status.stdout)}["connect"] == "ready"


def test_failing_step_is_reported_with_its_message(settings: Settings, tmp_path: Path) -> None:
    """A mistake in the project's schema ends "up" with the file and Postgres' own words."""
    (tmp_path / "schema.sql").write_text("create table customers (;")
    (tmp_path / "connector.json").write_text('{"name": "shop", "config": {}}')
    (tmp_path / "deltaworks.toml").write_text('[source]\nschema = "schema.sql"\nconnector = "connector.json"\n')
    broken = Settings.load(tmp_path, environment={}, data=settings.data, port_source=settings.port_source)

    try:
        with pytest.raises(StackError) as refused:
            local_stack.up(broken, parts=("source",))
    finally:
        local_stack.down(broken)

    assert "source-database" in str(refused.value)
    assert "schema.sql:1: syntax error" in str(refused.value)


def test_down_leaves_no_process_and_what_was_written_stays() -> None:
    """After "down" nothing of ours runs; the next "up" has the same data."""
    with running_stack(parts=("source", "control")) as settings:
        name = insert_customer(settings)

        down = local_stack.down(settings)

        assert down.killed == 0
        assert left_over(settings) == []
        assert {one.state for one in local_stack.state(settings).parts.values()} == {"stopped"}
        local_stack.up(settings, parts=("source",))
        with psycopg.connect(settings.source_dsn()) as connection:
            assert connection.execute("select count(*) from customers where name = %s", (name,)).fetchone() == (1,)


def test_killed_supervisor_leaves_nothing_and_up_works_again() -> None:
    """Postgres and the broker die with their supervisor, lose nothing, and can be started again at once."""
    with running_stack(parts=("source", "kafka")) as settings:
        name = insert_customer(settings)
        supervisor = local_stack.state(settings).pid
        assert supervisor is not None

        os.kill(supervisor, signal.SIGKILL)

        wait_until(lambda: not left_over(settings), what="nothing is left", seconds_max=10)
        assert {one.state for one in local_stack.state(settings).parts.values()} == {"stopped"}
        local_stack.up(settings, parts=("source", "kafka"))
        with psycopg.connect(settings.source_dsn()) as connection:
            assert connection.execute("select count(*) from customers where name = %s", (name,)).fetchone() == (1,)


def test_down_never_kills_a_stranger_with_a_pid_of_ours(settings: Settings) -> None:
    """A pid alone proves nothing: after a reboot it belongs to somebody else."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as stranger:
        settings.run.mkdir(parents=True)
        old = {"name": "kafka", "of": "kafka", "step": False, "state": "ready", "since": 0.0}
        state = {"generation": 1, "pid": stranger.pid, "started": "1", "written": 0.0}
        parts = {"kafka": old | {"pid": stranger.pid, "started": "1"}}
        (settings.run / "stack.json").write_text(json.dumps(state | {"parts": parts}))

        down = local_stack.down(settings)

        assert down.killed == 0
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("name", ["source", "control", "kafka", "connect"])
def test_killed_part_comes_back_by_itself(stack: StartParts, name: str) -> None:
    """After kill -9 of a part it is ready again, nobody did anything, and changes flow as before."""
    settings = stack(parts=("control", "connect"))
    before = part(settings, name)
    assert before.pid is not None

    os.kill(before.pid, signal.SIGKILL)
    wait_until(lambda: is_back(settings, name, before.pid), what=f"{name} is back", seconds_max=90)

    if name != "control":
        assert changes_with(settings, insert_customer(settings)) in (
            ["c"],
            ["r"],
        )  # r: the first snapshot was under way


def test_failed_task_of_a_connector_is_restarted(stack: StartParts) -> None:
    """Connect leaves a failed task alone for ever; the supervisor asks for its restart until the cause is gone."""
    settings = stack(parts=("connect",))
    found = connect.connector_of(settings)
    assert found is not None
    other = {"slot.name": "other_slot", "publication.name": "other_pub", "topic.prefix": "other"}

    with psycopg.connect(settings.dsn("source_admin"), dbname="shop", autocommit=True) as admin:
        connect.ask(settings, "PUT", "/connectors/other/config", found[1] | other)
        try:
            wait_until(lambda: part(settings, "connect").mended > 0, what="a restart was asked for")
            admin.execute("create publication other_pub for table customers")
            wait_until(lambda: connector_states(settings, "other") == ["RUNNING", "RUNNING"], what="it runs")
            assert connector_states(settings, "shop") == ["RUNNING", "RUNNING"]
        finally:
            connect.ask(settings, "DELETE", "/connectors/other")
            wait_until(lambda: is_slot_idle(admin), what="its slot is free")
            admin.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'other_slot'"
            )
            admin.execute("drop publication if exists other_pub")


def insert_customer(settings: Settings) -> str:
    """Commit a customer with a name that nobody had before."""
    with psycopg.connect(settings.source_dsn(), connect_timeout=10) as connection:
        values = "(gen_random_uuid(), 'a@b.example', 'DE')"
        query = f"insert into customers (name, email, country) values {values} returning name"
        row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0])


def changes_with(settings: Settings, name: str) -> list[str]:
    """Read the changes from the start until one has this name; the kinds of change that had it."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka, "group.id": "test", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0,
        }
    )  # fmt: skip
    found: list[str] = []

    def has_it() -> bool:
        message = consumer.poll(0.5)
        value = json.loads(message.value() or b"{}") if message is not None and message.error() is None else {}
        if (value.get("after") or {}).get("name") == name:
            found.append(value["op"])
        return bool(found)

    try:
        consumer.subscribe(["shop.changes"])
        wait_until(has_it, what=f"a change with {name}", seconds_max=90)
    finally:
        consumer.close()
    return found


def connector_states(settings: Settings, name: str) -> list[str]:
    """State of a connector and of its tasks."""
    status, body = connect.ask(settings, "GET", f"/connectors/{name}/status")
    return [body["connector"]["state"], *(task["state"] for task in body["tasks"])] if status == 200 else []


def is_slot_idle(admin: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Whether the slot of the test's own connector has no reader any more."""
    query = "select active from pg_replication_slots where slot_name = 'other_slot'"
    return admin.execute(query).fetchone() in {(False,), None}
