"""The driver's thread that keeps copies up to date, with a serving database that goes and comes back."""

import logging
import time
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pytest

from deltaworks.engine import flow
from deltaworks.engine.outlets import pusher
from deltaworks.engine.outlets.pusher import Outlets
from deltaworks.engine.past import segments
from deltaworks.errors import LeaseLostError
from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.copied_table import NAME, copied, rows
from tests.flows import Log
from tests.running_stack import wait_until
from tests.scratch_postgres import ScratchPostgres, scratch_postgres
from tests.source_table import SourceTable


def serving(server: ScratchPostgres, settings: Settings) -> Settings:
    """Settings whose serving database is on this server."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("create role reader")
        connection.execute("create role serving login password 'secret'")
        connection.execute("create database serving owner serving")
    settings.secrets.mkdir(parents=True)
    (settings.secrets / "serving").write_text("secret")
    return settings.changed(port_control=server.port)


def served(server: ScratchPostgres) -> list[tuple[int, str | None]]:
    """Id and city of the copy's rows."""
    with psycopg.connect(server.dsn_of("serving")) as connection:
        return connection.execute("select id, city from silver.people order by id").fetchall()


def test_copy_goes_on_when_its_database_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While it is away the error is told, once; afterwards all that was missed is there, and no lag is told."""
    monkeypatch.setattr(pusher, "AGAIN_SECONDS", (0.1, 0.3))
    caplog.set_level(logging.INFO, "deltaworks.outlets")
    with scratch_postgres() as server:
        settings = serving(server, copied(tmp_path, "serves=postgres(),"))
        owner, log, source = ArrowOwner(settings, "tiny"), Log(), SourceTable()

        def insert(city: str) -> None:
            source.insert(len(source.rows) + 1, city=city)
            log.send(source.log[-1:])
            owner.take(log.batch())

        outlets = Outlets(owner.catalog.app("tiny"), settings, guard=lambda: None)
        outlets.start()
        insert("Graz")
        wait_until(lambda: outlets.progress()[0]["version"] == outlets.progress()[0]["newest"] > 0, what="the copy")
        assert served(server) == [(1, "Graz")]

        server.stop()
        insert("Linz")
        wait_until(lambda: outlets.progress()[0]["error"] is not None, what="the error")
        told = outlets.progress()[0]
        assert told["behind_since"] is not None
        assert told["version"] < told["newest"]
        time.sleep(1)
        server.start()
        insert("Wien")

        assert outlets.finish(seconds_max=20) is None
        outlets.close()
        assert served(server) == [(row["id"], row["city"]) for row in rows(owner)]
        assert outlets.progress()[0] == {
            "table": NAME, "to": "postgres", "version": told["newest"] + 1, "newest": told["newest"] + 1,
            "behind_since": None, "error": None,
        }  # fmt: skip
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert 1 <= len(warnings) <= 3  # the server's end and its absence read differently
    assert all(text.startswith(f"{NAME} in Postgres: ") for text in warnings)


def test_a_copy_far_behind_a_damaged_past_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only since when it is behind is not known: a heartbeat that fails would have the driver ended."""
    monkeypatch.setattr(flow, "COMMITS_FOLLOWED", 10)
    monkeypatch.setattr(pusher, "AGAIN_SECONDS", (0.1, 0.3))
    with scratch_postgres() as server:
        settings = serving(server, copied(tmp_path, "serves=postgres(),"))
        owner, log, source = ArrowOwner(settings, "tiny"), Log(), SourceTable()
        path = owner.flow.inputs[NAME].table.path
        outlets = Outlets(owner.catalog.app("tiny"), settings, guard=lambda: None)
        outlets.start()

        def insert() -> None:
            source.insert(len(source.rows) + 1, city="Graz")
            log.send(source.log[-1:])
            owner.take(log.batch())
            owner.flow.tend()

        insert()
        wait_until(lambda: outlets.progress()[0]["version"] == outlets.progress()[0]["newest"] > 0, what="the copy")
        server.stop()
        for _ in range(50):
            insert()
        owner.flow.commits_kept = 10
        owner.flow.settle()
        assert segments(path)
        for one in segments(path):
            one.file.write_bytes(b"not a segment")
        newest = owner.flow.inputs[NAME].table.version
        wait_until(lambda: outlets.progress()[0]["newest"] == newest, what="a look at what has come")
        told = outlets.progress()[0]
        outlets.close()

    assert 0 <= told["version"] < segments(path)[-1].last < newest
    assert told["error"] is not None
    assert told["behind_since"] is None


def test_who_owns_the_app_no_longer_pushes_nothing(tmp_path: Path) -> None:
    """The lease is looked at before each push."""
    with scratch_postgres() as server:
        settings = serving(server, copied(tmp_path, "serves=postgres(),"))
        owner, log, source = ArrowOwner(settings, "tiny"), Log(), SourceTable()
        source.insert(1, city="Graz")
        log.send(source.log)
        owner.take(log.batch())

        def lost() -> None:
            raise LeaseLostError("app tiny", "another driver owns it", "Nothing")

        outlets = Outlets(owner.catalog.app("tiny"), settings, guard=lost)
        with pytest.raises(LeaseLostError):
            outlets.finish(seconds_max=5)
        with psycopg.connect(server.dsn_of("serving")) as connection:
            assert connection.execute("select to_regclass('silver.people')").fetchone() == (None,)


def test_a_panic_ends_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What pyo3 raises when Rust panics is no Exception: it is told, and the copy is tried again with a new handle."""
    caplog.set_level(logging.INFO, "deltaworks.outlets")
    monkeypatch.setattr(pusher, "AGAIN_SECONDS", (0.1, 0.3))
    with scratch_postgres() as server:
        settings = serving(server, copied(tmp_path, "serves=postgres(),"))
        owner, log, source = ArrowOwner(settings, "tiny"), Log(), SourceTable()
        source.insert(1, city="Graz")
        log.send(source.log)
        owner.take(log.batch())
        outlets = Outlets(owner.catalog.app("tiny"), settings, guard=lambda: None)
        outlet = outlets._lines[0].outlet
        opened = outlet.feed._opened

        def panics(version: int) -> deltalake.DeltaTable:
            monkeypatch.setattr(outlet.feed, "_table", Poisoned())
            monkeypatch.setattr(outlet.feed, "_opened", opened)
            raise PanicException(f"no version {version}")

        monkeypatch.setattr(outlet.feed, "_opened", panics)
        outlets.start()
        wait_until(lambda: outlet.version > 0, what="the copy")
        outlets.close()

        assert [one.message for one in caplog.records if one.levelno == logging.WARNING] == [
            f"{NAME} to postgres: PanicException: no version {outlet.version}. Look at the app's log."
        ]
        assert served(server) == [(1, "Graz")]


class Poisoned:
    """A handle that nothing can be asked of."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"poisoned: {name}")


class PanicException(BaseException):
    """As pyo3 raises it, whose own cannot be imported."""


def test_a_copy_that_cannot_be_made_is_told_at_the_end(tmp_path: Path) -> None:
    """A drain that leaves a copy behind says so."""
    with scratch_postgres() as server:
        settings = serving(server, copied(tmp_path, "serves=postgres(),")).changed(port_control=1)
        owner = ArrowOwner(settings, "tiny")
        outlets = Outlets(owner.catalog.app("tiny"), settings, guard=lambda: None)

        failed = outlets.finish(seconds_max=1)
        for _ in range(2_000):  # it has been away for days
            outlets._failed(outlets._lines[0], OSError("away"))

        assert failed is not None
        assert str(failed).startswith(f"{NAME} in Postgres: ")
