"""Read-only SQL over the lake with DuckDB: no cluster, no JVM, every query sees the newest commit.

    from deltaworks.analyst import open_lake

    lake = open_lake()
    lake.sql("select * from gold.daily_orders order by day").dicts()
    lake.sql("select * from gold.daily_orders", as_of=datetime(2026, 11, 20, 10, tzinfo=UTC))  # as it was then

Tables are named layer.table. System columns (leading underscore) of gold tables are not shown.
"""

import os
import re
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

from deltaworks.errors import LakeError, QueryError
from deltaworks.query.process import LOST, QueryProcess, RequestError, memory_bytes
from deltaworks.query.text import literal
from deltaworks.settings import Settings
from deltaworks.statements import read_statement

if TYPE_CHECKING:
    import pyarrow as pa

    from deltaworks.engine.arrival import Arrival

TIMEOUT_SECONDS = 30.0
MEMORY = "1GB"
_LEDGER, _TURNS = "ops.ledger", "ops.turns"
_OF_APPS = {_LEDGER: f"{_LEDGER}_", _TURNS: f"{_TURNS}_"}
"""Tables of which each app has its own part, and how the parts' names begin."""
_OF_A_TABLE = {"IOException", "BinderException"}
"""What DuckDB raises where a table cannot be read."""
_OF_A_FILE = {"Error", "IOException", "InvalidInputException"}
"""What DuckDB raises, among other things, where a data file is damaged or gone."""
_OF_A_READER = re.compile(
    "parquet|magic bytes|out of buffer|TProtocol|what type|cannot open|no such file|enough bytes|snappy|zstd",
    re.IGNORECASE,
)
"""How it says so."""
_LOOK_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_ROW_BYTES, _VALUE_BYTES = 56, 40
_FATAL = {"FatalException", "InternalException"}
"""After these it answers no more."""


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


def connect(lake: Path, *, memory: str = MEMORY, listed: Callable[[str], bool] | None = None) -> "Analyst":
    """Open a lake's folder for reading; memory bounds what a query may hold (it never spills to disk).

    `listed`: which tables SHOW TABLES shows, by their names in lower case; all, where it is None. All can be read.
    """
    return Analyst(lake, memory=memory, listed=listed)


class Analyst:
    """Answers SQL over one lake. Usable from several threads, one query at a time.

    Queries run in a process of their own that cannot write; it is started by the first one, and anew when it ended.
    """

    def __init__(self, lake: Path, *, memory: str = MEMORY, listed: Callable[[str], bool] | None = None) -> None:
        """Look at the amount of memory; nothing runs before the first question."""
        self.lake = lake.resolve()
        self._listed = listed
        self._memory = memory
        self._bytes_max = memory_bytes(memory)
        self._question: _Question | None = None
        self._opened: dict[str, tuple[Path, int | None]] = {}
        self._attached: dict[str, tuple[object, ...] | None] = {}
        # for tables as they were before their logs begin
        self._session = _Session(Path(tempfile.gettempdir()).resolve() / f"deltaworks-past-{uuid.uuid4().hex}")
        self._end = weakref.finalize(self, self._session.close)

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
        rows: list[tuple[object, ...]] = []
        with self._asked(sql, as_of, timeout_seconds) as (question, columns):
            while rows_max is None or len(rows) <= rows_max:
                part = question.rows()
                if not part:
                    break
                rows += part
                # as Python holds them: a tuple, and for each value its place and an object
                self._bound(question.bytes + len(rows) * (_ROW_BYTES + len(columns) * _VALUE_BYTES))
        more = rows_max is not None and len(rows) > rows_max
        return Answer(columns=columns, rows=rows[:rows_max], more=more, seconds=time.monotonic() - began)

    def arrow(self, sql: str, *, as_of: datetime | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> "pa.Table":
        """Answer one reading statement as an Arrow table (`.to_pandas()` for pandas); raises QueryError."""
        import pyarrow as pa

        with self._asked(sql, as_of, timeout_seconds) as (question, _):
            parts = [question.batch()]
            while part := question.batch():
                parts.append(part)
                self._bound(question.bytes)
        try:
            tables = [pa.ipc.open_stream(part).read_all() for part in parts]
            for table in tables:
                table.validate(full=True)  # the process that made it is not trusted
            return pa.concat_tables(tables)
        except pa.ArrowException as error:
            raise QueryError("query", f"its answer cannot be read ({_first_line(error)})", "Ask again") from None

    @contextmanager
    def stream(
        self, sql: str, *, as_of: datetime | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> Iterator[tuple[tuple[ResultColumn, ...], Iterator[list[tuple[object, ...]]]]]:
        """Columns and batches of rows, for answers larger than memory; the time limit counts DuckDB's time only."""
        with self._asked(sql, as_of, timeout_seconds) as (question, columns):
            yield columns, iter(question.rows, [])

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

    @contextmanager
    def _asked(
        self, sql: str, as_of: datetime | None, seconds: float
    ) -> Iterator[tuple["_Question", tuple[ResultColumn, ...]]]:
        """A statement that runs, and the columns of its answer; errors are in our words, here and where it is used."""
        with self._session.lock, self._own_errors(seconds), self._one_at_a_time() as begin:
            folders = self._folders()
            if not folders:
                raise QueryError(str(self.lake), "no tables here yet", 'Run "deltaworks up" and start an app')
            known = tuple(sorted(folders))
            question = begin(_Question(self._process(len(known), past=as_of is not None), seconds))
            try:
                statement = read_statement(sql, parse=question.all, known=known, listed=self._listed)
            except RequestError as error:
                if error.kind not in {LOST, *_FATAL}:
                    raise
                self._session.end()  # it was lost, or of no use any more, since the last question
                question = begin(_Question(self._process(len(known), past=as_of is not None), seconds))
                statement = read_statement(sql, parse=question.all, known=known, listed=self._listed)
            moment = None if as_of is None else _moment(as_of, statement.tables)
            for name in statement.tables:
                self._refresh(question, name, folders[name], moment)
            try:
                yield question, _columns(question.run(statement.sql))
            except RequestError as error:
                if error.kind in _OF_A_FILE and _OF_A_READER.search(str(error)):
                    self._find_broken_file(statement.tables)
                raise

    @contextmanager
    def _one_at_a_time(self) -> Iterator[Callable[["_Question"], "_Question"]]:
        """What begins a question; the one before, which this thread may be reading still, is over then."""

        def begin(question: _Question) -> _Question:
            if self._question is not None:
                self._question.over = True
            self._question = question
            return question

        try:
            yield begin
        finally:
            if self._question is not None:
                self._question.over = True

    def _process(self, tables: int = 0, *, past: bool = False) -> QueryProcess:
        """The process that answers: started where there is none, or where it may not read the folders of now."""
        session, process = self._session, self._session.process
        if past:
            session.past.mkdir(mode=0o700, exist_ok=True)
        folders = (self.lake, session.past) if session.past.exists() else (self.lake,)
        there = [(found.st_dev, found.st_ino) for found in map(os.stat, folders)]
        if process is None or process.ended or process.grown or session.folders != there:
            session.end()
            self._attached.clear()
            if not session.closed:
                session.process, session.folders = QueryProcess(folders, memory=self._memory, tables=tables), there
        if session.closed or session.process is None:
            session.end()
            raise self._was_closed()
        return session.process

    def _was_closed(self) -> QueryError:
        return QueryError(str(self.lake), "this lake was closed", "Open it again")

    def _bound(self, size: int) -> None:
        if size > self._bytes_max:
            step = "Narrow it, stream it, or allow more with --memory (connect(memory=) in Python)"
            raise QueryError("query", f"its answer is larger than {self._memory}", step)

    @contextmanager
    def _own_errors(self, timeout_seconds: float) -> Iterator[None]:
        """Turn DuckDB's errors into one line each; after one that it does not survive the next question starts anew."""
        try:
            yield
        except RequestError as error:
            if error.kind in _FATAL:
                self._session.end()
            if self._session.closed:
                raise self._was_closed() from None
            raise _in_our_words(error, timeout_seconds) from None

    def _find_broken_file(self, tables: tuple[str, ...]) -> None:
        """Raise QueryError for the first data file of these tables that cannot be read: DuckDB often names none.

        Looked for no longer than some seconds, and not at all where the process has ended.
        """
        process = self._session.process
        if process is None or process.ended:
            return
        question = _Question(process, _LOOK_SECONDS)
        with suppress(RequestError):  # then what DuckDB said first is left to say
            for folder, version in self._opened_for(tables):
                for file in self._data_files(question, folder, version):
                    if not file.exists() or not self._is_whole(question, file):
                        name = f"{folder.parent.name}.{folder.name}"
                        again = "" if folder.parent.name == "bronze" else f', or run "deltaworks rebuild {name}"'
                        finding = f"its file {file.name} is missing or damaged"
                        raise QueryError(name, finding, f"Bring it back from a copy{again}")

    def _opened_for(self, tables: tuple[str, ...]) -> list[tuple[Path, int | None]]:
        """Folder and version of what was opened for these names: each app's part, where a name stands for several."""
        begins = tuple(_OF_APPS[name] for name in tables if name in _OF_APPS)
        return [opened for name, opened in self._opened.items() if name in tables or name.startswith(begins)]

    def _data_files(self, question: "_Question", folder: Path, version: int | None) -> list[Path]:
        """The data files of a table's newest version, or of another."""
        at = "" if version is None else f", version={version}"
        listed = f"SELECT data_file FROM delta_list_files({literal(str(folder))}{at})"  # noqa: S608  # the path is a literal
        return [Path(file) for (file,) in question.all(listed)]

    def _is_whole(self, question: "_Question", file: Path) -> bool:
        """Whether all that is in a data file can be read."""
        source = literal(str(file))
        try:
            question.all(f"SELECT max(hash(COLUMNS(*))) FROM read_parquet({source})")  # noqa: S608  # the path is a literal
        except RequestError as error:
            if error.kind in _OF_A_FILE:
                return False
            raise
        return True

    def _folders(self) -> dict[str, Path]:
        """Folder of each table by its name in lower case, as DuckDB compares names."""
        logs = self.lake.glob("[!.]*/[!.]*/_delta_log")
        found = {f"{log.parts[-3]}.{log.parts[-2]}".lower(): log.parent for log in logs}
        for whole, part in _OF_APPS.items():
            if any(name.startswith(part) for name in found):
                found.setdefault(whole, self.lake)
        return found

    def _refresh(self, question: "_Question", name: str, folder: Path, moment: datetime | None) -> None:
        """Let DuckDB see the newest commit, or the newest of a moment.

        The newest snapshot is kept until there is a newer one, as a long log costs.
        """
        if name in _OF_APPS and folder == self.lake:
            every = self._parts(question, _OF_APPS[name])
            if name == _LEDGER:
                self._refresh_ledger(question, every, moment)
            else:
                self._refresh_turns(question, every, moment)
            return
        if moment is not None:
            self._refresh_past(question, name, folder, moment)
            return
        stamp = _newest_commit(folder)
        if stamp is None or self._attached.get(name) != stamp:
            self._attach(question, name, folder)
            self._attached[name] = stamp

    def _refresh_past(self, question: "_Question", name: str, folder: Path, moment: datetime) -> None:
        """Let DuckDB see a table as it was; once more where its owner has shortened its log meanwhile."""
        from deltaworks.engine.log import opens_from, whole_from

        while True:
            begin = first, _ = whole_from(folder), opens_from(folder)
            try:
                self._attach(question, name, *self._as_of(question, name, folder, moment, first))
            except QueryError:
                if (whole_from(folder), opens_from(folder)) == begin:
                    raise
            else:
                if whole_from(folder) == first:
                    return

    def _attach(self, question: "_Question", name: str, folder: Path, at: int | None = None) -> None:
        """Make the view of a table that lies in this folder, at its newest version or another."""
        version = "" if at is None else f", VERSION {at}"
        layer, _, table = name.partition(".")
        run = question.run
        self._attached.pop(name, None)
        self._opened[name] = folder, at
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
        except RequestError as error:
            if error.kind not in _OF_A_TABLE:
                raise
            raise _unreadable(name, _first_line(error)) from None

    def _as_of(self, question: "_Question", name: str, folder: Path, moment: datetime, begin: int) -> tuple[Path, int]:
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
                    where = self._session.past / name
                    shutil.rmtree(where, ignore_errors=True)
                    self._session.past.mkdir(mode=0o700, exist_ok=True)
                    there = lay_out(folder, version, where) is not None  # else its owner has cut it off meanwhile
                if there and self._has_its_files(question, where, version):
                    return where, version
            first = readable_from(folder)
            since = _told(committed_at(folder, first))
        except RequestError as error:
            if error.kind not in _OF_A_TABLE:
                raise
            raise _unreadable(name, _first_line(error)) from None
        except (LakeError, OSError, ValueError) as error:
            raise _unreadable(name, _first_line(error)) from None
        if version is not None and version >= first:
            raise _unreadable(name, "a file of its newest version is missing")
        gone = "what it was then is not kept any more" if first else "it was made later"
        raise QueryError(name, f"cannot be asked as of {_told(moment)}: {gone}", f"Ask as of {since} or later")

    def _has_its_files(self, question: "_Question", folder: Path, version: int) -> bool:
        """DuckDB would find out too, but in the middle of an answer."""
        return all(file.exists() for file in self._data_files(question, folder, version))

    def _parts(self, question: "_Question", begin: str) -> str:
        """SQL for the newest rows of the tables whose names begin so, as of one."""
        parts = {name: folder for name, folder in self._folders().items() if name.startswith(begin)}
        for name, folder in parts.items():
            self._refresh(question, name, folder, None)
        return " UNION ALL BY NAME ".join(f"SELECT * FROM {_quoted(name)}" for name in parts)  # noqa: S608  # names, quoted

    def _refresh_turns(self, question: "_Question", every: str, moment: datetime | None) -> None:
        """Show where the turns of all apps went; as of a moment what was told before it."""
        which = "true" if moment is None else f"told_at <= TIMESTAMPTZ {literal(moment.isoformat())}"
        question.run(f"CREATE OR REPLACE VIEW ops.turns AS SELECT * FROM ({every}) WHERE {which}")  # noqa: S608  # our own names

    def _refresh_ledger(self, question: "_Question", every: str, moment: datetime | None) -> None:
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
        question.run(
            f"CREATE OR REPLACE VIEW ops.ledger AS SELECT {columns} FROM ({every}) WHERE {which}"  # noqa: S608  # our own names
        )


class _Question:
    """What is asked of the process for one query, within the time of that query.

    The time between two parts of an answer is the caller's own.
    """

    def __init__(self, process: QueryProcess, seconds: float) -> None:
        self._process, self._seconds_left = process, seconds
        self.over = False
        """Nothing more can be read of its answer."""
        self.bytes = 0
        """Of the answer so far."""

    def run(self, sql: str) -> list[tuple[str, str]]:
        with self._clock():
            return self._process.run(sql, seconds=self._seconds_left)

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        with self._clock():
            return self._process.all(sql, seconds=self._seconds_left)

    def rows(self) -> list[tuple[object, ...]]:
        with self._clock():
            rows, size = self._process.rows(seconds=self._seconds_left)
        self.bytes += size
        return rows

    def batch(self) -> bytes:
        with self._clock():
            batch = self._process.batch(seconds=self._seconds_left)
        self.bytes += len(batch)
        return batch

    @contextmanager
    def _clock(self) -> Iterator[None]:
        if self.over:
            step = "Read an answer to its end first, or open the lake once more"
            raise QueryError("query", "is over: another one was asked since, or its with statement has ended", step)
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds_left -= time.monotonic() - began


class _Session:
    """The process that answers, while there is one, and the folder for tables of long ago."""

    def __init__(self, past: Path) -> None:
        self.past, self.closed = past, False
        self.process: QueryProcess | None = None
        self.folders: list[tuple[int, int]] = []
        """Device and inode of what it may read: the folders that were there when it began."""
        self.lock = RLock()
        """Held by the one question that is asked."""
        self._owner = os.getpid()

    def end(self) -> None:
        """End the process; another one can be started."""
        if self.process is not None:
            self.process.end()
        self.process = None

    def close(self) -> None:
        """End all, also what another thread waits for; nothing in a process that was forked off."""
        if os.getpid() != self._owner:
            return
        self.closed = True
        if self.process is not None:
            self.process.kill()
        # who is in the midst of an answer, and does not read on, is not waited for: its process is gone already
        if self.lock.acquire(timeout=_CLOSE_SECONDS):
            try:
                self.end()
            finally:
                self.lock.release()
        shutil.rmtree(self.past, ignore_errors=True)


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


def _columns(described: list[tuple[str, str]]) -> tuple[ResultColumn, ...]:
    """The answer's columns; names that occur twice get a number, as a mapping could not hold both."""
    taken: set[str] = set()
    columns = []
    for given, kind in described:
        name, number = given, 0
        while name in taken:
            number += 1
            name = f"{given}_{number}"
        taken.add(name)
        columns.append(ResultColumn(name=name, type=kind))
    return tuple(columns)


def _in_our_words(error: RequestError, timeout_seconds: float) -> QueryError:
    """One line for what DuckDB said, or for its process that ended."""
    if error.kind == "InterruptException":
        step = "Narrow it, or give it more time with --timeout (timeout_seconds= in Python)"
        return QueryError("query", f"stopped after {timeout_seconds:g} s", step)
    step = "Narrow it, or allow more with --memory (connect(memory=) in Python)"
    if error.kind in {"OutOfMemoryException", "MemoryError", "ArrowMemoryError"}:
        return QueryError("query", "needs more memory than it may use", step)
    if error.kind == LOST:
        return QueryError("query", "the process that runs it ended; most likely it needed more memory", step)
    if error.kind in _FATAL:
        return QueryError("query", f"DuckDB could not go on ({_first_line(error)})", "Ask again; it starts anew")
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
