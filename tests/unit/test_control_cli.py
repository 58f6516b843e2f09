"""Apps, commands and quarantine on the command line: a real control store, and a driver that runs no Spark."""

import json
import os
import pwd
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import typer
from psycopg import sql
from typer.testing import CliRunner, Result

from deltaworks import processes
from deltaworks.cli import apps, commands, compute_again, late, quarantine
from deltaworks.control import Store
from deltaworks.engine import rewind
from deltaworks.engine.rewind import Rewind
from deltaworks.errors import CommandError, ControlError, DeclarationError
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise import launch
from tests.scratch_postgres import ScratchPostgres

# Stands in for the engine: takes the lease, obeys, beats, drains; told apart by the program that it was started for.
FAKE_DRIVER = """#!{python}
import os, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
sys.path.insert(0, {root!r})
from deltaworks.control import Store
from deltaworks import processes
from deltaworks.settings import Settings

given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if "--drain" in sys.argv:
    print("drained", *sys.argv[1:])
    sys.exit(0)
with Store(Settings.load(Path(given["--project"])).control_dsn()) as store:
    app = given["--app"]
    facts = {{"pid": os.getpid(), "process_started": processes.started(os.getpid())}}
    lease = store.acquire(app, owner="fake driver", seconds=60, **facts)
    progress = {{"rows_per_second": 12.5, "lag": {{"shop.changes": {{"0": 3}}}}}}
    progress["last_commit_at"] = (datetime.now(UTC) - timedelta(seconds=300)).isoformat()
    while "--command" in given or store.app(app).desired == "running":
        store.beat(lease, state="running", progress=progress)
        command = store.take(app, epoch=lease.epoch)
        if command is not None:
            store.finish(command.id, {{"files_before": 1234, "files_after": 1}})
        if "--command" in given:
            break
        time.sleep(0.05)
    store.beat(lease, state="stopped", progress={{}})
    store.release(lease)
"""


@pytest.fixture
def project(postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Give the settings of this checkout's project with a control store and data of this test alone."""
    for name in [name for name in os.environ if name.startswith("DELTAWORKS_")]:
        monkeypatch.delenv(name)
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("drop database if exists deltaworks with (force)")
        connection.execute("drop role if exists deltaworks")
        connection.execute(sql.SQL("create role deltaworks login password {}").format(sql.Literal(postgres.password)))
        connection.execute("create database deltaworks owner deltaworks")
    python = tmp_path / "driver"
    python.write_text(FAKE_DRIVER.format(python=sys.executable, root=str(ROOT)))
    python.chmod(0o755)
    (tmp_path / "data" / "secrets").mkdir(parents=True)
    (tmp_path / "data" / "secrets" / "deltaworks").write_text(postgres.password)
    monkeypatch.setenv("DELTAWORKS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DELTAWORKS_PORT_CONTROL", str(postgres.port))
    monkeypatch.setenv("DELTAWORKS_SPARK_PYTHON", str(python))
    settings = Settings.load()
    with Store(settings.control_dsn()) as store:
        store.migrate()
        store.declare_apps(["shop", "web"])
    yield settings
    launch.stop_all(settings, seconds_max=5)


@pytest.fixture
def own(project: Settings) -> Iterator[Store]:
    """Give the project's control store."""
    with Store(project.control_dsn()) as store:
        yield store


def call(*words: str) -> Result:
    """Run the command line in this process."""
    main = typer.Typer()
    apps.register(main)
    quarantine.register(main)
    compute_again.register(main)
    late.register(main)
    return CliRunner().invoke(main, words)


def rows(result: Result) -> list[dict[str, object]]:
    """Give what a listing printed with --json."""
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def until(happens: Callable[[], object], *, seconds_max: float = 20) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds_max
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@contextmanager
def driver(store_of: Settings, work: Callable[[Store, int], None]) -> Iterator[None]:
    """Own the app shop by a process of its own, as a driver does, and do `work` on the first command that comes."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    started = processes.started(process.pid)
    assert started is not None
    with Store(store_of.control_dsn()) as store:
        lease = store.acquire("shop", owner="test", seconds=60, pid=process.pid, process_started=started)

        def obey() -> None:
            until(lambda: store.commands("shop", "queued"))
            command = store.take("shop", epoch=lease.epoch)
            again = store.take_recomputations("shop", epoch=lease.epoch, many=1)
            (taken,) = again if command is None else [command]
            work(store, taken.id)

        thread = threading.Thread(target=obey)
        thread.start()
        try:
            yield
        finally:
            thread.join(timeout=20)
            store.release(lease)
            process.kill()
            process.wait()


def test_start_is_a_wish_with_a_name_and_says_the_next_step_without_airflow(own: Store) -> None:
    """Without Airflow nobody would come: the command says what to do."""
    result = call("app", "start", "shop")

    wished = own.app("shop")
    assert result.exit_code == 0, result.output
    assert 'shop: Airflow is not up. Run "deltaworks up", or "deltaworks app start shop --here"' in result.output
    assert (wished.desired, wished.desired_by) == ("running", pwd.getpwuid(os.getuid()).pw_name)


def test_start_says_that_airflow_does_it_when_airflow_is_up(own: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Airflow up, its task sees the wish; `--by` names who wished."""
    monkeypatch.setattr(apps, "airflow_is_up", lambda _: True)

    result = call("app", "start", "shop", "web", "--by", "ann")

    assert result.exit_code == 0, result.output
    assert "web: Airflow's stream__web starts it within seconds" in result.output
    assert own.app("shop").desired_by == own.app("web").desired_by == "ann"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["app", "start"], "Name the apps, or give --all."),
        (["app", "stop", "shop", "--all"], "Name the apps, or give --all."),
        (["run", "shop"], "Missing option '--drain'."),
    ],
)
@pytest.mark.usefixtures("project")
def test_command_that_leaves_open_what_is_meant_is_refused(words: list[str], why: str) -> None:
    """No app named is not all apps; a run in the foreground says that it drains."""
    refused = call(*words)

    assert refused.exit_code == 2
    assert why in refused.output


@pytest.mark.usefixtures("project")
def test_misspelt_app_is_refused_with_the_nearest_name() -> None:
    """Starting asks the project's tables, stopping and looking ask the control store."""
    started, stopped, seen = call("app", "start", "shp"), call("app", "stop", "shp"), call("app", "status", "shp")

    assert isinstance(started.exception, DeclarationError)
    assert isinstance(stopped.exception, ControlError)
    assert isinstance(seen.exception, ControlError)
    assert all("shop" in str(result.exception) for result in (started, stopped, seen))


def test_app_is_started_here_seen_restarted_and_stopped(own: Store) -> None:
    """The whole life of a driver without Airflow: one at a time, each with the next epoch, gone at the end."""
    begun = call("app", "start", "shop", "--here")
    until(lambda: own.heartbeat("shop"))
    again = call("app", "start", "shop", "--here")
    seen = rows(call("app", "status", "--json"))
    restarted = call("app", "restart", "shop", "--here")
    until(lambda: (lease := own.lease("shop")) and lease.epoch == 2)
    stopped = call("app", "stop", "--all", "--wait")
    after = call("app", "status", "shop")

    shop = next(row for row in seen if row["app"] == "shop")
    assert "shop: driver started, pid" in begun.output, begun.output
    assert "shop: driver runs already, pid" in again.output
    assert (shop["wanted"], shop["epoch"], shop["rows_per_second"], shop["lag_rows"]) == ("running", 1, 12.5, 3)
    assert shop["state"] in ("healthy", "starting")
    assert shop["broken"] in (False, None)  # not known while it starts
    assert isinstance(shop["commit_seconds"], float)
    assert shop["commit_seconds"] >= 300
    assert next(row["state"] for row in seen if row["app"] == "web") == "stopped"
    assert restarted.exit_code == 0, restarted.output
    assert "ends its batch and leaves" in stopped.output
    assert stopped.exit_code == 0
    assert after.exit_code == 0
    assert "stopped" in after.output


@contextmanager
def hanging_driver(own: Store) -> Iterator[None]:
    """Own the app shop by a process that does nothing, not even end."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as hangs:
        started = processes.started(hangs.pid)
        assert started is not None
        own.acquire("shop", owner="hangs", seconds=60, pid=hangs.pid, process_started=started)
        try:
            yield
        finally:
            hangs.kill()


def test_restart_starts_those_that_ended_and_says_what_stays_stopped(
    own: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One driver that hangs does not keep the others down, and its app has a next step."""
    monkeypatch.setattr(apps, "DRAIN_SECONDS_MAX", 1.0)
    with hanging_driver(own):
        result = call("app", "restart", "shop", "web")

    assert result.exit_code == 1
    assert {app.name: app.desired for app in own.apps()} == {"shop": "stopped", "web": "running"}
    assert "web: Airflow is not up" in result.output
    assert (
        'app shop: its driver has not ended after 1 s; "stopped" is wanted still. '
        'Once it has ended, run "deltaworks app start shop".' in result.output
    )


def test_stop_that_waits_names_the_driver_that_does_not_end(own: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wish stays; the log says why it hangs."""
    monkeypatch.setattr(apps, "DRAIN_SECONDS_MAX", 0.3)
    with hanging_driver(own):
        result = call("app", "stop", "shop", "--wait")

    assert result.exit_code == 1
    assert 'See "deltaworks logs app-shop".' in result.output


def test_driver_that_died_is_a_finding(own: Store) -> None:
    """An app that is wanted and whose process is gone makes the status fail, with the reason."""
    own.desire("shop", "running", by="ann", reason="a test")
    lease = own.acquire("shop", owner="gone", seconds=60, pid=2**22 + 1, process_started="0")
    own.beat(lease, state="running", progress={})

    result = call("app", "status")

    assert result.exit_code == 1
    assert "shop: the driver's process is gone" in result.output


@pytest.mark.usefixtures("own")
def test_compact_follows_the_owner_to_the_end(project: Settings) -> None:
    """Who asks sees the result that the driver wrote."""

    def work(store: Store, number: int) -> None:
        store.report(number, {"done": 1, "total": 2, "files_before": 1234})
        time.sleep(0.5)
        store.finish(number, {"files_before": 1234, "files_after": 1})

    with driver(project, work):
        result = call("compact", "silver.orders")

    assert result.exit_code == 0, result.output
    assert "command 1 compact silver.orders: done after" in result.output
    assert "files 1,234 to 1" in result.output


def test_compact_that_fails_is_a_finding(project: Settings, own: Store) -> None:
    """The owner's error is shown, and the command keeps who and why."""
    with driver(project, lambda store, number: store.fail(number, "disk full")):
        result = call("compact", "silver.orders", "--reason", "too slow", "--by", "ann")

    command = own.command(1)
    assert result.exit_code == 1
    assert "command 1 compact silver.orders: failed" in result.output
    assert "disk full" in result.output
    assert (command.requested_by, command.reason) == ("ann", "too slow")


def test_compact_without_a_driver_gets_an_owner_of_its_own(project: Settings, own: Store) -> None:
    """A stopped app's tables can be compacted: a process takes the lease for this one command and leaves."""
    result = call("compact", "silver.orders")

    lease = own.lease("shop")
    assert result.exit_code == 0, result.output
    assert "command 1 compact silver.orders: done" in result.output
    assert lease is not None
    assert lease.released_at is not None
    assert own.app("shop").desired == "stopped"
    assert stat.S_IMODE(launch.log_file(project, "shop").stat().st_mode) == 0o600


def test_owner_that_ends_without_obeying_is_told(project: Settings, own: Store) -> None:
    """The message names the command's state, the exit code and where to look."""
    project.spark_python.write_text("#!/bin/sh\nexit 3\n")

    result = call("compact", "silver.orders")

    assert isinstance(result.exception, CommandError)
    assert 'command 1: is queued: its owner ended with code 3. See "deltaworks logs app-shop".' in str(result.exception)
    assert own.command(1).state == "queued"


def test_compact_without_waiting_leaves_the_command_queued(own: Store) -> None:
    """The number is printed, nothing is started."""
    result = call("compact", "silver.orders", "--no-wait")

    assert result.exit_code == 0
    assert "command 1 is queued for app shop" in result.output
    assert own.lease("shop") is None


@pytest.mark.usefixtures("project")
def test_commands_can_be_listed_shown_and_cancelled() -> None:
    """The listings have a form for programs."""
    call("compact", "silver.orders", "--no-wait")
    call("compact", "silver.page_views", "--no-wait")

    both, web = rows(call("commands", "list", "--json")), rows(call("commands", "list", "--app", "web", "--json"))
    cancelled = call("commands", "cancel", "1", "--reason", "the wrong table")
    shown = rows(call("commands", "show", "1", "--json"))
    open_ones = rows(call("commands", "list", "--state", "queued", "--json"))
    for_people = call("commands", "show", "1").output
    one_table = rows(call("commands", "list", "--table", "silver.orders", "--kind", "compact", "--json"))
    unknown = call("commands", "list", "--table", "silver.order")
    no_state = call("commands", "list", "--state", "lost")

    assert [row["id"] for row in both] == [2, 1]
    assert [(row["table_name"], row["app"]) for row in web] == [("silver.page_views", "web")]
    assert "command 1 is cancelled" in cancelled.output
    assert (shown[0]["state"], shown[0]["cancel_reason"]) == ("cancelled", "the wrong table")
    assert [row["id"] for row in open_ones] == [2]
    assert "asked for on the command line" in for_people
    assert [row["id"] for row in one_table] == [1]
    assert unknown.exit_code != 0
    assert "silver.orders" in str(unknown.exception)
    assert no_state.exit_code == 2
    assert "Known are queued" in no_state.output


def test_command_line_gives_up_on_a_driver_that_does_not_come(own: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow is up and the app is wanted, but nobody takes the lease: the wait ends with the command queued."""
    own.desire("shop", "running", by="ann", reason="a test")
    monkeypatch.setattr(commands, "airflow_is_up", lambda _: True)
    monkeypatch.setattr(commands, "LONELY_SECONDS_MAX", 0.5)

    result = call("compact", "silver.orders")

    assert isinstance(result.exception, CommandError)
    assert "app shop has had no driver" in str(result.exception)


def test_run_becomes_the_driver(project: Settings) -> None:
    """The command line is replaced by the driver, with the project and without a shell."""
    code = "import typer; from deltaworks.cli import apps; main = typer.Typer(); apps.register(main); main()"

    done = subprocess.run(
        [sys.executable, "-c", code, "run", "shop", "--drain"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    script = f"{ROOT}/spark_apps/stream.py --app shop --project {project.project} --drain"
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"drained {script}"


@pytest.mark.parametrize(
    ("words", "kind", "arguments"),
    [
        (["replay", "--cause", "not JSON"], "replay_refused_rows", {"cause": "not JSON"}),
        (["discard", "--all", "--reason", "a port scan"], "discard_refused_rows", {"cause": None}),
        (["discard", "--row", "shop.changes/0/7", "--reason", "sent again"], "discard_refused_row",
         {"topic": "shop.changes", "partition": 0, "offset": 7}),
        (["accept"], "accept_bad_rows", {}),
        (["withdraw", "--row", "shop.changes/0/7", "--reason", "no"], "withdraw_patch",
         {"topic": "shop.changes", "partition": 0, "offset": 7}),
    ],
)  # fmt: skip
def test_orders_about_refused_rows_reach_the_owner(
    project: Settings, own: Store, words: list[str], kind: str, arguments: dict[str, object]
) -> None:
    """Each under the kind that the owner knows, with who and why."""
    with driver(project, lambda store, number: store.finish(number, {"moved": 3})):
        result = call("quarantine", words[0], "silver.orders", "--by", "ann", *words[1:])

    command = own.command(1)
    assert result.exit_code == 0, result.output
    assert f"command 1 {kind.replace('_', ' ')} silver.orders: done" in result.output
    assert (command.kind, command.arguments, command.requested_by) == (kind, arguments, "ann")


def test_revision_of_a_mark_is_an_order_with_who_and_why(own: Store) -> None:
    """In microseconds, which are exact; a table that has no events is refused before that, and so is no time."""
    words = ("late", "revise", "silver.page_views", "--to", "2026-11-22T10:00")
    sent = call(*words, "--no-wait", "--by", "alice", "--reason", "the broker was in tomorrow")

    assert sent.exit_code == 0, sent.output
    (order,) = own.commands(kind="revise_mark")
    assert (order.app, order.table_name) == ("web", "silver.page_views")
    assert order.arguments == {"to_micros": 1795341600000000}
    assert (order.requested_by, order.reason) == ("alice", "the broker was in tomorrow")
    wrong = [("silver.orders", "2026-11-22", "has no events"), ("silver.page_views", "noon", "is no day")]
    for table, to, why in wrong:
        refused = call("late", "revise", table, "--to", to, "--no-wait")
        assert refused.exit_code == 2
        assert why in refused.output
    assert len(own.commands(kind="revise_mark")) == 1


@pytest.mark.usefixtures("project")
def test_discard_wants_to_know_which_rows() -> None:
    """Neither all of them by mistake, nor two answers."""
    both = ["--cause", "not JSON", "--all"]
    other = ["--row", "shop.changes/0/7", "--all"]

    refused = [call("quarantine", "discard", "silver.orders", "--reason", "old", *which) for which in ([], both, other)]

    assert [one.exit_code for one in refused] == [2, 2, 2]
    assert all("Give one of --cause, --row and --all." in one.output for one in refused)


def test_new_value_comes_to_the_owner_in_a_file_that_nobody_else_reads(project: Settings, own: Store) -> None:
    """It goes when the order has ended; the order names the folder alone."""
    value, found = '{"page": "/ann"}', list[tuple[str, int]]()

    def look(store: Store, number: int) -> None:
        file = project.data / "staged" / store.command(number).arguments["folder"] / "value"
        found.append((file.read_text(), stat.S_IMODE(file.stat().st_mode)))
        store.finish(number, {"patched": 1})

    with driver(project, look):
        result = call("quarantine", "patch", "silver.orders", "--row", "shop.changes/0/7", "--value", value,
                      "--by", "ann", "--reason", "cut off")  # fmt: skip

    command = own.command(1)
    assert result.exit_code == 0, result.output
    assert found == [(value, 0o600)]
    assert (command.kind, command.requested_by, command.reason) == ("patch_refused_row", "ann", "cut off")
    assert command.arguments.keys() == {"topic", "partition", "offset", "folder"}
    assert (command.arguments["offset"], "ann" in str(command.arguments)) == (7, False)
    assert list((project.data / "staged").iterdir()) == []


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "Give one of --value and --set."),
        (("--set", "page=/", "--value", "{}"), "Give one of --value and --set."),
        (("--set", "page"), "Write FIELD=VALUE."),
        (("--value", "gone.json"), "gone.json: No such file"),
        (("--value", "{}", "--row", "page_views/1"), "'page_views/1' is not TOPIC/PARTITION/OFFSET."),
    ],
)
def test_patch_wants_to_know_the_row_and_what_it_should_have_said(words: tuple[str, ...], why: str) -> None:
    """One way to say it, that can be read, of one record."""
    patch = ("quarantine", "patch", "silver.page_views", "--row", "page_views/1/1", "--reason", "cut off")

    result = call(*patch, *words)

    assert result.exit_code == 2
    assert why in result.output


@pytest.mark.usefixtures("own")
def test_command_that_runs_is_asked_to_end(project: Settings) -> None:
    """It ends after its step, and whoever follows it sees that as a finding."""
    seen = []

    def work(store: Store, number: int) -> None:
        seen.append(call("commands", "cancel", str(number), "--by", "bob", "--reason", "not now"))
        until(lambda: store.report(number, {}).cancel_asked_at)
        store.cancelled(number)

    with driver(project, work):
        result = call("vacuum", "silver.orders", "--timeout", "60")

    assert "command 1 ends after the step that it is in" in seen[0].output
    assert result.exit_code == 1
    assert "command 1 vacuum silver.orders: cancelled" in result.output
    assert "By bob: not now" in result.output


@pytest.mark.parametrize("words", [("compact", "--by-debt"), ("vacuum",), ("expire",)])
def test_order_in_steps_may_be_given_a_time(own: Store, words: tuple[str, ...]) -> None:
    """Its owner gives it up when it takes longer."""
    result = call(*words, "silver.orders", "--no-wait", "--timeout", "600")

    assert result.exit_code == 0, result.output
    assert own.command(1).timeout_seconds == 600


def test_order_without_steps_is_given_no_time(own: Store) -> None:
    """Nobody could end it on the way."""
    result = call("compact", "silver.orders", "--no-wait", "--timeout", "600")

    assert result.exit_code == 2
    assert "--timeout: goes with --by-debt only" in result.output
    assert own.commands() == []


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it that whatever goes back goes to version 4, and undoes command 7."""

    def past(table: str, **_: object) -> tuple[Rewind, ...]:
        return (Rewind(table=table, newest=9, version=4, at=None, again=3, undone=(7,)),)

    monkeypatch.setattr(rewind, "plan", past)
    monkeypatch.setattr(rewind, "before", lambda *_, **__: 4)


SEEN = {"versions": {"silver.published_purchases": 4}, "undone": [7]}


@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["rebuild"], {"what": "rebuild"}),
        (["backfill", "--from", "2026-11-20", "--to", "2026-11-21"],
         {"what": "backfill", "from": "2026-11-20T00:00:00+00:00", "to": "2026-11-22T00:00:00+00:00"}),
        (["rewind", "--to", "4"], {"what": "rewind", "to": 4, "seen": SEEN}),
        (["replay", "--from-offset", "large_purchases/0/7"],
         {"what": "replay", "since": "large_purchases/0/7", "to": 4, "seen": SEEN}),
        (["replay", "--from-time", "2026-11-22T10:00"],
         {"what": "replay", "since": "2026-11-22T10:00:00+00:00", "to": 4, "seen": SEEN}),
    ],
)  # fmt: skip
def test_order_to_recompute_says_what_for(
    project: Settings, own: Store, words: list[str], arguments: dict[str, object]
) -> None:
    """Who looks at the orders tells a backfill from a rewind, and its range from its version."""
    with driver(project, lambda store, number: store.finish(number, {"tables": 2})):
        result = call(words[0], "silver.published_purchases", *words[1:])

    command = own.command(1)
    assert result.exit_code == 0, result.output
    assert command.arguments == arguments
    assert (command.kind, rows(call("commands", "list", "--json"))[0]["arguments"]) == ("recompute", command.arguments)
    assert f"({arguments['what']})" in call("commands", "list").output
    assert rows(call("commands", "show", "1", "--json"))[0]["arguments"] == command.arguments


def test_order_to_publish_of_before_is_listed_too(own: Store) -> None:
    """It names its folder alone."""
    own.send(app="shop", table="silver.orders", kind="publish", arguments={"folder": "f"}, by="ann", reason="mended")

    listed = call("commands", "list")

    assert listed.exit_code == 0
    assert "publish" in listed.output


@pytest.mark.usefixtures("project", "looked_at")
@pytest.mark.parametrize(
    ("table", "copies", "readers"),
    [
        ("silver.large_purchases", "topic large_purchases", "silver.published_purchases, gold.big_spenders"),
        ("gold.product_search", "postgres", None),
        ("gold.big_spenders", None, None),
    ],
)
def test_rewind_lists_what_follows_beside_the_lake(table: str, copies: str | None, readers: str | None) -> None:
    """Copies of the tables, and tables of whatever app that read their topics."""
    (row,) = rows(call("rewind", table, "--to", "4", "--dry-run", "--json"))

    assert (row["table"], row["copies"], row["topic read by"]) == (table, copies, readers)
