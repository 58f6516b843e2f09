"""The process that answers analysts, seen from the one that asks: started, asked, ended when its time is up."""

import io
import pickle
import re
import resource
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from deltaworks.errors import QueryError
from deltaworks.query.worker import BESIDE_BYTES, INTERRUPT

LOST = "Lost"
"""Kind of the error of a process that ended before it answered."""
_GRACE_SECONDS = 2.0
"""After its time a query is interrupted; where DuckDB does not come to that within this time, or within half of the
query's own, as in one long function, the process is ended."""
_ROOT = Path(__file__).parents[2]
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from deltaworks.query.worker import main; main()"
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
    """One process with DuckDB over some folders; not for several threads at once."""

    def __init__(self, folders: tuple[Path, ...], *, memory: str) -> None:
        """Start it; raises QueryError where it cannot be, RequestError for what DuckDB says to that."""
        self.bytes_max = memory_bytes(memory)
        self._connection, theirs = Pipe()
        arguments = [str(theirs.fileno()), memory, str(self.bytes_max), *map(str, folders)]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, str(_ROOT), *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
        )
        theirs.close()
        try:
            self.landlock: int = self._answer()
        except RequestError as error:
            self.end()
            if error.kind != "LookupError":
                raise
            finding = f"no Delta extension for version {error} is installed"
            raise QueryError("duckdb", finding, 'Run "make setup"') from None
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
        return self._size_now() - self._size_then > (self.bytes_max + BESIDE_BYTES) // 2

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
        """The next batch of the query that was started, in Arrow's stream format: first its schema, b"" at the end."""
        batch: bytes = self._ask("batch", "", seconds)
        return batch

    def end(self) -> None:
        """End it; harmless when it has ended."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, what: str, sql: str, seconds: float) -> Any:
        if seconds <= 0:
            raise RequestError("InterruptException", "time is up")
        try:
            self._send((what, sql))
            if self._in_time(seconds):
                return self._answer()
        except RequestError:
            raise
        except BaseException:  # Ctrl-C, or bytes that are no answer: what comes next would be taken for another one
            self.end()
            raise
        self.end()
        raise RequestError("InterruptException", "time is up")

    def _in_time(self, seconds: float) -> bool:
        """Whether there is an answer, be it that the query was interrupted."""
        if self._connection.poll(seconds):
            return True
        self._send(INTERRUPT)
        return self._connection.poll(min(seconds / 2, _GRACE_SECONDS))

    def _size_now(self) -> int:
        """Bytes of address space; 0 where the system does not tell (macOS, which does not bound it either)."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[0]
        except OSError:
            return 0
        return int(pages) * resource.getpagesize()

    def _send(self, request: tuple[str, str]) -> None:
        try:
            self._connection.send_bytes(pickle.dumps(request))
        except OSError as error:
            raise self._lost(error) from None

    def _answer(self) -> Any:
        try:
            said = self._connection.recv_bytes(2 * self.bytes_max)
            how, what = read_answer(said)
        except (EOFError, OSError) as error:
            raise self._lost(error) from None
        self._size = len(said)
        if how == "failed":
            raise RequestError(*what)
        return what

    def _lost(self, error: Exception) -> RequestError:
        self.end()
        return RequestError(LOST, str(error))


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


def memory_bytes(memory: str) -> int:
    """An amount of memory as DuckDB says it, in bytes; raises QueryError for anything else."""
    found = re.fullmatch(r"([1-9][0-9]*(?:\.[0-9]+)?)\s*([KMG]I?)B", memory.upper())
    if found is None:
        raise QueryError(f"memory {memory!r}", "not an amount of memory", "Give it like 512MB or 2GB")
    return int(Decimal(found[1]) * _UNITS[found[2]])
