"""One connection to the control store that mends itself, is bounded in time and never tells its password."""

import dataclasses
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

import psycopg
from psycopg import conninfo, errors
from psycopg.rows import class_row
from psycopg.sql import SQL

from deltaworks.errors import ControlError

CONNECT_SECONDS = 3  # the server is near: one that does not answer by then is away
STATEMENT_SECONDS = 5  # every statement touches a few rows; longer means a lock or a sick server
ANSWER_SECONDS = 8  # the client's own bound, for a server that is stopped or a line that swallows packets
_PLACE = "control store"
_NOT_REACHABLE = 'See "deltaworks status"; "deltaworks up" starts the local one'
_Row = TypeVar("_Row")


@dataclasses.dataclass(frozen=True)
class Shape(Generic[_Row]):
    """How rows are read: the value made of each, and the expressions that give its fields."""

    row: type[_Row]
    columns: str


class Database:
    """Runs single statements, each its own transaction.

    A connection found dead is opened anew once and the statement sent again; it may then run twice, so every
    statement of this package is written to give the same answer the second time.
    Calls from several threads take turns. Not to be used across a fork.
    """

    def __init__(
        self,
        dsn: str,
        *,
        application: str = "deltaworks",
        statement_seconds: float = STATEMENT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Keep the address; connecting happens at the first call. Raises ControlError if it is no libpq address."""
        try:
            given = conninfo.conninfo_to_dict(dsn)
        except psycopg.Error:
            # from None, and not libpq's text: it quotes the address with the password
            raise ControlError(
                _PLACE, "its address cannot be read", "Give postgresql://user:password@host:port/database"
            ) from None
        self._address: dict[str, Any] = {**given, **_session(given, application)}
        self._password = str(given.get("password") or "")
        self._statement_seconds, self._answer_seconds = statement_seconds, answer_seconds
        self._connection: psycopg.Connection[Any] | None = None
        self._turn = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = ", ".join(f"{key}={self._address[key]}" for key in ("host", "port", "dbname") if key in self._address)
        return f"{type(self).__name__}({where})"

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _all(self, query: str, values: Mapping[str, object], shape: Shape[_Row]) -> list[_Row]:
        """Run one statement, whose `{columns}` are the shape's; raises ControlError."""
        statement = SQL(query).format(columns=SQL(shape.columns))
        with self._turn:
            for again in (False, True):
                connection = self._connected()
                cut = threading.Event()
                try:
                    with (
                        _deadline(connection, self._answer_seconds, cut),
                        connection.cursor(row_factory=class_row(shape.row)) as cursor,
                    ):
                        return cursor.execute(statement, values).fetchall()
                except psycopg.Error as error:
                    if cut.is_set():
                        self.close()
                        raise self._away(f"no answer within {self._answer_seconds} s") from None
                    if not _dead(connection, error):
                        raise self._explained(error) from None
                    self.close()
                    if again:
                        raise self._away(error) from None
        raise AssertionError("the loop returns or raises")

    def _one(self, query: str, values: Mapping[str, object], shape: Shape[_Row]) -> _Row | None:
        """Run one statement that gives at most one row."""
        rows = self._all(query, values, shape)
        return rows[0] if rows else None

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def _connect(self, *, statement_seconds: float | None = None) -> "psycopg.Connection[Any]":
        milliseconds = int((statement_seconds or self._statement_seconds) * 1000)
        options = f"-c timezone=UTC -c statement_timeout={milliseconds}"
        address = {**self._address, "options": f"{self._address.get('options', '')} {options}".strip()}
        try:
            return psycopg.connect(autocommit=True, **address)
        except psycopg.Error as error:
            raise self._away(error) from None

    def _away(self, finding: psycopg.Error | str) -> ControlError:
        return ControlError(_PLACE, f"not reachable. {self._told(finding)}", _NOT_REACHABLE)

    def _explained(self, error: psycopg.Error) -> ControlError:
        if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
            return ControlError(_PLACE, f"not set up ({self._told(error)})", 'Run "deltaworks up", which migrates it')
        if isinstance(error, errors.QueryCanceled):
            return ControlError(_PLACE, f"no answer within {self._statement_seconds} s", "Try again")
        return ControlError(_PLACE, f"refused: {self._told(error)}", "Mend the value that was given")

    def _told(self, finding: psycopg.Error | str) -> str:
        """Return what the server or libpq said, in one line and without the password."""
        text = finding if isinstance(finding, str) else finding.diag.message_primary or str(finding)
        line = "; ".join(part.strip() for part in text.splitlines() if part.strip()).rstrip(".")
        return line.replace(self._password, "***") if self._password else line


def _session(given: Mapping[str, object], application: str) -> dict[str, object]:
    """Bounds of the session; those of TCP notice a server whose machine is gone."""
    bounds = {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": application,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": ANSWER_SECONDS * 1000,  # milliseconds; without effect where the system has no such thing
    }
    return {key: value for key, value in bounds.items() if key == "application_name" or key not in given}


def _dead(connection: "psycopg.Connection[Any]", error: psycopg.Error) -> bool:
    gone = errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow | errors.IdleSessionTimeout
    return connection.closed or isinstance(error, gone)


@contextmanager
def _deadline(connection: "psycopg.Connection[Any]", seconds: float, cut: threading.Event) -> Iterator[None]:
    """Shut the connection's socket after `seconds` and set `cut`: psycopg itself would wait for ever."""
    turn, over = threading.Lock(), threading.Event()

    def shut() -> None:
        with turn:
            if over.is_set():  # the socket's number may already be another file's
                return
            cut.set()
            with socket.socket(fileno=os.dup(connection.pgconn.socket)) as twin:
                twin.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with turn:
            over.set()
        timer.cancel()
