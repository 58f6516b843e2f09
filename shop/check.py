"""The demo's own check: do lake and copies hold what Kafka and Postgres hold? It shares no code with the engine.

    python -m shop.check --wait 120

The simulator should have ended: silver and gold are compared with the sources as they are now.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import duckdb
import pyarrow as pa
import typer

from deltaworks.cli.show import err, listing, out
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from shop.comparison import Comparison, compare, count, quoted
from shop.copies import Copies
from shop.evidence import (
    LOG_COLUMNS,
    LakeTable,
    TopicLog,
    copy_postgres,
    insert_rows,
    make,
    make_events,
    open_database,
    parse_events,
)
from shop.reference import CARTS, SHOP, WEB, CartCommand, cart_events
from shop.wellformed import FIELDS, Field

_ROWS = {
    "orders": {
        "order_id": "bigint",
        "customer_id": "bigint",
        "status": "varchar",
        "amount": "decimal(12, 2)",
        "placed_at": "timestamptz",
        "updated_at": "timestamptz",
    },
    # Postgres reports no change for the default of a new column: in a lake that is older than tier and age both are
    # null until the customer changes, and the check says so. In a database of today each row is sent with them.
    "customers": {
        "customer_id": "bigint",
        "name": "varchar",
        "email": "varchar",
        "country": "varchar",
        "tier": "varchar",
        "age": "integer",
        "created_at": "timestamptz",
        "updated_at": "timestamptz",
    },
    "products": {
        "product_id": "bigint",
        "name": "varchar",
        "category": "varchar",
        "price": "decimal(12, 2)",
        "updated_at": "timestamptz",
    },
    "order_lines": {
        "order_id": "bigint",
        "line_no": "integer",
        "product_id": "bigint",
        "quantity": "integer",
        "price": "decimal(12, 2)",
    },
    "stock": {"product_id": "bigint", "quantity": "integer", "updated_at": "timestamptz"},
}
"""Columns of the shop's tables in Postgres."""
_HISTORIES = {"customers"}
_FROM_POSTGRES = {
    f"silver.{name}": (
        f"select {', '.join(columns)}{', true' if name in _HISTORIES else ''} from {name}",  # noqa: S608  # our own names
        columns | ({"is_current": "boolean"} if name in _HISTORIES else {}),
    )
    for name, columns in _ROWS.items()
}
CURRENT = {f"silver.{name}": "is_current" for name in _HISTORIES}
"""Which rows of a table that keeps older ones too are compared: those that hold now."""
EVENTS = {
    "silver.page_views": ("bronze.web_events", "page_views"),
    "silver.searches": ("bronze.web_events", "searches"),
    "silver.search_clicks": ("bronze.web_events", "search_clicks"),
    "silver.ad_impressions": ("bronze.web_events", "ad_impressions"),
    "silver.ad_clicks": ("bronze.web_events", "ad_clicks"),
    "silver.purchases": ("bronze.web_events", "purchases"),
    "silver.api_requests": ("bronze.web_events", "api_requests"),
    "silver.cart_commands": ("bronze.shop_events", "cart_commands"),
    "silver.product_clicks": ("bronze.shop_events", "search_clicks"),
    "silver.published_purchases": ("bronze.shop_events", "large_purchases"),
}
"""Silver tables of events, each with its bronze table and topic."""
BRONZE = {f"{bronze} {topic}": (bronze, topic) for bronze, topic in EVENTS.values()} | {
    "bronze.shop_changes": ("bronze.shop_changes", "shop.changes")
}
"""Comparisons of bronze, one per topic of a table."""
_CART_EVENTS = {
    "cart_id": "varchar",
    "given_at": "timestamptz",
    "since": "timestamptz",
    "command_id": "varchar",
    "user_id": "bigint",
    "command": "varchar",
    "product_id": "bigint",
    "quantity": "integer",
    "refused": "varchar",
}
_ARRIVAL = dict.fromkeys(("silver.page_views", "silver.product_clicks"), ', "timestamp" as arrived_at')
# what the customer was at that moment is known from the history alone, whose times Postgres does not keep
_CLICKS = "select user_id, click_id, clicked_at, url from silver.product_clicks"
_SHOP = {**SHOP, **dict.fromkeys(("gold.enriched_clicks", "gold.clicks_as_known"), _CLICKS)}
# what is no purchase is refused before anybody asks how large it is
_WEB = WEB | {"silver.large_purchases__quarantine": "select * from silver.purchases__quarantine"}
# gold.page_views_in_time and gold.page_views_set_aside are left out: what was too late depends on when it was read.
TABLES = {
    **{name: (next(iter(FIELDS[name.removeprefix("silver.")])),) for name in EVENTS},
    **{f"{name}__quarantine": ("partition", "offset") for name in EVENTS},
    "silver.large_purchases": ("purchase_id",),
    "silver.large_purchases__quarantine": ("partition", "offset"),
    "silver.orders": ("order_id",),
    "silver.customers": ("customer_id",),
    "silver.products": ("product_id",),
    "silver.order_lines": ("order_id", "line_no"),
    "silver.stock": ("product_id",),
    "silver.cart_events": ("cart_id", "given_at", "command_id"),
    "silver.cart_commands_refused": ("cart_id", "given_at", "command_id"),
    "gold.big_spenders": ("day", "user_id"),
    "gold.page_views_per_minute": ("page", "minute"),
    "gold.page_views_by_arrival": ("minute",),
    "gold.page_views_hopping": ("until",),
    "gold.user_sessions": ("user_id", "session_start"),
    "gold.url_clicks_5m": ("url", "since"),
    "gold.response_times": ("endpoint", "until"),
    "gold.request_samples": ("since",),
    "gold.request_bursts": ("client_id", "requested_at", "request_id"),
    "gold.search_click_through": ("session_id", "searched_at", "search_id"),
    "gold.search_terms": ("day", "term"),
    "gold.ad_click_through": ("impression_id", "shown_at"),
    "gold.click_to_purchase": ("user_id", "clicked_at", "click_id"),
    "gold.carts": ("cart_id",),
    "gold.cart_interest": ("day", "product_id"),
    "gold.daily_orders": ("day",),
    "gold.order_items": ("order_id", "line_no", "product_id"),
    "gold.orders_with_customers": ("customer_id", "order_id"),
    "gold.product_sales": ("product_id",),
    "gold.stock_levels": ("product_id",),
    "gold.also_bought": ("product_id", "other_id"),
    "gold.orders_last_8_minutes": ("until",),
    "gold.enriched_clicks": ("user_id", "click_id"),
    "gold.clicks_as_known": ("user_id", "click_id"),
    "gold.customer_profiles": ("customer_id",),
    "gold.product_search": ("product_id",),
    "gold.order_confirmations": ("order_id",),
}
"""Tables of silver and gold with their keys. The database of the check has what is expected under the same names."""
_PAUSE_SECONDS = 1.0


class Check:
    """Holds the copies of the sources, which are read on from round to round."""

    def __init__(self, database: duckdb.DuckDBPyConnection, settings: Settings) -> None:
        self._database, self._settings = database, settings
        for schema in ("kafka", "parsed", "silver", "gold"):
            database.execute(f"create schema {schema}")
        self._logs = {
            topic: TopicLog(database, bootstrap=settings.kafka, topic=topic, table=copy_of(topic))
            for topic in dict.fromkeys(topic for _, topic in BRONZE.values())
        }
        for name in EVENTS:
            make_events(database, _fields(name), wellformed=_parsed(name), malformed=f"{name}__quarantine")
        make(database, "silver.cart_events", _CART_EVENTS)
        self.copies = Copies(database, settings)
        self._below_begin_taken: set[str] = set()
        self._events_derived = False

    def close(self) -> None:
        """Leave the broker."""
        for log in self._logs.values():
            log.close()
        self.copies.close()

    def until_equal(self, *, wait_seconds: float) -> list[Comparison]:
        """Compare until everything is equal or the time is over; return the last comparisons."""
        deadline = time.monotonic() + wait_seconds
        while True:
            self.read_sources()
            last = time.monotonic() >= deadline
            if last or self._lake_has_enough():
                compared = self.compare_with(self._settings.lake) + self.copies.compare()
                if last or all(comparison.ok for comparison in compared):
                    return compared
            time.sleep(_PAUSE_SECONDS)

    def read_sources(self) -> None:
        """Read Kafka, Postgres and the copies up to now, and work out what should be in silver and gold."""
        for log in self._logs.values():
            for rows in log.read():
                self._take(rows, [name for name, (_, topic) in EVENTS.items() if topic == log.topic])
        self._take_what_kafka_forgot()
        copy_postgres(self._database, dsn=self._settings.source_dsn("shop"), tables=_FROM_POSTGRES)
        if not self._events_derived:
            self._derive_events()
        self._derive(_SHOP)
        self.copies.read()

    def _take(self, rows: pa.Table, names: Iterable[str]) -> None:
        """Parse rows of a topic for the tables that read it."""
        for name in names if len(rows) else ():
            wellformed, malformed = _parsed(name), f"{name}__quarantine"
            parse_events(self._database, rows, _fields(name), wellformed=wellformed, malformed=malformed)
            self._events_derived = False

    def _take_what_kafka_forgot(self) -> None:
        """Rows that retention took out of a topic are known from bronze alone: there they are taken at its word."""
        for name, (bronze, topic) in EVENTS.items():
            log, table = self._logs[topic], LakeTable(self._settings.lake, bronze)
            if name in self._below_begin_taken or not any(log.begins.values()) or not table.exists:
                continue
            forgotten = _places(topic, {number: (0, begin) for number, begin in log.begins.items()})
            for rows in table.batches(list(LOG_COLUMNS), where=forgotten):
                self._take(rows, [name])
            self._below_begin_taken.add(name)

    def _derive_events(self) -> None:
        for name in EVENTS:
            # copies share their key, hence their partition: the first one is that of the lowest offset
            self._database.execute(
                f'create or replace table {name} as select * exclude (partition, "offset", "timestamp")'  # noqa: S608  # our own names
                f"{_ARRIVAL.get(name, '')} from {_parsed(name)}"
                f' qualify row_number() over (partition by {TABLES[name][0]} order by partition, "offset") = 1'
            )
        make(self._database, "silver.cart_events", _CART_EVENTS)
        reading = self._database.cursor()
        reading.execute(f"select {quoted(CartCommand._fields)} from silver.cart_commands order by 1, 2, 3")  # noqa: S608  # our own names
        commands = (CartCommand(*row) for row in iter(reading.fetchone, None))
        insert_rows(self._database, "silver.cart_events", _CART_EVENTS, cart_events(commands))
        reading.close()
        self._derive(_WEB)
        self._derive(CARTS)
        self._events_derived = True

    def _derive(self, queries: Mapping[str, str]) -> None:
        for name, query in queries.items():
            self._database.execute(f"create or replace table {name} as {query}")

    def _lake_has_enough(self) -> bool:
        """Can the lake be complete? Rows are counted before they are compared, which is dear."""
        least = Counter({name: count(self._database, name) for name in TABLES})
        for bronze, topic in BRONZE.values():
            least[bronze] += count(self._database, self._logs[topic].table)
        return all(LakeTable(self._settings.lake, name).count() >= rows for name, rows in least.items())

    def compare_with(self, lake: Path) -> list[Comparison]:
        """Compare what was read with a lake as it is now."""
        compared = []
        for name, (bronze, topic) in BRONZE.items():
            log = self._logs[topic]
            where = _places(topic, {number: (log.begins[number], end) for number, end in log.ends.items()})
            table = LakeTable(lake, bronze)
            compared.append(self._one(name, table, log.table, ("partition", "offset"), where))
        for name, keys in TABLES.items():
            table = LakeTable(lake, name)
            compared.append(self._one(name, table, name, keys, CURRENT.get(name, "true")))
        return compared

    def _one(self, name: str, table: LakeTable, expected: str, keys: tuple[str, ...], where: str) -> Comparison:
        columns = {row[0]: row[1] for row in self._database.execute(f"describe {expected}").fetchall()}
        wrong = [column for column in columns if column not in table.columns]
        rows = count(self._database, expected)
        if not table.exists and rows == 0:
            return Comparison(name=name, expected=0, found=0, differences=())
        if wrong:
            finding = f"no column {', '.join(wrong)}" if table.exists else "no such table in the lake"
            return Comparison(name=name, expected=rows, found=None, differences=(finding,))
        table.copy(self._database, "found", columns, where=where)
        return compare(self._database, name=name, expected=expected, found="found", keys=keys)


def copy_of(topic: str) -> str:
    """The check's table with a copy of a topic."""
    return f"kafka.{topic.replace('.', '_')}"


def _parsed(name: str) -> str:
    """All events of a silver table, copies too, each with its place and time in the topic."""
    return name.replace("silver.", "parsed.")


def _fields(name: str) -> Mapping[str, Field]:
    return FIELDS[name.removeprefix("silver.")]


def _places(topic: str, ranges: Mapping[int, tuple[int, int]]) -> str:
    """SQL for the rows of a topic with offsets from (inclusive) to (exclusive), by partition."""
    parts = [f'("partition" = {n} and "offset" >= {low} and "offset" < {high})' for n, (low, high) in ranges.items()]
    return f"\"topic\" = '{topic}' and ({' or '.join(parts)})"


def main(
    wait: Annotated[float, typer.Option(min=0, help="Seconds that the lake has to catch up.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    project: Annotated[Path | None, typer.Option(help="Folder with deltaworks.toml.")] = None,
) -> None:
    """Compare the lake and its copies with Kafka and Postgres, row by row. Exit code 1 if they differ."""
    settings = Settings.load(project)
    with tempfile.TemporaryDirectory(prefix="shop-check-") as folder, open_database(Path(folder)) as database:
        check = Check(database, settings)
        try:
            compared = check.until_equal(wait_seconds=wait)
        finally:
            check.close()
    rows = [_row(comparison) for comparison in compared]
    equal = all(comparison.ok for comparison in compared)
    if as_json:
        differences = [{"differences": list(comparison.differences)} for comparison in compared]
        listing([row | found for row, found in zip(rows, differences, strict=True)], title="", as_json=True)
    else:
        listing(rows, title="Sources and lake", as_json=False)
        for comparison in compared:
            for difference in comparison.differences:
                out.print(f"{comparison.name}: {difference}", markup=False, soft_wrap=True)
        out.print("The lake equals its sources." if equal else "The lake differs from its sources.")
    raise typer.Exit(0 if equal else 1)


def _row(comparison: Comparison) -> dict[str, object]:
    return {
        "comparison": comparison.name,
        "expected": comparison.expected,
        "found": comparison.found,
        "verdict": "ok" if comparison.ok else "fail",
    }


def run() -> None:
    """Run the command line; exit codes: 0 equal, 1 different, 2 usage, 3 cannot."""
    try:
        typer.run(main)
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(3)


if __name__ == "__main__":
    run()
