"""Messages over a socket, each its length and its bytes, within a time: who stops in the midst of one holds nobody."""

import select
import socket
import struct
import time

_LENGTH = struct.Struct("!Q")
_PART = 1 << 20
_SECONDS_MAX = 1_000_000.0
"""As long as the system's clocks can be asked to wait; some eleven days."""


def waits(connection: socket.socket, *, seconds: float) -> bool:
    """Whether the other side has said something, or has gone, after at most so long."""
    asked = select.poll()  # unlike select.select it takes a descriptor of any number
    asked.register(connection, select.POLLIN)
    return bool(asked.poll(min(seconds, _SECONDS_MAX) * 1000))


def send(connection: socket.socket, message: bytes, *, seconds: float | None = None) -> None:
    """Send a message, in at most so many seconds; raises OSError, TimeoutError among it."""
    connection.settimeout(None if seconds is None else max(0.001, min(seconds, _SECONDS_MAX)))
    connection.sendall(_LENGTH.pack(len(message)))
    connection.sendall(message)


def receive(connection: socket.socket, *, seconds: float | None = None, bytes_max: int | None = None) -> bytes:
    """The next message, whole after at most so many seconds.

    Raises EOFError where the other side has gone, TooLargeError for one of more than bytes_max, OSError (TimeoutError
    among it) for the rest.
    """
    until = None if seconds is None else time.monotonic() + min(seconds, _SECONDS_MAX)
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, until))
    if bytes_max is not None and size > bytes_max:
        raise TooLargeError
    return bytes(_exactly(connection, size, until))


class TooLargeError(Exception):
    """A message has more bytes than were expected."""


def _exactly(connection: socket.socket, size: int, until: float | None) -> bytearray:
    read = bytearray()
    while len(read) < size:
        connection.settimeout(None if until is None else max(0.001, until - time.monotonic()))
        part = connection.recv(min(_PART, size - len(read)))
        if not part:
            raise EOFError
        read += part
    return read
