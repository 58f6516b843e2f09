"""Orders to the owner of an app: in order, one at a time, each with who, when and why."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltaworks.control import Store
from deltaworks.control.commands import RECOMPUTE
from deltaworks.errors import CommandError, ControlError


def send(store: Store, *, app: str = "shop", kind: str = "compact", reason: str = "nightly") -> int:
    """Send an order about silver.orders."""
    return store.send(app=app, table="silver.orders", kind=kind, arguments={"n": 1}, by="ann", reason=reason)


def own(store: Store, seconds: float = 60) -> int:
    """Own the app shop and return the epoch."""
    return store.acquire("shop", owner="stream", seconds=seconds, pid=1, process_started="1").epoch


def test_order_keeps_who_when_and_why(store: Store) -> None:
    """The audit of an order is written when it is sent, by the database's clock."""
    number = send(store, reason="too many small files")

    order = store.command(number)

    assert (order.app, order.table_name, order.kind, order.arguments) == ("shop", "silver.orders", "compact", {"n": 1})
    assert (order.state, order.requested_by, order.reason) == ("queued", "ann", "too many small files")
    assert order.requested_at is not None
    assert order.started_at is None
    assert not order.finished


@pytest.mark.parametrize(("by", "reason", "empty"), [("", "why", "by"), ("ann", "  ", "reason")])
def test_order_without_who_or_why_is_refused(store: Store, by: str, reason: str, empty: str) -> None:
    """An order that nobody answers for is not queued."""
    with pytest.raises(CommandError, match=f"command compact: {empty} is empty"):
        store.send(app="shop", table=None, kind="compact", arguments={}, by=by, reason=reason)

    assert store.commands() == []


def test_order_to_an_unknown_app_is_refused(store: Store) -> None:
    """An order that no driver would ever take is not queued."""
    with pytest.raises(ControlError, match="app sop: never declared"):
        send(store, app="sop")


def test_orders_are_taken_oldest_first_and_one_at_a_time(store: Store) -> None:
    """The next order is given out when the one before has ended, and never another app's."""
    first, second, _ = send(store), send(store), send(store, app="web")

    taken = store.take("shop")
    while_running = store.take("shop")
    assert taken is not None
    store.finish(taken.id, {"files": 3})
    after = store.take("shop")

    assert taken.id == first
    assert taken.state == "running"
    assert taken.started_at is not None
    assert while_running is None
    assert after is not None
    assert after.id == second


def test_what_lets_an_app_start_is_taken_first(store: Store) -> None:
    """An order that takes long, and was given before, would wait for batches that the app cannot take."""
    send(store, kind="replay_refused_rows")
    accept = send(store, kind="accept_bad_rows")

    taken = store.take("shop")

    assert taken is not None
    assert taken.id == accept


def test_progress_result_and_error_can_be_read_by_whoever_waits(store: Store) -> None:
    """One order ends well with a result, another badly with an error, both finished."""
    well, badly = send(store), send(store)

    store.take("shop")
    store.report(well, {"done": 1, "total": 4})
    halfway = store.command(well)
    store.finish(well, {"files": 4})
    store.take("shop")
    store.fail(badly, "disk full\0")
    done, failed = store.command(well), store.command(badly)

    assert (halfway.state, halfway.progress) == ("running", {"done": 1, "total": 4})
    assert (done.state, done.result, done.error) == ("done", {"files": 4}, None)
    assert (failed.state, failed.result, failed.error) == ("failed", None, "disk full\ufffd")
    assert done.finished
    assert failed.finished_at is not None


def test_order_ends_once(store: Store) -> None:
    """The same end may be written again (a lost answer); a different end is refused and names the state."""
    number = send(store)
    store.take("shop")
    store.finish(number, {"files": 4})
    ended = store.command(number)

    store.finish(number, {"files": 4})
    changes: list[Callable[[], object]] = [
        lambda: store.finish(number, {"files": 5}),
        lambda: store.fail(number, "no"),
        lambda: store.report(number, {}),
        lambda: store.cancel(number, by="bob"),
    ]
    for change in changes:
        with pytest.raises(CommandError, match=f"command {number}: is done"):
            change()

    assert store.command(number) == ended


def test_queued_order_can_be_cancelled_and_is_not_taken(store: Store) -> None:
    """A withdrawn order is never carried out; withdrawing twice is harmless, and the first one's reason stays."""
    number = send(store)

    store.cancel(number, by="bob", reason="the wrong table")
    store.cancel(number, by="cid", reason="too late")

    assert store.take("shop") is None
    found = store.command(number)
    assert found.state == "cancelled"
    assert (found.cancelled_by, found.cancel_reason) == ("bob", "the wrong table")


def test_running_order_is_ended_by_its_owner_after_it_was_withdrawn(store: Store) -> None:
    """Nobody interrupts a commit from outside; an order left by a dead driver is no commit."""
    lease = store.acquire("shop", owner="stream", seconds=60, pid=1, process_started="1")
    asked, left, dead = send(store), send(store), send(store)
    store.take("shop", epoch=lease.epoch)

    still = store.cancel(asked, by="bob")
    seen = store.report(asked, {"done": 1}, epoch=lease.epoch)
    store.cancelled(asked, epoch=lease.epoch)
    store.take("shop", epoch=lease.epoch)
    store.cancel(left, by="bob")
    store.release(lease)
    store.requeue_running("shop", lease.epoch + 1)
    again = store.acquire("shop", owner="stream", seconds=60, pid=1, process_started="1")
    store.take("shop", epoch=again.epoch)
    store.release(again)
    store.cancel(dead, by="cid")

    assert (still.state, still.finished) == ("running", False)
    assert seen.cancel_asked_at is not None
    assert [store.command(one).state for one in (asked, left, dead)] == ["cancelled"] * 3
    assert [store.command(one).cancelled_by for one in (asked, left, dead)] == ["bob", "bob", "cid"]
    assert all(store.command(one).finished_at for one in (asked, left, dead))


def test_order_of_a_dead_driver_is_queued_again_for_the_next(store: Store) -> None:
    """The new owner finds what the old one began, and starts it anew; its own running order stays."""
    old = store.acquire("shop", owner="old", seconds=60, pid=1, process_started="1")
    number = send(store)
    store.take("shop", epoch=old.epoch)
    store.report(number, {"done": 1})
    store.release(old)
    epoch = own(store)

    before = store.take("shop", epoch=epoch)
    requeued = store.requeue_running("shop", epoch)
    again = store.take("shop", epoch=epoch)
    requeued_own = store.requeue_running("shop", epoch)

    assert before is None
    assert (requeued, requeued_own) == (1, 0)
    assert again is not None
    assert (again.id, again.epoch, again.progress) == (number, epoch, {})


def test_driver_that_lost_the_app_neither_takes_nor_ends_orders(store: Store) -> None:
    """A zombie of an older epoch is refused at the queue too."""
    old = store.acquire("shop", owner="old", seconds=60, pid=1, process_started="1")
    number = send(store)
    store.take("shop", epoch=old.epoch)
    store.release(old)
    epoch = own(store)
    store.requeue_running("shop", epoch)

    zombie_takes = store.take("shop", epoch=old.epoch)
    taken = store.take("shop", epoch=epoch)
    ends: list[Callable[[], object]] = [
        lambda: store.finish(number, {}, epoch=old.epoch),
        lambda: store.fail(number, "x", epoch=old.epoch),
        lambda: store.report(number, {}, epoch=old.epoch),
    ]
    for end in ends:
        with pytest.raises(CommandError, match=f"command {number}: is running by epoch 2"):
            end()

    assert zombie_takes is None
    assert taken is not None
    assert taken.id == number


def test_eight_takers_at_once_get_one_order(store: Store, control_dsn: str) -> None:
    """Only one order of an app runs, however many ask at the same moment."""
    for _ in range(8):
        send(store)
    gate = threading.Barrier(8)

    def take(_: int) -> int | None:
        with Store(control_dsn) as mine:
            mine.apps()
            gate.wait(timeout=30)
            order = mine.take("shop")
            return None if order is None else order.id

    with ThreadPoolExecutor(8) as pool:
        taken = [number for number in pool.map(take, range(8)) if number is not None]

    assert taken == [1]
    assert len(store.commands(state="running")) == 1


def test_call_whose_answer_was_lost_counts_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same send or take, repeated because its connection broke, queues one order and takes one order."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=1))
    sent = {send(store), send(store)}
    monkeypatch.undo()
    send(store)

    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=2))
    taken = [store.take("shop"), store.take("shop")]
    monkeypatch.undo()

    assert sent == {1}
    assert len(store.commands()) == 2
    assert [None if order is None else order.id for order in taken] == [1, 1]
    assert store.take("shop") is None


def test_orders_are_listed_newest_first_by_app_and_state(store: Store) -> None:
    """A listing can be narrowed and is bounded."""
    first, second, other = send(store), send(store), send(store, app="web")
    store.take("shop")

    assert [order.id for order in store.commands()] == [other, second, first]
    assert [order.id for order in store.commands(app="shop")] == [second, first]
    assert [order.id for order in store.commands(state="running")] == [first]
    assert [order.id for order in store.commands(limit=1)] == [other]


def test_orders_of_one_table_kind_or_person_are_found_among_many(store: Store) -> None:
    """Maintenance gives some thousand a day."""
    for table, kind, by in (("silver.orders", "compact", "airflow"), ("silver.orders", "vacuum", "ann"),
                            ("silver.customers", "compact", "ann")):  # fmt: skip
        store.send(app="shop", table=table, kind=kind, arguments={}, by=by, reason="tried")

    assert [order.id for order in store.commands(table="silver.orders")] == [2, 1]
    assert [order.id for order in store.commands(kind="compact", by="ann")] == [3]
    assert store.commands(table="silver.customers", kind="vacuum") == []


def test_unknown_order_is_an_error(store: Store) -> None:
    """A number that was never given names the listing."""
    with pytest.raises(CommandError, match="command 99: there is none"):
        store.command(99)
    with pytest.raises(CommandError, match="command 99: there is none"):
        store.finish(99, {})


def recompute(store: Store, table: str = "gold.days", *, plan_only: bool = False, what: str | None = None) -> int:
    """Order a recomputation of a table of app shop."""
    arguments: dict[str, object] = {"from": "2026-11-20", "to": "2026-11-21", "plan_only": plan_only}
    arguments |= {} if what is None else {"what": what}
    return store.send(app="shop", table=table, kind=RECOMPUTE, arguments=arguments, by="ann", reason="late")


def test_recomputations_hold_no_other_order_up(store: Store) -> None:
    """They have a queue of their own: a compaction is taken while one runs, and one while a compaction runs."""
    epoch = own(store)
    number, compaction = recompute(store), send(store)

    (taken,) = store.take_recomputations("shop", epoch=epoch, many=9)
    other = store.take("shop", epoch=epoch)
    more = recompute(store)

    assert taken.id == number
    assert other is not None
    assert other.id == compaction
    assert store.take_recomputations("shop", epoch=epoch, many=9) == []  # one at a time
    store.finish(number, {}, epoch=epoch)
    assert [one.id for one in store.take_recomputations("shop", epoch=epoch, many=9)] == [more]
    assert store.take("shop", epoch=epoch) is None


def test_recomputations_of_a_table_are_taken_together(store: Store) -> None:
    """The oldest with those of its table that are for the same, no more than wanted; the others wait."""
    epoch = own(store)
    plan = recompute(store, plan_only=True)
    first, other, second, third = (recompute(store, table) for table in ("a.a", "b.b", "a.a", "a.a"))

    for expected in ([plan], [first, second], [other], [third]):
        taken = store.take_recomputations("shop", epoch=epoch, many=2)
        assert [one.id for one in taken] == expected
        for one in taken:
            assert (one.state, one.epoch) == ("running", epoch)
            store.finish(one.id, {}, epoch=epoch)
    assert store.take_recomputations("shop", epoch=epoch, many=2) == []


def test_what_is_no_range_is_taken_alone_and_at_once(store: Store) -> None:
    """A rebuild is not computed with ranges of its table, and need not wait for more of them."""
    epoch = own(store)
    first, named, whole, last = (recompute(store, what=what) for what in (None, "backfill", "rebuild", None))

    for expected, settled in (([first, named, last], 0), ([whole], 60)):
        taken = store.take_recomputations("shop", epoch=epoch, many=9, settled_seconds=settled)
        assert [one.id for one in taken] == expected
        for one in taken:
            store.finish(one.id, {}, epoch=epoch)
    assert store.take_recomputations("shop", epoch=epoch, many=9) == []


def test_recomputations_are_taken_when_no_more_come(store: Store) -> None:
    """A backfill's runs come one after the other; who has waited for long waits no more."""
    epoch = own(store)
    numbers = [recompute(store), recompute(store)]

    early = store.take_recomputations("shop", epoch=epoch, many=9, settled_seconds=60)
    late = store.take_recomputations("shop", epoch=epoch, many=9, settled_seconds=0.001)

    assert early == []
    assert [one.id for one in late] == numbers


def test_recomputations_go_to_the_living_owner_alone(store: Store) -> None:
    """What an owner leaves waits for the next one; other orders in its hand do not."""
    epoch = own(store)
    number, compaction = recompute(store), send(store)
    assert store.take_recomputations("shop", epoch=epoch - 1, many=9) == []
    assert len(store.take_recomputations("shop", epoch=epoch, many=9)) == 1
    assert store.take("shop", epoch=epoch) is not None

    assert store.requeue_running("shop", epoch + 1, kind=RECOMPUTE) == 1

    assert [store.command(one).state for one in (number, compaction)] == ["queued", "running"]
