"""I3: a table of present states equals the source's table, once everything has arrived."""

from collections.abc import Iterator

import psycopg
import pyarrow as pa
from psycopg import sql

from deltaworks.catalog import Declared
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Picture
from deltaworks.engine.checker.rows import difference
from deltaworks.words.keeping import Latest
from deltaworks.words.reading import Debezium

_ROWS_PER_FETCH = 10_000
_EXPECTED = "as the source has it"
_STEP = "Wait until nothing is written to the source and lag is 0, and look again; then look at the quarantine"


def equals_source(picture: Picture, dsn: str) -> list[Finding]:
    """Compare each table kept as latest over a database's changes with that database, which must stand still.

    Raises psycopg.Error if the database cannot be read.
    """
    found = []
    with psycopg.connect(dsn, connect_timeout=5) as connection:
        for declared, held in picture:
            reads = declared.table.reads
            if isinstance(reads, Debezium) and isinstance(declared.table.kept_as, Latest):
                schema = pa.schema([held.schema.field(column.name) for column in declared.table.columns])
                found += equals(picture, declared, _read(connection, reads.table, schema))
    return found


def equals(picture: Picture, declared: Declared, expected: Iterator[pa.Table]) -> list[Finding]:
    """Compare a table's declared columns with the rows that are expected."""
    picture.connection.execute(f'drop table if exists "{_EXPECTED}"')
    for number, rows in enumerate(expected):
        picture.connection.register("fetched", rows)
        make = "insert into" if number else "create temp table"
        picture.connection.execute(f'{make} "{_EXPECTED}" {"" if number else "as"} from fetched')
        picture.connection.unregister("fetched")
    told = difference(picture, declared.name, _EXPECTED, [column.name for column in declared.table.columns])
    return [Finding("I3", declared.name, told, _STEP)] if told else []


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
