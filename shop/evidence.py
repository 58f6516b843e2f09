"""What Kafka, Postgres and the lake hold, copied into one DuckDB database, which spills to disk beyond its memory."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from deltalake import DeltaTable, QueryBuilder
from psycopg.conninfo import conninfo_to_dict

from deltaworks.errors import StackError
from shop.comparison import quoted
from shop.wellformed import FIELDS, Field, event

_CHUNK = 20_000  # messages at a time, some 6 MB
_FETCH_SECONDS = 0.1  # waited for a chunk that does not fill, once or twice for each topic
_SILENCE_SECONDS = 30.0  # a broker on this machine answers sooner

_PLACE = {"partition": "integer", "offset": "bigint"}
LOG_COLUMNS = {**_PLACE, "timestamp": "timestamptz", "key": "blob", "value": "blob"}
_ARROW = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "decimal(12, 2)": pa.decimal128(12, 2),
    "decimal(18, 2)": pa.decimal128(18, 2),
}


def open_database(folder: Path) -> duckdb.DuckDBPyConnection:
    """An empty database in `folder`, with a bound on its memory."""
    database = duckdb.connect(str(folder / "evidence.duckdb"))
    database.execute("set timezone = 'UTC'; set memory_limit = '512MB'; set preserve_insertion_order = false")
    return database


def make(database: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str]) -> None:
    """Make an empty table, in place of one of that name."""
    listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    database.execute(f"create or replace table {table} ({listed})")


def insert(database: duckdb.DuckDBPyConnection, table: str, rows: pa.Table | pa.RecordBatchReader) -> None:
    """Add Arrow rows, matched by column name."""
    database.register("arrow_rows", rows)
    database.execute(f"insert into {table} by name select * from arrow_rows")  # noqa: S608  # our own names
    database.unregister("arrow_rows")


def insert_rows(
    database: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]
) -> None:
    """Add rows of Python values, which come in the order of these columns."""
    left = iter(rows)
    while piece := list(islice(left, _CHUNK)):
        insert(database, table, _table(piece, _schema(columns)))


class TopicLog:
    """A topic as a table (partition, offset, timestamp, key, value), read on from where the last reading ended."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        *,
        bootstrap: str,
        topic: str,
        table: str,
        headers: Sequence[str] = (),
    ) -> None:
        """Find the partitions; raises StackError if the broker does not answer or has no such topic.

        Each of `headers` becomes a column of text.
        """
        self.topic, self.table = topic, table
        self._database, self._place, self._headers = database, f"Kafka {bootstrap}", headers
        self._columns = LOG_COLUMNS | dict.fromkeys(headers, "varchar")
        make(database, table, self._columns)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "shop.check",  # never joined and never committed: partitions are assigned by hand
                "enable.auto.commit": False,
                "enable.partition.eof": True,  # transactions leave markers: the last offset may hold no message
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": 32 * 1024,
                "log_level": 2,
            }
        )
        try:
            partitions = self._consumer.list_topics(timeout=_SILENCE_SECONDS).topics.get(topic)
            if partitions is None:
                raise StackError(self._place, f'no topic "{topic}"', 'Run "deltaworks up"')
            self.ends = dict.fromkeys(sorted(partitions.partitions), 0)
            self.begins = {number: self._watermarks(number)[0] for number in self.ends}
        except KafkaException as error:
            raise StackError(self._place, f"no answer ({error.args[0].str()})", 'Run "deltaworks status"') from None
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in self.ends])

    def read(self) -> Iterator[pa.Table]:
        """Read to the ends of this moment, or a little beyond; yield what was added, after it was added.

        Afterwards `ends` says, by partition, the offset below which the table is complete.
        """
        highs = {number: self._watermarks(number)[1] for number in self.ends}
        missing = {number for number, high in highs.items() if high > self.ends[number]}
        heard = time.monotonic()
        while missing:
            messages = self._consumer.consume(_CHUNK, _FETCH_SECONDS)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENCE_SECONDS:
                raise StackError(self._place, f"topic {self.topic} is silent", 'Run "deltaworks status"')
            rows = self._rows(messages, highs, missing)
            insert(self._database, self.table, rows)
            yield rows

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _rows(self, messages: Sequence[Message], highs: Mapping[int, int], missing: set[int]) -> pa.Table:
        columns: list[list[Any]] = [[] for _ in self._columns]
        for message in messages:
            error, number, offset = message.error(), message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its public spelling
                raise StackError(self._place, error.str(), 'Run "deltaworks status"')
            if error is None:
                _, milliseconds = message.timestamp()
                values = (number, offset, milliseconds * 1_000, message.key(), message.value(), *self._of(message))
                for column, value in zip(columns, values, strict=True):
                    column.append(value)
                offset += 1
            self.ends[number] = max(self.ends[number], offset)
            if self.ends[number] >= highs[number] or error is not None:
                missing.discard(number)
        return pa.table(columns, schema=_schema(self._columns))

    def _of(self, message: Message) -> list[str | None]:
        """Its headers, as far as they are wanted."""
        there = dict(message.headers() or ()) if self._headers else {}
        return [value.decode() if isinstance(value := there.get(name), bytes) else value for name in self._headers]

    def _watermarks(self, number: int) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(self.topic, number), _SILENCE_SECONDS)
        return low, high


def parse_events(
    database: duckdb.DuckDBPyConnection,
    rows: pa.Table,
    fields: Mapping[str, Field],
    *,
    wellformed: str,
    malformed: str,
) -> None:
    """Sort events into two tables: their place, time and fields, or only their place. No value: they are neither."""
    events: list[tuple[object, ...]] = []
    places: list[tuple[int, int]] = []
    for number, offset, arrived, value in zip(
        *(rows[name].to_pylist() for name in ("partition", "offset", "timestamp", "value")), strict=True
    ):
        if value is None:
            continue
        found = event(value, fields)
        if found is None:
            places.append((number, offset))
        else:
            events.append((number, offset, arrived, *found))
    insert_rows(database, wellformed, _parsed(fields), events)
    insert_rows(database, malformed, _PLACE, places)


def make_events(
    database: duckdb.DuckDBPyConnection, fields: Mapping[str, Field], *, wellformed: str, malformed: str
) -> None:
    """Make the tables that `parse_events` fills."""
    make(database, wellformed, _parsed(fields))
    make(database, malformed, _PLACE)


def _parsed(fields: Mapping[str, Field]) -> dict[str, str]:
    return {**_PLACE, "timestamp": "timestamptz"} | {name: field.kind for name, field in fields.items()}


def parse_page_views(database: duckdb.DuckDBPyConnection, rows: pa.Table, *, wellformed: str, malformed: str) -> None:
    """`parse_events` of page views."""
    parse_events(database, rows, FIELDS["page_views"], wellformed=wellformed, malformed=malformed)


def make_page_views(database: duckdb.DuckDBPyConnection, *, wellformed: str, malformed: str) -> None:
    """`make_events` of page views."""
    make_events(database, FIELDS["page_views"], wellformed=wellformed, malformed=malformed)


def copy_postgres(
    database: duckdb.DuckDBPyConnection, *, dsn: str, tables: Mapping[str, tuple[str, Mapping[str, str]]]
) -> None:
    """Fill tables with the results of queries, all of one moment; raises StackError if Postgres does not answer.

    `tables` says of each the query and the columns, in the query's order.
    """
    with _connected(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("set timezone = 'UTC'")
        for number, (table, (query, columns)) in enumerate(tables.items()):
            make(database, table, columns)
            with connection.cursor(name=f"copy_{number}") as cursor:  # a server-side cursor: the table may be large
                cursor.itersize = _CHUNK
                cursor.execute(query)
                insert_rows(database, table, columns, cursor)


def known_to_postgres(*, dsn: str, names: Iterable[str]) -> list[str]:
    """Those of the tables `schema.table` that the database has; raises StackError if Postgres does not answer."""
    with _connected(dsn) as connection:
        found = [connection.execute("select %s::text where to_regclass(%s) is not null", [name] * 2) for name in names]
        return [row[0] for cursor in found for row in cursor]


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            yield connection
    except psycopg.OperationalError as error:
        place, finding = f"Postgres, database {conninfo_to_dict(dsn)['dbname']}", str(error).strip().splitlines()[-1]
        raise StackError(place, finding, 'Run "deltaworks status"') from None


class LakeTable:
    """A Delta table at one version, read by delta-rs."""

    def __init__(self, lake: Path, name: str) -> None:
        """Open `layer.table` at its newest version; a table that does not exist has no rows to offer."""
        self.name = name
        folder = lake.joinpath(*name.split("."))
        self._table = DeltaTable(folder) if DeltaTable.is_deltatable(str(folder)) else None
        self.columns = [field.name for field in self._table.schema().fields] if self._table else []

    @property
    def exists(self) -> bool:
        """Was it ever written?"""
        return self._table is not None

    def count(self) -> int:
        """Rows, from the table's statistics where it has them."""
        return int(pa.table(self._select("count(*) as n", "true").read_all())["n"][0].as_py()) if self.exists else 0

    def copy(
        self, database: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str], *, where: str = "true"
    ) -> None:
        """Put the rows into a new table with these columns."""
        make(database, table, columns)
        reader = self._select(quoted(list(columns)), where)
        insert(database, table, reader)

    def batches(self, columns: Sequence[str], *, where: str) -> Iterator[pa.Table]:
        """Yield the rows in pieces."""
        for batch in self._select(quoted(columns), where):
            yield pa.Table.from_batches([batch]).cast(_schema({name: LOG_COLUMNS[name] for name in columns}))

    def _select(self, selection: str, where: str) -> pa.RecordBatchReader:
        assert self._table is not None
        query = f"select {selection} from lake_table where {where}"  # noqa: S608  # our own names
        found = QueryBuilder().register("lake_table", self._table).execute(query)
        return pa.RecordBatchReader.from_stream(found)


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])


def _table(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
