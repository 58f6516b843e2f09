"""An owner whose predecessor died goes carefully, until a batch of each table came through."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from deltaworks.control import Heartbeat
from deltaworks.engine.caution import ROWS_MIN, Caution, caution_after, is_of_memory
from deltaworks.engine.driver import Driver
from deltaworks.errors import SourceError
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
    ("heartbeat", "deaths"),
    [
        (None, 0),
        (last("stopped"), 0),
        (last("failed", error="the topic is another one"), 0),
        (last("failed", error="MemoryError: ", out_of_memory=True), 1),
        (last("starting"), 1),
        (last("running"), 1),
        (last("draining"), 1),
        (last("running", careful=KNOWN), 3),
        (last("failed", out_of_memory=True, careful=KNOWN), 3),
        (last("stopped", careful=KNOWN), 2),
        (last("failed", careful=KNOWN), 2),
        (last("stopped", careful={"deaths": 0, "tables": ["silver.notes"]}), 0),
    ],
)
def test_a_life_that_did_not_end_in_order_is_counted(heartbeat: Heartbeat | None, deaths: int) -> None:
    """Who ends in order before all is caught up hands on what it knew."""
    found = caution_after(heartbeat, TABLES)

    assert found.deaths == deaths
    assert found.tables == (frozenset(TABLES) if deaths else frozenset())
    assert (found.told() is None) == (not deaths)


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
    """Python's, Arrow's, a worker's in Spark's text; a JVM that is gone; not what rows or brokers raise."""
    with pytest.raises(MemoryError) as arrow:
        pa.allocate_buffer(2**60)
    worker = RuntimeError("Job aborted: MemoryError: ")

    gone = [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
    assert all(is_of_memory(error) for error in (arrow.value, MemoryError(), worker, *gone))
    others = [None, ValueError("too long"), SourceError("topic t", "is gone", "Make it"), TimeoutError()]
    assert not any(is_of_memory(error) for error in others)


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
    """Killed, out of memory, killed: it is told, and goes on until one has caught up; not after an orderly end."""

    def no_memory() -> None:
        raise MemoryError

    def no_topic() -> None:
        raise SourceError("topic t", "is gone", "Make it")

    caplog.set_level(logging.WARNING)
    lives = [lived(project), lived(project, no_topic), lived(project)]
    assert [life.caution.deaths for life in lives] == [0, 0, 0]
    assert "by Spark" not in caplog.text

    lives = [killed(project), lived(project, no_memory), killed(project), lived(project)]
    assert [life.caution.deaths for life in lives] == [0, 1, 2, 3]
    assert "in a row: 3. Each table takes a batch by Spark first; of a topic at most 3125 rows" in caplog.text

    after = Driver(app="changes", settings=project)
    with after.store:
        after._own(lambda: Caution.caught_up(after.caution))
    assert after.caution.deaths == 0
    assert lived(project).caution.deaths == 0


def test_a_query_reads_as_much_as_ever_once_all_is_caught_up(project: Settings) -> None:
    """A batch that was not full says that Kafka has no more; then another query is to start, which has the whole."""
    found: Any = Driver(app="changes", settings=project.changed(apps={"changes": AppSettings()}))
    found.flow = SimpleNamespace(behind=lambda: False, status=SimpleNamespace(batches=1), settle=lambda **_: None)
    found.orders = SimpleNamespace(in_hand=None)
    found.caution = Caution(deaths=3, tables=TABLES)
    found._rows_read_max, found._was_full = found._rows_max(), False
    found._obey = found._desired_stopped = lambda *_: False
    closing = SimpleNamespace(announce=lambda: None, look=lambda: None)

    goes_on = found._loop(None, Quiet(looks=20), closing)
    found._on_batch("what the first query still brings", 0)

    assert not goes_on
    assert found._rows_max() == 50_000
    assert found.failure is None
