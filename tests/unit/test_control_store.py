"""The store itself: apps, closed partitions, migrations, and what happens when the database is away."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from deltaworks.control import Store
from deltaworks.control.payload import BYTES_MAX
from deltaworks.errors import CommandError, ControlError
from deltaworks.settings import ROOT
from tests.scratch_postgres import ScratchPostgres, scratch_postgres


@pytest.fixture
def empty_dsn(postgres: ScratchPostgres) -> str:
    """Give the address of a database without tables."""
    return postgres.database(f"empty_{uuid.uuid4().hex}")


@pytest.fixture
def own_postgres() -> Iterator[ScratchPostgres]:
    """Give a server that this test may stop."""
    with scratch_postgres() as server:
        yield server


def tables(dsn: str) -> set[str]:
    """Names of the tables in the database."""
    with psycopg.connect(dsn) as connection:
        return {name for (name,) in connection.execute("select tablename from pg_tables where schemaname = 'public'")}


def test_new_app_is_wanted_stopped_and_a_known_one_stays_as_it_is(store: Store) -> None:
    """Declaring apps starts nothing and stops nothing."""
    store.desire("shop", "running", by="ann", reason="a test")

    store.declare_apps(["shop", "risk"])

    assert [(app.name, app.desired, app.desired_by) for app in store.apps()] == [
        ("risk", "stopped", None),
        ("shop", "running", "ann"),
        ("web", "stopped", None),
    ]


def test_desired_state_names_who_changed_it(store: Store) -> None:
    """Wanting what is wanted already changes neither who nor when."""
    started = store.desire("shop", "running", by="ann", reason="a test")
    again = store.desire("shop", "running", by="bob", reason="a test")
    stopped = store.desire("shop", "stopped", by="bob", reason="a test")

    assert (started.desired_by, again.desired_by, stopped.desired_by) == ("ann", "ann", "bob")
    assert again.desired_at == started.desired_at
    assert stopped.desired_at > started.desired_at
    assert store.app("shop") == stopped


def test_each_wish_is_on_record_with_who_and_why(store: Store) -> None:
    """As an order that is done, also where it changed nothing; of another kind where it is a part of something else."""
    store.desire("shop", "running", by="ann", reason="a release")
    store.desire("shop", "running", by="bob", reason="to be sure")
    store.desire("shop", "stopped", by="cid", reason="the disk", kind="drain")

    told = [(one.kind, one.state, one.requested_by, one.reason, one.result) for one in reversed(store.commands())]
    assert told == [
        ("start", "done", "ann", "a release", {"was": "stopped"}),
        ("start", "done", "bob", "to be sure", {"was": "running"}),
        ("drain", "done", "cid", "the disk", {"was": "running"}),
    ]
    assert store.take("shop") is None


@pytest.mark.parametrize(("by", "reason"), [("", "why"), ("ann", " ")])
def test_wish_without_who_or_why_is_refused(store: Store, by: str, reason: str) -> None:
    """And one for an app that there is not; neither changes or records anything."""
    with pytest.raises(CommandError, match="command start: .* is empty"):
        store.desire("shop", "running", by=by, reason=reason)
    with pytest.raises(ControlError, match="never declared"):
        store.desire("shup", "running", by="ann", reason="why")

    assert store.app("shop").desired == "stopped"
    assert store.commands() == []


def test_wish_whose_answer_was_lost_is_on_record_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent again over a new connection."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=1))
    for _ in range(2):
        store.desire("shop", "running", by="ann", reason="a release")

    assert len(store.commands()) == 1


def test_name_of_an_app_cannot_leave_its_folder(store: Store) -> None:
    """An app's name becomes part of paths and process names; the store refuses any other."""
    with pytest.raises(ControlError, match="refused"):
        store.declare_apps(["../shop"])


def test_what_is_unmet_stays_until_it_is_met(store: Store) -> None:
    """Of what was judged; one that is still unmet keeps its time, and gets the newest reason."""

    def there() -> dict[tuple[str, str], str]:
        return {(one.table_name, one.expectation): one.reason for one in store.unmet_expectations()}

    every = ["x", "y", "z"]
    store.judge_expectations("gold.a", unmet={"x": "x failed", "y": "y failed"}, judged=["x", "y"], those=every)
    store.judge_expectations("gold.b", unmet={"x": "x failed", "z": "z failed"}, judged=["x", "z"], those=every)
    first, began = there(), {one.expectation: one.since for one in store.unmet_expectations()}
    store.judge_expectations("gold.a", unmet={"x": "x unknown"}, judged=["x"], those=every)
    for _ in range(2):
        store.judge_expectations("gold.b", unmet={}, judged=["x"], those=["x"])  # z suspends no longer
    later, since = there(), {one.expectation: one.since for one in store.unmet_expectations()}
    store.forget_unmet("gold.a", but=["y"])

    assert len(first) == 4
    assert later == {("gold.a", "x"): "x unknown", ("gold.a", "y"): "y failed"}
    assert since["y"] == began["y"]
    assert there() == {("gold.a", "y"): "y failed"}


def test_partition_is_closed_once(store: Store) -> None:
    """Closing again changes nothing; the listing is in order and can start after a partition."""
    store.close_partition("gold.daily_orders", "2026-11-21", 9)
    store.close_partition("gold.daily_orders", "2026-11-20", 7)
    store.close_partition("gold.daily_orders", "2026-11-20", 8)
    store.close_partition("gold.other", "2026-11-22", 1)

    closed = store.closed_partitions("gold.daily_orders")
    later = store.closed_partitions("gold.daily_orders", after="2026-11-20")

    assert [(one.partition, one.version) for one in closed] == [("2026-11-20", 7), ("2026-11-21", 9)]
    assert later == closed[1:]
    assert closed[0].closed_at > closed[1].closed_at


def test_a_partition_is_told_once_it_is_well(store: Store) -> None:
    """What was not judged, failed, or nobody could say of, is not; the last word counts, and is on record."""
    for day in ("2026-11-20", "2026-11-21", "2026-11-22"):
        store.close_partition("gold.daily_orders", day, 7)
    store.judge_partition("gold.daily_orders", "2026-11-20", "failed", reason="a rule")
    store.judge_partition("gold.daily_orders", "2026-11-20", "released", reason="ada: known")
    store.judge_partition("gold.daily_orders", "2026-11-21", "unknown", reason="an error")

    well = store.unannounced_partitions("gold.daily_orders", well=True)

    assert [(one.partition, one.verdict, one.reason) for one in well] == [("2026-11-20", "released", "ada: known")]
    assert [one.partition for one in store.held_partitions()] == ["2026-11-21"]
    assert not store.judge_partition("gold.daily_orders", "2026-11-23", "passed", reason="")


def test_closed_partition_is_announced_once(store: Store) -> None:
    """What was announced is not given out again; what was not, is."""
    store.close_partition("gold.daily_orders", "2026-11-21", 9)
    store.close_partition("gold.daily_orders", "2026-11-20", 7)

    before = [one.partition for one in store.unannounced_partitions("gold.daily_orders")]
    store.announce_partition("gold.daily_orders", "2026-11-20")
    store.announce_partition("gold.daily_orders", "2026-11-20")
    after = [one.partition for one in store.unannounced_partitions("gold.daily_orders")]

    assert before == ["2026-11-20", "2026-11-21"]
    assert after == ["2026-11-21"]
    assert [one.announced_at is None for one in store.closed_partitions("gold.daily_orders")] == [False, True]


def test_progress_that_postgres_cannot_hold_is_made_storable(store: Store) -> None:
    """A heartbeat does not fail because of what is in a row: NUL, half a surrogate pair, not a number."""
    lease = store.acquire("shop", owner="stream", seconds=60, pid=1, process_started="1")

    beat = store.beat(lease, state="running", progress={"error": "a\0b\ud800", "rows_per_second": float("nan")})

    assert beat.progress == {"error": "a\ufffdb?", "rows_per_second": None}


@pytest.mark.parametrize("progress", [{"rows": "x" * BYTES_MAX}, {"rows": {1, 2}}])
def test_progress_that_is_no_summary_is_refused(store: Store, progress: dict[str, object]) -> None:
    """A progress is a JSON object of bounded size."""
    lease = store.acquire("shop", owner="stream", seconds=60, pid=1, process_started="1")

    with pytest.raises(ControlError, match="control store: "):
        store.beat(lease, state="running", progress=progress)


def test_migrating_twice_changes_nothing(empty_dsn: str) -> None:
    """The second migration finds nothing to do and keeps the rows."""
    with Store(empty_dsn) as store:
        store.migrate()
        store.declare_apps(["shop"])
        store.migrate()

        assert [app.name for app in store.apps()] == ["shop"]


def test_two_processes_may_migrate_at_once(empty_dsn: str) -> None:
    """One does it, the others wait and find it done."""
    code = "import sys; from deltaworks.control import Store; Store(sys.argv[1]).migrate()"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, empty_dsn], cwd=ROOT, stderr=subprocess.PIPE) for _ in range(3)
    ]

    errors = [process.communicate(timeout=60)[1].decode() for process in processes]

    assert [process.returncode for process in processes] == [0, 0, 0], errors
    assert "apps" in tables(empty_dsn)


def test_migration_leaves_the_tables_of_others_alone(empty_dsn: str) -> None:
    """Airflow keeps Alembic's default table; ours has a name of its own."""
    with Store(empty_dsn) as store:
        store.migrate()

    assert tables(empty_dsn) == {
        "apps", "leases", "heartbeats", "commands", "closed_partitions", "drivers", "launch_requests",
        "unmet_expectations",
        "deltaworks_revision",
    }  # fmt: skip


def test_newer_tables_than_the_code_are_refused(control_dsn: str) -> None:
    """After a roll-back of the code the message says what is wrong."""
    with psycopg.connect(control_dsn) as connection:
        connection.execute("update deltaworks_revision set version_num = '9999'")

    with Store(control_dsn) as store, pytest.raises(ControlError, match=r"newer than this code.*9999"):
        store.migrate()


def test_migration_that_fails_leaves_nothing_behind(empty_dsn: str) -> None:
    """All revisions run in one transaction."""
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("create table closed_partitions ()")

    with Store(empty_dsn) as store, pytest.raises(ControlError, match=r"cannot be migrated.*already exists"):
        store.migrate()

    assert tables(empty_dsn) == {"closed_partitions"}


def test_store_without_tables_names_the_next_step(empty_dsn: str) -> None:
    """A database that was never migrated is told from one that is away."""
    with Store(empty_dsn) as store, pytest.raises(ControlError, match=r'not set up .*Run "deltaworks up"'):
        store.apps()


def test_broken_connection_is_opened_again_by_the_call_that_finds_it(store: Store, control_dsn: str) -> None:
    """A restart of the server between two calls is not noticed."""
    store.apps()
    with psycopg.connect(control_dsn, autocommit=True) as other:
        ended = other.execute("""
            select pg_terminate_backend(pid) from pg_stat_activity
            where application_name = 'deltaworks' and datname = current_database()
        """).fetchall()

    found = store.apps()

    assert {*ended} == {(True,)}  # one of another store, which was closed just before, may be there still
    assert len(found) == 2


def test_store_is_not_reachable_while_the_server_is_away_and_works_when_it_is_back(
    own_postgres: ScratchPostgres,
) -> None:
    """Every call ends with one line while the database is away; the same Store goes on afterwards."""
    with Store(own_postgres.database("control")) as store:
        store.migrate()
        store.declare_apps(["shop"])
        own_postgres.stop(signal.SIGQUIT)

        for call in (store.apps, store.migrate):
            with pytest.raises(
                ControlError, match=r"^control store: not reachable\. .*refused.*deltaworks up"
            ) as caught:
                call()
            assert own_postgres.password not in str(caught.value)
        own_postgres.start()

        assert [app.name for app in store.apps()] == ["shop"]


def test_silent_server_is_given_up(own_postgres: ScratchPostgres) -> None:
    """A server that is stopped, not dead, does not hold its callers for ever."""
    with Store(own_postgres.database("control"), answer_seconds=2) as store:
        store.migrate()
        watcher = psycopg.connect(own_postgres.dsn, autocommit=True)
        store.apps()
        newest = "select pid from pg_stat_activity where datname = 'control' order by backend_start desc limit 1"
        ((pid,),) = watcher.execute(newest).fetchall()
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ControlError, match=r"not reachable\. no answer within 2 s"):
                store.apps()
        finally:
            os.kill(pid, signal.SIGCONT)
            watcher.close()

        assert store.apps() == []


def test_statement_that_waits_for_a_lock_is_given_up(control_dsn: str) -> None:
    """A lock that somebody holds becomes an error, and the connection goes on."""
    with Store(control_dsn, statement_seconds=1) as store:
        with psycopg.connect(control_dsn) as other:
            other.execute("lock table apps in access exclusive mode")

            with pytest.raises(ControlError, match=r"no answer within 1 s"):
                store.apps()

        assert len(store.apps()) == 2


def test_password_is_in_no_error_and_no_representation(postgres: ScratchPostgres) -> None:
    """Whatever is wrong with the address, its password is not told."""
    right = postgres.dsn
    wrong = right.replace(postgres.password, "hunter2hunter2")
    torn = f"postgresql:/postgres:hunter2hunter2@127.0.0.1:{postgres.port}/postgres"
    texts = [repr(Store(right)), repr(Store(wrong))]

    for make in (lambda: Store(wrong).apps(), lambda: Store(wrong).migrate(), lambda: Store(torn)):
        with pytest.raises(ControlError) as caught:
            make()
        error: BaseException | None = caught.value
        while error is not None:
            texts.append(repr(error))
            error = error.__cause__

    assert len(texts) >= 5
    assert not [text for text in texts if "hunter2" in text or postgres.password in text]
    assert "password authentication failed" in " ".join(texts)


def test_connection_says_who_it_is(control_dsn: str) -> None:
    """An operator who looks into pg_stat_activity sees which program is connected."""
    with Store(control_dsn, application="driver shop") as store, psycopg.connect(control_dsn) as other:
        store.apps()
        names = {name for (name,) in other.execute("select application_name from pg_stat_activity")}

    assert "driver shop" in names


def test_times_are_utc_whatever_the_server_s_zone(store: Store) -> None:
    """The scratch server lives in another zone; what the store gives does not."""
    at = store.app("shop").desired_at

    assert at.utcoffset() == timedelta(0)


def test_threads_take_turns_on_one_store(store: Store) -> None:
    """An event loop may call one store from several worker threads."""
    gate = threading.Barrier(6)

    def many(n: int) -> int:
        gate.wait(timeout=30)
        for _ in range(20):
            store.close_partition("gold.x", f"{n}", n)
        return len(store.apps())

    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(many, range(6)))

    assert counts == [2] * 6
    assert len(store.closed_partitions("gold.x")) == 6


@pytest.mark.parametrize("environment", ["spark", "airflow"])
def test_control_imports_in_both_environments_without_the_heavy_packages(environment: str) -> None:
    """Drivers and Airflow's triggerer load the store; neither Spark, Airflow nor SQLAlchemy comes with it."""
    python = ROOT / ".venv" / environment / "bin" / "python"
    code = """
import sys
for name in ("pyspark", "airflow", "sqlalchemy", "alembic"):
    sys.modules[name] = None
import deltaworks.control
print(deltaworks.control.Store("postgresql://x@127.0.0.1:1/y"))
"""

    done = subprocess.run([python, "-c", code], cwd=Path("/"), capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "Store(host=127.0.0.1, port=1, dbname=y)", done.stderr
