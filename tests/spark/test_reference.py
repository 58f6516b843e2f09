"""A thousand users, events shuffled within five minutes: gold holds what batch programs in DuckDB give."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks.settings import Settings
from shop.check import TABLES
from shop.comparison import compare
from shop.reference import CARTS, SHOP, WEB, CartCommand, cart_events
from tests.chance import seeded
from tests.flows import Log, Owner, Record

BEGIN = datetime(2026, 11, 20, 22, 15, tzinfo=UTC)  # over midnight
DAY = timedelta(days=1)
HOURS, VISITORS, SHUFFLED, BATCHES = 3.5, 1_000, timedelta(minutes=5), 6
CUSTOMERS, PRODUCTS, ORDERS, STEPS = 1_000, 24, 1_500, 4_000
REGULARS = 12
"""Customers who do much, so that what they do meets; of most others there is little."""
Event = dict[str, Any]
Events = dict[str, list[Event]]


TIMES = {
    "page_views": "event_time",
    "searches": "searched_at",
    "search_clicks": "clicked_at",
    "ad_impressions": "shown_at",
    "ad_clicks": "clicked_at",
    "purchases": "bought_at",
    "api_requests": "requested_at",
}


def moment(chance: Random, after: datetime = BEGIN, *, within: timedelta = timedelta(hours=HOURS)) -> datetime:
    """A time of whole seconds as often as not: then some lie just at a window's edge."""
    found = after + timedelta(microseconds=chance.randrange(within // timedelta(microseconds=1)))
    return found.replace(second=found.second // 30 * 30, microsecond=0) if chance.random() < 0.5 else found


def visitors(chance: Random) -> Events:
    """What the visitors did, by topic; each event once, in no order."""
    found: Events = {topic: [] for topic in TIMES}
    for n in range(4 * VISITORS):
        at, user = moment(chance), 1 + chance.randrange(VISITORS)
        found["page_views"].append(
            {"event_id": f"v{n}", "event_time": at, "user_id": user, "session_id": f"s{user}", "page": f"/{n % 7}",
             "referrer": None}
        )  # fmt: skip
    hour, ten = timedelta(hours=1), timedelta(minutes=10)
    for n in range(VISITORS):
        at, user = moment(chance), 1 + chance.randrange(VISITORS // 4)
        found["searches"].append(
            {"search_id": f"q{n}", "searched_at": at, "session_id": f"s{user}", "user_id": user, "term": f"t{n % 9}"}
        )
        shown = moment(chance)
        found["ad_impressions"].append(
            {"impression_id": f"i{n}", "shown_at": shown, "ad_id": f"a{n % 5}", "user_id": user}
        )
        for k in range(chance.choice((0, 0, 1, 3))):
            away = at + chance.choice((hour, hour + timedelta(microseconds=1), timedelta(0)))
            clicked = chance.choice((away, moment(chance, at, within=2 * hour)))
            found["search_clicks"].append(
                {"click_id": f"c{n}-{k}", "clicked_at": clicked, "search_id": f"q{n}",
                 "session_id": f"s{user if chance.random() < 0.9 else 0}", "user_id": user, "url": f"/p/{k}"}
            )  # fmt: skip
            away = shown + chance.choice((ten, ten + timedelta(microseconds=1)))
            clicked = chance.choice((away, moment(chance, shown, within=2 * ten)))
            found["ad_clicks"].append(
                {"click_id": f"d{n}-{k}", "clicked_at": clicked, "impression_id": f"i{n}", "ad_id": f"a{n % 5}",
                 "user_id": user}
            )  # fmt: skip
            bought = chance.choice((clicked + hour, clicked, moment(chance, clicked, within=2 * hour)))
            found["purchases"].append(
                {"purchase_id": f"b{n}-{k}", "bought_at": bought, "user_id": user,
                 "amount": Decimal(chance.randrange(1, 99_999)).scaleb(-2)}
            )  # fmt: skip
        found["api_requests"].append(
            {"request_id": f"r{n}", "requested_at": moment(chance), "client_id": f"k{n % 30}",
             "endpoint": f"/api/{n % 3}", "status": chance.choice((200, 200, 404, 500)),
             "milliseconds": chance.randrange(1, 900)}
        )  # fmt: skip
    return found


def sent(chance: Random, events: Events, times: Mapping[str, str] = TIMES) -> list[Record]:
    """Events as records, in the order in which they arrive: each up to five minutes after it happened."""
    records = []
    for topic, rows in events.items():
        for row in rows:
            arrived = row[times[topic]] + chance.random() * SHUFFLED
            if topic in ("page_views", "search_clicks"):
                row["arrived_at"] = arrived
            value = {name: _written(one) for name, one in row.items() if name != "arrived_at"}
            records.append(
                Record(topic=topic, value=json.dumps(value).encode(), partition=chance.randrange(2), at=arrived)
            )
    return sorted(records, key=lambda record: record.at)


def _written(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value) if isinstance(value, Decimal) else value


def cut(chance: Random, records: Sequence[Record], parts: int) -> Iterator[Sequence[Record]]:
    """The records in order, in so many parts of different sizes."""
    cuts = sorted(chance.sample(range(1, len(records)), parts - 1))
    for low, high in zip([0, *cuts], [*cuts, len(records)], strict=True):
        yield records[low:high]


def test_windows_and_joins_equal_batch_programs(spark: SparkSession, whole_shop: Settings) -> None:
    """Every kind of window and every join of streams, with restarts: the same rows as over all events at once."""
    chance = seeded()
    events, log = visitors(chance), Log()
    owner = Owner(spark, whole_shop, "web")
    for part in cut(chance, sent(chance, events), BATCHES):
        log.send(part)
        owner.take(log.batch())
        if chance.random() < 0.3:
            owner.start()
    owner.turn()

    assert differences(owner, events, WEB) == []
    assert owner.verdicts() == {"ok"}


def differences(owner: Owner, silver: Events, programs: Mapping[str, str]) -> list[str]:
    """Where tables are not what the programs give over these rows of silver."""
    wrong = []
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'; create schema silver; create schema gold; create schema found")
        for name, rows in silver.items():
            database.register("rows", pa.Table.from_pylist(rows))
            database.execute(f"create table silver.{name} as select * from rows")
        for name, query in programs.items():
            database.execute(f"create table {name} as {query}")
            columns = ", ".join(f'"{row[0]}"' for row in database.execute(f"describe {name}").fetchall())
            here = deltalake.DeltaTable(str(owner.settings.lake.joinpath(*name.split(".")))).to_pyarrow_table()
            database.register("rows", here)
            table = f"found.{name.partition('.')[2]}"
            database.execute(f"create table {table} as select {columns} from rows")
            compared = compare(database, name=name, expected=name, found=table, keys=TABLES[name])
            wrong += [f"{name}: {compared.expected} {compared.found} {compared.differences}"] * (not compared.ok)
            wrong += [f"{name}: there is nothing to compare"] * (compared.expected == 0)
    return wrong


KEYS = {
    "customers": ("customer_id",),
    "products": ("product_id",),
    "stock": ("product_id",),
    "orders": ("order_id",),
    "order_lines": ("order_id", "line_no"),
}
Keyed = dict[tuple[Any, ...], Event]


class Source:
    """A shop's database while it works: what each table holds, and its changes as they are captured."""

    def __init__(self, chance: Random) -> None:
        """Nothing is there yet."""
        self._chance, self._arrived = chance, BEGIN
        self.tables: dict[str, Keyed] = {name: {} for name in KEYS}
        self.states: list[Event] = []
        """Customers as they are and were."""
        self.records: list[Record] = []

    def put(self, table: str, row: Event, at: datetime) -> None:
        """Insert a row, or update the one with its key."""
        key = self._key(table, row)
        self._send(table, "u" if key in self.tables[table] else "c", row, at)
        self.tables[table][key] = row

    def delete(self, table: str, row: Event, at: datetime) -> None:
        """Delete a row that is there."""
        self._send(table, "d", row, at)
        del self.tables[table][self._key(table, row)]

    def _key(self, table: str, row: Event) -> tuple[Any, ...]:
        return tuple(row[name] for name in KEYS[table])

    def _send(self, table: str, op: str, row: Event, at: datetime) -> None:
        # in their order, and some only after clicks that happened later
        self._arrived = max(self._arrived, at + self._chance.random() * SHUFFLED)
        if table == "customers":
            for state in self.states:
                if state["is_current"] and state["customer_id"] == row["customer_id"]:
                    state.update(valid_to=at, is_current=False)
            if op != "d":
                self.states.append(
                    {**row, "valid_from": at, "valid_to": None, "is_current": True, "arrived_at": self._arrived}
                )
        written = {name: _written(value) for name, value in row.items()}
        key = {name: row[name] for name in KEYS[table]}
        micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        source = {
            "schema": "public",
            "table": table,
            "lsn": len(self.records) + 1,
            "snapshot": "false",
            "ts_us": micros,
        }
        value = {"before": written if op == "d" else None, "after": None if op == "d" else written, "source": source,
                 "op": op}  # fmt: skip
        self.records.append(
            Record(
                topic="shop.changes", key=json.dumps(key).encode(), value=json.dumps(value).encode(), at=self._arrived
            )
        )


def someone(chance: Random, among: int = CUSTOMERS) -> int:
    """A user: one of the regulars as often as of all."""
    return chance.randrange(REGULARS if chance.random() < 0.5 else among)


def customer_row(chance: Random, number: int, n: int, at: datetime) -> Event:
    """A customer as of the n-th step."""
    email = chance.choice((None, f"c{number}@example.com", f"c{n}@example.com"))
    return {"customer_id": number, "name": f"n{n}", "email": email, "country": chance.choice(("DE", "PT")),
            "tier": chance.choice(("basic", "premium", None)), "age": chance.choice((None, n % 90)),
            "created_at": BEGIN, "updated_at": at}  # fmt: skip


def shopping(chance: Random) -> Source:
    """Customers who come, move, leave; products with their stock; orders that are placed, paid, cancelled, deleted."""
    source, minute = Source(chance), timedelta(minutes=1)
    for number in chance.sample(range(CUSTOMERS), CUSTOMERS * 3 // 4):  # the others come later
        source.put("customers", customer_row(chance, number, 0, BEGIN), BEGIN)
    for n in range(1, STEPS):
        at, roll = BEGIN + n * timedelta(hours=HOURS) / STEPS, chance.random()
        customer, product, order = someone(chance), chance.randrange(PRODUCTS), chance.randrange(ORDERS)
        there = source.tables["orders"].get((order,))
        if roll < 0.2:
            row = customer_row(chance, customer, n, at)
            if chance.random() < 0.2:  # twice in one transaction
                source.put("customers", {**row, "tier": "basic", "age": 17}, at)
            source.put("customers", row, at)
        elif roll < 0.25 and (customer,) in source.tables["customers"]:
            source.delete("customers", source.tables["customers"][customer,], at)
        elif roll < 0.4:
            category = chance.choice(("books", "toys"))
            row = {"product_id": product, "name": f"p{n}", "category": category, "price": Decimal(n), "updated_at": at}
            source.put("products", row, at)
            source.put("stock", {"product_id": product, "quantity": chance.randrange(50), "updated_at": at}, at)
        elif there is None:
            row = {"order_id": order, "customer_id": customer, "status": "placed", "amount": Decimal(n) / 4,
                   "placed_at": at - chance.randrange(3) * minute, "updated_at": at}  # fmt: skip
            source.put("orders", row, at)
            for line, sold in enumerate(chance.sample(range(PRODUCTS), chance.randint(1, 3)), 1):
                bought = {"order_id": order, "line_no": line, "product_id": sold, "quantity": 1 + n % 3}
                source.put("order_lines", {**bought, "price": Decimal(n) / 4}, at)
        elif roll < 0.85:
            source.put("orders", {**there, "status": chance.choice(("paid", "cancelled")), "updated_at": at}, at)
        else:
            for row in [one for one in source.tables["order_lines"].values() if one["order_id"] == order]:
                source.delete("order_lines", row, at)
            source.delete("orders", there, at)
    return source


def browsing(chance: Random) -> Events:
    """Clicks of customers and others, what they ask of their carts, possible or not, and large purchases."""
    clicks = [
        {
            "click_id": f"c{n}",
            "clicked_at": moment(chance),
            "user_id": someone(chance, CUSTOMERS * 5 // 4),
            "url": f"/products/{n % PRODUCTS}",
        }
        for n in range(4 * CUSTOMERS)
    ]
    commands = [
        {"command_id": f"m{n}", "given_at": moment(chance) - chance.choice((0, 0, 0, 1.5)) * DAY,
         "cart_id": f"k{n % CUSTOMERS}", "user_id": n % CUSTOMERS,
         "command": chance.choice(("add", "add", "add", "remove", "change_quantity", "check_out", "dance")),
         "product_id": chance.choice((1, 2, 3, None)), "quantity": chance.choice((1, 2, 0, None))}
        for n in range(8 * CUSTOMERS)
    ]  # fmt: skip
    purchases = [
        {"purchase_id": f"p{n}", "bought_at": moment(chance), "user_id": n % CUSTOMERS,
         "amount": Decimal(chance.randrange(10_001, 99_999)).scaleb(-2)}
        for n in range(4 * CUSTOMERS)
    ]  # fmt: skip
    return {"product_clicks": clicks, "cart_commands": commands, "published_purchases": purchases}


def test_views_equal_batch_programs(spark: SparkSession, whole_shop: Settings) -> None:
    """Joins of tables, look-ups as of a moment, carts, with restarts: the same as over what is there in the end.

    Of a thousand users who click, fill carts and buy, a dozen do much.
    """
    chance = seeded()
    source, events, log = shopping(chance), browsing(chance), Log()
    clicked = [{**row, "search_id": "q", "session_id": "s"} for row in events["product_clicks"]]
    times = {"search_clicks": "clicked_at", "cart_commands": "given_at", "large_purchases": "bought_at"}
    by_topic = {"search_clicks": clicked, "cart_commands": events["cart_commands"]}
    arriving = sent(chance, by_topic | {"large_purchases": events["published_purchases"]}, times)
    owner = Owner(spark, whole_shop, "shop")
    for part in cut(chance, sorted([*source.records, *arriving], key=lambda record: record.at), 4):
        log.send(part)
        owner.take(log.batch())
        if chance.random() < 0.3:
            owner.start()
    owner.turn()

    silver = {name: list(rows.values()) for name, rows in source.tables.items()} | events
    silver["product_clicks"] = [
        {name: row[name] for name in (*events["product_clicks"][0], "arrived_at")} for row in clicked
    ]
    silver["customers"] = source.states
    asked = sorted((CartCommand(**row) for row in events["cart_commands"]), key=lambda one: one[:3])
    silver["cart_events"] = [event._asdict() for event in cart_events(asked)]
    assert differences(owner, silver, {**SHOP, **CARTS}) == []
    now, known = (
        {row["click_id"]: (row["country"], row["tier"], row["age"]) for row in owner.rows(f"gold.{name}")}
        for name in ("enriched_clicks", "clicks_as_known")
    )
    nothing = (None, None, None)
    assert any(nothing != known[click] != state for click, state in now.items() if state != nothing)
    assert owner.verdicts() == {"ok"}
