"""Fixtures of the tests that need no Java: one scratch Postgres per session, one control store per test."""

import uuid
from collections.abc import Iterator

import pytest

from deltaworks.cli.context import remember
from deltaworks.control import Store
from tests.scratch_postgres import ScratchPostgres, scratch_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[ScratchPostgres]:
    """Give a running Postgres server."""
    with scratch_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def source_server(postgres: ScratchPostgres) -> ScratchPostgres:
    """Give the server, with the roles of a source: `shop`, who owns it and has the password sesame, and `debezium`."""
    postgres.role("shop", "login password 'sesame'")
    postgres.role("debezium")
    return postgres


@pytest.fixture
def control_dsn(postgres: ScratchPostgres) -> str:
    """Give the address of a migrated control store with the apps `shop` and `web`, used by this test only."""
    dsn = postgres.database(f"control_{uuid.uuid4().hex}")
    with Store(dsn) as store:
        store.migrate()
        store.declare_apps(["shop", "web"])
    return dsn


@pytest.fixture
def store(control_dsn: str) -> Iterator[Store]:
    """Give a control store with the apps `shop` and `web`."""
    with Store(control_dsn) as store:
        yield store


@pytest.fixture(autouse=True)
def _no_project_remembered() -> Iterator[None]:
    """Forget a --project that a test gave: the command line is one process here, elsewhere one per call."""
    yield
    remember(None)
