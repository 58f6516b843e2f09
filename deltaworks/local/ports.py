"""Is a port free? Asked before anything starts, so that the answer names the port and not a part's stack trace."""

import socket
from collections.abc import Iterable

from deltaworks.errors import StackError
from deltaworks.processes import command_of, listener
from deltaworks.settings import LOOPBACK, Settings


def check_free(settings: Settings, names: Iterable[str]) -> None:
    """Raise StackError for the first of the settings' ports (`port_kafka`) that somebody else has, or two have."""
    seen: dict[int, str] = {}
    for name in names:
        port = settings.ports[name]
        if port in seen:
            raise StackError(f"port {port}", f"set for {seen[port]} and {name}", _next_step(settings, name))
        seen[port] = name
        if not is_free(port):
            raise StackError(f"port {port} ({_part(name)})", f"taken by {_owner(port)}", _next_step(settings, name))


def is_free(port: int) -> bool:
    """Whether the port can be listened on; SO_REUSEADDR forgives only connections that are closing."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _part(name: str) -> str:
    return name.removeprefix("port_").replace("_", " ")


def _owner(port: int) -> str:
    pid = listener(port)
    return "another process" if pid is None else f"process {pid} ({command_of(pid)})"


def _next_step(settings: Settings, name: str) -> str:
    key, section = name.removeprefix("port_"), "[ports]" if name in settings.names() else "[processes]"
    return f"End it, or set another: DELTAWORKS_{name.upper()}, or {key} under {section} in deltaworks.toml"
