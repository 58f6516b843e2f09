"""Analysts' queries run in a process that cannot write, ends when its bounds are reached, and is started anew."""

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from deltalake import write_deltalake

from deltaworks.analyst import Analyst, connect
from deltaworks.errors import QueryError
from deltaworks.query.process import QueryProcess, RequestError, read_answer
from deltaworks.query.wire import TooLargeError, receive
from tests.small_lake import build_lake, orders

COUNT = "select count(*) from gold.daily_orders"
ROOT = Path(__file__).parents[2]
_NESTED = (
    "list_transform(range(1000), lambda a: list_transform(range(1000), lambda b: list_transform(range(1000), {0})))"
)
RUNAWAYS = {
    "levenshtein": "select levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "damerau_levenshtein": "select damerau_levenshtein(repeat('a', 20000), repeat('b', 20000))",
    "lpad": "select max(length(lpad(range::varchar, 100000000, 'ab'))) from range(1000000)",
    "regexp_replace": "select max(regexp_replace(repeat('a', 9999999) || range, '(a*)*b', 'x', 'g')) from range(10000)",
    "nested lambdas": f"select {_NESTED.format('lambda c: a + b + c')}",
    "thirty steps": "with a0 as (select 1 x union all select 2), "
    + ", ".join(f"a{number} as (select l.x from a{number - 1} l, a{number - 1} r)" for number in range(1, 31))
    + " select count(*) from a30",
    "endless recursion": "with recursive t as (select 1 n union all select n + 1 from t) select count(*) from t",
    "repeat": "select repeat('x', 2000000000)",
    "to_base64": "select to_base64(repeat('x', 900000000)::blob)",
    "format": "select format('{}{}{}', repeat('x', 500000000), repeat('x', 500000000), repeat('x', 500000000))",
    "wide rows": "select "
    + ", ".join(f"repeat('x', 1000000) c{number}" for number in range(1000))
    + " from range(100)",
    "many wide rows": "select repeat('x', 1000000) from range(20000)",
    "bits": "select bitstring('0', 2000000000)",
    "sort": "select * from range(1000000000) order by random()",
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Give a small lake."""
    return build_lake(tmp_path / "lake")


@pytest.fixture(scope="module")
def analyst(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Analyst]:
    """Give an open lake that several tests ask."""
    with connect(build_lake(tmp_path_factory.mktemp("runaways") / "lake"), memory="500MB") as analyst:
        yield analyst


@pytest.fixture
def process(lake: Path) -> Iterator[QueryProcess]:
    """Give a process over a lake, asked without judging the statement."""
    process = QueryProcess((lake,), memory="500MB")
    yield process
    process.end()


@pytest.mark.parametrize("sql", RUNAWAYS.values(), ids=RUNAWAYS)
def test_a_runaway_ends_and_the_next_is_answered(analyst: Analyst, sql: str) -> None:
    """Time, where DuckDB looks at no clock, and memory, where it counts none: the process has hard bounds."""
    with pytest.raises(QueryError, match="stopped after 2 s|needs? more memory|needed more memory|answer is larger"):
        analyst.sql(sql, timeout_seconds=2)

    assert analyst.sql(COUNT).rows == [(2,)]


def test_the_limits_of_the_process_are_the_systems(process: QueryProcess) -> None:
    """What DuckDB does not count or does not look at is bounded all the same."""
    limits = Path(f"/proc/{process.pid}/limits").read_text(encoding="ascii")

    soft = {line[:26].strip(): line[26:].split()[0] for line in limits.splitlines()[1:]}

    assert soft["Max file size"] == soft["Max core file size"] == "0"
    assert 500_000_000 < int(soft["Max address space"]) < 500_000_000 + 2**30


def test_no_file_grows_where_there_is_no_landlock(tmp_path: Path) -> None:
    """The limit alone: an empty file can be made, and no byte be written."""
    code = "from deltaworks.query.confine import no_files_grow; no_files_grow(); open('new', 'wb', 0).write(b'x')"

    tried = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert "File too large" in tried.stderr
    assert (tmp_path / "new").read_bytes() == b""


def test_an_answer_is_bounded_in_bytes(lake: Path) -> None:
    """What is collected is no larger than the query's memory; streamed it may be."""
    with connect(lake, memory="64MB") as analyst:
        many = "select repeat('x', 100000) as x from range(2000)"  # 200 MB, in rows that fit

        with pytest.raises(QueryError, match="its answer is larger than 64MB. Narrow it, stream it, or allow more"):
            analyst.sql(many)
        with pytest.raises(QueryError, match="its answer is larger than 64MB"):
            analyst.arrow("select repeat('x', 1000) as x from range(200000)")
        with pytest.raises(QueryError, match="its answer is larger than 64MB"):
            analyst.sql("select true from range(10000000)")  # a byte each on its way, and much more in Python
        with analyst.stream(many) as (_, batches):
            sizes = [len(batch) for batch in batches]

    assert sum(sizes) == 2000
    assert max(sizes) < 100  # of a MB each, not of a thousand rows


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_process_that_is_gone_is_started_anew(lake: Path, how: signal.Signals) -> None:
    """Ended between two questions, whoever did it: the next question does not even notice."""
    with connect(lake) as analyst:
        analyst.sql(COUNT)
        first = analyst._process().pid

        os.kill(first, how)
        rows = analyst.sql(COUNT).rows
        second = analyst._process().pid

    assert rows == [(2,)]
    assert first != second


def test_a_process_that_dies_in_a_query_is_one_error(lake: Path) -> None:
    """As it does where memory runs out in a library that ends its process then."""
    with connect(lake) as analyst:
        with (
            pytest.raises(QueryError, match="the process that runs it ended") as told,
            analyst.stream("from range(100000)") as (_, batches),
        ):
            next(batches)
            os.kill(analyst._process().pid, signal.SIGKILL)
            list(batches)
        rows = analyst.sql(COUNT).rows

    assert "\n" not in str(told.value)
    assert rows == [(2,)]


def test_a_lake_put_in_the_place_of_another_is_seen(lake: Path) -> None:
    """The process may read the folder that was there when it began: with another folder there is another process."""
    with connect(lake) as analyst:
        before = analyst.sql(COUNT).rows

        lake.rename(lake.with_name("old"))
        write_deltalake(lake / "gold/daily_orders", orders(1))
        after = analyst.sql(COUNT).rows

    assert (before, after) == ([(2,)], [(1,)])


_DIES_WHILE_IT_ASKS = """
import os, signal, sys, threading
from pathlib import Path
from deltaworks.analyst import connect

lake = connect(Path(sys.argv[1]))
lake.sql("select 1")
print(lake._process().pid, flush=True)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
lake.sql("select levenshtein(repeat('a', 1000000), repeat('b', 1000000))", timeout_seconds=600)
"""


def test_nothing_is_left_of_who_died(lake: Path) -> None:
    """A query that nobody waits for any more ends, also where DuckDB looks at no clock."""
    asking = subprocess.run(
        [sys.executable, "-c", _DIES_WHILE_IT_ASKS, str(lake)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    answering = int(asking.stdout)
    until = time.monotonic() + 20
    while _lives(answering) and time.monotonic() < until:
        time.sleep(0.05)

    assert asking.returncode == -signal.SIGKILL
    assert not _lives(answering)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


# each is tried where the folder {here} may be read and nothing else; none may work
_TRIES = {
    "write": "open('{here}/new', 'w').write('x')",
    "append": "open('{here}/there', 'a').write('x')",
    "empty": "import os; os.truncate('{here}/there', 0)",
    "open and empty": "open('{here}/there', 'w')",
    "make a folder": "import os; os.mkdir('{here}/new')",
    "remove": "import os; os.remove('{here}/there')",
    "rename": "import os; os.rename('{here}/there', '{here}/new')",
    "link": "import os; os.link('{here}/there', '{here}/new')",
    "symlink": "import os; os.symlink('{here}/there', '{here}/new')",
    "read elsewhere": "open('{elsewhere}/secret').read()",
    "read upwards": "open('{here}/../elsewhere/secret').read()",
    "list elsewhere": "import os; os.listdir('{elsewhere}')",
    "run a program": "import os; os.execv('/bin/true', ['true'])",
    "connect": "import socket; socket.create_connection(('127.0.0.1', {port}))",
}


@pytest.mark.parametrize("tried", _TRIES.values(), ids=_TRIES)
def test_what_a_confined_process_tries_is_refused_by_the_system(tmp_path: Path, tried: str) -> None:
    """By Landlock, where the machine has it; the same try works without it, so each can fail."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    (here / "there").write_text("kept")
    (elsewhere / "secret").write_text("hush")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = tried.format(here=here, elsewhere=elsewhere, port=server.getsockname()[1])
        ready = "import sys, socket, pathlib; from deltaworks.query.confine import read_only, no_files_grow\n"
        paths = f"[pathlib.Path(p) for p in ({str(here)!r}, sys.prefix, sys.base_prefix, '/usr', '/lib', '/lib64')]"
        confined = f"{ready}v = read_only({paths})\nprint(v, flush=True)\n{code}"

        refused = subprocess.run(
            [sys.executable, "-c", confined], capture_output=True, text=True, check=False, cwd=ROOT
        )
        kept = sorted((one.name, one.read_text()) for one in here.iterdir() if one.is_file())
        allowed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)

    version = int(refused.stdout)
    assert version >= 1, "this machine has no Landlock: run the tests on one that has, as CI does"
    if tried.endswith(", {port}))") and version < 4:
        pytest.skip("Landlock keeps TCP connections from Linux 6.7 on")
    assert "PermissionError" in refused.stderr
    assert kept == [("there", "kept")]
    assert allowed.returncode == 0


@pytest.mark.parametrize(
    "sql",
    [
        "select write_blob('{lake}/evil', 'x'::blob)",
        "select write_blob('{lake}/gold/daily_orders/_delta_log/00000000000000000000.json', 'x'::blob)",
        "select json_serialize_plan('select write_blob(''{lake}/evil'', ''x''::blob)', optimize := true)",
        "copy (select 1) to '{lake}/evil.csv'",
        "copy (select 1) to '{lake}/gold/daily_orders/evil.parquet'",
        "attach '{lake}/evil.duckdb'",
        "export database '{lake}/evil'",
    ],
)
def test_a_misjudged_statement_writes_nothing(process: QueryProcess, lake: Path, sql: str) -> None:
    """Also inside the lake, where DuckDB itself would let it: asked behind the door, the system refuses."""
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}

    told = []
    try:
        process.all(sql.format(lake=lake), seconds=30)
    except RequestError as error:
        told.append(error.kind)

    assert told or "json_serialize_plan" in sql  # that one tells of a failure in its answer
    assert {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()} == before
    assert process.landlock >= 1


def test_an_answer_runs_nothing() -> None:
    """Who has taken the other process over can say what he likes: only plain values are read."""

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, ("true",)

    plain = [(1, 2.5, "x", b"y", None, True, Decimal("1.10"), datetime(2026, 1, 2, tzinfo=UTC), [1], {"a": 1})]

    assert read_answer(pickle.dumps(plain)) == plain
    with pytest.raises(pickle.UnpicklingError, match="is no value of an answer"):
        read_answer(pickle.dumps(Evil()))


@pytest.mark.parametrize(
    "said",
    [
        b"\x80\x05",
        b"no pickle",
        pickle.dumps(1),
        pickle.dumps(("done",)),
        pickle.dumps(("failed", 1)),
        pickle.dumps(("failed", ("a", "b", "c"))),
        b"cos\nsystem\n(S'true'\ntR.",
    ],
)
def test_an_answer_that_is_none_ends_the_process(lake: Path, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes is an error of ours, and the next question is put to another process."""
    with connect(lake) as analyst:
        analyst.sql(COUNT)
        with monkeypatch.context() as patched:
            patched.setattr("deltaworks.query.process.receive", lambda *_, **__: said)
            with pytest.raises(QueryError, match="the process that runs it ended"):
                analyst.sql(COUNT)
        rows = analyst.sql(COUNT).rows

    assert rows == [(2,)]


@pytest.mark.parametrize("begun", [b"\0", (1000).to_bytes(8, "big"), (1000).to_bytes(8, "big") + b"x", b"\xff" * 8])
def test_a_message_that_stops_in_its_midst_holds_nobody(begun: bytes) -> None:
    """The time is that of the whole message; one that is announced as too large is not waited for."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(begun)

        with pytest.raises((TimeoutError, TooLargeError)):
            receive(ours, seconds=0.2, bytes_max=10_000)


def test_a_question_that_nobody_takes_ends(process: QueryProcess) -> None:
    """A process that was stopped reads nothing, and a long text does not fit into the socket."""
    os.kill(process.pid, signal.SIGSTOP)

    with pytest.raises(RequestError) as told:
        process.all("select 1 --" + "x" * 3_000_000, seconds=0.5)

    assert told.value.kind == "InterruptException"
    assert process.ended


def test_a_time_beyond_what_clocks_count_is_no_limit(lake: Path) -> None:
    """Whoever wants no limit says a large one."""
    with connect(lake) as analyst:
        rows = [analyst.sql(COUNT, timeout_seconds=seconds).rows for seconds in (1e7, 1e12, float("inf"))]

    assert rows == [[(2,)]] * 3


def test_wide_rows_and_many_tables_fit(tmp_path: Path) -> None:
    """Arrow's batches are cut by bytes; each open table of the extension takes address space of its own."""
    lake = tmp_path / "lake"
    for number in range(90):
        write_deltalake(lake / f"gold/t{number}", orders(1))
    with connect(lake, memory="100MB") as analyst:
        every = analyst.sql(" union all ".join(f"select count(*) from gold.t{number}" for number in range(90))).rows
        wide = analyst.arrow("select repeat('x', 100000) as x from range(500)")

    assert len(every) == 90
    assert wide.num_rows == 500


def test_closing_ends_what_another_thread_asks(lake: Path) -> None:
    """It hears that the lake was closed; no process is left, whenever it was."""
    analyst, told = connect(lake), list[str]()

    def ask() -> None:
        try:
            while True:
                analyst.sql("select levenshtein(repeat('a', 30000), repeat('b', 30000))")
        except QueryError as error:
            told.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    until = time.monotonic() + 20
    while analyst._session.process is None and time.monotonic() < until:
        time.sleep(0.01)
    process = analyst._session.process
    analyst.close()
    asking.join(timeout=20)

    assert process is not None
    assert process.ended
    assert told == [f"{lake}: this lake was closed. Open it again."]


def test_closing_waits_for_nobody_who_does_not_read_on(lake: Path) -> None:
    """A thread in the midst of an answer holds the lake; the process goes all the same."""
    analyst, reading, closed = connect(lake), threading.Event(), threading.Event()

    def read() -> None:
        with analyst.stream("from range(100000)") as (_, batches):
            next(batches)
            reading.set()
            closed.wait(timeout=20)

    other = threading.Thread(target=read)
    other.start()
    assert reading.wait(timeout=20)
    process = analyst._session.process
    analyst.close()
    there = other.is_alive()
    closed.set()
    other.join(timeout=20)

    assert there
    assert process is not None
    assert process.ended


def test_a_forked_process_takes_nothing_away(lake: Path) -> None:
    """Its end is not the end of who forked it."""
    with connect(lake) as analyst:
        analyst.sql(COUNT, as_of=datetime.now(UTC))
        forked = os.fork()
        if forked == 0:
            analyst._end()
            os._exit(0)
        os.waitpid(forked, 0)
        rows, there = analyst.sql(COUNT).rows, analyst._session.past.exists()

    assert rows == [(2,)]
    assert there


def test_every_kind_of_value_comes_through(process: QueryProcess) -> None:
    """All types that DuckDB knows, at their ends and as null, as DuckDB itself gives them in this process."""
    every = "select * exclude (timestamp_tz, time_tz) from test_all_types()"
    here = duckdb.connect()
    here.execute("set TimeZone = 'UTC'")

    process.run(every, seconds=30)
    rows, _ = process.rows(seconds=30)

    assert len(rows) == 3
    # by text: not-a-number equals nothing
    assert repr(rows) == re.sub(
        "<(StaticTzInfo 'Etc/UTC'|UTC)>", "datetime.timezone.utc", repr(here.execute(every).fetchall())
    )


def test_times_have_the_zone_utc(process: QueryProcess) -> None:
    """The session's zone; aware times of Python, and no class of another library."""
    ((moment,),) = process.all("select timestamptz '2026-11-20 13:00:00+01'", seconds=30)

    assert moment == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert moment.tzinfo is UTC


@pytest.mark.parametrize("harm", ["emptied", "cut", "gone", "overwritten"])
def test_a_damaged_file_is_named_with_its_table(lake: Path, harm: str) -> None:
    """DuckDB says `Out of buffer`, or names a file and no table; other tables answer."""
    (file,) = (lake / "silver/everything").glob("*.parquet")
    whole = file.read_bytes()
    match harm:
        case "gone":
            file.unlink()
        case "emptied":
            file.write_bytes(b"")
        case "cut":
            file.write_bytes(whole[: len(whole) // 2])
        case "overwritten":
            file.write_bytes(whole[:4] + bytes(len(whole) - 12) + whole[-8:])
    with connect(lake) as analyst:
        with pytest.raises(QueryError) as told:
            analyst.sql("select * from silver.everything, gold.daily_orders")
        rows = analyst.sql(COUNT).rows

    finding = f"silver.everything: its file {file.name} is missing or damaged. Bring it back from a copy, or run"
    assert str(told.value).startswith(finding)
    assert 'deltaworks rebuild silver.everything"' in str(told.value)
    assert rows == [(2,)]


def test_a_mistake_in_sql_is_not_blamed_on_a_file(lake: Path) -> None:
    """The same kinds of error come from values too: then DuckDB's own words stand."""
    with connect(lake) as analyst, pytest.raises(QueryError, match="this cannot be") as told:
        analyst.sql("select error('this cannot be') from gold.daily_orders")

    assert "file" not in str(told.value)


def test_an_answer_is_not_mixed_with_the_next(lake: Path) -> None:
    """A process has one answer: what is asked in the midst of another ends that one, and so does its with statement."""
    with connect(lake) as analyst:
        with analyst.stream("from range(100000)") as (_, batches):
            next(batches)
            rows = analyst.sql(COUNT).rows
            with pytest.raises(QueryError, match="is over: another one was asked since"):
                next(batches)
        with analyst.stream("from range(100000)") as (_, later):
            next(later)
        with pytest.raises(QueryError, match="is over: another one was asked since, or its with statement has ended"):
            next(later)

    assert rows == [(2,)]
