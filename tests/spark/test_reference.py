"""A thousand visitors, events shuffled within five minutes: gold holds what batch programs in DuckDB give."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks.settings import Settings
from shop.comparison import compare
from shop.reference import WEB
from tests.chance import seeded
from tests.flows import Log, Owner, Record

BEGIN = datetime(2026, 11, 20, 22, 15, tzinfo=UTC)  # over midnight
HOURS, VISITORS, SHUFFLED, BATCHES = 3.5, 1_000, timedelta(minutes=5), 6
Event = dict[str, Any]
Events = dict[str, list[Event]]


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


TIMES = {
    "page_views": "event_time",
    "searches": "searched_at",
    "search_clicks": "clicked_at",
    "ad_impressions": "shown_at",
    "ad_clicks": "clicked_at",
    "purchases": "bought_at",
    "api_requests": "requested_at",
}


def sent(chance: Random, events: Events) -> list[Record]:
    """Events as records, in the order in which they arrive: each up to five minutes after it happened."""
    records = []
    for topic, rows in events.items():
        for row in rows:
            arrived = row[TIMES[topic]] + chance.random() * SHUFFLED
            if topic == "page_views":
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

    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'; create schema silver; create schema gold; create schema found")
        for topic, rows in events.items():
            database.register("rows", pa.Table.from_pylist(rows))
            database.execute(f"create table silver.{topic} as select * from rows")  # our own names
        wrong = []
        for name, query in WEB.items():
            database.execute(f"create table {name} as {query}")
            declared = owner.catalog[name]
            columns = ", ".join(row[0] for row in database.execute(f"describe {name}").fetchall())
            here = deltalake.DeltaTable(str(whole_shop.lake.joinpath(*name.split(".")))).to_pyarrow_table()
            database.register("rows", here)
            table = name.replace("gold.", "found.")
            database.execute(f"create table {table} as select {columns} from rows")  # our own names
            compared = compare(database, name=name, expected=name, found=table, keys=declared.keys)
            assert compared.expected > 0, name
            wrong += [f"{name}: {compared.expected} {compared.found} {compared.differences}"] * (not compared.ok)
    assert not wrong
    assert owner.verdicts() == {"ok"}
