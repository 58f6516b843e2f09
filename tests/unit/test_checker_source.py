"""I3: the checker reads the source database itself."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deltaworks import catalog
from deltaworks.engine.broker import Edge
from deltaworks.engine.checker import Picture
from deltaworks.engine.checker.source import equals_source
from deltaworks.engine.flow import Flow
from deltaworks.settings import ROOT, Settings
from tests.flows import Log, take_arrow
from tests.scratch_postgres import ScratchPostgres
from tests.shop_rows import change, customer, order


@pytest.fixture
def source(postgres: ScratchPostgres) -> Iterator[psycopg.Connection]:
    """Give the shop's database with two orders and a customer."""
    with psycopg.connect(postgres.database(f"shop_{uuid.uuid4().hex}"), autocommit=True) as connection:
        connection.execute(
            "create table orders (order_id bigint primary key, customer_id bigint, status text, "
            "amount numeric(12,2), placed_at timestamptz, updated_at timestamptz)"
        )
        for row in (order(1, status="paid"), order(2)):
            connection.execute("insert into orders values (%s, %s, %s, %s, %s, %s)", tuple(row.values()))
        connection.execute(
            "create table customers (customer_id bigint primary key, name text, email text, country text, tier text, "
            "age integer, created_at timestamptz, updated_at timestamptz)"
        )
        row = customer(1, "Ann")
        connection.execute(
            f"insert into customers ({', '.join(row)}) values ({', '.join(['%s'] * len(row))})",
            tuple(row.values()),
        )
        yield connection


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Give a project of orders and customers, and their lake: two orders, one of which was paid, and a new name."""
    for name in ("bronze/shop_changes", "silver/orders", "silver/customers"):
        shutil.copytree(ROOT / "tables" / name, tmp_path / "tables" / name)
        (tmp_path / "expectations" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "expectations" / f"{name}.yml", tmp_path / "expectations" / f"{name}.yml")
    shutil.copy(ROOT / "topics.toml", tmp_path)
    (tmp_path / "deltaworks.toml").write_text("")
    settings = Settings.load(tmp_path, environment={})
    known = catalog.load(tmp_path)
    flow = Flow(app="shop", epoch=1, catalog=known, settings=settings, guard=lambda: None)
    flow.begin({topic: {"0": Edge(0, 10**9)} for topic in flow.topics}, broker=None)
    log = Log()
    log.send([change("c", order(1), lsn=1), change("u", order(1, status="paid"), lsn=2), change("c", order(2), lsn=3)])
    log.send(
        [
            change("c" if lsn == 4 else "u", customer(1, name), lsn=lsn, table="customers")
            for lsn, name in ((4, "An"), (5, "Ann"))
        ]
    )
    take_arrow(flow, log.batch())
    return settings


def found(settings: Settings, source: psycopg.Connection) -> list[tuple[str, str, str]]:
    """What differs between source and lake."""
    with Picture(catalog.load(settings.project), settings.lake) as picture:
        return [one[:3] for one in equals_source(picture, f"{source.info.dsn} password={source.info.password}")]


def test_table_equals_its_source_until_one_of_them_changes(settings: Settings, source: psycopg.Connection) -> None:
    """Every value counts: a status, an amount, a row more, a row less."""
    place = ("I3", "silver.orders")

    assert not found(settings, source)

    source.execute("update orders set amount = 10.01 where order_id = 1")
    assert found(settings, source) == [(*place, "1 rows missing or other, 1 too many or other")]

    source.execute("delete from orders where order_id = 1")
    assert found(settings, source) == [(*place, "0 rows missing or other, 1 too many or other")]

    source.execute("update customers set name = 'Anne'")
    assert found(settings, source)[:-1] == [("I3", "silver.customers", "1 rows missing or other, 1 too many or other")]
    source.execute("update customers set name = 'Ann'")

    source.execute("insert into orders select 3, customer_id, status, amount, placed_at, updated_at from orders")
    assert found(settings, source) == [(*place, "1 rows missing or other, 1 too many or other")]
