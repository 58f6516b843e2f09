"""The demo's own check: does the lake hold what Kafka and Postgres hold? It shares no code with the engine.

    python -m shop.check --wait 120

The simulator should have ended: silver and gold are compared with the sources as they are now.
"""

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import duckdb
import pyarrow as pa
import typer

from deltaworks.cli.show import err, listing, out
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from shop.comparison import Comparison, compare, count
from shop.evidence import (
    LOG_COLUMNS,
    VIEW_COLUMNS,
    LakeTable,
    TopicLog,
    copy_postgres,
    make,
    make_page_views,
    open_database,
    parse_page_views,
)

_ORDERS = {
    "order_id": "bigint",
    "customer_id": "bigint",
    "status": "varchar",
    "amount": "decimal(12, 2)",
    "placed_at": "timestamptz",
    "updated_at": "timestamptz",
}
_CUSTOMERS = {
    "customer_id": "bigint",
    "name": "varchar",
    "email": "varchar",
    "country": "varchar",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
}
_DAILY = {
    "day": "date",
    "orders": "bigint",
    "paid": "bigint",
    "cancelled": "bigint",
    "revenue": "decimal(18, 2)",
}
_PER_MINUTE = {"page": "varchar", "minute": "timestamptz", "views": "bigint"}
_SESSIONS = {
    "user_id": "bigint",
    "session_start": "timestamptz",
    "session_end": "timestamptz",
    "views": "bigint",
    "pages": "bigint",
    "landing_page": "varchar",
    "exit_page": "varchar",
}
_QUARANTINED = {"partition": "integer", "offset": "bigint"}
_ARROW = {
    "bigint": pa.int64(),
    "varchar": pa.string(),
    "date": pa.date32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "decimal(12, 2)": pa.decimal128(12, 2),
    "decimal(18, 2)": pa.decimal128(18, 2),
}
_FROM_POSTGRES = {
    "expected_orders": (f"select {', '.join(_ORDERS)} from orders", _ORDERS),  # noqa: S608  # our own names
    "expected_customers": (f"select {', '.join(_CUSTOMERS)} from customers", _CUSTOMERS),  # noqa: S608  # our own names
    "expected_daily_orders": (
        """
        select (placed_at at time zone 'UTC')::date, count(*), count(*) filter (where status = 'paid'),
               count(*) filter (where status = 'cancelled'), coalesce(sum(amount) filter (where status = 'paid'), 0)
        from orders group by 1
        """,
        _DAILY,
    ),
}
# Lake table, table with what is expected in it, its columns, its key.
TABLES = (
    ("silver.page_views", "expected_page_views", VIEW_COLUMNS, ("event_id",)),
    ("silver.page_views__quarantine", "malformed", _QUARANTINED, ("partition", "offset")),
    ("gold.page_views_per_minute", "expected_per_minute", _PER_MINUTE, ("page", "minute")),
    ("gold.user_sessions", "expected_sessions", _SESSIONS, ("user_id", "session_start")),
    ("silver.orders", "expected_orders", _ORDERS, ("order_id",)),
    ("silver.customers", "expected_customers", _CUSTOMERS, ("customer_id",)),
    ("gold.daily_orders", "expected_daily_orders", _DAILY, ("day",)),
)
CURRENT = {"silver.customers": "is_current"}
"""Which rows of a table that keeps older ones too are compared: those that hold now."""
BRONZE = {"page_views": "bronze.web_events", "shop.changes": "bronze.shop_changes"}
_PAUSE_SECONDS = 1.0


class Check:
    """Holds the copies of the sources, which are read on from round to round."""

    def __init__(self, database: duckdb.DuckDBPyConnection, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._logs = [
            TopicLog(database, bootstrap=settings.kafka, topic=topic, table=f"topic_{topic.replace('.', '_')}")
            for topic in BRONZE
        ]
        make_page_views(database, wellformed="wellformed", malformed="malformed")
        for table, (_, columns) in _FROM_POSTGRES.items():
            make(database, table, columns)
        self._below_begin_taken = False

    def close(self) -> None:
        """Leave the broker."""
        for log in self._logs:
            log.close()

    def until_equal(self, *, wait_seconds: float) -> list[Comparison]:
        """Compare until everything is equal or the time is over; return the last comparisons."""
        deadline = time.monotonic() + wait_seconds
        while True:
            self.read_sources()
            last = time.monotonic() >= deadline
            if last or self._lake_has_enough():
                compared = self._compare()
                if last or all(comparison.ok for comparison in compared):
                    return compared
            time.sleep(_PAUSE_SECONDS)

    def read_sources(self) -> None:
        """Read Kafka and Postgres up to now, and work out what should be in silver and gold."""
        for log in self._logs:
            for rows in log.read():
                if log.topic == "page_views":
                    parse_page_views(self._database, rows, wellformed="wellformed", malformed="malformed")
        self._take_what_kafka_forgot()
        # copies share their key, hence their partition: the first one is that of the lowest offset
        self._database.execute(
            'create or replace table expected_page_views as select * exclude (partition, "offset") from wellformed'
            ' qualify row_number() over (partition by event_id order by partition, "offset") = 1'
        )
        self._database.execute(
            "create or replace table expected_per_minute as"
            " select page, date_trunc('minute', event_time) as minute, count(*) as views"
            " from expected_page_views group by all"
        )
        self._database.execute(
            "create or replace table expected_sessions as with apart as ("
            " select *, coalesce(event_time - lag(event_time) over w > interval 10 minutes, true)::int as begins"
            " from expected_page_views window w as (partition by user_id order by event_time)"
            "), numbered as ("
            " select *, sum(begins) over (partition by user_id order by event_time) as visit from apart"
            ") select user_id, min(event_time) as session_start,"
            " max(event_time) + interval 10 minutes as session_end, count(*) as views, count(distinct page) as pages,"
            " arg_min(page, (event_time, event_id)) as landing_page, arg_max(page, (event_time, event_id)) as exit_page"
            " from numbered group by user_id, visit"
        )
        copy_postgres(
            self._database,
            dsn=self._settings.source_dsn("shop"),
            tables={table: (query, _schema(columns)) for table, (query, columns) in _FROM_POSTGRES.items()},
        )

    def _take_what_kafka_forgot(self) -> None:
        """Rows that retention took out of the topic are known from bronze alone: there they are taken at its word."""
        log, bronze = self._logs[0], LakeTable(self._settings.lake, BRONZE["page_views"])
        if self._below_begin_taken or not any(log.begins.values()) or not bronze.exists:
            return
        forgotten = _places(log.topic, {number: (0, begin) for number, begin in log.begins.items()})
        for rows in bronze.batches(list(LOG_COLUMNS), where=forgotten):
            parse_page_views(self._database, rows, wellformed="wellformed", malformed="malformed")
        self._below_begin_taken = True

    def _lake_has_enough(self) -> bool:
        """Can the lake be complete? Rows are counted before they are compared, which is dear."""
        return all(
            LakeTable(self._settings.lake, name).count() >= count(self._database, expected)
            for name, expected in [
                *((BRONZE[log.topic], log.table) for log in self._logs),
                *((name, expected) for name, expected, _, _ in TABLES),
            ]
        )

    def _compare(self) -> list[Comparison]:
        compared = []
        for log in self._logs:
            where = _places(log.topic, {number: (log.begins[number], end) for number, end in log.ends.items()})
            compared.append(self._one(BRONZE[log.topic], log.table, LOG_COLUMNS, ("partition", "offset"), where))
        for name, expected, columns, keys in TABLES:
            compared.append(self._one(name, expected, columns, keys, CURRENT.get(name, "true")))
        return compared

    def _one(
        self, name: str, expected: str, columns: Mapping[str, str], keys: tuple[str, ...], where: str = "true"
    ) -> Comparison:
        table = LakeTable(self._settings.lake, name)
        wrong = [column for column in columns if column not in table.columns]
        rows = count(self._database, expected)
        if not table.exists and rows == 0:
            return Comparison(name=name, expected=0, found=0, differences=())
        if wrong:
            finding = f"no column {', '.join(wrong)}" if table.exists else "no such table in the lake"
            return Comparison(name=name, expected=rows, found=None, differences=(finding,))
        table.copy(self._database, "found", columns, where=where)
        return compare(self._database, name=name, expected=expected, found="found", keys=keys)


def _places(topic: str, ranges: Mapping[int, tuple[int, int]]) -> str:
    """SQL for the rows of a topic with offsets from (inclusive) to (exclusive), by partition."""
    parts = [f'("partition" = {n} and "offset" >= {low} and "offset" < {high})' for n, (low, high) in ranges.items()]
    return f"\"topic\" = '{topic}' and ({' or '.join(parts)})"


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])


def main(
    wait: Annotated[float, typer.Option(min=0, help="Seconds that the lake has to catch up.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    project: Annotated[Path | None, typer.Option(help="Folder with deltaworks.toml.")] = None,
) -> None:
    """Compare the lake with Kafka and Postgres, row by row. Exit code 1 if they differ."""
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
