"""The process that answers analysts, seen from the one that asks: started, asked, ended when its time is up."""

import io
import json
import pickle
import re
import resource
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltaworks.errors import QueryError
from deltaworks.query.wire import TooLargeError, receive, send, waits
from deltaworks.query.worker import INTERRUPT

LOST = "Lost"
"""Kind of the error of a process that ended before it answered."""
_START_SECONDS = 60.0
_GRACE_SECONDS = 2.0
"""After its time a query is interrupted; where DuckDB does not come to that within this time, or within half of the
query's own, as in one long function, the process is ended."""
_BESIDE_BYTES = 512 << 20
"""Address space beside what DuckDB counts as its memory: threads, PyArrow, the part of an answer that is on its way."""
_TABLE_BYTES = 16 << 20
"""The same for each table: the extension has a thread of its own for one that is open."""
_PART_BYTES_MAX = 64 << 20
_ROOT = Path(__file__).parents[2]
_START = (
    "import sys; end = sys.argv.index('--'); sys.path[:0] = sys.argv[1:end]; del sys.argv[1 : end + 1]; "
    "from deltaworks.query.worker import main; main()"
)
_ENVIRONMENT = {  # all of it: what the caller's holds is no concern of a query
    "MALLOC_ARENA_MAX": "2",  # each arena of glibc takes 64 MB of address space, which is bounded
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others take a GB of address space at once
}
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
# What DuckDB gives as Python values, beside those that a pickle knows itself; a time's zone is that of the session
_VALUES: dict[tuple[str, str], Callable[..., object]] = {
    ("datetime", "date"): date,
    ("datetime", "datetime"): datetime,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("decimal", "Decimal"): Decimal,
    ("uuid", "UUID"): uuid.UUID,
    ("pytz", "_p"): lambda *_: UTC,
    ("pytz", "_UTC"): lambda *_: UTC,
}


class RequestError(Exception):
    """A request was not carried out: the name of DuckDB's error, or of ours, and its text."""

    def __init__(self, kind: str, text: str) -> None:
        """Keep both."""
        super().__init__(text)
        self.kind = kind


class QueryProcess:
    """One process with DuckDB over some folders; not for several threads at once, but for `kill`."""

    def __init__(self, folders: tuple[Path, ...], *, memory: str, tables: int = 0) -> None:
        """Start it, for a lake of about so many tables.

        Raises QueryError where it cannot be, RequestError for what DuckDB says to that.
        """
        self.bytes_max = memory_bytes(memory)
        self._more_bytes = self.bytes_max + _BESIDE_BYTES + tables * _TABLE_BYTES
        self._connection, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-c", _START, str(_ROOT), *_packages(), "--"),
                    *(str(descriptor), memory, str(self._more_bytes), *map(str, folders)),
                ],
                pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_ENVIRONMENT,
            )
        finally:
            theirs.close()
        try:
            self.landlock: int = self._answer(_START_SECONDS)
        except RequestError as error:
            self.end()
            raise self._not_started(error) from None
        except (EOFError, OSError) as error:
            self.end()
            raise RequestError(LOST, str(error)) from None
        except BaseException:
            self.end()
            raise
        self._size_then = self._size_now()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is not there any more."""
        return self._process.poll() is not None

    @property
    def grown(self) -> bool:
        """Whether it holds half of what it may, with nothing running: a later query would not have its share."""
        return self._size_now() - self._size_then > self._more_bytes // 2

    def run(self, sql: str, *, seconds: float) -> list[tuple[str, str]]:
        """Start a query; name and type of each column of its answer."""
        columns: list[tuple[str, str]] = self._ask("run", sql, seconds)
        return columns

    def all(self, sql: str, *, seconds: float) -> list[tuple[Any, ...]]:
        """The whole answer of a query that is known to be small."""
        rows: list[tuple[Any, ...]] = self._ask("all", sql, seconds)
        return rows

    def rows(self, *, seconds: float) -> tuple[list[tuple[object, ...]], int]:
        """The next rows of the query that was started, none after the last, and how many bytes they came in."""
        rows: list[tuple[object, ...]] = self._ask("rows", "", seconds)
        return rows, self._size

    def batch(self, *, seconds: float) -> bytes:
        """The next rows of the query that was started, in Arrow's stream format: first its schema, b"" at the end."""
        batch: bytes = self._ask("batch", "", seconds)
        return batch

    def kill(self) -> None:
        """End it from another thread: who waits for an answer hears that it is lost."""
        self._process.kill()

    def end(self) -> None:
        """End it; harmless when it has ended."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, what: str, sql: str, seconds: float) -> Any:
        if seconds <= 0:
            raise RequestError("InterruptException", "time is up")
        grace = min(seconds / 2, _GRACE_SECONDS)
        try:
            send(self._connection, json.dumps((what, sql)).encode(), seconds=seconds)
            if waits(self._connection, seconds=seconds) or self._interrupted(grace):
                return self._answer(max(grace, 0.5))
        except RequestError:
            raise
        except TimeoutError:
            pass  # a message that stopped in its midst is an answer that did not come
        except (EOFError, OSError) as error:
            self.end()
            raise RequestError(LOST, str(error)) from None
        except BaseException:  # Ctrl-C: what comes next would be taken for the answer to another question
            self.end()
            raise
        self.end()
        raise RequestError("InterruptException", "time is up")

    def _interrupted(self, seconds: float) -> bool:
        """Interrupt the query; whether that brought an answer within so many seconds."""
        send(self._connection, json.dumps((INTERRUPT, "")).encode(), seconds=seconds)
        return waits(self._connection, seconds=seconds)

    def _answer(self, seconds: float) -> Any:
        try:
            said = receive(self._connection, seconds=seconds, bytes_max=max(2 * self.bytes_max, _PART_BYTES_MAX))
            how, what = read_answer(said)
            kind, text = map(str, what) if how == "failed" else ("", "")
        except TooLargeError:
            self.end()
            raise RequestError(
                "OutOfMemoryException", "one part of the answer is larger than all of it may be"
            ) from None
        except (EOFError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  # bytes of one that was taken over may raise anything when they are read
            raise EOFError(str(error)) from None
        self._size = len(said)
        if how == "failed":
            raise RequestError(kind, text)
        return what

    def _not_started(self, error: RequestError) -> Exception:
        if error.kind == "LookupError":
            finding = f"no Delta extension for version {error} is installed"
        elif error.kind == "ModuleNotFoundError":
            finding = str(error)
        else:
            return error
        return QueryError("duckdb", finding, 'Run "make setup"')

    def _size_now(self) -> int:
        """Bytes of address space; 0 where the system does not tell (macOS, which does not bound it either)."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[0]
        except OSError:
            return 0
        return int(pages) * resource.getpagesize()


def read_answer(said: bytes) -> Any:
    """The values in an answer; raises pickle.UnpicklingError where it names anything but plain values."""
    return _Values(io.BytesIO(said)).load()


class _Values(pickle.Unpickler):
    """Reads plain values only: who has taken the other process over must not run anything in this one."""

    def find_class(self, module: str, name: str) -> Any:
        """The class of a value that DuckDB gives; raises pickle.UnpicklingError for any other name."""
        try:
            return _VALUES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is no value of an answer") from None


def _packages() -> list[str]:
    """Where this process finds its packages, as far as they are folders: the other one finds them there too."""
    return [folder for folder in sys.path if folder and Path(folder).is_absolute()]


def memory_bytes(memory: str) -> int:
    """An amount of memory as DuckDB says it, in bytes; raises QueryError for anything else."""
    found = re.fullmatch(r"([1-9][0-9]*(?:\.[0-9]+)?)\s*([KMG]I?)B", memory.upper())
    if found is None:
        raise QueryError(f"memory {memory!r}", "not an amount of memory", "Give it like 512MB or 2GB")
    return int(Decimal(found[1]) * _UNITS[found[2]])
