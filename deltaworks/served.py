"""SQL on the copies in the serving database: answers in milliseconds, a moment behind the lake.

The role that asks may read the copies and nothing else; any client of Postgres can do the same.
"""

import sys
import time

import psycopg

from deltaworks.analyst import TIMEOUT_SECONDS, Answer, ResultColumn
from deltaworks.errors import QueryError

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


_ROWS_PER_PART = 1000 if psycopg.capabilities.has_stream_chunked() else 1
BYTES_MAX = 1_000_000_000
"""An answer is no larger, as Python holds it."""


def ask(dsn: str, sql: str, *, timeout_seconds: float = TIMEOUT_SECONDS, rows_max: int | None = None) -> Answer:
    """Answer one reading statement as the role of this address; raises QueryError.

    With rows_max, `more` tells that rows were left out.
    """
    if "\0" in sql or any("\ud800" <= sign <= "\udfff" for sign in sql):
        raise QueryError("query", "holds a sign that is none", "Take out zero bytes and lone surrogates")
    began = time.monotonic()
    options = f"-c statement_timeout={int(timeout_seconds * 1000)} -c default_transaction_read_only=on -c timezone=UTC"
    rows: list[tuple[object, ...]] = []
    size = 0
    try:
        with psycopg.connect(dsn, connect_timeout=5, options=options) as connection, connection.cursor() as cursor:
            columns = _described(connection, sql)
            # in parts: libpq would hold the whole answer else
            for row in cursor.stream(sql.encode(), size=_ROWS_PER_PART):
                rows.append(row)
                size += sum(map(sys.getsizeof, row))
                if rows_max is not None and len(rows) > rows_max:
                    break
                if size > BYTES_MAX:
                    raise QueryError("query", f"its answer is larger than {BYTES_MAX:,} bytes", "Ask for less")
    except psycopg.errors.QueryCanceled:
        raise QueryError(
            "query", f"not answered after {timeout_seconds:g} s", "Ask for less, or give it --timeout"
        ) from None
    except psycopg.OperationalError as error:
        raise QueryError("serving database", _line(error), 'Look at "deltaworks status"') from None
    except psycopg.Error as error:
        raise QueryError("query", _line(error), "Mend it; copies are listed in deltaworks.served") from None
    return Answer(
        columns=columns,
        rows=rows[:rows_max],
        more=rows_max is not None and len(rows) > rows_max,
        seconds=time.monotonic() - began,
    )


def _described(connection: psycopg.Connection[tuple[object, ...]], sql: str) -> tuple[ResultColumn, ...]:
    """The columns of its answer, before it runs; what gives none, or is more than one statement, is refused.

    The protocol in which statements are prepared takes one; in the simple one a second could end the transaction that
    may only read.
    """
    told = connection.pgconn.prepare(b"", sql.encode())
    if told.status == psycopg.pq.ExecStatus.COMMAND_OK:
        told = connection.pgconn.describe_prepared(b"")
    if told.status != psycopg.pq.ExecStatus.COMMAND_OK:
        error = psycopg.errors.error_from_result(told)
        if "multiple commands" in str(error):
            raise QueryError("query", "holds more than one statement", "Give exactly one")
        raise error
    if told.nfields == 0:
        raise QueryError("query", "gives no rows", "Write a select")
    columns = []
    for number in range(told.nfields):
        kind = connection.adapters.types.get(told.ftype(number))
        name = (told.fname(number) or b"").decode()
        columns.append(ResultColumn(name=name, type=_NAMES.get(kind.name, kind.name.upper()) if kind else "VARCHAR"))
    return tuple(columns)


def _line(error: psycopg.Error) -> str:
    return str(error.diag.message_primary or error).strip().splitlines()[0]
