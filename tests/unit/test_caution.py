"""An owner whose predecessor died goes carefully, until a batch of each table came through."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from deltaworks.control import Heartbeat
from deltaworks.engine import driver as driving
from deltaworks.engine.broker import Identity
from deltaworks.engine.caution import BATCHES_TO_GROW, ROWS_MIN, Caution, caution_after, is_java_gone, is_of_memory
from deltaworks.engine.driver import Driver
from deltaworks.errors import DeltaworksError, SourceError
from deltaworks.settings import ROOT, AppSettings, Settings
from tests.scratch_postgres import ScratchPostgres
from tests.unit.launching import scratch_project
from tests.unit.test_driver import Quiet

TABLES = ("bronze.changes", "silver.notes")
KNOWN = {"deaths": 2, "tables": ["silver.notes"]}


def last(state: Any, **progress: object) -> Heartbeat:
    """The last words of an owner."""
    return Heartbeat(app="x", epoch=1, at=datetime.now(UTC), state=state, progress=progress, age_seconds=1.0)


@pytest.mark.parametrize(
    ("heartbeat", "deaths", "careful"),
    [
        (None, 0, False),
        (last("stopped"), 0, False),
        (last("failed", error="the topic is another one"), 0, False),
        (last("failed", error="MemoryError: ", out_of_memory=True), 1, True),
        (last("failed", error="Py4JNetworkError: ", java_gone=True), 1, False),
        (last("failed", java_gone=True, careful={"deaths": 1, "tables": []}), 2, True),
        (last("starting"), 1, False),
        (last("running"), 1, False),
        (last("draining"), 1, False),
        (last("running", careful={"deaths": 1, "tables": []}), 2, True),
        (last("stopped", careful={"deaths": 1, "tables": []}), 1, False),
        (last("running", careful=KNOWN), 3, True),
        (last("failed", out_of_memory=True, careful=KNOWN), 3, True),
        (last("stopped", careful=KNOWN), 2, True),
        (last("failed", careful=KNOWN), 2, True),
    ],
)
def test_a_life_that_did_not_end_in_order_is_counted(
    heartbeat: Heartbeat | None, deaths: int, *, careful: bool
) -> None:
    """Who ends in order before all is caught up hands on what it knew. One end without a word asks for nothing yet."""
    found = caution_after(heartbeat, TABLES)

    assert found.deaths == deaths
    assert found.tables == (frozenset(TABLES) if careful else frozenset())
    assert (found.told() is None) == (not deaths)


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_table_that_waits_is_handed_on_where_all_else_is_caught_up(state: str) -> None:
    """An orderly end takes no batch: what there was no memory for comes again. One that is declared no more is not."""
    known = {"deaths": 0, "tables": ["silver.notes", "silver.gone"]}

    found = caution_after(last(state, careful=known), TABLES)

    assert found.told() == {"deaths": 0, "tables": ["silver.notes"]}


def test_each_table_goes_the_ordinary_way_again_after_a_batch_and_slices_grow_when_all_is_caught_up() -> None:
    """The first death makes slices no smaller; they never get smaller than a hundred rows, nor larger than asked."""
    careful = Caution(deaths=1, tables=TABLES)
    careful.came_through("bronze.changes")
    careful.came_through("gold.unknown")

    assert careful.told() == {"deaths": 1, "tables": ["silver.notes"]}
    bounds = [Caution(deaths=many).rows_max(50_000) for many in (0, 1, 2, 3, 9)]
    assert bounds == [50_000, 50_000, 12_500, 3_125, ROWS_MIN]
    assert Caution(deaths=9).rows_max(7) == 7
    careful.caught_up()
    assert (careful.told(), careful.tables) == (None, frozenset())


def test_errors_of_memory_are_known() -> None:
    """Python's, Arrow's, a worker's in Spark's text; a JVM that is gone may be; not what rows or brokers raise."""
    with pytest.raises(MemoryError) as arrow:
        pa.allocate_buffer(2**60)
    worker = RuntimeError("Job aborted: MemoryError: ")

    gone = [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
    assert all(is_of_memory(error) for error in (arrow.value, MemoryError(), worker))
    assert [(is_of_memory(error), is_java_gone(error)) for error in gone] == [(False, True)] * 2
    others = [None, ValueError("too long"), SourceError("topic t", "is gone", "Make it"), TimeoutError()]
    assert not any(is_of_memory(error) or is_java_gone(error) for error in others)


@pytest.fixture
def project(postgres: ScratchPostgres, tmp_path: Path) -> Iterator[Settings]:
    """Give settings of a project with two tables and a control store."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        settings.lake.mkdir()
        yield settings.changed(project=ROOT / "tests" / "changes")


def lived(settings: Settings, work: Callable[[], None] = lambda: None) -> Driver:
    """A driver that owned the app, did this, and has ended as drivers do."""
    driver = Driver(app="changes", settings=settings)
    with driver.store, suppress(MemoryError, SourceError):
        driver._own(work)
    return driver


def killed(settings: Settings) -> Driver:
    """A driver that was ended by a signal after its first beats."""
    driver = Driver(app="changes", settings=settings)
    with driver.store as store:
        driver.store.declare_apps(["changes"])
        driver.ownership.take()
        driver._look_back()
        driver.heart.state = "running"
        driver.heart._beat()
        store.release(driver.ownership.lease)  # as a successor does for an owner that it sees dead
    return driver


def test_a_driver_knows_how_the_one_before_it_ended(project: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """Out of memory after a kill, killed: it is told, and goes on until one has caught up; not after an orderly end."""

    def no_memory() -> None:
        raise MemoryError

    def no_topic() -> None:
        raise SourceError("topic t", "is gone", "Make it")

    caplog.set_level(logging.WARNING)
    lives = [lived(project), lived(project, no_topic), lived(project)]
    assert [life.caution.deaths for life in lives] == [0, 0, 0]
    assert "by Spark" not in caplog.text

    lives = [killed(project), lived(project, no_memory)]
    assert "by Spark" not in caplog.text
    lives += [killed(project), lived(project)]
    assert [life.caution.deaths for life in lives] == [0, 1, 2, 3]
    assert "in a row: 3. Each table takes a batch by Spark first; of a topic at most 3125 rows" in caplog.text

    after = Driver(app="changes", settings=project)
    with after.store:
        after._own(lambda: Caution.caught_up(after.caution))
    assert after.caution.deaths == 0
    assert lived(project).caution.deaths == 0


class Read:
    """What the driver has opened so far, each with the bound that it gave it."""

    def __init__(self, found: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in for a stream of the driver's app, and for all that is asked of its tables."""
        self.bounds, self.driver = list[int](), found
        self.status = SimpleNamespace(batches=0, rows=0)
        self.behind = False
        self.suspended: Any = SimpleNamespace(tables={})
        self.bronze, self.identities = SimpleNamespace(), dict[str, Identity]()
        topics: Any = {"topics": ("notes",), "bronze": [self.bronze], "begin": lambda *_, **__: {}}
        flow: Any = SimpleNamespace(
            **topics, status=self.status, behind=lambda: self.behind, settle=lambda **_: None, turn=lambda _: None,
            micro_batch=self.take, suspended=self.suspended,
        )  # fmt: skip
        orders: Any = SimpleNamespace(in_hand=None)
        found.flow, found.orders = flow, orders
        for name in ("_obey", "_desired_stopped", "_learn_unmet"):
            monkeypatch.setattr(found, name, lambda *_: False)
        monkeypatch.setattr(driving, "LOOP_SECONDS", 0.0)
        monkeypatch.setattr(driving, "open_stream", self.open)

    def open(self, _: object, *, rows_per_batch_max: int, **__: object) -> Any:
        """As for Kafka; what it starts is the test's own."""
        self.bounds.append(rows_per_batch_max)
        writer: Any = SimpleNamespace(start=lambda: None)
        writer.foreachBatch = writer.option = writer.queryName = writer.trigger = lambda *_, **__: writer
        return SimpleNamespace(writeStream=writer)

    def start(self) -> None:
        """Begin to read, as the driver does."""
        nobody: Any = SimpleNamespace(edges=lambda _: {}, identities=lambda *_, **__: self.identities)
        self.driver._start(nobody, self.driver.flow, nobody)

    def take(self, rows: int) -> None:
        """As the tables do: a batch is its number of rows here."""
        self.bronze.before_commit(1.0)
        self.status.batches += 1
        self.status.rows += rows

    def batch(self, rows: int) -> None:
        """Bring one."""
        brought: Any = rows
        self.driver._on_batch(brought, 0)

    def loop(self, query: "Reading") -> bool:
        """Whether the driver, with this query, ends rather than starts another."""
        nobody: Any = None
        closing: Any = SimpleNamespace(announce=lambda: None, look=lambda: None)
        query_like: Any = query
        return self.driver._loop(nobody, query_like, closing)


class Reading(Quiet):
    """A query at work, that tells of each topic what its last batch left of it; None: it has had no batch."""

    def __init__(self, *left: str | None, looks: int = 20) -> None:
        """Run until so many looks were taken."""
        super().__init__(looks=looks, does="Processing new data")
        self.status |= {"isDataAvailable": True}
        metrics = [{} if rows is None else {"maxOffsetsBehindLatest": rows} for rows in left]
        self.lastProgress: Any = {"sources": [{"metrics": one} for one in metrics]} if left else None


@pytest.fixture
def read(project: Settings, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Give a driver whose three predecessors died, and what it reads."""
    project = project.changed(apps={"changes": AppSettings()}, data=project.lake.parent)
    found = Driver(app="changes", settings=project)
    found.caution = found.heart.caution = Caution(deaths=3, tables=TABLES)
    return Read(found, monkeypatch)


def ends(read: Read, query: Reading) -> bool:
    """Whether the query goes on to its own end, which a driver that does not drain takes as an error."""
    try:
        return read.loop(query)
    except DeltaworksError:
        return True


def test_a_query_reads_as_much_as_ever_once_all_is_caught_up(read: Read) -> None:
    """Then another query is to start, which has the whole bound, and takes what the first one still brings."""
    read.start()
    read.batch(3_000)

    assert not ends(read, Reading("0", "0"))
    read.batch(1)
    assert read.status.rows == 3_000
    read.start()
    read.batch(1)
    assert read.status.rows == 3_001
    assert read.bounds == [3_125, 50_000]
    assert read.driver.failure is None


@pytest.mark.parametrize("left", [(), ("0", "7"), ("7", "0"), ("0", None)])
def test_what_a_batch_brought_does_not_tell_that_all_is_caught_up(read: Read, left: tuple[str | None, ...]) -> None:
    """Few rows, or none because the leader moved: it is asked what is left of every topic."""
    read.start()
    read.batch(1)

    assert ends(read, Reading(*left))
    assert read.driver.caution.deaths == 3
    assert read.bounds == [3_125]


def test_caution_ends_where_rows_come_faster_than_the_bound(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    """However many lives have ended: after ten batches with rows each query reads four times as much as the last."""
    caplog.set_level(logging.INFO, logger="deltaworks.driver")
    found = read.driver.caution = Caution(deaths=40, tables=TABLES)
    while found.deaths:
        read.start()
        for rows in [1, 0] * (BATCHES_TO_GROW - 1):
            read.batch(rows)
        assert ends(read, Reading("7"))
        read.batch(1)
        assert ends(read, Reading("7")) == (not found.deaths)

    assert [one.args for one in caplog.records] == [(bound,) for bound in read.bounds[1:]]
    assert read.bounds == [ROWS_MIN, 195, 781, 3_125, 12_500, 50_000]
    assert read.status.rows == len(read.bounds) * BATCHES_TO_GROW
    assert found.tables == frozenset(TABLES)


def test_a_death_costs_what_its_life_had_won() -> None:
    """Each life counts its own batches, and one that reads all there is has no more to win."""
    full = 50_000
    careful = Caution(deaths=3)
    for _ in range(BATCHES_TO_GROW - 1):
        careful.brought_rows(full)
    assert careful.deaths == 3
    careful.brought_rows(full)
    assert careful.deaths == 2

    small = Caution(deaths=3)
    for _ in range(BATCHES_TO_GROW):
        small.brought_rows(ROWS_MIN)
    assert (small.deaths, small.rows_max(ROWS_MIN)) == (0, ROWS_MIN)


def test_a_table_that_is_suspended_is_not_caught_up(read: Read) -> None:
    """Nobody is behind but one that waits for its next try, which is to be by Spark: the rest goes on as ever."""
    read.start()
    read.batch(1)
    read.suspended.tables["silver.notes"] = "it has failed"

    assert not ends(read, Reading("0"))
    assert read.driver.caution.told() == {"deaths": 0, "tables": ["silver.notes"]}


def test_all_is_caught_up_where_there_is_nothing(read: Read) -> None:
    """A stream that has looked, and waits, has had no batch to tell of."""
    read.start()
    query = Reading()
    query.status = {"message": "Waiting for data to arrive", "isDataAvailable": False}

    assert not ends(read, query)
    assert read.driver.caution.deaths == 0


def test_what_is_put_off_for_another_query_is_not_caught_up(read: Read) -> None:
    """The first query tells that it has taken it; nor does what one query has taken tell of the next."""
    read.start()
    read.batch(1)

    def taken() -> Iterator[Any]:  # asked meanwhile, of a batch that another leader has put off
        read.driver._anew = True
        yield {"metrics": {"maxOffsetsBehindLatest": "0"}}

    moved = Reading()
    moved.lastProgress = {"sources": taken()}
    assert not ends(read, moved)
    assert read.driver.caution.deaths == 3
    read.driver._took_all = True
    read.start()
    assert ends(read, Reading("7"))
    assert read.bounds == [3_125, 3_125]


def test_tables_that_are_behind_are_not_caught_up(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the last owner had in hand may be in bronze; and while a batch is long, nobody waits for its end."""
    monkeypatch.setattr(driving, "WAIT_SECONDS_MAX", 0.01)
    read.start()
    read.batch(1)
    read.behind = True
    assert ends(read, Reading("0"))
    assert read.driver.caution.deaths == 3

    read.behind = False
    with ThreadPoolExecutor(max_workers=1) as spark:
        held, freed = threading.Event(), threading.Event()

        def work() -> None:
            with read.driver.lock:
                held.set()
                freed.wait(timeout=30)

        working = spark.submit(work)
        held.wait(timeout=30)
        try:
            assert ends(read, Reading("0", looks=2))
        finally:
            freed.set()
        working.result(timeout=30)
    assert read.driver.caution.deaths == 3


def test_a_leader_that_flaps_is_told(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    """Each restart of a broker moves leaders once or twice; from the third time in a row on it is a warning."""
    caplog.set_level(logging.INFO, logger="deltaworks.driver")

    def move() -> None:
        read.start()
        moved = read.identities["notes"].epochs["0"] + 1
        read.identities = {"notes": Identity("one", {"0": moved})}
        read.batch(1)

    read.identities = {"notes": Identity("one", {"0": 1})}
    for _ in range(4):
        move()
    read.start()
    read.batch(1)
    move()

    told = [(one.levelname, "3 times in a row" in one.message) for one in caplog.records if "leader" in one.message]
    assert told == [("INFO", False)] * 2 + [("WARNING", True), ("WARNING", False), ("INFO", False)]
    assert read.status.rows == 1
