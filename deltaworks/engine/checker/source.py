"""I3: a table of present states, and what a history says of the present, equals the source's table at rest."""

from collections.abc import Iterator

import psycopg
import pyarrow as pa
from psycopg import sql

from deltaworks.catalog import Declared
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Picture, named
from deltaworks.engine.checker.rows import difference
from deltaworks.words.keeping import History, Latest
from deltaworks.words.reading import ARRIVAL, Debezium

_ROWS_PER_FETCH = 10_000
_EXPECTED = "as the source has it"
_STEP = "Wait until nothing is written to the source and lag is 0, and look again; then look at the quarantine"


def equals_source(picture: Picture, dsn: str) -> list[Finding]:
    """Compare each table kept as latest or history over a database's changes with that database, at rest.

    Raises psycopg.Error if the database cannot be read.
    """
    found = []
    with psycopg.connect(dsn, connect_timeout=5) as connection:
        for declared, held in picture:
            reads = declared.table.reads
            if isinstance(reads, Debezium) and isinstance(declared.table.kept_as, Latest | History):
                schema = pa.schema([held.schema.field(name) for name in _sent(declared)])
                found += equals(picture, declared, _read(connection, reads.table, schema))
    return found


def equals(picture: Picture, declared: Declared, expected: Iterator[pa.Table]) -> list[Finding]:
    """Compare a table's declared columns, but for times of arrival, with the rows that are expected."""
    picture.connection.execute(f'drop table if exists "{_EXPECTED}"')
    for number, rows in enumerate(expected):
        picture.connection.register("fetched", rows)
        make = "insert into" if number else "create temp table"
        picture.connection.execute(f'{make} "{_EXPECTED}" {"" if number else "as"} from fetched')
        picture.connection.unregister("fetched")
    present = declared.name
    if isinstance(declared.table.kept_as, History):
        present = f"{declared.name} now"
        sql_of = f'create or replace temp view "{present}" as select * from {named(declared.name)} where is_current'  # noqa: S608  # quoted
        picture.connection.execute(sql_of)
    told = difference(picture, present, _EXPECTED, _sent(declared))
    return [Finding("I3", declared.name, told, _STEP)] if told else []


def _sent(declared: Declared) -> list[str]:
    """The columns that the source has too."""
    return [column.name for column in declared.table.columns if column.wire != ARRIVAL]


def _read(connection: psycopg.Connection, table: str, schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows in bounded pieces, at least one piece."""
    query = sql.SQL("select {} from {}").format(
        sql.SQL(", ").join(map(sql.Identifier, schema.names)), sql.Identifier(*table.split("."))
    )
    with connection.cursor("checker") as cursor:
        cursor.execute(query)
        yield schema.empty_table()
        while rows := cursor.fetchmany(_ROWS_PER_FETCH):
            values = zip(*rows, strict=True)
            yield pa.table(
                [pa.array(one, field.type) for one, field in zip(values, schema, strict=True)], schema=schema
            )
