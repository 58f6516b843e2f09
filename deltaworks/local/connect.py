"""Kafka Connect with Debezium, and the project's connector."""

import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from deltaworks.errors import StackError
from deltaworks.local.kafka import java_command
from deltaworks.local.part import Part, Probe
from deltaworks.local.private import private_folder
from deltaworks.settings import Settings

_SETTINGS = {
    "group.id": "connect",
    "config.storage.topic": "connect_configs",
    "offset.storage.topic": "connect_offsets",
    "status.storage.topic": "connect_status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "offset.flush.interval.ms": "10000",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "key.converter.replace.null.with.default": "false",  # by default a null is sent as its column's default
    "value.converter.replace.null.with.default": "false",
    "plugin.discovery": "service_load",
    "exactly.once.source.support": "enabled",  # without it a crash repeats all since the last offset flush
    "scheduled.rebalance.max.delay.ms": "0",  # there is no second worker that could come back
    # after kill -9 the new worker waits until the old one has left the group (default 10 s, the broker allows 6 s)
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "2000",
    "config.providers": "directory",
    "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}


class _NotYetError(Exception):
    """Connect is busy (a rebalance, a task that starts): ask again."""


def parts(settings: Settings) -> tuple[Part, ...]:
    """The worker."""
    run = ("org.apache.kafka.connect.cli.ConnectDistributed", str(settings.data / "config" / "connect.properties"))
    return (
        Part(
            name="connect",
            of="connect",
            command=java_command(settings, heap="384m", classpath=settings.jars / "connect" / "lib", run=run),
            folder=settings.data,
            log=settings.logs / "connect.log",
            after=("kafka",),
            probe=Probe(
                kind="connect", host=settings.host_connect, port=settings.port_connect, every_seconds_starting=0.5
            ),
            port=settings.port_connect,
            stop_seconds=20,
        ),
    )


def write_config(settings: Settings) -> None:
    """Write the worker's settings, and the folder from which connectors may read secrets (one link, no copy)."""
    values = _SETTINGS | {
        "bootstrap.servers": settings.kafka,
        "listeners": f"http://{settings.listen}:{settings.port_connect}",
        "rest.advertised.host.name": settings.host_connect,
        "rest.advertised.port": str(settings.port_connect),
        "plugin.path": str(settings.jars / "connect" / "plugins"),
        "config.providers.directory.param.allowed.paths": str(_secrets(settings)),
    }
    config = settings.data / "config"
    private_folder(config)
    (config / "connect.properties").write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    private_folder(_secrets(settings))
    link = _secrets(settings) / "debezium"
    link.unlink(missing_ok=True)
    link.symlink_to(settings.secrets / "debezium")


def connector_of(settings: Settings) -> tuple[str, dict[str, str]] | None:
    """Name and configuration of the project's connector, None if the project declares none.

    In the file ${host_source}, ${port_source} and the like stand for settings, ${password} for where Connect finds
    debezium's password: the password itself is never in the configuration.
    """
    if settings.source is None:
        return None
    path = settings.project / settings.source.connector
    try:
        text = path.read_text()
    except OSError as error:
        raise StackError(str(path), error.strerror or "cannot be read", "See [source] in deltaworks.toml") from None
    try:
        declared = json.loads(text)
        config = {name: _filled(settings, value) for name, value in declared["config"].items()}
        return declared["name"], config
    except (ValueError, KeyError, AttributeError) as error:
        raise StackError(str(path), f"not a connector ({error!r})", "It needs name and config, as JSON") from None


def answering(settings: Settings) -> tuple[str, dict[str, str], Path]:
    """Name, configuration and file of the project's connector. Raises StackError if there is none, or no Connect."""
    found = connector_of(settings)
    if found is None or settings.source is None:
        raise StackError("source", "the project declares no connector", "See [source] in deltaworks.toml")
    if ask(settings, "GET", "/")[0] != 200:
        raise StackError("connect", "does not answer", 'Run "deltaworks up"')
    return *found, settings.project / settings.source.connector


def differing(declared: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """In what the connector that runs is not as it is declared."""
    return sorted(key for key in {*declared, *running} - {"name"} if declared.get(key) != running.get(key))


def states(settings: Settings, name: str) -> list[str]:
    """Of a connector and its tasks, as Connect says; none if it has none, or does not answer."""
    status, body = ask(settings, "GET", f"/connectors/{name}/status")
    return states_in(body) if status == 200 else []


def register_connector(settings: Settings) -> None:
    """Create the project's connector or change it to what is declared, and wait until its task runs."""
    found = connector_of(settings)
    if found is None:
        return
    name, config = found
    try:
        _put(settings, name, config)
        _wait_running(settings, name)
    except _NotYetError as error:
        raise StackError(f"connector {name}", str(error), 'Run "deltaworks logs connect"') from None


def committed_lsn(settings: Settings) -> int | None:
    """Up to which byte of the WAL the project's connector has read, as Connect has recorded it; None if nowhere yet.

    In a snapshot that is where it began, while most of its rows are to come: see `settled_lsn`.
    """
    return _lsn(_offsets(settings))


def settled_lsn(settings: Settings) -> int | None:
    """As `committed_lsn`, but None while a snapshot is taken, also beside the stream: most of its rows are to come.

    One answer of Connect: of two the first may be from before a snapshot, and the second from its midst.
    """
    offsets = _offsets(settings)
    amid = any(one.get("snapshot") or "incremental_snapshot_collections" in one for one in offsets)
    return None if amid else _lsn(offsets)


def in_snapshot(settings: Settings) -> bool:
    """Whether the last that Connect has recorded is a row of a snapshot that is not over."""
    return any(offset.get("snapshot") for offset in _offsets(settings))


def _lsn(offsets: Sequence[Mapping[str, Any]]) -> int | None:
    known = [offset.get("lsn") for offset in offsets]
    return max((int(lsn) for lsn in known if lsn is not None), default=None)


def _offsets(settings: Settings) -> list[dict[str, Any]]:
    """What Connect has recorded of this life of the source: those of earlier lives stay there too."""
    found = connector_of(settings)
    status, body = (0, None) if found is None else ask(settings, "GET", f"/connectors/{found[0]}/offsets")
    if status != 200 or body is None or found is None:
        return []
    prefix = found[1].get("topic.prefix")
    mine = [one for one in body["offsets"] if one["partition"].get("server") == prefix]
    return [one["offset"] for one in mine if one["offset"] is not None]


def ask(settings: Settings, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    """Call Connect's REST interface; status 0 if nothing answers."""
    connection = http.client.HTTPConnection(settings.host_connect, settings.port_connect, timeout=30)
    text = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()
    return answer.status, json.loads(said) if said[:1] in {b"{", b"["} else said.decode(errors="replace")


@retry(retry=retry_if_exception_type(_NotYetError), stop=stop_after_delay(60), wait=wait_fixed(0.5), reraise=True)
def _put(settings: Settings, name: str, config: Mapping[str, str]) -> None:
    status, body = ask(settings, "PUT", f"/connectors/{name}/config", config)
    if status in (200, 201):
        return
    message = body.get("message", "") if isinstance(body, dict) else str(body)
    if status in (0, 409, 500, 503):  # 409: rebalance in progress; 500: timed out while starting
        raise _NotYetError(message)
    raise StackError(f"connector {name}", f"Connect refused it: {message}", f"Mend {name}'s file")


@retry(retry=retry_if_exception_type(_NotYetError), stop=stop_after_delay(60), wait=wait_fixed(0.25), reraise=True)
def _wait_running(settings: Settings, name: str) -> None:
    status, body = ask(settings, "GET", f"/connectors/{name}/status")
    if status != 200:
        raise _NotYetError(f"status {status}")
    found = states_in(body)
    if len(found) < 2 or any(state != "RUNNING" for state in found):
        trace = next((task["trace"] for task in body["tasks"] if "trace" in task), "")
        raise _NotYetError(f"states {', '.join(found)} {trace[:400]}".strip())


def states_in(status: Mapping[str, Any]) -> list[str]:
    """Of a connector, and then of its tasks, as its status has them."""
    return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]


def _filled(settings: Settings, value: str) -> str:
    known = {name: str(getattr(settings, name)) for name in settings.names() if name.startswith(("port_", "host_"))}
    known["password"] = f"${{directory:{_secrets(settings)}:debezium}}"
    return Template(value).safe_substitute(known)


def _secrets(settings: Settings) -> Path:
    return settings.data / "config" / "secrets-of-connect"
