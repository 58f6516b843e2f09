"""A lake that is not complete, for whatever reason: all that an operator asks says so, and they agree."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from typer.testing import CliRunner

from deltaworks import processes
from deltaworks.cli import apps, ledger
from deltaworks.control import Desired, DriverState, Lease, Store
from deltaworks.engine.ledger import Ledger
from deltaworks.local import doctor
from deltaworks.local.part import PartState, StackState
from deltaworks.settings import ROOT, Settings
from tests.arrow_flow import ArrowOwner
from tests.flows import Record
from tests.scratch_postgres import ScratchPostgres
from tests.shop_rows import view
from tests.unit.launching import scratch_project

GOLD = "gold.page_views_per_minute"
BROKEN = {GOLD: [{"rule": "expect_column_values_to_be_between(views)", "rows": 3, "critical": True}]}
SUSPENDED = {GOLD: {"error": "DIVIDE_BY_ZERO", "since": "2026-11-27T10:00:00+00:00", "failures": 3}}


@pytest.fixture
def settings(postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Give a project with a control store and a stack, as far as its files tell."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        for name, value in {"PROJECT": settings.project, "DATA": settings.data, "PORT_CONTROL": postgres.port}.items():
            monkeypatch.setenv(f"DELTAWORKS_{name}", str(value))
        monkeypatch.setenv("DELTAWORKS_PORT_KAFKA", "9")  # nobody is there
        control = PartState(name="control", of="control", step=False, state="ready", since=0)
        settings.run.mkdir()
        own = processes.started(os.getpid())
        StackState(generation=1, pid=os.getpid(), started=own, parts={"control": control}).write(settings.run)
        yield settings


@pytest.fixture
def owner(settings: Settings) -> ArrowOwner:
    """Give the owner of the app's tables, whose events are in silver."""
    owner = ArrowOwner(settings, "web")
    owner.log.send([view(1), view(2)])
    owner.bronze()
    owner.silver()
    owner.flow.settle()
    return owner


@pytest.fixture
def driver() -> Iterator[int]:
    """Give the id of a process that lives."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def asked(settings: Settings) -> dict[str, tuple[bool, str]]:
    """Per question whether its answer is that all is well, and what it says."""
    main = typer.Typer()
    main.callback()(lambda: None)
    for module in (ledger, apps):
        module.register(main)
    found = {}
    for words in (["ledger", "--json"], ["app", "status", "web", "--json"]):  # whole texts, however wide a terminal is
        result = CliRunner().invoke(main, words)
        assert result.exit_code in (0, 1), result.output
        found[words[0]] = result.exit_code == 0, result.stdout
    [finding] = [one for one in doctor._apps(settings) if one.finding.startswith("web ")]
    return {**found, "doctor": (finding.verdict == "ok", f"{finding.finding}. {finding.next_step}")}


@pytest.mark.usefixtures("owner")
def test_a_suspended_table_is_told_by_every_command(settings: Settings, driver: int) -> None:
    """With its error and how far it is behind, while its app goes on; and by none once it goes on too."""
    with Store(settings.control_dsn()) as store:
        store.desire("web", "running", by="tests", reason="a test")
        lease = store.acquire(
            "web", owner="tests", seconds=60, pid=driver, process_started=str(processes.started(driver))
        )
        assert isinstance(lease, Lease)
        store.beat(lease, state="running", progress={"suspended": SUSPENDED})
        suspended = asked(settings)
        store.beat(lease, state="running", progress={"suspended": {}})
        mended = asked(settings)
        store.release(lease)

    assert {question: well for question, (well, _) in suspended.items()} == dict.fromkeys(suspended, False)
    assert all("suspended" in said and "DIVIDE_BY_ZERO" in said for _, said in suspended.values())
    assert "suspended: DIVIDE_BY_ZERO; behind 1 version of silver.page_views" in suspended["ledger"][1]
    assert f"Mend {GOLD}" in suspended["doctor"][1]
    assert {question: well for question, (well, _) in mended.items()} == dict.fromkeys(mended, True)
    assert not any("suspended" in said for _, said in mended.values())


@pytest.mark.parametrize(
    ("wanted", "beat", "progress", "lives", "state"),
    [
        ("running", "running", {"lag": {"page_views": {"0": 5}}, "last_commit_at": "now"}, True, "healthy"),
        ("running", "running", {"lag": {"page_views": {"0": 70_000}}, "last_commit_at": "now"}, True, "behind"),
        ("running", "running", {"suspended": SUSPENDED}, True, "suspended"),
        ("running", "running", {"broken": BROKEN}, True, "healthy"),
        ("running", "failed", {"error": "a poison", "suspended": SUSPENDED}, False, "failed"),
        ("running", "running", {"suspended": SUSPENDED}, False, "dead"),
        ("stopped", "stopped", {"suspended": SUSPENDED}, False, "stopped"),
    ],
)
@pytest.mark.usefixtures("owner")
def test_commands_agree_about_an_app_and_what_its_tables_lack(
    settings: Settings, driver: int, wanted: Desired, beat: DriverState, progress: dict[str, Any], *, lives: bool,
    state: str,
) -> None:  # fmt: skip
    """The ledger says how far gold is behind in any case, `app status` and the doctor why, with one verdict."""
    now = datetime.now(UTC).isoformat()
    said = {name: now if value == "now" else value for name, value in progress.items()}
    with Store(settings.control_dsn()) as store:
        store.desire("web", wanted, by="tests", reason="a test")
        started = str(processes.started(driver)) if lives else "long ago"
        lease = store.acquire("web", owner="tests", seconds=60, pid=driver, process_started=started)
        assert isinstance(lease, Lease)
        store.beat(lease, state=beat, progress=said)
        found = asked(settings)
        store.release(lease)

    well = state in ("healthy", "behind", "stopped") and "broken" not in progress
    assert {question: answer for question, (answer, _) in found.items()} == {
        "ledger": state != "suspended", "app": well, "doctor": well
    }  # fmt: skip
    assert "behind 1 version of silver.page_views" in found["ledger"][1]
    assert state in found["app"][1]
    assert ("3 rows break expect_column_values_to_be_between(views)" in found["app"][1]) == ("broken" in progress)
    assert (json.loads(found["app"][1])[0]["broken"] is True) == ("broken" in progress)
    assert (f"Look at the rows of {GOLD}" in found["doctor"][1]) == ("broken" in progress)
    assert f"web is {state}: " in found["doctor"][1]
    assert ("it is tried again by itself" in found["doctor"][1]) == (state == "suspended")


def test_gold_is_behind_while_its_inputs_have_rows_that_it_has_not_taken(owner: ArrowOwner) -> None:
    """To put files together brings no row."""
    views = owner.flow.inputs["silver.page_views"].table
    bring(owner, 3)
    before = verdict(owner)
    owner.gold(GOLD)
    taken = verdict(owner)
    assert owner.committer.rewrite(views, views.entry.follow("compact"), size_max=2**20)
    compacted = verdict(owner)
    bring(owner, 4)

    assert before == "behind 2 versions of silver.page_views"
    assert taken == compacted == "ok"
    assert verdict(owner) == "behind 1 version of silver.page_views"


def bring(owner: ArrowOwner, number: int) -> None:
    """A page view comes to silver."""
    owner.log.send([view(number)])
    owner.bronze()
    owner.silver()


def verdict(owner: ArrowOwner) -> str:
    """What the ledger says of gold."""
    books = Ledger(owner.catalog, owner.settings.lake)
    return next(sheet.verdict for sheet in books.sheets() if sheet.table == GOLD)


@pytest.fixture
def source(settings: Settings, source_server: ScratchPostgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the address of the shop's source, with all that the shop's tables read."""
    shutil.copytree(ROOT / "shop", settings.project / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("DELTAWORKS_PORT_SOURCE", str(source_server.port))
    (settings.data / "secrets" / "shop").write_text("sesame")
    names = ("source", "control", "connect")
    parts = {name: PartState(name=name, of=name, step=False, state="ready", since=0) for name in names}
    StackState(generation=2, pid=os.getpid(), started=processes.started(os.getpid()), parts=parts).write(settings.run)
    with psycopg.connect(source_server.dsn, autocommit=True) as admin:
        admin.execute("create database shop owner shop")
        address = Settings.load().source_dsn()
        with psycopg.connect(address) as connection:
            connection.execute((settings.project / "shop" / "schema.sql").read_text())
        yield address
        admin.execute("drop database shop with (force)")


@pytest.mark.usefixtures("owner")
def test_what_the_source_does_not_give_is_in_the_ledger_too(settings: Settings, source: str) -> None:
    """The numbers meet all the same: they are of what has come."""
    ArrowOwner(settings, "shop").flow.settle()
    whole = asked(settings)["ledger"]
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("alter publication shop_pub drop table products")
        connection.execute("alter table orders rename column status to state")
    lacking = json.loads(asked(settings)["ledger"][1])[0]
    findings = [one.finding for one in doctor._captured(Settings.load())]

    assert whole[0], whole[1]
    told = {one["table"]: one["verdict"] for one in lacking["tables"] if one["verdict"].startswith("source: ")}
    assert sorted(told) == ["silver.orders", "silver.products"]
    assert len(findings) == 2
    assert all(
        any(verdict.removeprefix("source: ").partition(";")[0] in finding for finding in findings)
        for verdict in told.values()
    )
    assert lacking["balanced"]


@pytest.mark.usefixtures("owner")
def test_a_lock_in_the_source_is_not_waited_for(settings: Settings, source: str) -> None:
    """To ask what is published opens the tables; the ledger is shown without it, and both say why."""
    ArrowOwner(settings, "shop").flow.settle()
    with psycopg.connect(source) as other:
        other.execute("lock table products in access exclusive mode")
        shown, said = noted()
        findings = doctor._run(doctor._captured, Settings.load())

    held = "source: has given no answer within 5 s: somebody may hold a lock on one of its tables"
    assert "silver.products" in shown
    assert said.startswith(f"{held}. See pg_locks there for who; ")
    assert [(one.verdict, one.finding) for one in findings] == [("fail", held)]


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (lambda of: (of.project / "shop/connector.json").write_text("{"), "shop/connector.json: not a connector"),
        (lambda of: (of.secrets / "shop").unlink(), "secret shop: is missing"),
    ],
)
@pytest.mark.usefixtures("owner", "source")
def test_what_is_broken_beside_the_lake_does_not_hide_it(
    settings: Settings, break_it: Callable[[Settings], None], finding: str
) -> None:
    """One line says what is not shown for it."""
    ArrowOwner(settings, "shop").flow.settle()
    break_it(settings)

    shown, said = noted()

    assert "silver.products" in shown
    assert finding in said
    assert said.endswith('Shown without what it does not give. Look at "deltaworks doctor".')


def noted() -> tuple[str, str]:
    """What the ledger shows, and what it notes of the source."""
    ask = typer.Typer()
    ask.callback()(lambda: None)
    ledger.register(ask)
    result = CliRunner().invoke(ask, ["ledger", "--json"])
    assert result.exit_code == 0, result.output
    [said] = [line for line in result.stderr.splitlines() if "does not give" in line]
    return result.stdout, said


@pytest.mark.usefixtures("owner", "source")
def test_what_the_connector_could_not_read_is_said_of_its_topic(settings: Settings) -> None:
    """It sends null instead, and only its log says so."""
    owner = ArrowOwner(settings, "shop")
    owner.log.send([Record(topic="shop.changes", value=b"{}")])
    owner.bronze()
    settings.logs.mkdir(exist_ok=True)
    at = datetime.now(UTC).astimezone()
    line = f"{at:%Y-%m-%d %H:%M:%S}.123 WARN io.debezium.connector.postgresql.PostgresValueConverter no form for it\n"
    (settings.logs / "connect.log").write_text(line)

    well, said = asked(settings)["ledger"]

    assert well
    assert "warn: 1 value(s) not read since" in said
