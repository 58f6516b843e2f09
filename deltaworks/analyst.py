"""Read-only SQL over the lake with DuckDB: no cluster, no JVM, every query sees the newest commit.

    from deltaworks.analyst import open_lake

    lake = open_lake()
    lake.sql("select * from gold.daily_orders order by day").dicts()
    lake.sql("select * from gold.daily_orders", as_of=datetime(2026, 11, 20, 10, tzinfo=UTC))  # as it was then

Tables are named layer.table. System columns (leading underscore) of gold tables are not shown.
"""

import importlib.util
import os
import re
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock, Timer
from typing import TYPE_CHECKING, Self

import duckdb

from deltaworks.errors import LakeError, QueryError
from deltaworks.settings import Settings
from deltaworks.statements import literal, read_statement

if TYPE_CHECKING:
    import pyarrow as pa

    from deltaworks.engine.arrival import Arrival

TIMEOUT_SECONDS = 30.0
MEMORY = "1GB"
_ROWS_PER_FETCH = 1000
_LEDGER, _TURNS = "ops.ledger", "ops.turns"
_OF_APPS = {_LEDGER: f"{_LEDGER}_", _TURNS: f"{_TURNS}_"}
"""Tables of which each app has its own part, and how the parts' names begin."""
_LIMITS = {  # fixed before DuckDB is locked
    "autoinstall_known_extensions": "false",  # nothing is fetched from the net
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Checking the signature of the extension hashes 80 MB at each start (0.3 to 0.9 s). The file comes from the
    # hash-pinned package, like DuckDB itself, and no other can be loaded: LOAD is refused.
    "allow_unsigned_extensions": "true",
    "python_enable_replacements": "false",  # else an unknown table could be a variable of the caller
    "temp_directory": "",  # nothing is written, not even when memory is short
}


@dataclass(frozen=True, kw_only=True)
class ResultColumn:
    """Name and DuckDB type of a column of an answer."""

    name: str
    type: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a query gave: exact Python values (Decimal, aware datetime, date, int, None)."""

    columns: tuple[ResultColumn, ...]
    rows: list[tuple[object, ...]]
    more: bool = field(default=False)
    seconds: float = field(default=0.0)

    def dicts(self) -> list[dict[str, object]]:
        """The rows as one mapping each, by column name."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def open_lake(project: Path | None = None) -> "Analyst":
    """Open the lake of a project (default: DELTAWORKS_PROJECT, else this checkout) for reading."""
    return connect(Settings.load(project).lake)


def connect(lake: Path, *, memory: str = MEMORY) -> "Analyst":
    """Open a lake's folder for reading; memory bounds what a query may hold (it never spills to disk)."""
    return Analyst(lake, memory=memory)


class Analyst:
    """Answers SQL over one lake. Usable from several threads, one query at a time."""

    def __init__(self, lake: Path, *, memory: str = MEMORY) -> None:
        """Start DuckDB, load the Delta extension and close every door but the lake's and one for old versions."""
        self.lake = lake.resolve()
        self._lock = RLock()
        self._attached: dict[str, tuple[object, ...] | None] = {}
        # for tables as they were before their logs begin; named before DuckDB is locked
        self._past = Path(tempfile.gettempdir()).resolve() / f"deltaworks-past-{uuid.uuid4().hex}"
        self._connection = _locked_connection(self.lake, self._past, memory=memory)
        # DuckDB's threads must end before the interpreter does: otherwise it aborts, now and then
        self._end = weakref.finalize(self, _close, self._connection, self._past)

    def __enter__(self) -> Self:
        """Use the lake in a with statement."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close at the end of the with statement."""
        self.close()

    def close(self) -> None:
        """Give up the memory; asking afterwards fails."""
        self._end()

    def tables(self) -> tuple[str, ...]:
        """Every table of the lake as layer.table, sorted; read anew from the folder."""
        return tuple(sorted(self._folders()))

    def sql(
        self,
        sql: str,
        *,
        as_of: datetime | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        rows_max: int | None = None,
    ) -> Answer:
        """Answer one reading statement; raises QueryError. With rows_max, `more` tells that rows were left out.

        With as_of (UTC if it has no zone) each table is asked as it had been committed by then.
        """
        began = time.monotonic()
        with self.stream(sql, as_of=as_of, timeout_seconds=timeout_seconds) as (columns, batches):
            rows: list[tuple[object, ...]] = []
            for batch in batches:
                rows += batch
                if rows_max is not None and len(rows) > rows_max:
                    break
        more = rows_max is not None and len(rows) > rows_max
        return Answer(columns=columns, rows=rows[:rows_max], more=more, seconds=time.monotonic() - began)

    def arrow(self, sql: str, *, as_of: datetime | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> "pa.Table":
        """Answer one reading statement as an Arrow table (`.to_pandas()` for pandas); raises QueryError."""
        clock = _Clock(self._connection, timeout_seconds)
        with self._lock, _own_errors(timeout_seconds):
            self._run(sql, clock, as_of)
            with clock.running():
                return self._connection.to_arrow_table()

    @contextmanager
    def stream(
        self, sql: str, *, as_of: datetime | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> Iterator[tuple[tuple[ResultColumn, ...], Iterator[list[tuple[object, ...]]]]]:
        """Columns and batches of rows, for answers larger than memory; the time limit counts DuckDB's time only."""
        clock = _Clock(self._connection, timeout_seconds)
        with self._lock, _own_errors(timeout_seconds):
            self._run(sql, clock, as_of)
            yield _columns(self._connection), self._batches(clock)

    def wait(
        self, table: str, *, topic: str, partition: int, offset: int, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> "Arrival":
        """Wait until the table contains the record that you sent there: read your own writes.

        Raises NotArrivedError when the time is over, or at once if the record was refused.
        """
        from deltaworks.engine.arrival import wait_for

        return wait_for(
            self.lake, table=table, topic=topic, partition=partition, offset=offset, timeout_seconds=timeout_seconds
        )

    def _batches(self, clock: "_Clock") -> Iterator[list[tuple[object, ...]]]:
        while True:
            with clock.running():
                rows = self._connection.fetchmany(_ROWS_PER_FETCH)
            if not rows:
                return
            yield rows

    def _run(self, sql: str, clock: "_Clock", as_of: datetime | None) -> None:
        folders = self._folders()
        if not folders:
            raise QueryError(str(self.lake), "no tables here yet", 'Run "deltaworks up" and start an app')
        with clock.running():
            statement = read_statement(sql, connection=self._connection, known=tuple(sorted(folders)))
            moment = None if as_of is None else _moment(as_of, statement.tables)
            for name in statement.tables:
                self._refresh(name, folders[name], moment)
            self._connection.execute(statement.sql)

    def _folders(self) -> dict[str, Path]:
        """Folder of each table by its name in lower case, as DuckDB compares names."""
        logs = self.lake.glob("[!.]*/[!.]*/_delta_log")
        found = {f"{log.parts[-3]}.{log.parts[-2]}".lower(): log.parent for log in logs}
        for whole, part in _OF_APPS.items():
            if any(name.startswith(part) for name in found):
                found.setdefault(whole, self.lake)
        return found

    def _refresh(self, name: str, folder: Path, moment: datetime | None) -> None:
        """Let DuckDB see the newest commit, or the newest of a moment.

        The newest snapshot is kept until there is a newer one, as a long log costs.
        """
        if name in _OF_APPS and folder == self.lake:
            every = self._parts(_OF_APPS[name])
            if name == _LEDGER:
                self._refresh_ledger(every, moment)
            else:
                self._refresh_turns(every, moment)
            return
        if moment is not None:
            self._refresh_past(name, folder, moment)
            return
        stamp = _newest_commit(folder)
        if stamp is None or self._attached.get(name) != stamp:
            self._attach(name, folder)
            self._attached[name] = stamp

    def _refresh_past(self, name: str, folder: Path, moment: datetime) -> None:
        """Let DuckDB see a table as it was; once more where its owner has shortened its log meanwhile."""
        from deltaworks.engine.log import opens_from, whole_from

        while True:
            begin = first, _ = whole_from(folder), opens_from(folder)
            try:
                self._attach(name, *self._as_of(name, folder, moment, first))
            except QueryError:
                if (whole_from(folder), opens_from(folder)) == begin:
                    raise
            else:
                if whole_from(folder) == first:
                    return

    def _attach(self, name: str, folder: Path, at: int | None = None) -> None:
        """Make the view of a table that lies in this folder, at its newest version or another."""
        version = "" if at is None else f", VERSION {at}"
        layer, _, table = name.partition(".")
        run = self._connection.execute
        self._attached.pop(name, None)
        run(f"DETACH DATABASE IF EXISTS {_quoted(name)}")
        try:
            # read-only: an INSERT by DuckDB would corrupt a table with mapped columns
            how = f"TYPE delta, READ_ONLY, PIN_SNAPSHOT{version}"
            run(f"ATTACH {literal(str(folder))} AS {_quoted(name)} ({how})")
            # side tables (<table>__late …) say what they have to say in system columns
            shown = "COLUMNS(lambda c: NOT starts_with(c, '_'))" if layer == "gold" and "__" not in table else "*"
            run(f"CREATE SCHEMA IF NOT EXISTS {_quoted(layer)}")
            view = f"{_quoted(layer)}.{_quoted(table)}"
            run(f"CREATE OR REPLACE VIEW {view} AS SELECT {shown} FROM {_quoted(name)}")  # noqa: S608  # names, quoted
        except (duckdb.IOException, duckdb.BinderException) as error:
            raise _unreadable(name, _first_line(error)) from None

    def _as_of(self, name: str, folder: Path, moment: datetime, begin: int) -> tuple[Path, int]:
        """The newest version that was committed by then, if all of its files are there, and where it can be opened.

        That is the table's own folder or, before the version at which its log begins, one laid out from its past.
        """
        from deltaworks.engine.log import committed_at, readable_from, version_at
        from deltaworks.engine.past import lay_out

        try:
            version = version_at(folder, moment)
            if version is not None:
                where, there = folder, True
                if version < begin:
                    where = self._past / name
                    shutil.rmtree(where, ignore_errors=True)
                    self._past.mkdir(mode=0o700, exist_ok=True)
                    there = lay_out(folder, version, where) is not None  # else its owner has cut it off meanwhile
                if there and self._has_its_files(where, version):
                    return where, version
            first = readable_from(folder)
            since = _told(committed_at(folder, first))
        except (LakeError, OSError, ValueError, duckdb.IOException) as error:
            raise _unreadable(name, _first_line(error)) from None
        if version is not None and version >= first:
            raise _unreadable(name, "a file of its newest version is missing")
        gone = "what it was then is not kept any more" if first else "it was made later"
        raise QueryError(name, f"cannot be asked as of {_told(moment)}: {gone}", f"Ask as of {since} or later")

    def _has_its_files(self, folder: Path, version: int) -> bool:
        """DuckDB would find out too, but in the middle of an answer."""
        listed = f"SELECT data_file FROM delta_list_files({literal(str(folder))}, version={version})"  # noqa: S608  # quoted
        return all(Path(file).exists() for (file,) in self._connection.execute(listed).fetchall())

    def _parts(self, begin: str) -> str:
        """SQL for the newest rows of the tables whose names begin so, as of one."""
        parts = {name: folder for name, folder in self._folders().items() if name.startswith(begin)}
        for name, folder in parts.items():
            self._refresh(name, folder, None)
        return " UNION ALL BY NAME ".join(f"SELECT * FROM {_quoted(name)}" for name in parts)  # noqa: S608  # names, quoted

    def _refresh_turns(self, every: str, moment: datetime | None) -> None:
        """Show where the turns of all apps went; as of a moment what was told before it."""
        which = "true" if moment is None else f"told_at <= TIMESTAMPTZ {literal(moment.isoformat())}"
        self._connection.execute(f"CREATE OR REPLACE VIEW ops.turns AS SELECT * FROM ({every}) WHERE {which}")  # noqa: S608  # our own names

    def _refresh_ledger(self, every: str, moment: datetime | None) -> None:
        """Show the copies of the entries, one table per app, as one; the counts in an entry as columns.

        Copies are made later than the commits: as of a moment are the commits of before it, whenever they were copied.
        """
        from dataclasses import fields

        from deltaworks.engine.entry import Counts

        counts = ", ".join(
            f"coalesce((entry::json -> 'counts' ->> '{one.name}')::bigint, 0) AS {one.name}" for one in fields(Counts)
        )
        columns = f"* EXCLUDE (entry), {counts}, entry"
        which = "true" if moment is None else f"committed_at <= TIMESTAMPTZ {literal(moment.isoformat())}"
        self._connection.execute(
            f"CREATE OR REPLACE VIEW ops.ledger AS SELECT {columns} FROM ({every}) WHERE {which}"  # noqa: S608  # our own names
        )


class _Clock:
    """Interrupts DuckDB when the time of a query is used up; time between fetches is the caller's own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, seconds: float) -> None:
        self._connection, self._left = connection, seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        if self._left <= 0:
            raise duckdb.InterruptException("time is up")
        began = time.monotonic()
        timer = Timer(self._left, self._connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._left -= time.monotonic() - began


def _locked_connection(lake: Path, past: Path, *, memory: str) -> duckdb.DuckDBPyConnection:
    if not re.fullmatch(r"[1-9][0-9]*(\.[0-9]+)?\s*[KMG]i?B", memory, re.IGNORECASE):
        raise QueryError(f"memory {memory!r}", "not an amount of memory", "Give it like 512MB or 2GB")
    found = importlib.util.find_spec("duckdb_extension_delta")
    package = Path(found.origin).parent if found and found.origin else Path("/nonexistent")
    extension = package / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
    if not extension.is_file():
        raise QueryError(
            "duckdb", f"no Delta extension for version {duckdb.__version__} is installed", 'Run "make setup"'
        )
    connection = duckdb.connect(":memory:", config={**_LIMITS, "memory_limit": memory})
    connection.execute(f"LOAD {literal(str(extension))}")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET allowed_directories = [{literal(f'{lake}/')}, {literal(f'{past}/')}]")
    connection.execute("SET enable_external_access = false")  # from here on only allowed_directories can be opened
    connection.execute("SET lock_configuration = true")
    return connection


def _close(connection: duckdb.DuckDBPyConnection, past: Path) -> None:
    connection.close()
    shutil.rmtree(past, ignore_errors=True)


def _moment(as_of: datetime, tables: tuple[str, ...]) -> datetime:
    """A time that has passed: until then more may be committed."""
    moment = as_of if as_of.tzinfo is not None else as_of.replace(tzinfo=UTC)
    now = datetime.now(UTC)
    if moment > now:
        finding = f"cannot be asked as of {_told(moment)}: that is to come"
        raise QueryError(", ".join(tables) or "query", finding, f"Ask as of {_told(now)} or earlier")
    return moment


def _told(moment: datetime) -> str:
    """A time as precise as those of commits."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _newest_commit(folder: Path) -> tuple[object, ...] | None:
    """What tells a table's newest commit from any other; None if the log holds no commit file."""
    with os.scandir(folder / "_delta_log") as entries:
        commits = (entry for entry in entries if entry.name.endswith(".json") and entry.name[:20].isdigit())
        newest = max(commits, key=lambda entry: entry.name, default=None)
        if newest is None:
            return None
        found = newest.stat()
    return newest.name, found.st_mtime_ns, found.st_ino, found.st_size


def _columns(connection: duckdb.DuckDBPyConnection) -> tuple[ResultColumn, ...]:
    """The answer's columns; names that occur twice get a number, as a mapping could not hold both."""
    taken: set[str] = set()
    columns = []
    for description in connection.description or ():
        name, number = str(description[0]), 0
        while name in taken:
            number += 1
            name = f"{description[0]}_{number}"
        taken.add(name)
        columns.append(ResultColumn(name=name, type=str(description[1])))
    return tuple(columns)


@contextmanager
def _own_errors(timeout_seconds: float) -> Iterator[None]:
    """Turn DuckDB's errors into one line each."""
    try:
        yield
    except duckdb.InterruptException:
        step = "Narrow it, or give it more time with --timeout (timeout_seconds= in Python)"
        raise QueryError("query", f"stopped after {timeout_seconds:g} s", step) from None
    except duckdb.OutOfMemoryException:
        step = "Narrow it, or allow more with --memory (connect(memory=) in Python)"
        raise QueryError("query", "needs more memory than it may use", step) from None
    except duckdb.Error as error:
        raise _in_one_line(error) from None


def _in_one_line(error: duckdb.Error) -> QueryError:
    said, _, place = str(error).partition("\n\nLINE ")
    finding, _, hint = said.partition("\n")
    finding = re.sub(r"^(\w+ )+Error: ", "", finding).rstrip("!.")
    line = place.partition(":")[0]
    step = " ".join(hint.split()).rstrip("?.") or "Mend the SQL"
    return QueryError(f"query line {line}" if line.isdigit() else "query", finding, step)


def _first_line(error: Exception) -> str:
    return error.finding if isinstance(error, LakeError) else str(error).partition("\n")[0]


def _unreadable(name: str, why: str) -> QueryError:
    return QueryError(name, f"cannot be read ({why})", 'Run "deltaworks doctor"')


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
