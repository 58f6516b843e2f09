"""Ports for tests."""

import os
import random
import socket
from contextlib import suppress

_PORTS_FROM, _PORTS_EACH = 20_000, 4_000  # below those that the system gives to clients


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now; processes of a test run have ranges of their own, for a port is taken later on."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _PORTS_FROM + worker * _PORTS_EACH
    free: list[int] = []
    for port in random.sample(range(first, first + _PORTS_EACH), _PORTS_EACH):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            free.append(port)
        if len(free) == count:
            return free
    raise RuntimeError(f"not {count} free ports from {first} on")
