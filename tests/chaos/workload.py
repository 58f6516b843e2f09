"""A random workload on real tables: sessions that insert, change, move, swap, delete, truncate, roll back and collide.

Each session follows its own chance; how they interleave is the database's affair, so a seed repeats what is tried and
not what comes of it. Keys are few, so that sessions meet at the same rows.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Protocol, Self

import psycopg
from psycopg import Connection, sql
from psycopg.errors import (
    DeadlockDetected,
    ExclusionViolation,
    LockNotAvailable,
    SerializationFailure,
    UndefinedColumn,
    UniqueViolation,
)

KEYS = 40
"""Keys that sessions fight over; large transactions use keys of their own, from LARGE on."""
LARGE = 1_000
LARGE_ROWS = 120
BODY_BYTES = 9_000  # above what fits into a page, so stored out of line
_SECONDS_MIN = 120.0
"""Sessions that have just begun, beside a Connect that starts."""
_SECONDS_A_TRANSACTION = 1.0
"""It takes a tenth, pauses included; the rest is for a busy machine."""
_LOCK_WAIT = "400ms"  # two sessions that wait for each other: one gives up


@dataclass(frozen=True, kw_only=True)
class Source:
    """One source table: its key columns and how to make values for the others."""

    name: str
    keys: tuple[str, ...]
    values: Callable[[Random], dict[str, object]]
    moves: bool = True
    """Whether keys of rows are changed."""

    @property
    def ident(self) -> sql.Composable:
        """Its name, quoted."""
        return sql.Identifier("public", self.name)

    def key(self, number: int) -> tuple[object, ...]:
        """The key of this number."""
        return (number,) if len(self.keys) == 1 else (number // 8, f"b{number % 8}")

    def where(self) -> sql.Composable:
        """A condition on the whole key, with placeholders."""
        return sql.SQL(" and ").join(sql.SQL("{} = %s").format(sql.Identifier(key)) for key in self.keys)


def _plain(chance: Random) -> dict[str, object]:
    amount = chance.choice([None, f"{chance.randrange(10**9)}.{chance.randrange(100):02d}", "-0.01"])
    at = datetime.fromtimestamp(chance.randrange(4 * 10**9) + chance.randrange(10**6) / 10**6, UTC)
    note = chance.choice(["", "it's", "Łódź", "\N{GRINNING FACE}", "a\tb\nc", "null"])
    return {"n": chance.randrange(-(2**31), 2**31), "amount": amount, "note": note, "at": at}


def _pair(chance: Random) -> dict[str, object]:
    return {"n": chance.randrange(1000)}


def _wide(chance: Random) -> dict[str, object]:
    return {"n": chance.randrange(1000), "body": chance.randbytes(BODY_BYTES // 2).hex()}


PLAIN = Source(name="plain", keys=("id",), values=_plain)
PAIRS = Source(name="pairs", keys=("a", "b"), values=_pair)
WIDE = Source(name="wide", keys=("id",), values=_wide)
# a row whose key is changed and whose large text is not is refused: the connector does not send the text again
DOCUMENTS = Source(name="documents", keys=("id",), values=_wide, moves=False)


class Worked(Protocol):
    """What is worked on: a source table, as `Source` has it."""

    @property
    def name(self) -> str:
        """Without its schema."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its key columns."""

    @property
    def moves(self) -> bool:
        """Whether keys of rows are changed."""

    @property
    def ident(self) -> sql.Composable:
        """Its name, quoted."""

    @property
    def values(self) -> Callable[[Random], dict[str, object]]:
        """Makes values for the other columns."""

    def key(self, number: int) -> tuple[object, ...]:
        """The key of this number."""

    def where(self) -> sql.Composable:
        """A condition on the whole key, with placeholders."""


class Workload:
    """Sessions that work until they are told to stop, or have made so many transactions."""

    def __init__(
        self,
        dsn: str,
        *,
        chance: Random,
        tables: Sequence[Worked],
        pause: float,
        sessions: int = 3,
        steps: "Mapping[Step, float] | None" = None,
    ) -> None:
        """Prepare; nothing is changed yet. `pause`: seconds between a session's transactions, at most.

        `steps`: what sessions do, and how often; default: all, which needs the tables of `tests/changes`.
        """
        self._stop = threading.Event()
        self.done: Counter[str] = Counter()
        self._sessions = [
            Session(
                dsn,
                number=number,
                chance=Random(chance.randrange(2**32)),
                tables=tables,
                pause=pause,
                stop=self._stop,
                done=self.done,
                steps=steps or _STEPS,
            )
            for number in range(sessions)
        ]

    def __enter__(self) -> Self:
        for session in self._sessions:
            session.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for session in self._sessions:
            session.join(timeout=60)
            assert not session.is_alive(), f"{session.name} still works, and what it does would be compared"

    def wait(self, transactions: int) -> None:
        """Wait until so many more transactions were committed."""
        wanted, until = self.done["committed"] + transactions, time.monotonic() + seconds_max(transactions)
        while self.done["committed"] < wanted:
            self.must_go_on()
            assert time.monotonic() < until, f"the workload is too slow: {dict(self.done)}"
            time.sleep(0.02)

    def must_go_on(self) -> None:
        """Raise what a session died of."""
        for session in self._sessions:
            if session.error is not None:
                raise session.error


def seconds_max(transactions: int) -> float:
    """So long so many transactions may take before something is wrong."""
    return _SECONDS_MIN + _SECONDS_A_TRANSACTION * transactions


class Session(threading.Thread):
    """One connection to the source, one transaction after the other."""

    def __init__(
        self,
        dsn: str,
        *,
        number: int,
        chance: Random,
        tables: Sequence[Worked],
        pause: float,
        stop: threading.Event,
        done: Counter[str],
        steps: "Mapping[Step, float]",
    ) -> None:
        """Prepare. `number`: among the sessions."""
        super().__init__(name=f"session {number}", daemon=True)
        self.number = number
        self.dsn, self.chance, self.tables, self.pause, self.done = dsn, chance, tables, pause, done
        self.stop_asked, self.steps = stop, steps
        self.error: Exception | None = None

    def run(self) -> None:
        """Work until told to stop."""
        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(f"set lock_timeout = '{_LOCK_WAIT}'")
                while not self.stop_asked.is_set():
                    self._transaction(connection)
                    time.sleep(self.chance.uniform(0, self.pause))
        except Exception as error:  # noqa: BLE001  # a thread's error is handed to who waits for it
            self.error = error

    def _transaction(self, connection: Connection) -> None:
        try:
            with connection.transaction() as transaction:
                for _ in range(self.chance.choice([1, 1, 2, 3, 5, 8])):
                    self._step(connection)
                    if self.chance.random() < 0.3:
                        time.sleep(self.chance.uniform(0, 0.02))  # so that others come in between
                if self.chance.random() < 0.1:
                    self.done["rolled back"] += 1
                    raise psycopg.Rollback(transaction)
            self.done["committed"] += 1
        except (LockNotAvailable, DeadlockDetected, SerializationFailure):  # the last: a row went to another part
            self.done["gave up"] += 1

    def _step(self, connection: Connection) -> None:
        """One statement, or a few, under a savepoint: it may fail, or be taken back."""
        table = self.chance.choice(self.tables)
        names, weights = zip(*self.steps.items(), strict=True)
        step = self.chance.choices(names, weights)[0]
        try:
            with connection.transaction() as savepoint:
                step(self, connection, table)
                if self.chance.random() < 0.1:
                    raise psycopg.Rollback(savepoint)
            self.done[step.__name__.strip("_")] += 1
        except (UniqueViolation, ExclusionViolation, UndefinedColumn):
            self.done["refused by the source"] += 1

    def _key(self, table: Worked) -> tuple[object, ...]:
        return table.key(self.chance.randrange(KEYS))

    def _insert(self, connection: Connection, table: Worked) -> None:
        self._put(connection, table, self._key(table))

    def _put(self, connection: Connection, table: Worked, key: tuple[object, ...]) -> None:
        values = table.values(self.chance)
        statement = sql.SQL("insert into {} ({}) values ({})").format(
            table.ident,
            sql.SQL(", ").join(map(sql.Identifier, (*table.keys, *values))),
            sql.SQL(", ").join([sql.Placeholder()] * (len(key) + len(values))),
        )
        connection.execute(statement, (*key, *values.values()))

    def _update(self, connection: Connection, table: Worked) -> None:
        values = table.values(self.chance)
        if self.chance.random() < 0.6:  # leaves a large text alone
            values.pop("body", None)
        self._set(connection, table, self._key(table), values)

    def _set(self, connection: Connection, table: Worked, key: tuple[object, ...], values: dict[str, object]) -> None:
        changes = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in values)
        statement = sql.SQL("update {} set {} where {}").format(table.ident, changes, table.where())
        connection.execute(statement, (*values.values(), *key))

    def _move(self, connection: Connection, table: Worked) -> None:
        self._rename(connection, table, self._key(table), self._key(table))

    def _rename(self, connection: Connection, table: Worked, old: tuple[object, ...], new: tuple[object, ...]) -> None:
        if table.moves:
            self._set(connection, table, old, dict(zip(table.keys, new, strict=True)))

    def _swap(self, connection: Connection, table: Worked) -> None:
        one, other, between = self._key(table), self._key(table), table.key(-1 - self.number)
        for old, new in ((one, between), (other, one), (between, other)):
            self._rename(connection, table, old, new)

    def _there_and_back(self, connection: Connection, table: Worked) -> None:
        one, other = self._key(table), self._key(table)
        self._rename(connection, table, one, other)
        time.sleep(self.chance.uniform(0, 0.05))
        self._rename(connection, table, other, one)

    def _remove(self, connection: Connection, table: Worked) -> None:
        connection.execute(sql.SQL("delete from {} where {}").format(table.ident, table.where()), self._key(table))

    def _replace(self, connection: Connection, table: Worked) -> None:
        key = self._key(table)
        connection.execute(sql.SQL("delete from {} where {}").format(table.ident, table.where()), key)
        self._put(connection, table, key)

    def _put_and_take(self, connection: Connection, table: Worked) -> None:
        """A row that is there only inside of a transaction, while others want its key."""
        key = self._key(table)
        self._put(connection, table, key)
        time.sleep(self.chance.uniform(0, 0.05))
        connection.execute(sql.SQL("delete from {} where {}").format(table.ident, table.where()), key)

    def _large(self, connection: Connection, table: Worked) -> None:
        first = LARGE + LARGE_ROWS * self.chance.randrange(4)
        statement = sql.SQL("delete from {} where {} between %s and %s")
        keys = (table.key(first)[0], table.key(first + LARGE_ROWS - 1)[0])
        connection.execute(statement.format(table.ident, sql.Identifier(table.keys[0])), keys)
        rows = LARGE_ROWS if table.keys != ("id",) or table is PLAIN else 5
        for number in range(first, first + rows):
            self._put(connection, table, table.key(number))

    def _truncate(self, connection: Connection, _table: Worked) -> None:
        some = self.chance.sample(self.tables, self.chance.choice([1, 1, 2]))
        connection.execute(sql.SQL("truncate {}").format(sql.SQL(", ").join(one.ident for one in some)))

    def _add_column(self, connection: Connection, _table: Worked) -> None:
        connection.execute("alter table public.plain add column if not exists added integer")
        connection.execute("alter table public.pairs add column if not exists undeclared text default 'x'")

    def _drop_column(self, connection: Connection, _table: Worked) -> None:
        connection.execute("alter table public.pairs drop column if exists undeclared")

    def _set_added(self, connection: Connection, _table: Worked) -> None:
        self._set(connection, PLAIN, self._key(PLAIN), {"added": self.chance.randrange(100)})


Step = Callable[[Session, Connection, Worked], None]
OF_ROWS: dict[Step, float] = {
    Session._insert: 30,
    Session._update: 30,
    Session._move: 8,
    Session._swap: 5,
    Session._there_and_back: 4,
    Session._remove: 8,
    Session._replace: 5,
    Session._put_and_take: 5,
}
"""What can be done to the rows of any table."""
_STEPS: Mapping[Step, float] = OF_ROWS | {
    Session._large: 1.5,
    Session._truncate: 0.4,
    Session._add_column: 0.5,
    Session._drop_column: 0.5,
    Session._set_added: 5,
}


def rows(dsn: str, table: Source) -> dict[tuple[object, ...], dict[str, object]]:
    """What the source has now, by key."""
    with psycopg.connect(dsn) as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        found = cursor.execute(sql.SQL("select * from {}").format(table.ident)).fetchall()
    return {tuple(row[key] for key in table.keys): row for row in found}
