"""Tables that are read beside the stream: what is asked of the connector, and what is refused because it would not."""

import json
import os
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from deltaworks import processes
from deltaworks.cli.main import main
from deltaworks.errors import StackError
from deltaworks.local import connect, signals
from deltaworks.local.part import PartState, StackState
from deltaworks.settings import ROOT, Settings
from tests.ports import free_ports
from tests.scratch_postgres import ScratchPostgres

SHOP = ("public.customers", "public.products", "public.stock", "public.orders", "public.order_lines")
CONFIG = {"publication.name": "pub", "signal.data.collection": "public.signals"}
SOURCE = """
    create table signals (id text primary key, type varchar(32) not null, data text);
    create table by_the_book (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null);
    create table short (id varchar(36) primary key, type varchar(16), data varchar(64));
    create table goods (id int primary key);
    create table "unique" (id int not null unique);
    create table late (id int primary key deferrable);
    create table loose (id int);
    create table few (id int not null);
    create unique index on few (id) where id > 0;
    create table nulls (id int unique);
    create table mails (id int primary key, mail text, login text not null unique);
    create table parts (id int primary key) partition by hash (id);
    create table parts_0 partition of parts for values with (modulus 1, remainder 0);
    create table made (id int primary key, twice int generated always as (id * 2) stored);
    create table partly (id int primary key, secret text);
    create table "or|ders" (id int primary key);
    create table other (id int primary key);
    create publication pub for table
        signals, by_the_book, short,
        goods, "unique", late, loose, few, nulls, mails, parts, made, partly (id), "or|ders";
"""


@pytest.fixture
def source(postgres: ScratchPostgres) -> Iterator["psycopg.Connection[Any]"]:
    """Give a connection to a source database."""
    with psycopg.connect(postgres.database(f"signals_{uuid.uuid4().hex}"), autocommit=True) as connection:
        connection.execute(SOURCE)
        yield connection


def unreadable(source: "psycopg.Connection[Any]", name: str, **config: str) -> str | None:
    """Why a table would not be read rightly."""
    found = list(signals.unreadable(source, CONFIG | config, [name]))
    assert all(one.next_step for one in found)
    return found[0].finding if found else None


@pytest.mark.parametrize("name", ["goods", "unique", "late", "mails", "parts_0"])
def test_a_table_is_read_along_what_keeps_its_rows_apart(source: "psycopg.Connection[Any]", name: str) -> None:
    """A primary key, or else a unique index without nulls; partitions that are published under their own names."""
    assert unreadable(source, f"public.{name}") is None


UNLISTED = "public.goods is not in the connector's table.include.list"
BY_PARTS = "its changes come under its partitions' names: read by its own, its rows would pass newer changes"
NO_KEY = "has neither a primary key nor a unique index, along which the connector would read it part by part"
ALIKE = "is read part by part along {}, and no unique index without nulls keeps its rows apart by it: some are left out"

UNSENT = (
    "has {}, which its changes have not: the connector breaks off, and what it was asked for besides waits until it is"
    " started again"
)


@pytest.mark.parametrize(
    ("name", "config", "finding"),
    [
        ("nowhere", {}, "the source has no such table"),
        ("goods", {"table.include.list": "public.mails"}, UNLISTED),
        ("goods", {"snapshot.include.collection.list": "public.mails"}, None),  # of snapshots that read every table
        ("other", {}, "is not in the publication pub: its changes do not come"),
        ("parts", {}, BY_PARTS),
        ("loose", {}, NO_KEY),
        ("few", {}, ALIKE.format("id")),
        ("nulls", {}, ALIKE.format("id")),
        ("mails", {"message.key.columns": "public.mails:login"}, None),
        ("mails", {"message.key.columns": "public.mails:mail"}, ALIKE.format("mail")),
        ("made", {}, UNSENT.format("twice")),
        ("partly", {}, UNSENT.format("secret")),
        ("or|ders", {}, "the connector would take its name for a pattern"),
    ],
)
def test_a_table_that_would_not_be_read_rightly_is_told(
    source: "psycopg.Connection[Any]", name: str, config: dict[str, str], finding: str | None
) -> None:
    """The connector sends what is not captured too, and of what it leaves out only its log says so."""
    assert unreadable(source, f"public.{name}", **config) == finding


def unheard(source: "psycopg.Connection[Any]", **config: str) -> list[str]:
    """Why a row of the signal table would not be acted on."""
    found = list(signals.gaps(source, CONFIG | config))
    places = {"signals", "goods", "none", "by_the_book", "short"}
    assert {one.place for one in found} <= {f"public.{name}" for name in places}
    assert all(one.next_step for one in found)
    return [one.finding for one in found]


@pytest.mark.parametrize(
    ("config", "findings"),
    [
        ({}, []),
        ({"signal.data.collection": ""}, []),
        ({"signal.enabled.channels": "kafka, source"}, []),
        ({"signal.enabled.channels": "kafka"},
         ["is not read: the connector's signal.enabled.channels leaves source out"]),
        ({"signal.data.collection": "public.none"},
         ["is the connector's signal.data.collection, and the source does not have it"]),
        ({"signal.data.collection": "public.goods"},
         ["does not have just the columns id, type and data, of text, which the connector reads and writes"]),
        ({"signal.data.collection": "public.by_the_book"}, []),
        ({"signal.data.collection": "public.short"},
         ["id takes 36 characters, and 42 are to be written there",
          "type takes 16 characters, and 21 are to be written there",
          "data takes 64 characters, and 128 are to be written there"]),
        ({"publication.name": "another"}, ["is not in the publication another: the connector sees no row of it"]),
    ],
)  # fmt: skip
def test_a_signal_table_that_would_not_do_is_told(
    source: "psycopg.Connection[Any]", config: dict[str, str], findings: list[str]
) -> None:
    """By the doctor too: else it would show only when a row of it is not acted on. None has to be configured."""
    assert unheard(source, **config) == findings


def test_a_role_that_may_not_mark_what_it_reads_is_told(source: "psycopg.Connection[Any]") -> None:
    """The connector writes into the signal table, and reads the others."""
    source.execute("drop role if exists marker")
    source.execute("create role marker")
    config = {"database.user": "marker"}

    found, read = unheard(source, **config), unreadable(source, "public.goods", **config)
    source.execute("grant insert on signals to marker; grant select on goods to marker")
    after = [*unheard(source, **config), unreadable(source, "public.goods", **config)]
    source.execute("drop owned by marker; drop role marker")

    assert found == [
        "the connector's role marker may not write there, as it does before and after each part that it reads"
    ]
    assert read == "the connector's role marker may not read it"
    assert after == [None]


class Connect(HTTPServer):
    """Answers as Kafka Connect does for a connector with one task, whose last record was at a place in the log.

    Asked for that place the task has just heeded what the signal table has, but for the first `deaf` times.
    """

    config: Mapping[str, str]
    state = "RUNNING"
    offset: Mapping[str, object] | None = None
    dsn: str
    deaf = 0
    then = "RUNNING"
    """Its state from when it is asked for its place on; AWAY: Connect says nothing of it."""


class _Answers(BaseHTTPRequestHandler):
    server: Connect

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer by the last part of the path."""
        if self.path.endswith("/offsets"):
            self._heed()
        state = {"state": self.server.state}
        offsets = [{"partition": {"server": "shop"}, "offset": self.server.offset}]
        known = {"config": self.server.config, "status": {"connector": state, "tasks": [state]}, "": {}}
        last = self.path.rsplit("/", 1)[1]
        body = json.dumps({"offsets": offsets} if last == "offsets" else known[last]).encode()
        self.send_response(404 if (last, state["state"]) == ("status", "AWAY") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _heed(self) -> None:
        self.server.deaf, self.server.state = self.server.deaf - 1, self.server.then
        if self.server.deaf < 0:
            with psycopg.connect(self.server.dsn) as connection:
                connection.execute("insert into signals values (%s, 'snapshot-window-open')", (uuid.uuid4().hex,))


@pytest.fixture
def running() -> Iterator[Connect]:
    """Serve on a free port."""
    with Connect(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def shop(source_server: ScratchPostgres, running: Connect, tmp_path: Path) -> Iterator[Settings]:
    """Give a project with the shop's source as it is now and its connector, and a Connect that runs it."""
    (tmp_path / "data/secrets").mkdir(parents=True)
    (tmp_path / "data/secrets/shop").write_text("sesame")
    for name in ("connector.json", "schema.sql"):
        (tmp_path / name).write_text((ROOT / "shop" / name).read_text())
    (tmp_path / "deltaworks.toml").write_text('[source]\nschema = "schema.sql"\nconnector = "connector.json"\n')
    environment = {
        "DELTAWORKS_PORT_SOURCE": str(source_server.port), "DELTAWORKS_PORT_CONNECT": str(running.server_port)
    }  # fmt: skip
    settings = Settings.load(tmp_path, environment=environment, data=tmp_path / "data")
    found = connect.connector_of(settings)
    assert found is not None
    running.config, running.dsn = found[1], settings.source_dsn()
    with psycopg.connect(source_server.dsn, autocommit=True) as connection:
        connection.execute("create database shop owner shop")
    _install(settings)
    yield settings
    with psycopg.connect(source_server.dsn, autocommit=True) as connection:
        connection.execute("drop database shop with (force)")


def _install(settings: Settings) -> None:
    with psycopg.connect(settings.source_dsn(), autocommit=True) as connection:
        connection.execute((settings.project / "schema.sql").read_bytes())


def test_the_shop_s_tables_can_be_read_beside_the_stream(shop: Settings, running: Connect) -> None:
    """All of them."""
    with psycopg.connect(shop.source_dsn()) as connection:
        assert [*signals.gaps(connection, running.config)] == []
        assert [*signals.unreadable(connection, running.config, SHOP)] == []


@pytest.mark.parametrize("life", ["shop", "shop-2"])
def test_signals_are_no_changes_of_the_shop(life: str) -> None:
    """They go to a topic that no table reads, as the heartbeat's; a table that is only called alike does not."""
    route = json.loads((ROOT / "shop/connector.json").read_text())["config"]["transforms.route.regex"]

    def routed(*tables: str) -> set[bool]:
        return {re.fullmatch(route, f"{life}.{table}") is not None for table in tables}

    assert routed("public.signals", "public.heartbeat") == {False}
    assert routed(*SHOP, "public.signals_of_ships", "transaction") == {True}


def test_a_source_of_before_gets_its_signal_table(shop: Settings, running: Connect) -> None:
    """As each `up` carries the schema out again, and only then lets the connector know."""
    with psycopg.connect(shop.source_dsn(), autocommit=True) as connection:
        connection.execute("drop table signals")
        before = [one.finding for one in signals.gaps(connection, running.config)]
        _install(shop)

        after = [one.finding for one in signals.gaps(connection, running.config)]

    assert before == ["is the connector's signal.data.collection, and the source does not have it"]
    assert after == []


def test_only_what_is_asked_for_is_asked_of_the_connector(shop: Settings, running: Connect) -> None:
    """By one row. It is over when the connector has recorded a place behind it, and reads nothing any more."""
    asked = signals.read_beside(shop, ["public.orders", "public.stock"], signal="one")
    told, place = [], asked.place
    amidst = {"lsn": place + 1, "incremental_snapshot_collections": "[]"}
    anew = {"lsn": place + 1, "snapshot": "INITIAL", "snapshot_completed": False}
    for offset in ({"lsn": place - 1}, amidst, anew, {"lsn": place + 9}):
        running.offset = offset
        told.append(signals.over(shop, asked))

    data = {"type": "incremental", "data-collections": ["public.orders", "public.stock"]}
    assert written(shop) == [("one-0", data)]
    assert told == [False, False, False, True]


def written(shop: Settings) -> list[Any]:
    """What the connector was asked for: ids and data."""
    with psycopg.connect(shop.source_dsn()) as connection:
        query = "select id, data::json from signals where type = 'execute-snapshot' order by id"
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(("deaf", "asked"), [(1, 2), (9, 3)])
def test_a_task_that_does_not_know_the_signal_table_yet_is_asked_again(
    shop: Settings, running: Connect, deaf: int, asked: int
) -> None:
    """One of before may go on for a moment after a change of the configuration, and read past the row. Not for ever."""
    running.deaf, running.offset = deaf, {"lsn": 2**60}

    with pytest.raises(StackError, match="begun nothing") if deaf > asked else nullcontext():
        signals.read_beside(shop, ["public.orders"], signal="one")

    assert [one for one, _ in written(shop)] == [f"one-{turn}" for turn in range(asked)]


def refused(shop: Settings, *tables: str) -> str:
    """What is said instead of asking."""
    with pytest.raises(StackError) as error:
        signals.read_beside(shop, tables or ("public.orders",), signal="one")
    with suppress(psycopg.OperationalError):
        assert written(shop) == []
    return str(error.value).replace(str(shop.project), "")


def test_a_connector_without_a_signal_table_says_which_line_it_lacks(shop: Settings) -> None:
    """Not every project has one."""
    path = shop.project / "connector.json"
    path.write_text(path.read_text().replace('    "signal.data.collection": "public.signals",\n', ""))

    assert refused(shop) == (
        "/connector.json: names no signal table, by which tables are read beside the stream. Write"
        ' "signal.data.collection": "public.signals" there, and make that table:'
        ' docs/how-to/change-data.md, "When something is missing".'
    )


def test_a_connector_that_would_not_see_the_row_is_refused(shop: Settings, running: Connect) -> None:
    """It runs by the file of before, stands still, or is not there; the source is away."""
    now = running.config
    running.config = {name: value for name, value in now.items() if name != "signal.data.collection"}
    of_before = refused(shop)
    running.config, running.state = now, "FAILED"
    failed = refused(shop)
    running.state = "RUNNING"
    (nowhere,) = free_ports(1)
    environment = {"DELTAWORKS_PORT_SOURCE": str(nowhere), "DELTAWORKS_PORT_CONNECT": str(running.server_port)}
    away = Settings.load(shop.project, environment=environment, data=shop.data)
    running.config = {**now, "database.port": str(nowhere)}
    source_away = refused(away)
    running.config = now
    (shop.secrets / "shop").write_text("another")
    strange = refused(shop)
    running.config = {**now, "database.port": str(nowhere)}
    environment["DELTAWORKS_PORT_CONNECT"] = str(nowhere)
    connect_away = refused(Settings.load(shop.project, environment=environment, data=shop.data))

    assert of_before == ('connector shop: signal.data.collection differ from the project\'s file. Run "deltaworks up".')
    assert failed == 'connector shop: is FAILED: the tables would wait. Run "deltaworks logs connect".'
    assert source_away == 'source: does not answer. Run "deltaworks up".'
    assert strange == 'source: password authentication failed for user "shop". Run "deltaworks up".'
    assert connect_away == 'connect: does not answer. Run "deltaworks up".'


def test_a_signal_table_as_debezium_documents_it_will_do(
    shop: Settings, running: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless so many tables are asked for that their names have no room there."""
    remake(shop, "id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null")
    done, told = resnapshot(shop, monkeypatch, "--table", "public.orders")
    ids = [one for one, _ in written(shop)]
    with psycopg.connect(shop.source_dsn(), autocommit=True) as connection:
        found = [*signals.gaps(connection, running.config, [f"public.table_{number}" for number in range(100, 300)])]

    assert done == 0, told
    assert [len(one) <= signals.ID_MAX for one in ids] == [True]
    assert [one.finding for one in found] == ["data takes 2048 characters, and 4045 are to be written there"]
    assert [one.next_step for one in found] == ["alter table public.signals alter column data type text"]


def remake(shop: Settings, columns: str) -> None:
    """The signal table with other columns."""
    with psycopg.connect(shop.source_dsn(), autocommit=True) as connection:
        connection.execute("drop table signals")
        connection.execute(f"create table signals ({columns})".encode())
        connection.execute("alter publication shop_pub add table signals; grant select, insert on signals to debezium")


def test_what_the_source_refuses_is_one_line(shop: Settings, postgres: ScratchPostgres) -> None:
    """Our role may not write there; or whatever else."""
    with psycopg.connect(postgres.dsn_of("shop"), autocommit=True) as connection:
        connection.execute("revoke insert on signals from shop")
        forbidden = refused(shop)
        connection.execute("grant insert on signals to shop; revoke select on signals from shop")
        with pytest.raises(StackError) as error:
            signals.read_beside(shop, ["public.orders"], signal="one")
        connection.execute("truncate signals")
        connection.execute("grant select on signals to shop")
        connection.execute("alter table signals add check (type <> 'execute-snapshot')")
        other = refused(shop)

    assert (
        forbidden
        == str(error.value)
        == (
            "public.signals: the role shop, by which the connector is asked, may not write and read there."
            " grant select, insert on public.signals to shop."
        )
    )
    assert other.startswith('source: new row for relation "signals" violates check constraint')


def resnapshot(shop: Settings, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    """Call the command."""
    for name in ("source", "connect"):
        monkeypatch.setenv(f"DELTAWORKS_PORT_{name.upper()}", str(getattr(shop, f"port_{name}")))
    monkeypatch.setenv("DELTAWORKS_DATA", str(shop.data))
    done = CliRunner().invoke(main, ["--project", str(shop.project), "source", "resnapshot", *words])
    return done.exit_code, done.output + (f"{done.exception!r}" if done.exception else "")


def test_of_several_tables_one_that_cannot_be_read_is_enough(shop: Settings) -> None:
    """Nothing is asked for then; whoever misspelt one is told what there is."""
    assert refused(shop, "public.orders", "silver.orders") == (
        "silver.orders: the source has no such table. Captured are public.customers, public.heartbeat,"
        " public.order_lines, public.orders, public.products, public.stock."
    )


def test_the_command_says_what_is_read_and_what_it_does_not_do(
    shop: Settings, running: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is named twice is read once."""
    words = ("--table", "public.orders", "--table", "public.orders", "--wait")
    running.offset = {"lsn": 2**60}

    done, told = resnapshot(shop, monkeypatch, *words)
    alone, _ = resnapshot(shop, monkeypatch, "--wait")

    assert done == 0, told
    assert told.splitlines() == [
        "public.orders: being read beside the stream; deletions that were lost stay lost",
        "public.orders: read",
    ]
    assert [data["data-collections"] for _, data in written(shop)] == [["public.orders"]]
    assert alone == 2
    assert json.loads((shop.project / "connector.json").read_text())["config"]["topic.prefix"] == "shop"


@pytest.mark.parametrize(
    ("then", "said"),
    [("FAILED", "is FAILED"), ("PAUSED", "is PAUSED"), ("STOPPED", "is STOPPED"), ("AWAY", "is away")],
)
def test_a_connector_that_stands_still_is_not_waited_for(
    shop: Settings, running: Connect, monkeypatch: pytest.MonkeyPatch, then: str, said: str
) -> None:
    """What it was asked for stays in the log of the source."""
    monkeypatch.setattr(signals, "_AWAY_SECONDS_MAX", 1)
    running.then, running.offset = then, {"lsn": 1}

    done, told = resnapshot(shop, monkeypatch, "--table", "public.orders", "--wait")

    assert done != 0
    assert f"connector shop: {said}: what it was asked for waits, and is read when it goes on. Run " in told
    assert "orders: read" not in told.replace("\n", " ")


def test_a_table_that_was_left_out_is_not_called_read(
    shop: Settings, running: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the connector's log says so, in lines since it was asked; older ones are of others."""
    part = PartState(name="connect", of="connect", step=False, state="ready", since=0)
    shop.run.mkdir()
    own = processes.started(os.getpid())
    StackState(generation=1, pid=os.getpid(), started=own, parts={"connect": part}).write(shop.run)
    shop.logs.mkdir()
    running.offset, now, said = {"lsn": 2**60}, datetime.now(UTC).astimezone(), []
    for at in (now - timedelta(hours=1), now + timedelta(minutes=1)):
        line = f"{at:%Y-%m-%d %H:%M:%S}.123 WARN io.debezium.IncrementalSnapshotSource Schema not found for orders\n"
        (shop.logs / "connect.log").write_text(line)
        said.append(resnapshot(shop, monkeypatch, "--table", "public.orders", "--wait"))

    (before, told_before), (since, told_since) = said
    assert (before, since) == (0, 1)
    assert "public.orders: read\n" in told_before
    assert "public.orders: read\n" not in told_since
    assert "connect log: 1 time(s) a table may have been left out that was to be read beside the stream" in told_since
