"""The driver's own loop: Spark calls nobody while nothing arrives."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deltaworks.control import Store
from deltaworks.engine import driver as driving
from deltaworks.engine.broker import Edge
from deltaworks.engine.closing import Closing
from deltaworks.engine.driver import Driver
from deltaworks.engine.flow import Flow, FlowStatus
from deltaworks.engine.gaps import Stretch
from deltaworks.errors import ControlError, LeadersMovedError
from deltaworks.settings import ROOT, Settings
from tests.flows import Log, take_arrow
from tests.scratch_postgres import ScratchPostgres
from tests.shop_rows import change, order
from tests.unit.launching import scratch_project

BATCH_SECONDS = 0.3  # a batch that does nothing but take time
GAP_SECONDS = 0.05  # Spark writes down how far it is
LOOKS_MAX = 50  # a tenth of them is enough; who does not wait for the end of a batch looks so often in vain


class Quiet:
    """A query that brings no batch; after so many looks at it, it has ended."""

    def __init__(self, *, looks: int, does: str = "Waiting for data to arrive") -> None:
        """Run."""
        self.looks = looks
        self.status: dict[str, Any] = {"message": does}

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """As Spark's."""
        self.looks -= 1
        return self.looks >= 0

    def exception(self) -> None:
        """Say that it ended well."""


def nothing_closes() -> Any:
    """Who finds no day that is over."""
    return SimpleNamespace(look=lambda: None)


def changes_driver(folder: Path) -> Driver:
    """A driver that has opened nothing."""
    (folder / "secrets").mkdir()
    (folder / "secrets" / "deltaworks").write_text("sesame")
    return Driver(app="changes", settings=Settings.load(ROOT / "tests" / "changes", environment={}, data=folder))


@contextmanager
def owner(postgres: ScratchPostgres, folder: Path, *, batches: int) -> Iterator[tuple[Driver, Flow]]:
    """A driver that owns its app, with so many batches in bronze: none of this project's tables has orders."""
    with scratch_project(postgres.dsn, postgres.port, folder) as settings:
        driver = Driver(app="changes", settings=settings.changed(project=ROOT / "tests" / "changes"))
        with driver.store as store:
            store.declare_apps(["changes"])
            driver.ownership.take()
            flow, log = driver._open(), Log()
            flow.begin({"shop.changes": {"0": Edge(0, 10**9)}}, broker=None)
            for number in range(1, batches + 1):
                log.send([change("c", order(number), lsn=number)])
                take_arrow(flow, log.batch(), above=False)
            yield driver, flow
            driver.ownership.give_back()


def test_quiet_app_goes_on_settles_obeys_announces_and_stops(
    postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in the first turn of the loop: what is behind and what is only remembered, an order, a closed day, a stop."""
    monkeypatch.setattr(driving, "SETTLE_SECONDS", 0.0)
    with owner(postgres, tmp_path, batches=2) as (driver, flow):
        store = driver.store
        compact = store.send(
            app="changes", table="bronze.changes", kind="compact", arguments={}, by="test", reason="test"
        )
        store.desire("changes", "stopped", by="test", reason="a test")
        closing, nobody, query = Closing(flow, store), None, Quiet(looks=20)
        closing._untold["gold.days", "2026-11-20"] = 1

        driver._loop(nobody, query, closing)  # type: ignore[arg-type]  # no batch is made

        silver = flow.inputs["silver.plain"].table
        silver.reopen()
        assert silver.entry.position.batches == {"bronze.changes": 2}
        result = store.command(compact).result
        assert result is not None
        assert result["files_after"] == 1
        assert [one.partition for one in store.closed_partitions("gold.days")] == ["2026-11-20"]
        assert driver.heart.state == "draining"


@pytest.mark.parametrize(
    ("does", "batches", "after_seconds", "has_looked"),
    [
        ("Initializing sources", 0, 9.0, False),
        ("Getting offsets from KafkaV2[Subscribe[shop.changes]]", 0, 9.0, False),
        ("Processing new data", 0, 9.0, False),
        ("Waiting for data to arrive", 0, 0.0, True),
        ("Waiting for next trigger", 0, 0.0, True),
        ("Processing new data", 1, 0.0, True),
        ("Initializing sources", 0, 11.0, True),
    ],
)
def test_first_batch_waits_for_no_turn_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, batches: int, after_seconds: float, has_looked: bool
) -> None:
    """The loop keeps off the lock until the stream has looked for rows once, or has had its time for that."""
    driver: Any = changes_driver(tmp_path)  # with a stand-in that has all that is asked
    driver.flow = SimpleNamespace(status=FlowStatus(batches=batches))
    monkeypatch.setattr(time, "monotonic", lambda: after_seconds)

    assert driver._has_looked(Quiet(looks=1, does=does)) == has_looked


@pytest.mark.parametrize(
    ("does", "asks"), [("Initializing sources", [True]), ("Waiting for data to arrive", [True, False, True])]
)
def test_loop_does_nothing_before_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, asks: list[bool]
) -> None:
    """But for a stream that has ended: what it brought is to be taken by all tables. Then orders, by the second."""
    monkeypatch.setattr(driving, "LOOP_SECONDS", 0.0)
    monkeypatch.setattr(driving, "ASK_SECONDS", 3_600.0)
    did = list[bool]()
    driver: Any = changes_driver(tmp_path)  # with stand-ins that have all that is asked
    driver.drain = True
    driver.flow = SimpleNamespace(status=FlowStatus(), behind=lambda: False)
    driver.orders = SimpleNamespace(in_hand=None)
    monkeypatch.setattr(driver, "_between_batches", lambda *_, asks: did.append(asks))

    driver._loop(None, Quiet(looks=2, does=does), SimpleNamespace(announce=lambda: None))

    assert did == asks


def test_orders_have_their_turn_between_batches_that_follow_each_other(
    postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is there as soon as one ends: all the same something is done of what was ordered."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        driver = Driver(app="changes", settings=settings.changed(project=ROOT / "tests" / "changes"))
        with driver.store as store:
            store.declare_apps(["changes"])
            driver.ownership.take()
            flow, ended = driver._open(), threading.Event()
            nobody: Any = None  # nothing looks at the session, nor at a batch
            monkeypatch.setattr(flow, "micro_batch", lambda _: time.sleep(BATCH_SECONDS))
            about = {"app": "changes", "arguments": {}, "by": "test", "reason": "test"}
            orders = [
                store.send(table=name, kind="compact", **about)  # type: ignore[arg-type]  # as named
                for name in ("bronze.changes", "silver.documents", "silver.pairs", "silver.plain", "silver.wide")
            ]

            def work() -> None:
                while not ended.is_set():
                    driver._on_batch(nobody, 0)
                    time.sleep(GAP_SECONDS)

            with ThreadPoolExecutor(max_workers=1) as spark:
                working, looked = spark.submit(work), 0
                try:
                    while looked < LOOKS_MAX and not all(store.command(number).finished for number in orders):
                        driver._between_batches(nobody, nothing_closes(), asks=True)
                        looked += 1
                finally:
                    ended.set()
                working.result(timeout=30)

            assert [store.command(number).state for number in orders] == ["done"] * len(orders)
            driver.ownership.give_back()


@pytest.mark.parametrize(("behind_after", "steps"), [(None, 10), (3, 3)])
def test_orders_hold_up_a_batch_for_a_quarter_of_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind_after: int | None, steps: int
) -> None:
    """And no longer than until a table has something to take, which may be what the order waits for."""
    driver: Any = changes_driver(tmp_path)  # with stand-ins that have all that is asked
    now, done, turns = 0.0, 0, 0

    def obey(_: object) -> bool:
        nonlocal now, done
        now, done = now + 1, done + 1
        return True

    def turn(_: object) -> None:
        nonlocal turns
        turns += 1

    flow: Any = SimpleNamespace(
        status=FlowStatus(batches=7), behind=lambda: behind_after is not None and done >= behind_after, turn=turn,
        settle=lambda **_: None,
    )  # fmt: skip
    driver.flow, driver._batch_seconds = flow, 40.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(driver, "_obey", obey)

    driver._between_batches(None, nothing_closes(), asks=True)
    first = done, turns
    driver._between_batches(None, nothing_closes(), asks=True)
    second = turns
    flow.status = FlowStatus(batches=8)
    driver._between_batches(None, nothing_closes(), asks=True)

    assert first == (steps, 0)
    assert (second, turns) == ((0, 0) if behind_after is None else (1, 1))  # none more once a batch has come


@pytest.mark.parametrize("drain", [False, True])
def test_batch_under_another_leader_is_read_again_by_another_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drain: bool
) -> None:
    """Nothing more of this one is taken, also where it ends well in the same moment; the app has not failed."""
    monkeypatch.setattr(driving, "LOOP_SECONDS", 0.0)
    driver: Any = changes_driver(tmp_path)  # with stand-ins that have all that is asked
    driver.drain, batches = drain, list[object]()

    def take(batch: object) -> None:
        batches.append(batch)
        raise LeadersMovedError("topic notes partition 0", "has another leader", "It is read again")

    def as_it_ends(*_: object, asks: bool) -> None:
        for batch in ("first", "second") if asks else ():
            driver._on_batch(batch, 0)

    driver.flow = SimpleNamespace(status=FlowStatus(), behind=lambda: False, micro_batch=take)
    driver.orders = SimpleNamespace(in_hand=None)
    monkeypatch.setattr(driver, "_between_batches", as_it_ends)
    monkeypatch.setattr(driver, "_desired_stopped", lambda: False)

    goes_on = driver._loop(None, Quiet(looks=0 if drain else 100), SimpleNamespace(announce=lambda: None))

    assert not goes_on
    assert batches == ["first"]
    assert driver.failure is None
    assert driver.heart.state == "starting"


def test_a_quiet_app_whose_leader_moved_reads_anew(
    postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its gaps would never be booked: no batch comes to find it. All else is settled, also at the end."""
    monkeypatch.setattr(driving, "SETTLE_SECONDS", 0.0)
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        driver: Any = Driver(app="changes", settings=settings.changed(project=ROOT / "tests" / "changes"))
        with driver.store as store:
            store.declare_apps(["changes"])
            driver.ownership.take()
            flow, log = driver._open(), Log()
            flow.begin({"shop.changes": {"0": Edge(0, 10**9)}}, broker=None)
            log.send([change("c", order(1), lsn=1)])  # none of this project's tables has orders
            take_arrow(flow, log.batch())
            silver = flow.inputs["silver.plain"].table

            def moved(_: float) -> None:
                raise LeadersMovedError("topic shop.changes partition 0", "has another leader", "It is read again")

            bronze, nobody = flow.bronze[0], SimpleNamespace(close=lambda: None, finish=lambda **_: None)
            bronze.explained.append(Stretch(topic="shop.changes", partition="0", first=1, upto=2, counts={"marker": 1}))
            bronze.before_commit = moved
            driver._between_batches(None, nothing_closes(), asks=False)
            anew, failure = driver._anew, driver.failure
            driver.heart.explain_gaps = lambda **_: None
            driver._leave(flow, SimpleNamespace(look=lambda: None, announce=lambda: None), nobody)

            silver.reopen()
            assert silver.entry.position.batches == {"bronze.changes": 1}
            assert (anew, failure) == (True, None)
            assert len(bronze.explained) == 1
            driver.ownership.give_back()


def test_days_that_end_are_looked_for_while_nobody_else_has_the_tables(tmp_path: Path) -> None:
    """No batch has to come for that, and none is under way meanwhile; the day is told with the next round."""
    driver: Any = changes_driver(tmp_path)  # as above
    driver.flow = SimpleNamespace(status=FlowStatus(batches=7), behind=lambda: False, settle=lambda **_: None)
    driver.orders = SimpleNamespace(in_hand=None)
    locked = list[bool]()
    closing: Any = SimpleNamespace(look=lambda: locked.append(driver.lock.locked()))

    driver._between_batches(None, closing, asks=False)

    assert locked == [True]
    assert not driver.lock.locked()


def test_order_in_hand_goes_on_between_two_looks_for_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control store is asked once a second; what it has given needs no further question."""
    driver: Any = changes_driver(tmp_path)  # as above
    obeyed = list[object]()

    def obey(_: object) -> bool:
        obeyed.append(driver.orders.in_hand)
        return False

    flow: Any = SimpleNamespace(status=FlowStatus(batches=7), behind=lambda: False, settle=lambda **_: None)
    orders: Any = SimpleNamespace(in_hand=None)
    driver.flow, driver.orders = flow, orders
    monkeypatch.setattr(driver, "_obey", obey)

    driver._between_batches(None, nothing_closes(), asks=False)
    unasked = list(obeyed)
    orders.in_hand = "an order"
    driver._between_batches(None, nothing_closes(), asks=False)

    assert unasked == []
    assert obeyed == ["an order"]


def test_control_store_that_is_away_is_told_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop asks four times a second: a warning each time would fill the disk. Its return is told too."""
    driver, now, away = changes_driver(tmp_path), 0.0, True
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def question() -> str:
        if away:
            raise ControlError("control store", "is away", "Wait")
        return "answer"

    with caplog.at_level("INFO", logger="deltaworks.driver"):
        for _ in range(4 * 70):
            now += 0.25
            assert driver._ask(question) is None
        away = False
        answers = [driver._ask(question) for _ in range(2)]

    assert answers == ["answer", "answer"]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3 + ["INFO"]
    assert "back after 70 s" in caplog.records[-1].message


class Recomputing:
    """A process beside an owner that takes what waits, has a table compacted for it, and ends a while later."""

    def __init__(self, store: Store, _: Settings, *, app: str, epoch: int, settled_seconds: float) -> None:
        """Nothing is in hand."""
        assert settled_seconds == 0
        self.store, self.app, self.epoch = store, app, epoch
        self.pid: int | None = None
        self.numbers: list[int] = []

    def look(self) -> None:
        """Begin if there is anything; then go on."""
        if self.pid is not None:
            self.see_to_its_end()
            return
        orders = self.store.take_recomputations(self.app, epoch=self.epoch, many=9)
        if orders:
            self.pid, self.numbers = 1, [one.id for one in orders]
            self.publish = self.store.send(
                app=self.app, table="bronze.changes", kind="compact", arguments={}, by="test", reason="test"
            )

    def see_to_its_end(self) -> None:
        """Tell the orders their end, one at a look, once what it needs is done."""
        if self.numbers and self.store.command(self.publish).finished:
            self.store.finish(self.numbers.pop(0), {}, epoch=self.epoch)
        elif not self.numbers:
            self.pid = None

    def close(self) -> None:
        """Leave what is in hand to others."""


@pytest.fixture
def owning(postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Give a driver that owns a stopped app with one batch in bronze, whose recomputations are stood in for."""
    monkeypatch.setattr(driving, "ASK_SECONDS", 0.02)
    monkeypatch.setattr(driving, "RecomputeProcess", Recomputing)
    monkeypatch.setattr(driving, "stand_behind", lambda: None)
    with owner(postgres, tmp_path, batches=1) as (driver, _):
        yield driver


def recompute(store: Store) -> int:
    """Order one."""
    return store.send(app="changes", table="silver.plain", kind="recompute", arguments={}, by="test", reason="test")


def test_owner_of_a_stopped_app_sees_recomputations_through(owning: Driver) -> None:
    """What its process publishes it carries out; those taken together are all told their end before it leaves."""
    numbers = [recompute(owning.store) for _ in range(3)]

    owning._work_off(numbers[0])

    assert [owning.store.command(number).state for number in numbers] == ["done"] * 3
    assert (owning.heart.state, owning.heart.worked_at is not None) == ("draining", True)


def test_owner_of_a_stopped_app_leaves_as_soon_as_it_is_wanted_running(owning: Driver) -> None:
    """What is in hand is left to the stream; one that was wanted before, and that nobody starts, is not waited for."""
    number = recompute(owning.store)
    owning.store.desire("changes", "running", by="ann", reason="a release")

    owning._work_off(number)

    assert owning.store.command(number).state in ("queued", "running")
    owning.ownership.give_back()
    owning.ownership.take()
    owning.store.requeue_running("changes", owning.ownership.epoch)
    owning._requeued = True
    owning._open()
    owning._work_off(number)
    assert owning.store.command(number).state == "done"
