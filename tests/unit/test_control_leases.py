"""Who owns an app: one at a time, by the database's clock, with an epoch that only rises."""

import dataclasses
import multiprocessing
import threading
import time
import uuid
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import psycopg
import pytest

from deltaworks.control import Lease, Store
from deltaworks.errors import ControlError, LeaseHeldError, LeaseLostError


def acquire(store: Store, owner: str = "stream", *, app: str = "shop", seconds: float = 60) -> Lease:
    """Acquire with made-up process facts."""
    return store.acquire(app, owner=owner, seconds=seconds, pid=4711, process_started="123456", host="here")


def run_out(store: Store, lease: Lease) -> None:
    """Let a lease's time pass, without waiting: renewed for less than no time."""
    store.renew(lease, seconds=-1)


def test_first_lease_has_epoch_one_and_the_owner_s_process(store: Store) -> None:
    """A lease says who owns the app, in which process and until when by the database's clock."""
    lease = acquire(store, seconds=60)

    assert (lease.app, lease.owner, lease.epoch) == ("shop", "stream", 1)
    assert (lease.pid, lease.process_started, lease.host) == (4711, "123456", "here")
    assert lease.live
    assert lease.seconds_left == 60
    assert store.lease("web") is None


@pytest.mark.parametrize("owner", ["somebody else", "stream"])
def test_valid_lease_keeps_everybody_out(store: Store, owner: str) -> None:
    """While a lease is valid nobody gets another one, not even the same owner; the refusal names the owner."""
    held = acquire(store, "stream")

    with pytest.raises(LeaseHeldError, match=r"app shop: owned by stream \(pid 4711 on here, epoch 1\) for \d+ s more"):
        acquire(store, owner)

    assert store.lease("shop") is not None
    store.check(held)


def test_apps_are_owned_one_by_one(store: Store) -> None:
    """A lease on one app says nothing about another."""
    shop, web = acquire(store, app="shop"), acquire(store, app="web")

    store.check(shop)
    store.check(web)


def test_unknown_app_is_refused_with_the_nearest_name(store: Store) -> None:
    """A misspelt app is not silently owned."""
    with pytest.raises(ControlError, match=r'app shp: never declared .* Did you mean "shop"'):
        acquire(store, app="shp")


def test_expired_lease_is_taken_over_with_the_next_epoch(store: Store) -> None:
    """A dead driver's app becomes free when its time is over, and the old epoch is fenced off."""
    old = acquire(store, "old")
    run_out(store, old)

    new = acquire(store, "new")

    assert new.epoch == old.epoch + 1
    store.check(new)
    for refused in (store.check, lambda lease: store.renew(lease, seconds=60)):
        with pytest.raises(LeaseLostError, match=r"epoch 1 is over, new \(pid 4711 on here\) has epoch 2"):
            refused(old)
    with pytest.raises(LeaseLostError, match="epoch 1 is over"):
        store.beat(old, state="running", progress={})


def test_expired_lease_that_nobody_took_can_be_renewed(store: Store) -> None:
    """A driver that was cut off from the store goes on under its epoch, but commits nothing in between."""
    lease = acquire(store)
    run_out(store, lease)

    with pytest.raises(LeaseLostError, match="epoch 1 has run out"):
        store.check(lease)
    renewed = store.renew(lease, seconds=60)

    assert renewed.epoch == lease.epoch
    store.check(lease)


def test_released_app_is_free_at_once_and_its_epoch_is_not_used_again(store: Store) -> None:
    """Release frees the app and never takes the epoch back; what was released cannot be renewed."""
    first = acquire(store)
    store.release(first)
    store.release(first)

    left = store.lease("shop")
    with pytest.raises(LeaseLostError, match="epoch 1 was released"):
        store.check(first)
    with pytest.raises(LeaseLostError, match="epoch 1 was released"):
        store.renew(first, seconds=60)
    second = acquire(store)

    assert left is not None
    assert (left.live, left.epoch, left.pid) == (False, 1, 4711)
    assert second.epoch == 2
    assert second.released_at is None


def test_release_of_a_lost_lease_leaves_the_new_owner_alone(store: Store) -> None:
    """A zombie that ends cannot free what is no longer its own."""
    old = acquire(store, "old")
    run_out(store, old)
    new = acquire(store, "new")

    store.release(old)

    store.check(new)


def test_wrong_clock_of_a_client_decides_nothing(store: Store) -> None:
    """What a client believes about the time is not sent: a lease with a false `until` is judged by the database."""
    lease = acquire(store)
    believes_otherwise = dataclasses.replace(lease, until=lease.until.replace(year=2001), seconds_left=-1.0)

    store.check(believes_otherwise)
    with pytest.raises(LeaseHeldError):
        acquire(store, "new")


def test_acquire_that_is_sent_twice_finds_its_own_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the answer to an acquire is lost with its connection, the same call repeated is no stranger."""
    call = uuid.UUID(int=1)
    monkeypatch.setattr(uuid, "uuid4", lambda: call)

    first, again = acquire(store), acquire(store)
    call = uuid.UUID(int=2)

    assert (first.epoch, again.epoch) == (1, 1)
    with pytest.raises(LeaseHeldError):
        acquire(store)


def test_acquire_that_is_cut_off_is_done_over_the_next_connection(store: Store, control_dsn: str) -> None:
    """A connection that breaks in the middle of the statement costs nothing but a moment."""
    with psycopg.connect(control_dsn, autocommit=True) as other:
        other.execute("""
            create sequence cut;
            create function cut() returns trigger language plpgsql as $$ begin
                if nextval('cut') = 1 then perform pg_terminate_backend(pg_backend_pid()); end if; return null; end $$;
            create trigger cut after insert on leases for each statement execute function cut();
        """)

    lease = acquire(store)

    assert lease.epoch == 1
    store.check(lease)


def test_eight_threads_race_and_one_wins_each_time(control_dsn: str) -> None:
    """However many want a free app at the same moment, exactly one gets it, and epochs rise by one."""
    rounds, racers = 15, 8
    gate = threading.Barrier(racers)

    def race(racer: int) -> list[Lease]:
        won = []
        with Store(control_dsn) as own:
            own.apps()
            for _ in range(rounds):
                gate.wait(timeout=30)
                with suppress(LeaseHeldError):
                    won.append(acquire(own, f"racer {racer}"))
                gate.wait(timeout=30)
                if won and (lease := own.lease("shop")) is not None and lease.owner == f"racer {racer}":
                    own.release(won[-1])
        return won

    with ThreadPoolExecutor(racers) as pool:
        won = [lease for leases in pool.map(race, range(racers)) for lease in leases]

    assert sorted(lease.epoch for lease in won) == list(range(1, rounds + 1))


def win_short_leases(dsn: str, name: str, seconds: float) -> list[tuple[int, float, float]]:
    """In a process of its own: take the app again and again, each time for 20 ms; (epoch, from, until) of each."""
    won = []
    with Store(dsn) as store:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(LeaseHeldError):
                lease = acquire(store, name, seconds=0.02)
                won.append((lease.epoch, lease.acquired_at.timestamp(), lease.until.timestamp()))
    return won


def test_processes_that_race_for_expired_leases_never_overlap(control_dsn: str) -> None:
    """Leases of different processes follow one another: epochs rise in time and no two are valid at once."""
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        races = [pool.submit(win_short_leases, control_dsn, f"process {n}", 1.5) for n in range(4)]
        won = sorted(lease for race in races for lease in race.result(timeout=60))

    assert len(won) > 4
    assert [epoch for epoch, _, _ in won] == list(range(1, len(won) + 1))
    assert all(until <= begun for (_, _, until), (_, begun, _) in pairwise(won))


def test_heartbeat_is_the_owner_s_last_word(store: Store) -> None:
    """A heartbeat replaces the one before, has the epoch of its writer, and may still come after the release."""
    lease = acquire(store)
    store.beat(lease, state="running", progress={"rows": 1})
    store.release(lease)

    store.beat(lease, state="stopped", progress={"rows": 2, "tables": {"silver.orders": {"version": 7}}})
    beat = store.heartbeat("shop")

    assert beat is not None
    assert (beat.epoch, beat.state) == (1, "stopped")
    assert beat.progress == {"rows": 2, "tables": {"silver.orders": {"version": 7}}}
    assert beat.age_seconds >= 0
    assert store.heartbeat("web") is None
