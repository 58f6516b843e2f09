import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.settings import Settings
from deltaworks.supervise import launch
from deltaworks.supervise.backoff import FAILURES_MAX, wait_seconds
from deltaworks.supervise.launches import last_launch, past, remember
from deltaworks.supervise.watch import look
from tests.groups import SAME_AS_DRIVERS
from tests.scratch_postgres import ScratchPostgres
from tests.unit.launching import kill_leader, run_in_this_session, scratch_project, wait_for, wait_owned, wanting_store

InAShell = Callable[[str], int]


@pytest.fixture
def settings(postgres: ScratchPostgres, tmp_path: Path) -> Iterator[Settings]:
    """Give a project whose driver is the stand-in."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        yield settings


@pytest.fixture
def in_a_shell(settings: Settings, store: Store) -> Iterator[InAShell]:
    """Give a function that starts an app's driver as a person in a shell does, and returns its pid once it owns."""
    begun: list[subprocess.Popen[bytes]] = []

    def run(app: str) -> int:
        begun.append(run_in_this_session(settings, app))
        wait_owned(store, app, begun[-1].pid)
        return begun[-1].pid

    yield run
    for process in begun:
        for pid in processes.family(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """Give its control store, in which both apps are wanted."""
    with wanting_store(settings) as store:
        yield store


def test_a_started_driver_takes_the_lease_under_its_own_pid(settings: Settings, store: Store) -> None:
    """The process that was started is the owner, so that whoever reads the lease can kill it."""
    started = launch.start(settings, "shop")

    wait_owned(store, "shop", started.pid)
    lease = store.lease("shop")
    assert lease is not None
    assert not started.adopted
    assert (lease.pid, lease.process_started) == (started.pid, started.process_started)
    assert os.getsid(started.pid) == started.pid


def test_a_living_driver_is_adopted(settings: Settings, store: Store) -> None:
    """A second start finds the owner and starts nothing."""
    first = launch.start(settings, "shop")
    wait_owned(store, "shop", first.pid)

    second = launch.start(settings, "shop")

    assert second.adopted
    assert second.pid == first.pid


def test_starts_at_the_same_moment_start_one_driver(settings: Settings, store: Store) -> None:
    """Eight launchers, none of which sees a lease yet, agree on one process."""
    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda _: launch.start(settings, "shop"), range(8)))

    assert len({one.pid for one in started}) == 1
    assert [one.adopted for one in started].count(False) == 1
    wait_owned(store, "shop", started[0].pid)


def test_a_killed_driver_is_replaced_at_once_and_its_children_are_dead(settings: Settings, store: Store) -> None:
    """The orphans of the old session are killed, and its lease need not run out before the next one has it."""
    old = launch.start(settings, "shop")
    wait_owned(store, "shop", old.pid)
    kill_leader(old.pid)
    orphans = processes.members(old.pid)
    assert orphans, "the stand-in has a child in a process group of its own"

    new = launch.start(settings, "shop")

    assert processes.members(old.pid) == []
    wait_owned(store, "shop", new.pid)
    lease = store.lease("shop")
    assert lease is not None
    assert lease.epoch == 2


def test_a_silent_driver_whose_lease_is_over_is_killed_before_the_next(settings: Settings, store: Store) -> None:
    """A stopped process (SIGSTOP) could wake and commit: it is dead before its successor starts."""
    old = launch.start(settings, "shop")
    wait_owned(store, "shop", old.pid)
    os.kill(old.pid, signal.SIGSTOP)
    wait_for(lambda: not _live(store), seconds_max=10)

    new = launch.start(settings, "shop")

    assert processes.started(old.pid) is None
    assert processes.members(old.pid) == []
    assert new.pid != old.pid


def test_a_halted_drain_of_a_shell_is_killed_with_its_children_before_the_next(
    settings: Settings, store: Store, in_a_shell: InAShell
) -> None:
    """Ctrl-Z on a drain: it leads no session, its lease runs out, and it could wake beside its successor."""
    drain = in_a_shell("shop")
    children = [pid for pid in processes.family(drain) if pid != drain]
    assert children
    assert processes.members(drain) == []
    os.kill(drain, signal.SIGSTOP)
    wait_for(lambda: not _live(store), seconds_max=10)

    new = launch.start(settings, "shop")

    assert [processes.started(pid) for pid in (drain, *children)] == [None] * (1 + len(children))
    assert not new.adopted
    wait_owned(store, "shop", new.pid)


def test_stop_all_lets_a_drain_of_a_shell_end(settings: Settings, in_a_shell: InAShell) -> None:
    """It is waited for like a driver that was launched, and what it leaves behind is killed."""
    drain = in_a_shell("shop")
    children = [pid for pid in processes.family(drain) if pid != drain]

    became = launch.stop_all(settings)

    assert became == {"shop": "drained"}
    assert children
    assert [processes.started(pid) for pid in (drain, *children)] == [None] * (1 + len(children))


def test_stop_all_kills_a_drain_of_a_shell_that_does_not_end(settings: Settings, in_a_shell: InAShell) -> None:
    """After "deltaworks down" nothing of ours is left, wherever it was started."""
    drain = in_a_shell("shop")
    family = processes.family(drain)
    os.kill(drain, signal.SIGSTOP)

    became = launch.stop_all(settings, seconds_max=0.5)

    assert became == {"shop": "killed"}
    assert len(family) > 1
    assert [processes.started(pid) for pid in family] == [None] * len(family)


def test_who_owns_the_app_itself_kills_nobody(settings: Settings, store: Store) -> None:
    """An owner that looks after its own app is not to end itself, nor what else its process has started."""
    own = processes.started(os.getpid())
    assert own is not None
    store.acquire("shop", owner="this test", seconds=60, pid=os.getpid(), process_started=own)
    with subprocess.Popen(["sleep", "60"]) as child:
        killed = launch.kill(settings, store, "shop")

        lives = child.poll() is None
        child.kill()
    assert killed == 0
    assert lives


def test_command_at_work_is_seen_while_the_app_is_to_stop(settings: Settings, store: Store) -> None:
    """A compaction of a stopped app takes its time: with no rows waiting, too, nobody may take it for a hang."""
    store.desire("shop", "stopped", by="alice", reason="a test")
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as owner:
        started = processes.started(owner.pid)
        assert started is not None
        lease = store.acquire("shop", owner="one command", seconds=60, pid=owner.pid, process_started=started)
        number = store.send(
            app="shop", table="silver.orders", kind="compact", arguments={}, by="alice", reason="many files"
        )
        store.take("shop", epoch=lease.epoch)
        store.beat(lease, state="running", progress={})

        seen = look(settings, store, "shop")

        owner.kill()
    assert seen.driver is not None
    assert seen.busy_with == f"command {number} (compact silver.orders)"


def test_log_of_a_driver_is_for_us_only(settings: Settings, store: Store) -> None:
    """Rows may be in it; one that was open to others is closed."""
    settings.logs.mkdir(mode=0o755)
    log = launch.log_file(settings, "shop")
    log.touch(mode=0o644)

    started = launch.start(settings, "shop")

    wait_owned(store, "shop", started.pid)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.logs.stat().st_mode) == 0o700
    assert stat.S_IMODE(settings.run.stat().st_mode) == 0o700


def test_a_process_that_has_the_pid_of_a_dead_driver_is_left_alone(settings: Settings, store: Store) -> None:
    """Pids are reused: without the start time of the driver a session is nobody's to kill."""
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    lease = store.acquire("shop", owner="long gone", seconds=60, pid=stranger.pid, process_started="another time")

    launch.kill(settings, store, "shop")

    assert stranger.poll() is None
    assert not _live(store), "the lease of a dead driver is given back"
    assert lease.pid == stranger.pid
    stranger.kill()
    stranger.communicate()


def test_the_lease_of_another_machine_is_respected(settings: Settings, store: Store) -> None:
    """What runs elsewhere cannot be seen from here: while its lease is valid, it runs."""
    store.acquire("shop", owner="far", seconds=60, pid=1, process_started="then", host="elsewhere")

    started = launch.start(settings, "shop")

    assert started.adopted
    assert launch.kill(settings, store, "shop") == 0
    assert _live(store)


def test_a_driver_inherits_nothing_of_airflow(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's variables hold signing keys and the address of its database."""
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "secret")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "stream__shop")
    monkeypatch.setenv("__AIRFLOW_SUPERVISOR_FD", "7")

    environment = launch.driver_environment(settings)

    assert {name for name in environment if "AIRFLOW" in name} == {
        "DELTAWORKS_PORT_AIRFLOW",
        "DELTAWORKS_HOST_AIRFLOW",
        "DELTAWORKS_AIRFLOW_PYTHON",
    }
    assert environment["DELTAWORKS_DATA"] == str(settings.data)


def test_delta_rs_has_one_thread_in_a_driver_unless_asked_otherwise(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small commit costs less so; who has large ones and many cores may want more."""
    monkeypatch.delenv("TOKIO_WORKER_THREADS", raising=False)
    few = launch.driver_environment(settings)["TOKIO_WORKER_THREADS"]
    monkeypatch.setenv("TOKIO_WORKER_THREADS", "8")

    assert (few, launch.driver_environment(settings)["TOKIO_WORKER_THREADS"]) == ("1", "8")


def test_what_tests_write_in_their_own_process_is_written_as_by_drivers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their runner imports nothing of the project, so it says so again."""
    for name in SAME_AS_DRIVERS:
        monkeypatch.delenv(name, raising=False)
    bare = settings.inherited()
    environment = launch.driver_environment(settings)

    assert {name: value for name, value in environment.items() if name not in bare} == SAME_AS_DRIVERS


def test_stop_all_lets_drivers_drain_and_resume_all_wants_them_again(settings: Settings, store: Store) -> None:
    """A driver ends in order; the next start of the stack brings back those that were running, and only those."""
    store.desire("web", "stopped", by="alice", reason="a test")
    shop = launch.start(settings, "shop")
    wait_owned(store, "shop", shop.pid)

    became = launch.stop_all(settings)

    assert became == {"shop": "drained"}
    heartbeat = store.heartbeat("shop")
    assert heartbeat is not None
    assert heartbeat.state == "stopped"
    assert launch.resume_all(settings) == ("shop",)
    assert {app.name: app.desired for app in store.apps()} == {"shop": "running", "web": "stopped"}


def test_stop_all_kills_what_does_not_drain(settings: Settings, store: Store) -> None:
    """A driver that hangs does not keep the stack from stopping."""
    (settings.data / "manners").write_text("hangs")
    shop = launch.start(settings, "shop")
    wait_for(lambda: _live(store))

    became = launch.stop_all(settings, seconds_max=0.5)

    assert became == {"shop": "killed"}
    assert processes.members(shop.pid) == []


def test_stop_all_without_a_control_store_kills(settings: Settings, store: Store) -> None:
    """With nobody to ask, what was started here is still known."""
    shop = launch.start(settings, "shop")
    wait_owned(store, "shop", shop.pid)
    away = settings.changed(port_control=1)

    became = launch.stop_all(away)

    assert became == {"shop": "killed"}
    assert processes.members(shop.pid) == []


def test_early_ends_are_counted_and_a_wish_starts_anew(settings: Settings, store: Store) -> None:
    """Three crashes in a row count three; a person who wants the app again is not made to wait."""
    (settings.data / "manners").write_text("crashes")
    counted = []
    for _ in range(3):
        pid = launch.start(settings, "shop").pid
        wait_for(lambda pid=pid: processes.started(pid) is None)  # type: ignore[misc]  # bound in the loop
        counted.append(past(settings, store, "shop").failures)
    store.desire("shop", "stopped", by="alice", reason="a test")
    store.desire("shop", "running", by="alice", reason="a test")

    assert counted == [1, 2, 3]
    assert past(settings, store, "shop").failures == 0
    assert "a reason in the log" in launch.log_tail(settings, "shop")


def test_a_driver_that_committed_did_not_fail_early(settings: Settings, store: Store) -> None:
    """A fault after good work is answered at once, however many failed before."""
    started = launch.start(settings, "shop")
    wait_owned(store, "shop", started.pid)
    last = last_launch(settings, "shop")
    assert last is not None
    remember(settings, "shop", replace(last, failures=4))
    kill_leader(started.pid)

    assert past(settings, store, "shop").failures == 0


def test_a_failed_driver_counts_although_it_had_the_lease(settings: Settings, store: Store) -> None:
    """Poison in the first batch: it owned the app and committed nothing."""
    (settings.data / "manners").write_text("fails")
    started = launch.start(settings, "shop")
    wait_for(lambda: processes.started(started.pid) is None)

    assert past(settings, store, "shop").failures == 1


def test_pauses_grow_and_end_at_ten_minutes() -> None:
    """The first restart is at once; the longest pause is bounded, so an app comes back without anybody's help."""
    pauses = [wait_seconds(failures) for failures in range(30)]

    assert pauses[:2] == [0, 0]
    assert pauses == sorted(pauses)
    assert pauses[FAILURES_MAX] == 60
    assert pauses[-1] == 600


def _live(store: Store) -> bool:
    lease = store.lease("shop")
    return lease is not None and lease.live
