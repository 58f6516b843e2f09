"""SQL on the copies in the serving database: answers in milliseconds, a moment behind the lake.

The role that asks may read the copies and nothing else; any client of Postgres can do the same.
"""

import time

import psycopg

from deltaworks.analyst import TIMEOUT_SECONDS, Answer, ResultColumn
from deltaworks.errors import QueryError
from deltaworks.settings import Settings

_NAMES = {
    "bool": "BOOLEAN",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "numeric": "DECIMAL",
    "text": "VARCHAR",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
}
"""Postgres's names of types as DuckDB says them; another type is shown under its own."""


def ask(
    settings: Settings, sql: str, *, timeout_seconds: float = TIMEOUT_SECONDS, rows_max: int | None = None
) -> Answer:
    """Answer one reading statement; raises QueryError. With rows_max, `more` tells that rows were left out."""
    began = time.monotonic()
    options = f"-c statement_timeout={int(timeout_seconds * 1000)} -c default_transaction_read_only=on -c timezone=UTC"
    try:
        with (
            psycopg.connect(settings.serving_dsn("reader"), connect_timeout=5, options=options) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql.encode())
            if cursor.description is None:
                raise QueryError("query", "gives no rows", "Write a select")
            types = connection.adapters.types
            columns = [(one.name, types.get(one.type_code)) for one in cursor.description]
            rows = cursor.fetchall() if rows_max is None else cursor.fetchmany(rows_max + 1)
    except psycopg.errors.QueryCanceled:
        raise QueryError(
            "query", f"not answered after {timeout_seconds:g} s", "Ask for less, or give it --timeout"
        ) from None
    except psycopg.OperationalError as error:
        raise QueryError("serving database", _line(error), 'Look at "deltaworks status"') from None
    except psycopg.Error as error:
        raise QueryError("query", _line(error), "Mend it; copies are listed in deltaworks.served") from None
    named = [(name, None if kind is None else _NAMES.get(kind.name, kind.name.upper())) for name, kind in columns]
    return Answer(
        columns=tuple(ResultColumn(name=name, type=kind or "VARCHAR") for name, kind in named),
        rows=rows if rows_max is None else rows[:rows_max],
        more=rows_max is not None and len(rows) > rows_max,
        seconds=time.monotonic() - began,
    )


def _line(error: psycopg.Error) -> str:
    return str(error.diag.message_primary or error).strip().splitlines()[0]
