"""Is a part ready? One coroutine per kind of part, without any library, so that the supervisor stays small.

True: it answers. False: it does not. None: cannot be known now (another part that has to be asked is away).
"""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol

from deltaworks.local.part import Probe

Verdict = bool | None


class Mending(Protocol):
    """When something inside a part may be repaired, and what was: not at every look, some causes stay for hours."""

    def due(self) -> bool:
        """Whether it is time to try."""

    def did(self, what: str) -> None:
        """Take note of a try."""


async def ask(probe: Probe, *, started: float, mending: Mending) -> Verdict:
    """Ask a part once. `started`: when its process began."""
    kinds: dict[str, Callable[[], Awaitable[Verdict]]] = {
        "postgres": lambda: _postgres(probe),
        "kafka": lambda: _kafka(probe),
        "http": lambda: _http_ok(probe),
        "connect": lambda: _connect(probe, mending),
        "airflow": lambda: _airflow(probe, started),
    }
    try:
        return await asyncio.wait_for(kinds[probe.kind](), probe.seconds_max)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
        return None if probe.kind == "airflow" else False


async def _postgres(probe: Probe) -> bool:
    """Send a StartupMessage: a server that takes connections asks for a password, one in recovery sends an error."""
    body = struct.pack("!i", 3 << 16) + b"user\0probe\0database\0postgres\0\0"
    async with _Connection(probe) as (reader, writer):
        writer.write(struct.pack("!i", len(body) + 4) + body)
        return await reader.readexactly(1) == b"R"


async def _kafka(probe: Probe) -> bool:
    """Send ApiVersions (key 18, version 0): a paused broker still accepts connections, but does not answer."""
    body = struct.pack("!hhih", 18, 0, 1, -1)
    async with _Connection(probe) as (reader, writer):
        writer.write(struct.pack("!i", len(body)) + body)
        size, correlation = struct.unpack("!ii", await reader.readexactly(8))
        return bool(size > 4 and correlation == 1)


async def _http_ok(probe: Probe) -> bool:
    status, _ = await _http("GET", probe, probe.path)
    return status == 200


async def _connect(probe: Probe, mending: Mending) -> bool:
    """Ready when the worker says so. A failed connector or task stays failed until somebody restarts it: we do."""
    status, _ = await _http("GET", probe, "/health")
    if status != 200:
        return False
    status, body = await _http("GET", probe, "/connectors?expand=status")
    if status != 200:
        return False
    for name, known in body.items():
        every = [known["status"]["connector"], *known["status"]["tasks"]]
        if any(one["state"] == "FAILED" for one in every) and mending.due():
            answer, _ = await _http("POST", probe, f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")
            mending.did(f"connector {name} had failed, asked Connect to restart it (answer {answer})")
    return True


async def _airflow(probe: Probe, started: float) -> Verdict:
    """Ask the api-server for a component's heartbeat; one from before our start is an earlier process's."""
    status, body = await _http("GET", probe, "/api/v2/monitor/health")
    if status != 200:
        return None
    beat = body[probe.component][f"latest_{probe.component}_heartbeat"]
    healthy: bool = body[probe.component]["status"] == "healthy"
    return bool(healthy and beat and datetime.fromisoformat(beat).timestamp() >= started)


async def _http(method: str, probe: Probe, path: str) -> tuple[int, Any]:
    """HTTP/1.0, so that the answer ends with the connection and is never chunked."""
    async with _Connection(probe) as (reader, writer):
        writer.write(
            f"{method} {path} HTTP/1.0\r\nHost: {probe.host}:{probe.port}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head else 0
    is_json = body.lstrip()[:1] in (b"{", b"[")
    return status, json.loads(body) if is_json else None


class _Connection:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    async def __aenter__(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await asyncio.open_connection(self._probe.host, self._probe.port)
        return reader, self._writer

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
