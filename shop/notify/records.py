"""What was delivered, and the dead letters, of each consumer group: in the database `serving`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row

from deltaworks.errors import StackError
from shop.notify.confirmation import Letter

_SCHEMA = """
    select pg_advisory_xact_lock(7304712);  -- two members at once: "if not exists" alone lets both create
    create schema if not exists notify;
    create table if not exists notify.delivered (
        consumer_group text, id text, channel text, delivered_at timestamptz not null default now(),
        primary key (consumer_group, id, channel)
    );
    create table if not exists notify.dead_letters (
        consumer_group text, id text, channel text, reason text not null,
        topic text not null, partition integer not null, "offset" bigint not null,
        payload bytea,  -- null once somebody has decided that it is not to be delivered
        failed_at timestamptz not null default now(), discarded text,
        primary key (consumer_group, id, channel)
    );
    grant usage on schema notify to reader;
    grant select on notify.delivered to reader;
    grant select (consumer_group, id, channel, reason, failed_at, discarded) on notify.dead_letters to reader"""
_SETTLED = """
    select channel, false as delivered from notify.dead_letters
    where consumer_group = %(group)s and id = %(key)s
    union all select channel, true from notify.delivered where consumer_group = %(group)s and id = %(key)s
    order by delivered"""
_RECORD = """
    with gone as (
        delete from notify.dead_letters where consumer_group = %(group)s and id = %(key)s and channel = %(channel)s
    )
    insert into notify.delivered (consumer_group, id, channel) values (%(group)s, %(key)s, %(channel)s)
    on conflict do nothing"""
_BURY = """
    insert into notify.dead_letters (consumer_group, id, channel, reason, topic, partition, "offset", payload)
    values (%(group)s, %(key)s, %(channel)s, %(reason)s, %(topic)s, %(partition)s, %(offset)s, %(payload)s)
    on conflict (consumer_group, id, channel) do update set reason = excluded.reason"""
_DEAD = """
    select id, channel, reason, topic, partition, "offset", payload, failed_at from notify.dead_letters
    where consumer_group = %(group)s and discarded is null and (%(ids)s::text[] is null or id = any(%(ids)s))
    order by failed_at, id, channel"""
_DISCARD = """
    update notify.dead_letters set discarded = %(reason)s, payload = null
    where consumer_group = %(group)s and id = %(key)s and discarded is null returning channel"""
_LIFT = """
    delete from notify.dead_letters where consumer_group = %(group)s and id = %(key)s and channel = %(channel)s"""
ALL = "all"
"""In place of a channel: the message itself is at fault."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """What could not be delivered by a channel, or by none (`all`)."""

    id: str
    channel: str
    reason: str
    topic: str
    partition: int
    offset: int
    payload: bytes
    failed_at: datetime

    @property
    def letter(self) -> Letter:
        """The message as it came. Whoever delivers one without an id after all has its place stand for it."""
        return Letter(
            topic=self.topic, partition=self.partition, offset=self.offset, id=self.id, payload=self.payload
        )  # fmt: skip


class Records:
    """What one consumer group knows. A connection that is opened anew after a failure; not for two threads.

    Every statement may run twice.
    """

    def __init__(self, dsn: str, *, group: str, name: str) -> None:
        """Make the tables that are not there; `name` is who the server sees. Raises StackError, as each call does."""
        self._dsn, self._group, self._name = dsn, group, name
        self._connection: psycopg.Connection[dict[str, Any]] | None = None
        self._run(_SCHEMA)

    def __enter__(self) -> Self:
        """Return the open records."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._drop()

    def settled(self, key: str) -> dict[str, bool]:
        """The channels that have nothing more to do for a message: True if it was delivered, False if it is dead."""
        return {row["channel"]: row["delivered"] for row in self._run(_SETTLED, key=key)}

    def record(self, key: str, channel: str) -> None:
        """Take down that a message was delivered; it is no dead letter any more."""
        self._run(_RECORD, key=key, channel=channel)

    def bury(self, letter: Letter, channel: str, reason: str) -> None:
        """Make a dead letter of it; one that is there gets this reason."""
        place = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
        self._run(_BURY, key=letter.name, channel=channel, reason=reason, payload=letter.payload, **place)

    def dead(self, ids: Sequence[str] | None = None) -> list[DeadLetter]:
        """The dead letters with these ids, or all of them, the oldest first."""
        return [DeadLetter(**row) for row in self._run(_DEAD, ids=None if ids is None else list(ids))]

    def lift(self, key: str, channel: str) -> None:
        """Take a letter off the list."""
        self._run(_LIFT, key=key, channel=channel)

    def discard(self, key: str, reason: str) -> int:
        """Decide that what is dead of a message stays so: the content goes, its id stays. Returns how many letters."""
        return len(self._run(_DISCARD, key=key, reason=reason))

    def _run(self, query: str, **values: object) -> list[dict[str, Any]]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            cursor = self._connection.execute(query.encode(), {"group": self._group, **values} if values else None)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            self._drop()
            told = error.diag.message_primary or str(error).partition("\n")[0]
            raise StackError("database serving", told, 'Run "deltaworks status"') from None

    def _connect(self) -> psycopg.Connection[dict[str, Any]]:
        return psycopg.connect(
            self._dsn,
            autocommit=True,
            row_factory=dict_row,
            application_name=self._name,
            connect_timeout=3,  # the server is near
            options="-c statement_timeout=5s -c timezone=UTC",  # each statement touches a few rows
        )

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
