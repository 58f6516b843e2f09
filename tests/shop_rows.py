"""Kafka records as the shop's sources send them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random

from tests.flows import START, Record

NAMES = ("customers", "products", "stock", "orders", "order_lines")


def view(number: int, *, at: datetime = START, page: str = "/", event: str | None = None, user: int = 1) -> Record:
    """A page view, well-formed, that arrives when it happens, and none before START."""
    document = {
        "event_id": event or f"e{number}",
        "event_time": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "user_id": user,
        "session_id": f"s{user}",
        "page": page,
        "referrer": None,
    }
    value, key = json.dumps(document).encode(), str(user).encode()
    return Record(topic="page_views", value=value, key=key, partition=user % 2, at=max(at, START))


def broken(value: bytes) -> Record:
    """Bytes that are no page view."""
    return Record(topic="page_views", value=value, key=b"1", partition=1)


def change(
    op: str, row: dict[str, object], *, lsn: int, table: str = "orders", snapshot: bool = False, at: datetime = START
) -> Record:
    """A row change as Debezium writes it, committed `at`; `row` holds the key at least."""
    return change_of(op, row, lsn=lsn, table=table, snapshot=snapshot, at=at)


_KEYS = {"orders": ("order_id",), "order_lines": ("order_id", "line_no"), "customers": ("customer_id",),
         "products": ("product_id",), "stock": ("product_id",)}  # fmt: skip


def change_of(
    op: str, row: Mapping[str, object], *, lsn: int, table: str, snapshot: bool = False, at: datetime = START
) -> Record:
    """The same of any table of the shop's database."""
    key = {name: row[name] for name in _KEYS[table]}
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    source = {"schema": "public", "table": table, "lsn": lsn, "snapshot": "true" if snapshot else "false", "txId": lsn,
              "ts_ms": micros // 1_000, "ts_us": micros, "ts_ns": micros * 1_000}  # fmt: skip
    envelope = {
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "source": source,
        "op": op,
        "ts_ms": 0,
        "transaction": None,
    }
    return Record(topic="shop.changes", value=json.dumps(envelope).encode(), key=json.dumps(key).encode())


def tombstone(order_id: int) -> Record:
    """What Debezium sends after a delete."""
    return Record(topic="shop.changes", value=None, key=json.dumps({"order_id": order_id}).encode())


def order(order_id: int, *, status: str = "placed", amount: str = "10.00", day: int = 0) -> dict[str, object]:
    """An order's row on the wire."""
    at = (START + timedelta(days=day, minutes=order_id)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "order_id": order_id,
        "customer_id": 1,
        "status": status,
        "amount": amount,
        "placed_at": at,
        "updated_at": at,
    }


def customer(customer_id: int, name: str) -> dict[str, object]:
    """A customer's row on the wire."""
    at = START.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "customer_id": customer_id,
        "name": name,
        "email": None,
        "country": "DE",
        "created_at": at,
        "updated_at": at,
    }


def random_views(chance: Random, count: int, *, first: int = 0) -> list[Record]:
    """Views with copies, late ones and malformed bytes among them, numbered from `first`."""
    records: list[Record] = []
    for number in range(first, first + count):
        roll = chance.random()
        if roll < 0.1 and records:
            records.append(chance.choice(records))
        elif roll < 0.2:
            records.append(broken(chance.choice([b"", b"{", b'{"event_id": 1}', b"\xff", b"[]", b"null"])))
        else:
            late = timedelta(minutes=chance.randrange(90)) if roll < 0.3 else timedelta(seconds=chance.randrange(200))
            page = chance.choice(["/", "/cart", "/products/1"])
            records.append(view(number, at=START - late, page=page, user=chance.randrange(4)))
    return records


_CUSTOMER_EACH = 9
"""One change of so many is a customer's whatever is drawn: with an odd number and an even one in turn."""


def random_changes(chance: Random, count: int) -> list[Record]:
    """Orders placed, paid, cancelled, deleted and placed again, with other tables' changes between them."""
    records: list[Record] = []
    there: dict[int, dict[str, object]] = {}
    for lsn in range(1, count + 1):
        roll, number = chance.random(), chance.randrange(20)
        if roll < 0.15 or lsn % _CUSTOMER_EACH == 0:
            at = START + timedelta(seconds=chance.randrange(lsn))
            records.append(change("u", customer(number, f"n{lsn}"), lsn=lsn, table="customers", at=at))
        elif number not in there:
            there[number] = order(number, day=chance.randrange(3), amount=f"{chance.randrange(1, 99)}.50")
            records.append(change("c", there[number], lsn=lsn))
        elif roll < 0.3:
            records += [change("d", there.pop(number), lsn=lsn), tombstone(number)]
        else:
            there[number] = {**there[number], "status": chance.choice(["paid", "cancelled"])}
            records.append(change("u", there[number], lsn=lsn))
    return records
