"""Orders are carried out in steps, end when they are withdrawn or take too long, and go on where they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deltaworks.control import Store
from deltaworks.control.commands import Command
from deltaworks.engine.commands import Orders
from deltaworks.engine.points import listening
from deltaworks.engine.writers import quarantine
from deltaworks.errors import CommitLostError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.flows import Log
from tests.scratch_postgres import ScratchPostgres
from tests.shop_rows import change, order
from tests.unit.launching import scratch_project
from tests.unit.test_culprits import Divided


@contextmanager
def refusing(postgres: ScratchPostgres, folder: Path) -> Iterator[tuple[ArrowOwner, Store]]:
    """An owner of three refused orders, each of its own ingest batch and by now acceptable, and its control store."""
    project = Shop(folder / "shop")
    with scratch_project(postgres.dsn, postgres.port, folder) as settings, Store(settings.control_dsn()) as store:
        owner, log = ArrowOwner(settings.changed(project=project.folder), "shop"), Log()
        for number in (1, 2, 3):
            log.send([change("c", order(number, status="lost"), lsn=number)])
            owner.take(log.batch())
        project.edit("silver/orders.yml", "[placed, paid, cancelled]", "[placed, paid, cancelled, lost]")
        store.declare_apps(["shop"])
        store.release(store.acquire("shop", owner="before", seconds=600, pid=1, process_started="1"))
        lease = store.acquire("shop", owner="test", seconds=600, pid=1, process_started="1")
        owner.start()
        assert owner.epoch == lease.epoch
        yield owner, store


def sent(store: Store, owner: ArrowOwner, *, timeout_seconds: float | None = None) -> Command:
    """Order a replay and take it as the owner does."""
    store.send(
        app="shop", table="silver.orders", kind="replay_refused_rows", arguments={}, by="ann", reason="mended",
        timeout_seconds=timeout_seconds,
    )  # fmt: skip
    taken = store.take("shop", epoch=owner.epoch)
    assert taken is not None
    return taken


def finish(orders: Orders, owner: ArrowOwner) -> None:
    """Do what is left of the order in hand."""
    while orders.in_hand is not None:
        owner.flow.take_slice("silver.orders", None)
        orders.step()


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "ROWS_PER_BATCH", 1)


def test_withdrawn_order_ends_after_its_step_and_can_be_given_again(postgres: ScratchPostgres, tmp_path: Path) -> None:
    """What it has done stays; the one after it does the rest."""
    with refusing(postgres, tmp_path) as (owner, store):
        orders = Orders(store, owner.flow, clock=lambda: 0.0)
        first = sent(store, owner)
        orders.begin(first)
        owner.flow.take_slice("silver.orders", None)
        store.cancel(first.id, by="bob", reason="not now")
        finish(orders, owner)
        owner.flow.take_slice("silver.orders", None)
        done = len(owner.rows("silver.orders"))
        second = sent(store, owner)
        orders.begin(second)
        finish(orders, owner)

        found = store.command(first.id)
        assert (found.state, found.cancelled_by, found.cancel_reason) == ("cancelled", "bob", "not now")
        assert done == 2  # one was done, one was begun
        assert store.command(second.id).state == "done"
        assert len(owner.rows("silver.orders")) == 3
        verdicts = {sheet.table: sheet.verdict for sheet in owner.ledger().sheets()}
        assert verdicts["silver.orders"] == "ok"


def test_order_that_takes_too_long_is_given_up(postgres: ScratchPostgres, tmp_path: Path) -> None:
    """Its error says what to do."""
    with refusing(postgres, tmp_path) as (owner, store):
        now = 0.0
        orders = Orders(store, owner.flow, clock=lambda: now)
        command = sent(store, owner, timeout_seconds=60)
        orders.begin(command)
        now = 61.0
        finish(orders, owner)

        found = store.command(command.id)
        assert found.state == "failed"
        assert found.error == (
            f"command {command.id}: took longer than its 60 s. What it has done stays; give the order again to go on."
        )


def test_progress_is_told_as_rows_that_were_tried(postgres: ScratchPostgres, tmp_path: Path) -> None:
    """Who watches sees how many of how many; the stream takes its turns between the steps."""
    with refusing(postgres, tmp_path) as (owner, store):
        orders = Orders(store, owner.flow)
        command = sent(store, owner)
        orders.begin(command)
        seen = [store.command(command.id).progress]
        while orders.in_hand is not None:
            owner.flow.take_slice("silver.orders", None)
            orders.step()
            seen.append(store.command(command.id).progress)

        assert [one["done"] for one in seen[:3]] == [0, 1, 2]
        assert {one["total"] for one in seen} == {3}
        assert store.command(command.id).result == {
            "moved": 3, "taken": 3, "superseded": 0, "duplicate": 0, "not_mine": 0, "filtered": 0,
            "still_refused": 0,
        }  # fmt: skip


def test_order_that_fails_tells_one_line_and_logs_the_others(
    postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors of Spark carry a trace of the JVM, and every listing of orders would show it."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(
            "the disk is full\n\tat java.io.File.write(File.java:1)\n\tat java.io.File.write(File.java:2)"
        )

    with refusing(postgres, tmp_path) as (owner, store):
        monkeypatch.setattr(owner.flow, "replay_refused", fail)
        command = sent(store, owner)
        Orders(store, owner.flow).begin(command)

        found = store.command(command.id)
        assert (found.state, found.error) == ("failed", "RuntimeError: the disk is full")
        assert "File.java:2" in caplog.text


def test_order_that_a_row_fails_tells_no_value_of_it(
    postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors of Spark quote values; what is left is the error's name."""

    def fail(*_: object, **__: object) -> None:
        raise Divided

    with refusing(postgres, tmp_path) as (owner, store):
        monkeypatch.setattr(owner.flow, "replay_refused", fail)
        command = sent(store, owner)
        Orders(store, owner.flow).begin(command)

        found = store.command(command.id)
        assert (found.state, found.error) == ("failed", "DIVIDE_BY_ZERO")
        assert "secret" not in caplog.text


@pytest.mark.parametrize("place", ["before-commit", "after-commit"])
def test_order_that_fails_after_its_commit_ends_the_driver(
    postgres: ScratchPostgres, tmp_path: Path, place: str
) -> None:
    """The table in memory does not know of it: to go on would blame somebody else. Before it the order just fails."""
    with refusing(postgres, tmp_path) as (owner, store):
        store.send(app="shop", table="silver.orders", kind="compact", arguments={}, by="ann", reason="tidy")
        taken = store.take("shop", epoch=owner.epoch)
        assert taken is not None

        def fail(point: str) -> None:
            if point == f"silver.orders__quarantine.compact.{place}":
                raise OSError("the disk is full")

        with listening(fail):
            if place == "after-commit":
                with pytest.raises(CommitLostError, match="this process does not know it"):
                    Orders(store, owner.flow).begin(taken)
            else:
                Orders(store, owner.flow).begin(taken)

        found = store.command(taken.id)
        ended = ("running", None) if place == "after-commit" else ("failed", "OSError: the disk is full")
        assert (found.state, found.error) == ended


@pytest.mark.parametrize("before", [True, False])
def test_order_that_fails_ends_the_driver_for_what_it_did_itself(
    postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    """The handle of a table that was set aside may have lagged behind before: that is opened anew in its time."""

    def fail(*_: object, **__: object) -> None:
        if not before:
            table.version -= 1
        raise OSError("the disk is full")

    with refusing(postgres, tmp_path) as (owner, store):
        monkeypatch.setattr(owner.flow, "replay_refused", fail)
        table = owner.flow.inputs["silver.customers"].table
        if before:
            table.version -= 1
            owner.flow.suspended.failed(table.name, OSError("the disk is full"))
        command, orders = sent(store, owner), Orders(store, owner.flow)
        if before:
            orders.begin(command)
        else:
            with pytest.raises(CommitLostError, match=r"^silver\.customers: version \d+ is committed, and this"):
                orders.begin(command)

        assert store.command(command.id).state == ("failed" if before else "running")
