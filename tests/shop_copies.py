"""Copies of the shop's tables beside the lake, written without the engine."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import psycopg
from confluent_kafka import Producer
from psycopg import sql

from deltaworks.settings import Settings
from shop.copies import SERVED

Row = Mapping[str, Any]


def serve(settings: Settings, name: str, rows: Iterable[Row]) -> None:
    """Make the copy of a table in the serving database, in the place of what is there."""
    table, columns = sql.Identifier(*name.split(".")), SERVED[name]
    listed = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(one), sql.SQL(columns[one])) for one in columns)
    places = sql.SQL(", ").join(sql.Placeholder(one) for one in columns)
    with psycopg.connect(settings.serving_dsn()) as connection:
        connection.execute("create schema if not exists gold")
        connection.execute("grant usage on schema gold to reader")
        connection.execute(sql.SQL("drop table if exists {}").format(table))
        connection.execute(sql.SQL("create table {} ({})").format(table, listed))
        connection.execute(sql.SQL("grant select on {} to reader").format(table))
        with connection.cursor() as cursor:
            cursor.executemany(sql.SQL("insert into {} values ({})").format(table, places), rows)


def send_products(settings: Settings, rows: Iterable[Row], *, gone: Iterable[int] = ()) -> None:
    """Publish rows of products, and that some are not there any more."""
    rows = {row["product_id"]: json.dumps(row, default=_written).encode() for row in rows}
    _send(settings, "products_changelog", [
        (json.dumps({"product_id": product}).encode(), value, f"{product}")
        for product, value in [*rows.items(), *((product, None) for product in gone)]
    ])  # fmt: skip


def send_confirmations(settings: Settings, orders: Iterable[int], *, message_id: str = "order {}") -> None:
    """Publish confirmations of orders, by number."""
    rows = {order: json.dumps({"order_id": order, "name": "Ada"}).encode() for order in orders}
    _send(settings, "order_confirmations", [
        (json.dumps({"order_id": order}).encode(), value, message_id.format(order)) for order, value in rows.items()
    ])  # fmt: skip


def send_large_purchases(settings: Settings, rows: Iterable[Row]) -> None:
    """Publish rows of large purchases."""
    _send(settings, "large_purchases", [
        (
            json.dumps({"user_id": row["user_id"]}).encode(),
            json.dumps(row, default=_written).encode(),
            row["purchase_id"],
        )
        for row in rows
    ])  # fmt: skip


def _send(settings: Settings, topic: str, messages: Iterable[tuple[bytes, bytes | None, str]]) -> None:
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    for key, value, identity in messages:
        producer.produce(topic, key=key, value=value, headers=[("id", identity.encode())])
    assert producer.flush(30) == 0


def _written(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)
