"""The check of the copies beside the lake, in the real Postgres and Kafka: it accepts right ones, and no other."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from deltaworks.local import kafka
from deltaworks.settings import Settings
from shop.comparison import Comparison
from shop.copies import COPIES, SERVED, Copies
from shop.evidence import LOG_COLUMNS, make, open_database
from tests.running_stack import wait_until
from tests.shop_copies import Row, send_confirmations, send_products, serve
from tests.stack.conftest import StartParts

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
PRODUCTS: list[Row] = [
    {"product_id": 1, "name": "Kettle", "category": "kitchen", "price": Decimal("9.95"), "updated_at": AT},
    {"product_id": 2, "name": "Håkon's rake", "category": "garden", "price": Decimal("15.00"), "updated_at": AT},
]
FOUND: list[Row] = [
    {**{name: row[name] for name in ("product_id", "name", "category", "price")}, "in_stock": 3, "sold": 4}
    for row in PRODUCTS
]
PROFILES: list[Row] = [
    {"customer_id": 7, "name": "Ada", "tier": "basic", "orders": 2, "value": Decimal("19.90"),
     "favourite_category": None, "last_seen_at": AT}
]  # fmt: skip
ORDERS = range(1, 9)
TOPICS = ("products_changelog", "order_confirmations")


@pytest.fixture
def settings(stack: StartParts) -> Settings:
    """Give a broker whose topics are empty, whoever had the stack before, and a serving database without copies."""
    settings = stack(parts=("control", "kafka"))
    kafka.create_topics(settings)
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    for future in admin.delete_topics([*TOPICS]).values():
        future.result(30)
    wait_until(lambda: not {*TOPICS} & {*admin.list_topics(timeout=30).topics}, what="the topics are gone")
    kafka.create_topics(settings)
    with psycopg.connect(settings.serving_dsn()) as connection:
        connection.execute("drop schema if exists gold cascade")
    return settings


@pytest.fixture
def database(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a database with what is expected, and no change that was reported."""
    with open_database(tmp_path) as database:
        for schema in ("kafka", "silver", "gold"):
            database.execute(f"create schema {schema}")
        make(database, "kafka.shop_changes", LOG_COLUMNS)
        product = {"product_id": "bigint", "name": "varchar", "category": "varchar", "price": "decimal(12, 2)"}
        make(database, "silver.products", product | {"updated_at": "timestamptz"})
        for name, columns in SERVED.items():
            make(database, name, columns)
        for name, rows in {
            "silver.products": PRODUCTS,
            "gold.product_search": FOUND,
            "gold.customer_profiles": PROFILES,
        }.items():
            for row in rows:
                database.execute(f"insert into {name} values ({', '.join('?' * len(row))})", [*row.values()])
        make(database, "gold.order_confirmations", {"order_id": "bigint"})
        database.executemany("insert into gold.order_confirmations values (?)", [(order,) for order in ORDERS])
        yield database


@pytest.fixture
def whole(settings: Settings) -> Settings:
    """Give settings whose copies are as they should be."""
    serve(settings, "gold.customer_profiles", PROFILES)
    serve(settings, "gold.product_search", FOUND)
    send_products(settings, PRODUCTS)
    send_confirmations(settings, ORDERS)
    return settings


def compared(database: duckdb.DuckDBPyConnection, settings: Settings) -> dict[str, Comparison]:
    """What the check says, by comparison."""
    copies = Copies(database, settings)
    copies.read()
    copies.close()
    return {one.name: one for one in copies.compare()}


def test_copies_that_are_right_pass(whole: Settings, database: duckdb.DuckDBPyConnection) -> None:
    """Also where a row was another one before, a product went, or a message was sent again under its id."""
    older = {**PRODUCTS[0], "name": "Kettle of before"}
    send_products(whole, [older, {**older, "product_id": 3}])
    send_products(whole, PRODUCTS[:1], gone=[3, 4])
    send_confirmations(whole, [1, 2])

    found = compared(database, whole)

    assert tuple(found) == COPIES
    assert {name: (one.found, one.differences) for name, one in found.items()} == {
        "postgres gold.customer_profiles": (1, ()),
        "postgres gold.product_search": (2, ()),
        "topic products_changelog": (2, ()),
        "topic order_confirmations": (8, ()),
    }


def test_copies_that_are_not_there_fail(settings: Settings, database: duckdb.DuckDBPyConnection) -> None:
    """An app that never ran has made no copy."""
    found = compared(database, settings)

    assert {name: one.differences for name, one in found.items()} == {
        "postgres gold.customer_profiles": ("no such copy",),
        "postgres gold.product_search": ("no such copy",),
        "topic products_changelog": ("2 missing: product_id=1; product_id=2",),
        "topic order_confirmations": ("8 missing: order_id=1; order_id=2; order_id=3",),
    }


@pytest.mark.parametrize(
    ("name", "spoil", "difference"),
    [
        (
            "postgres gold.customer_profiles",
            lambda on: serve(on, "gold.customer_profiles", []),
            "1 missing: customer_id=7",
        ),
        (
            "postgres gold.product_search",
            lambda on: serve(on, "gold.product_search", [FOUND[0], {**FOUND[1], "sold": 5}]),
            "1 different: product_id=2 in sold",
        ),
        ("topic products_changelog", lambda on: send_products(on, [], gone=[2]), "1 missing: product_id=2"),
        (
            "topic products_changelog",
            lambda on: send_products(on, [{**PRODUCTS[0], "price": Decimal("9.96")}]),
            "1 different: product_id=1 in price",
        ),
        ("topic order_confirmations", lambda on: send_confirmations(on, [9]), "1 unexpected: order_id=9"),
        (
            "topic order_confirmations",
            lambda on: send_confirmations(on, [3], message_id="another {}"),
            "1 more than once: order_id=3",
        ),
    ],
)
def test_each_sort_of_damage_is_found_in_its_copy_alone(
    whole: Settings,
    database: duckdb.DuckDBPyConnection,
    name: str,
    spoil: Callable[[Settings], None],
    difference: str,
) -> None:
    """A row that is missing, other or too much; an order that is told as two messages."""
    spoil(whole)

    failed = [one for one in compared(database, whole).values() if not one.ok]

    assert [(one.name, one.differences) for one in failed] == [(name, (difference,))]


def test_an_order_that_went_since_was_told_rightly(whole: Settings, database: duckdb.DuckDBPyConnection) -> None:
    """That it was there is known from the changes of the database; one that never was stays unexpected."""
    send_confirmations(whole, [21, 22, 23])
    for number, change in enumerate(
        [
            {"before": {"order_id": 21}, "after": None, "source": {"table": "orders"}, "op": "d"},
            {"before": None, "after": {"order_id": 22}, "source": {"table": "orders"}, "op": "c"},
            {"before": {"order_id": 23}, "after": None, "source": {"table": "order_lines"}, "op": "d"},
            {"before": {"order_id": 1}, "after": {"order_id": 1}, "source": {"table": "orders"}, "op": "u"},
            None,
        ]
    ):
        value = None if change is None else json.dumps(change).encode()
        database.execute("insert into kafka.shop_changes values (0, ?, now(), null, ?)", [number, value])

    found = compared(database, whole)["topic order_confirmations"]

    assert found.differences == ("1 unexpected: order_id=23",)


def test_what_retention_took_is_not_missed(whole: Settings, database: duckdb.DuckDBPyConnection) -> None:
    """Where messages are gone from the topic, those that are left are compared: each of an order, and once."""
    admin = AdminClient({"bootstrap.servers": whole.kafka})
    parts = [TopicPartition("order_confirmations", number, -1) for number in range(4)]
    for future in admin.delete_records(parts).values():
        future.result(30)
    send_confirmations(whole, [5, 5, 9])

    found = compared(database, whole)["topic order_confirmations"]

    assert (found.expected, found.found) == (1, 2)
    assert found.differences == ("1 unexpected: order_id=9",)
