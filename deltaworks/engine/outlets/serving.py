"""A table's copy in the serving database: rows and the version that they are of change in one transaction.

So the copy is exactly that version, whoever dies when; after a restart it goes on from there. Two drivers cannot mix
their rows: each locks the table's line in `deltaworks.served` first.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import Connection, sql
from psycopg.rows import namedtuple_row

from deltaworks.catalog import Declared
from deltaworks.engine.outlets.feed import Change, Feed
from deltaworks.errors import OutletError
from deltaworks.words.types import parse

READER = "reader"
"""Role that may read all copies, and nothing else."""
SEARCHED = "_words"
"""Column of a copy that full-text search looks into."""
_SEARCHED_MAX = 100_000
"""Of a text so many characters are searched: the index of a row has an end."""
_WEIGHTS = "ABCD"
_TYPES = {
    "boolean": "boolean",
    "int": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
}
_BOOK = """
select pg_advisory_xact_lock(7304711);  -- two drivers at once: "if not exists" alone lets both create
create schema if not exists deltaworks;
create table if not exists deltaworks.served (
    table_name text primary key,
    version bigint,
    identity text,
    shape text,
    served_at timestamptz
);
grant usage on schema deltaworks to reader;
grant select on deltaworks.served to reader;
"""
log = logging.getLogger("deltaworks.serving")


class Serving:
    """One table's copy."""

    to = "postgres"

    def __init__(self, declared: Declared, feed: Feed, *, dsn: str) -> None:
        """Connect to nothing yet."""
        serves = declared.table.serves
        assert serves is not None, "who makes this has looked"
        self.declared, self.version = declared, -1
        self.feed, self._dsn = feed, dsn
        self._connection: Connection[Any] | None = None
        self._target = Copy(declared, declared.name, search=serves.search, language=serves.language)

    def push(self, newest: int) -> None:
        """Bring the copy to this version of the table. Raises OutletError."""
        try:
            connection = self._connected()
            with connection.transaction():
                self.version = self._push(connection, newest)
        except psycopg.Error as error:
            self.close()
            finding = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise OutletError(f"{self.declared.name} in Postgres", finding, 'Look at "deltaworks status"') from error

    def close(self) -> None:
        """Leave the database."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._dsn, autocommit=True, connect_timeout=10, application_name=f"deltaworks {self.declared.name}",
                row_factory=namedtuple_row,
            )  # fmt: skip
            self._connection.execute(_BOOK)
        return self._connection

    def _push(self, connection: Connection[Any], newest: int) -> int:
        name, shape, identity = self.declared.name, self._target.shape(), self.feed.identity()
        connection.execute(
            "insert into deltaworks.served (table_name) values (%s) on conflict (table_name) do nothing", [name]
        )
        there = connection.execute(
            "select version, identity, shape from deltaworks.served where table_name = %s for update", [name]
        ).fetchone()
        assert there is not None, "it was just inserted"
        goes_on = there.version is not None and there.shape == shape and there.identity == identity
        if goes_on and there.version >= newest:  # a successor was here: what this one knows is older
            return int(there.version)
        changes = self.feed.changes(there.version, newest) if goes_on else None
        if changes is None:
            rows = self._whole(connection, newest, anew=there.shape != shape)
            log.info("%s: the copy is made of version %d, %d rows", name, newest, rows)
        else:
            self._target.change(connection, changes)
        connection.execute(
            "update deltaworks.served set version = %s, identity = %s, shape = %s, served_at = now()"
            " where table_name = %s",
            [newest, identity, shape, name],
        )
        return newest

    def _whole(self, connection: Connection[Any], version: int, *, anew: bool) -> int:
        if anew:
            self._target.create(connection)
        else:
            self._target.clear(connection)
        return self._target.fill(connection, self.feed.rows(version))


class Copy:
    """A table of Postgres with the columns of a declared one, one row per key."""

    def __init__(self, declared: Declared, name: str, *, search: Sequence[str] = (), language: str = "simple") -> None:
        """`name` is schema.table."""
        self._columns = {column.name: column for column in declared.columns}
        self._keys, self._search, self._language = declared.keys, search, language
        schema, table = name.split(".", 1)
        self._schema, self._table = sql.Identifier(schema), sql.Identifier(schema, table)

    def shape(self) -> str:
        """What the table looks like; a copy of another shape is made anew."""
        columns = ", ".join(f"{column.name} {column.type} {column.null}" for column in self._columns.values())
        return f"{columns}; {', '.join(self._keys)}; {self._language} {', '.join(self._search)}"

    def create(self, connection: Connection[Any]) -> None:
        """Make the table, without rows, in the place of what is there."""
        columns = [
            sql.SQL("{} {}{}").format(
                sql.Identifier(name), sql.SQL(_type(column.type)), sql.SQL("" if column.null else " not null")
            )
            for name, column in self._columns.items()
        ]
        if self._search:
            columns.append(
                sql.SQL("{} tsvector generated always as ({}) stored").format(sql.Identifier(SEARCHED), self._words())
            )
        columns.append(sql.SQL("primary key ({})").format(_names(self._keys)))
        # until this transaction ends: two copies that make one schema at once collide
        connection.execute("select pg_advisory_xact_lock(7304712)")
        connection.execute(sql.SQL("create schema if not exists {}").format(self._schema))
        connection.execute(sql.SQL("drop table if exists {}").format(self._table))
        connection.execute(sql.SQL("create table {} ({})").format(self._table, sql.SQL(", ").join(columns)))
        if self._search:
            connection.execute(
                sql.SQL("create index on {} using gin ({})").format(self._table, sql.Identifier(SEARCHED))
            )
        connection.execute(sql.SQL("grant usage on schema {} to {}").format(self._schema, sql.Identifier(READER)))
        connection.execute(sql.SQL("grant select on {} to {}").format(self._table, sql.Identifier(READER)))

    def clear(self, connection: Connection[Any]) -> None:
        """Remove the rows; readers see them until the transaction ends."""
        connection.execute(sql.SQL("delete from {}").format(self._table))

    def fill(self, connection: Connection[Any], parts: Iterable[Iterable[Change]]) -> int:
        """Bring rows of keys that are not there; returns how many."""
        rows = 0
        copy = sql.SQL("copy {} ({}) from stdin").format(self._table, _names(self._columns))
        with connection.cursor() as cursor, cursor.copy(copy) as into:
            for part in parts:
                for change in part:
                    assert change.row is not None, "a row of the table"
                    into.write_row([_fit(value) for value in change.row])
                    rows += 1
        return rows

    def change(self, connection: Connection[Any], changes: Iterable[Change]) -> None:
        """Set the rows that have changed, remove those that are gone; each key once."""
        changes = list(changes)
        gone = [change.key for change in changes if change.row is None]
        there = [change.row for change in changes if change.row is not None]
        if gone:
            keys = [self._columns[key].type for key in self._keys]
            same = sql.SQL(" and ").join(sql.SQL("t.{0} = g.{0}").format(sql.Identifier(key)) for key in self._keys)
            connection.execute(
                sql.SQL("delete from {} t using unnest({}) as g({}) where {}").format(
                    self._table, _arrays(keys), _names(self._keys), same
                ),
                _by_column(gone),
            )
        if there:
            types = [column.type for column in self._columns.values()]
            own = [name for name in self._columns if name not in self._keys]
            sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in own)
            act = sql.SQL("update set {}").format(sets) if own else sql.SQL("nothing")
            connection.execute(
                sql.SQL("insert into {} ({}) select * from unnest({}) on conflict ({}) do {}").format(
                    self._table, _names(self._columns), _arrays(types), _names(self._keys), act
                ),
                _by_column(there),
            )

    def rows(self, connection: Connection[Any]) -> int:
        """How many there are."""
        counted = connection.execute(sql.SQL("select count(*) from {}").format(self._table)).fetchone()
        assert counted is not None, "a count is a row"
        return int(counted[0])

    def _words(self) -> sql.Composable:
        """The search columns as words, each with its weight; the fourth and all after it weigh the same."""
        language = sql.Literal(self._language)
        parts = [
            sql.SQL("setweight(to_tsvector({}::regconfig, left(coalesce({}, ''), {})), {})").format(
                language, sql.Identifier(name), sql.Literal(_SEARCHED_MAX), sql.Literal(_WEIGHTS[min(at, 3)])
            )
            for at, name in enumerate(self._search)
        ]
        return sql.SQL(" || ").join(parts)


def _type(text: str) -> str:
    kind = parse(text)
    return f"numeric({kind.precision},{kind.scale})" if kind.name == "decimal" else _TYPES[kind.name]


def _names(names: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _arrays(types: Iterable[str]) -> sql.Composable:
    return sql.SQL(", ").join(sql.SQL("%s::{}[]").format(sql.SQL(_type(text))) for text in types)


def _by_column(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[_fit(value) for value in values] for values in zip(*rows, strict=True)]


def _fit(value: Any) -> Any:
    """Postgres's text holds every character but NUL; what it cannot show has a sign of its own."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
