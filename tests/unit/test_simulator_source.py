"""The simulator against a real Postgres: every action once, whatever fails in between."""

import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from deltaworks.errors import StackError
from deltaworks.settings import ROOT
from shop.orders import CancelOrder, PayOrder, PlaceOrder, RemoveCustomer, Shop, ShopSize, actions
from shop.source import Source
from tests.scratch_postgres import ScratchPostgres, scratch_postgres

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SIZE = ShopSize(customers=20, products=5, history_orders=100)


def install(dsn: str) -> None:
    """Create the shop's tables; the role that Debezium uses has to be there."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        with suppress(psycopg.errors.DuplicateObject):
            connection.execute("create role debezium")
        connection.execute(Path(ROOT / "shop/schema.sql").read_text())


def asked(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """Rows of a query."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return,unused-ignore]  # numbers of unknown type


@pytest.fixture
def dsn(postgres: ScratchPostgres) -> str:
    """Give the address of an empty shop."""
    dsn = postgres.database(f"shop_{uuid.uuid4().hex}")
    install(dsn)
    return dsn


@pytest.fixture
def source(dsn: str) -> Iterator[Source]:
    """Give a connected source."""
    with Source(dsn, stopping=threading.Event(), patience_seconds=20) as source:
        yield source


def test_the_schema_can_be_run_again_over_data(dsn: str, source: Source) -> None:
    """`up` runs it at every start: nothing changes and the publication holds all six tables."""
    shop = Shop()
    for action in islice(actions(random=Random(1), shop=shop, start=START, order_rate=1, size=SIZE), 200):
        source.apply(action)

    install(dsn)

    assert source.state() == shop
    published = asked(dsn, "select tablename from pg_publication_tables where pubname = 'shop_pub' order by 1")
    tables = ["customers", "heartbeat", "order_lines", "orders", "products", "signals", "stock"]
    assert [name for (name,) in published] == tables
    assert asked(dsn, "select relname from pg_class where relreplident = 'f'")
    assert asked(dsn, "select id from heartbeat") == [(1,)]


def test_a_database_of_before_tiers_and_ages_is_upgraded(dsn: str) -> None:
    """Customers that were there are basic and of no known age; what the shop does not know is refused from then on."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter table customers drop column tier, drop column age")
        connection.execute("insert into customers (name, email, country) values ('Ada', 'ada@example.com', 'NL')")

    install(dsn)
    install(dsn)

    assert asked(dsn, "select tier, age from customers") == [("basic", None)]
    with psycopg.connect(dsn, autocommit=True) as connection:
        for wrong in ("tier = 'gold'", "tier = null", "age = -1"):
            with pytest.raises(psycopg.errors.IntegrityError):
                connection.execute(f"update customers set {wrong}")  # type: ignore[call-overload,unused-ignore]  # texts of our own


def test_what_was_planned_is_in_the_database(dsn: str, source: Source) -> None:
    """After a thousand actions the database is in the state that the plan worked out, sums included."""
    shop = Shop()

    for action in islice(actions(random=Random(1), shop=shop, start=START, order_rate=1, size=SIZE), 1_000):
        source.apply(action)

    assert source.state() == shop
    assert asked(dsn, "select count(*) from orders")[0][0] > 100
    assert asked(dsn, "select count(*) from customers where tier = 'premium'")[0][0] > 0
    assert asked(dsn, "select count(*) from customers where age is null")[0][0] > 0
    wrong = "select order_id from orders join order_lines l using (order_id) group by order_id, amount"
    assert asked(dsn, f"{wrong} having amount <> sum(l.quantity * l.price)") == []


@pytest.mark.parametrize("kind", [PlaceOrder, PayOrder, CancelOrder, RemoveCustomer])
def test_an_action_whose_answer_was_lost_is_not_done_twice(dsn: str, source: Source, kind: type) -> None:
    """The transaction was committed, the connection died before the answer: a look-up finds it done."""
    shop = Shop()
    for action in actions(random=Random(1), shop=shop, start=START, order_rate=1, size=SIZE):
        source.apply(action)
        if isinstance(action, kind):
            break
    with psycopg.connect(dsn, autocommit=True) as connection:
        ended = connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'shop.simulate' and datname = current_database()"
        ).fetchall()

    source.apply(action)

    assert ended == [(True,)]
    assert source.state() == shop


def test_ids_of_deleted_customers_are_not_given_again(dsn: str, source: Source) -> None:
    """The newest customer leaves; the next run goes on beyond her id."""
    shop = Shop()
    for action in islice(actions(random=Random(1), shop=shop, start=START, order_rate=1, size=SIZE), 25):
        source.apply(action)
    newest = source.state().next_customer_id - 1

    source.apply(RemoveCustomer(due_us=0, at=START, customer_id=newest))

    assert asked(dsn, f"select count(*) from customers where customer_id = {newest}") == [(0,)]
    left = {customer: profile for customer, profile in shop.profile_of.items() if customer != newest}
    assert source.state() == replace(shop, orders_of=dict.fromkeys(left, 0), profile_of=left)
    assert source.state().next_customer_id == newest + 1


def test_a_second_simulator_is_refused(dsn: str, source: Source) -> None:
    """Two would take the same ids; the error says what to do."""
    assert source.state() == Shop()

    with pytest.raises(StackError, match="another simulator"):
        Source(dsn, stopping=threading.Event())


def test_an_error_names_the_server_but_not_the_password() -> None:
    """Logs may be read by many."""
    with pytest.raises(StackError) as caught:
        Source("postgresql://shop:hush@127.0.0.1:1/shop", stopping=threading.Event(), patience_seconds=1)

    assert "127.0.0.1:1/shop" in str(caught.value)
    assert "hush" not in str(caught.value)


def await_orders(shop: Shop, errors: list[Exception], *, orders: int = 20, seconds_max: float = 60) -> None:
    """Wait until this many more orders were placed."""
    wanted, end = shop.next_order_id + orders, time.monotonic() + seconds_max
    while shop.next_order_id < wanted:
        assert not errors
        assert time.monotonic() < end, f"{wanted} orders were not placed"
        time.sleep(0.02)  # the simulator works in a thread of its own and tells nobody


def test_crashes_of_postgres_lose_and_double_nothing() -> None:
    """Three crashes while orders are placed: the database ends in the planned state, as if nothing had happened."""
    shop, errors, done = Shop(), [], threading.Event()
    with scratch_postgres() as server:
        dsn = server.database("shop")
        install(dsn)

        def simulate() -> None:
            try:
                with Source(dsn, stopping=threading.Event(), patience_seconds=60) as source:
                    plan = actions(random=Random(3), shop=shop, start=START, order_rate=1, size=SIZE)
                    for number, action in enumerate(plan):
                        source.apply(action)
                        if number >= 1_000 and done.is_set():
                            return
            except Exception as error:  # noqa: BLE001  # told by the assertion below
                errors.append(error)

        thread = threading.Thread(target=simulate)
        thread.start()
        crashed_at = []
        for _ in range(3):
            await_orders(shop, errors)
            crashed_at.append(shop.next_order_id)
            server.stop(signal.SIGQUIT)
            server.start()
        await_orders(shop, errors)
        done.set()
        thread.join(120)

        assert not thread.is_alive()
        assert errors == []
        assert crashed_at[0] < crashed_at[-1] < shop.next_order_id
        with Source(dsn, stopping=threading.Event()) as source:
            assert source.state() == shop
