"""What runs in the process that answers analysts: DuckDB over one lake, asked by its parent, unable to write.

It knows SQL and nothing of tables: what may be asked is judged by the parent, which is not confined and does not trust
what comes from here.
"""

import importlib.util
import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from deltaworks.query.confine import bound_memory, no_files_grow, read_only
from deltaworks.query.text import literal
from deltaworks.query.wire import receive, send

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

INTERRUPT = "interrupt"
"""The one request without an answer."""
_ROWS_FIRST, _ROWS_MAX = 16, 1000
_ANSWER_BYTES = 1 << 20
"""A part of an answer is of about so many bytes, and of at most so many rows: wide rows come in smaller parts."""
_BATCH_ROWS = 2048  # DuckDB's own unit; wide rows are cut smaller
_PACKAGES = ("duckdb", "duckdb_extension_delta", "pyarrow", "pytz", "numpy")
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/proc/meminfo",
    "/proc/self",
    "/sys/fs/cgroup",
    "/sys/devices",
)
_LIMITS = {  # fixed before DuckDB is locked
    "autoinstall_known_extensions": "false",  # nothing is fetched from the net
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Checking the signature of the extension hashes 80 MB at each start (0.3 to 0.9 s). The file comes from the
    # hash-pinned package, like DuckDB itself, and no other can be loaded: LOAD is refused.
    "allow_unsigned_extensions": "true",
    "python_enable_replacements": "false",  # else an unknown table could be a variable of this module
    "temp_directory": "",  # nothing is written, not even when memory is short
}


def main() -> None:
    """Confine this process, open DuckDB, answer until the parent goes.

    Arguments: descriptor of the connection, memory of DuckDB in its words, bytes of address space that may be added to
    what a start takes, folders that may be read.
    """
    descriptor, memory, more_bytes, *folders = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it ends this process
    connection = socket.socket(fileno=int(descriptor))
    asked: SimpleQueue[tuple[str, str]] = SimpleQueue()
    try:
        version = read_only(_readable([Path(folder) for folder in folders]))
        no_files_grow()
        worker = Worker(memory=memory, folders=folders)
        # before memory is bounded: a thread needs some
        Thread(target=_listen, args=(connection, worker, asked), daemon=True).start()
        bound_memory(int(more_bytes))
    except Exception as error:  # noqa: BLE001  # told, whatever it is: the parent has no other way to know
        send(connection, _failed(error))
        return
    send(connection, _said("done", version))
    while True:
        send(connection, worker.answer(*asked.get()))


class Worker:
    """DuckDB, locked to some folders, and the answer that is being fetched."""

    def __init__(self, *, memory: str, folders: list[str]) -> None:
        """Open DuckDB with the Delta extension, and lock it.

        Raises duckdb.Error, LookupError without the extension.
        """
        self._duckdb = _locked(memory, folders)
        self._rows = _ROWS_FIRST
        self._batches: Iterator[pa.RecordBatch] | None = None

    def answer(self, what: str, sql: str) -> bytes:
        """Carry one request out; what went wrong is an answer too, its kind the error's name."""
        try:
            match what:
                case "run":
                    self._batches, self._rows = None, _ROWS_FIRST
                    described = self._duckdb.execute(sql).description or ()
                    return _said("done", [(str(one[0]), str(one[1])) for one in described])
                case "all":
                    return _said("done", self._duckdb.execute(sql).fetchall())
                case "rows":
                    return self._some_rows()
                case _:
                    return self._batch()
        except Exception as error:  # noqa: BLE001  # the parent tells it, and decides whether this process goes on
            return _failed(error)

    def _some_rows(self) -> bytes:
        said = _said("done", self._duckdb.fetchmany(self._rows))
        self._rows = max(1, min(_ROWS_MAX, 4 * self._rows, self._rows * _ANSWER_BYTES // len(said)))
        return said

    def _batch(self) -> bytes:
        """The next rows in Arrow's stream format; before the first the schema alone, after the last nothing."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        if self._batches is None:
            reader = self._duckdb.to_arrow_reader(_BATCH_ROWS)
            self._batches = _in_parts(reader)
            pa.ipc.new_stream(sink, reader.schema).close()
        else:
            batch = next(self._batches, None)
            if batch is None:
                return _said("done", b"")
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
        return _said("done", sink.getvalue().to_pybytes())

    def interrupt(self) -> None:
        """End the query that runs, as far as DuckDB looks; for another thread."""
        self._duckdb.interrupt()


def _in_parts(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """The same rows in batches of about as many bytes as a part of an answer has."""
    for batch in batches:
        rows = max(1, batch.num_rows * _ANSWER_BYTES // max(1, batch.nbytes))
        for first in range(0, batch.num_rows, rows):
            yield batch.slice(first, rows)


def _listen(connection: socket.socket, worker: Worker, asked: "SimpleQueue[tuple[str, str]]") -> None:
    """Hand on what the parent asks, interrupt where it says so, end where it is gone: nobody waits any more.

    It ends too where a request cannot be read, for want of memory: the parent learns of it by that.
    """
    try:
        while True:
            what, sql = json.loads(receive(connection))
            if what == INTERRUPT:
                worker.interrupt()
            else:
                asked.put((what, sql))
    finally:
        os._exit(1)


def _readable(folders: list[Path]) -> Iterator[Path]:
    """What this process needs to read: the folders, Python with the packages that are used, the system's libraries."""
    yield from folders
    yield from (Path(__file__).parent, Path(sys.prefix), Path(sys.base_prefix))
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        if found and found.origin:
            yield Path(found.origin).parent
    yield from (Path(path) for path in _SYSTEM)


def _locked(memory: str, folders: list[str]) -> "duckdb.DuckDBPyConnection":
    import duckdb

    found = importlib.util.find_spec("duckdb_extension_delta")
    package = Path(found.origin).parent if found and found.origin else Path("/nonexistent")
    extension = package / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
    if not extension.is_file():
        raise LookupError(duckdb.__version__)
    connection = duckdb.connect(":memory:", config={**_LIMITS, "memory_limit": memory})
    connection.execute(f"LOAD {literal(str(extension))}")
    connection.execute("SET TimeZone = 'UTC'")
    allowed = ", ".join(literal(f"{folder}/") for folder in folders)
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")  # from here on only allowed_directories can be opened
    connection.execute("SET lock_configuration = true")
    connection.execute("SELECT now()").fetchall()  # imports what times need, while memory is not bounded
    return connection


_KINDS = {
    "interrupt": "InterruptException",
    "out of memory": "OutOfMemoryException",
    "io": "IOException",
    "invalid input": "InvalidInputException",
    "fatal": "FatalException",
    "internal": "InternalException",
}
"""Names of DuckDB's errors by how their texts begin."""


def _said(how: str, what: Any) -> bytes:
    return pickle.dumps((how, what), protocol=5)


def _failed(error: Exception) -> bytes:
    kind, text = type(error).__name__, str(error)
    if type(error).__module__.partition(".")[0] != "duckdb":  # through PyArrow DuckDB's errors lose their kind
        said = text.partition(":")[0].removesuffix(" Error").casefold()
        kind = next((name for begin, name in _KINDS.items() if said.endswith(begin)), kind)
    return _said("failed", (kind, text))
