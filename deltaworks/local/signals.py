"""Tables that are read beside the stream, as rows of the connector's signal table ask for: its incremental snapshot.

Of what a row asks for the connector looks at nothing before it begins (3.6): it sends tables that are not captured as
well, and of one that it cannot walk through only its log says that it was left out. So whoever asks looks first.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from tenacity import Retrying, retry, retry_if_result, stop_after_delay, wait_fixed

from deltaworks.errors import StackError
from deltaworks.local import connect
from deltaworks.local.captured import (
    Gap,
    Relation,
    asking,
    beside_snapshots,
    forbidden,
    partitions,
    publication_of,
    published_by,
    relations,
    unlisted,
)
from deltaworks.settings import Settings

SETTING = "signal.data.collection"
ID_MAX = 42
"""Characters, as in the table of Debezium's documentation; its own marks have as many."""
_COLUMNS = {"id": ID_MAX, "type": len("snapshot-window-close"), "data": 128}
"""And how many characters each must take: its marks say in data when a part was begun and ended."""
_TEXTS = {"text", "character varying"}
_MADE = "create table {} (id text primary key, type text not null, data text)"
_GUIDE = 'docs/how-to/change-data.md, "When something is missing"'
_WHOLE = 'Run "deltaworks source resnapshot", which reads every table'
_DOCTOR = 'Run "deltaworks doctor", and ask again'
_TURNS_MAX = 3
_POLL_SECONDS = 0.5
_AWAY_SECONDS_MAX = 60
"""Longer than a rebalance, or an end of Connect that is started again."""
_BEGUN = """
    select 1 from {table} mark join {table} asked on asked.id = %s
    where mark.type = 'snapshot-window-open' and age(mark.xmin) < age(asked.xmin)"""
"""A mark of the connector at the beginning of a part, made after the row."""
_APART = """
    select from pg_index i
    where i.indrelid = %s and i.indisunique and i.indpred is null and i.indexprs is null and not exists (
        select from unnest(i.indkey::int2[]) with ordinality as k(attnum, at)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
        where k.at <= i.indnkeyatts and not (a.attnotnull and a.attname = any(%s)))"""
"""Indexes by which no two rows have the same in these columns: neither partial, nor with nulls, which all differ."""


def gaps(connection: "psycopg.Connection[Any]", config: Mapping[str, str], tables: Sequence[str] = ()) -> Iterator[Gap]:
    """Why rows of the signal table would not reach the connector, or its own not the table; nothing if it names none.

    Some table or other is to be asked for, or just these.
    The connection is to the source database, as a role that may read its catalogs.
    """
    name = config.get(SETTING)
    if not name:
        return
    if "source" not in config.get("signal.enabled.channels", "source").replace(" ", "").split(","):
        finding = "is not read: the connector's signal.enabled.channels leaves source out"
        yield Gap(place=name, finding=finding, next_step='Add it there, then "deltaworks up"')
    relation = relations(connection, [name]).get(name)
    if relation is None:
        finding = f"is the connector's {SETTING}, and the source does not have it"
        yield Gap(
            place=name, finding=finding, next_step=f'Run "deltaworks up"; or make it: {_MADE.format(name)}, {_GUIDE}'
        )
        return
    if {*relation.attributes} != {*_COLUMNS} or not {one.type for one in relation.attributes.values()} <= _TEXTS:
        finding = "does not have just the columns id, type and data, of text, which the connector reads and writes"
        yield Gap(place=name, finding=finding, next_step=f"Make it anew: {_MADE.format(name)}")
    needed = {**_COLUMNS, "data": max(_COLUMNS["data"], len(_data(tables)))}
    for column, one in relation.attributes.items():
        if one.room is not None and one.room < needed.get(column, 0):
            finding = f"{column} takes {one.room} characters, and {needed[column]} are to be written there"
            yield Gap(place=name, finding=finding, next_step=f"alter table {name} alter column {column} type text")
    if name not in published_by(connection, config):
        finding = f"is not in the publication {publication_of(config)}: the connector sees no row of it"
        yield Gap(place=name, finding=finding, next_step=f"alter publication {publication_of(config)} add table {name}")
    if forbidden(connection, relation, config, "insert"):
        user = config["database.user"]
        finding = (
            f"the connector's role {user} may not write there, as it does before and after each part that it reads"
        )
        yield Gap(place=name, finding=finding, next_step=f"grant select, insert on {name} to {user}")


def unreadable(connection: "psycopg.Connection[Any]", config: Mapping[str, str], names: Sequence[str]) -> Iterator[Gap]:
    """Which of these tables the connector would leave out, read only in part, or read past newer changes."""
    there, published = relations(connection, names), published_by(connection, config)
    lists = beside_snapshots(config)
    captured = sorted(one for one in published if unlisted(one, one, lists) is None)
    for name in names:
        relation = there.get(name)
        if relation is None:
            finding = "the source has no such table"
            yield Gap(place=name, finding=finding, next_step=f"Captured are {', '.join(captured) or 'none'}")
            continue
        left_out = unlisted(name, name, lists)
        wrong = _wrong(connection, config, relation, published)
        if left_out is not None:
            yield left_out
        elif wrong is not None:
            yield Gap(place=name, finding=wrong[0], next_step=wrong[1])


def _wrong(
    connection: "psycopg.Connection[Any]", config: Mapping[str, str], relation: Relation, published: Mapping[str, Any]
) -> tuple[str, str] | None:
    """A finding and the next step."""
    name, key = relation.name, relation.key(config)
    if name not in published:
        if parts := [one for one in partitions(connection, relation) if one in published]:
            finding = "its changes come under its partitions' names: read by its own, its rows would pass newer changes"
            return finding, f"Name them: {' '.join(f'--table {one}' for one in parts)}"
        finding = f"is not in the publication {publication_of(config)}: its changes do not come"
        return finding, f"alter publication {publication_of(config)} add table {name}"
    if forbidden(connection, relation, config, "select"):
        user = config["database.user"]
        return f"the connector's role {user} may not read it", f"grant select on {name} to {user}"
    if not key:
        finding = "has neither a primary key nor a unique index, along which the connector would read it part by part"
        return finding, _WHOLE
    if connection.execute(_APART, (relation.oid, list(key))).fetchone() is None:
        finding = (
            f"is read part by part along {', '.join(key)}, and no unique index without nulls keeps its rows apart by"
            " it: some are left out"
        )
        return finding, _WHOLE
    if unsent := _unsent(relation, published[name]):
        finding = (
            f"has {', '.join(unsent)}, which its changes have not: the connector breaks off, and what it was asked for"
            " besides waits until it is started again"
        )
        return finding, _WHOLE
    if not re.fullmatch(r"\w+\.\w+", name):
        return "the connector would take its name for a pattern", _WHOLE
    return None


def _unsent(relation: Relation, published: Sequence[str] | None) -> list[str]:
    """The columns that a query has and the connector's own picture of the table, made from its changes, has not."""
    return [
        name
        for name, one in relation.attributes.items()
        if one.generated or (published is not None and name not in published)
    ]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A row of the signal table: its id, and the place in the source's log behind it."""

    signal: str
    place: int


def read_beside(settings: Settings, tables: Sequence[str], *, signal: str) -> Asked:
    """Ask the connector to read these tables of the source anew while changes come, by a row whose id begins so.

    With what comes behind it the id has ID_MAX characters at most.

    Returns when it has begun, or after half a minute in which it has not come so far in the log. Raises StackError if
    the connector has no signal table or not one that will do, runs otherwise than declared or not at all, if it would
    not read one of the tables rightly, or if Connect or the source is away.
    """
    name, config, path = connect.answering(settings)
    if not config.get(SETTING):
        step = f'Write "{SETTING}": "public.signals" there, and make that table: {_GUIDE}'
        raise StackError(str(path), "names no signal table, by which tables are read beside the stream", step)
    _refuse_other(settings, name, config)
    with asking(settings) as connection:
        for gap in (*gaps(connection, config, tables), *unreadable(connection, config, tables)):
            raise StackError(gap.place, gap.finding, gap.next_step)
        try:
            for turn in range(_TURNS_MAX):
                asked = _ask(connection, config[SETTING], tables, f"{signal}-{turn}")
                if not _lost(settings, connection, config[SETTING], asked):
                    return asked
        except psycopg.errors.InsufficientPrivilege:
            user = connection.info.user
            finding = f"the role {user}, by which the connector is asked, may not write and read there"
            raise StackError(config[SETTING], finding, f"grant select, insert on {config[SETTING]} to {user}") from None
    raise StackError(f"connector {name}", "has read past what it was asked for, and begun nothing", _DOCTOR)


def over(settings: Settings, asked: Asked) -> bool:
    """Whether the connector has seen the row, and read all that it and those before it ask for."""
    read = connect.settled_lsn(settings)
    return read is not None and read >= asked.place


def wait_over(settings: Settings, asked: Asked) -> None:
    """Return when it is `over`. Raises StackError if the connector stands still, or is not there for a minute."""
    name, _, _ = connect.answering(settings)
    waits, seen = "what it was asked for waits, and is read when it goes on", time.monotonic()

    def is_over() -> bool:
        nonlocal seen
        if over(settings, asked):
            return True
        if states := connect.states(settings, name):
            seen = time.monotonic()
        elif time.monotonic() - seen > _AWAY_SECONDS_MAX:
            raise StackError(f"connector {name}", f"is away: {waits}", 'Run "deltaworks up"')
        _refuse_idle(name, states, waits)
        return False

    Retrying(retry=retry_if_result(lambda found: not found), wait=wait_fixed(_POLL_SECONDS))(is_over)


@retry(
    retry=retry_if_result(lambda lost: lost is None),
    stop=stop_after_delay(30),
    wait=wait_fixed(0.25),
    retry_error_callback=lambda _: False,
)
def _lost(settings: Settings, connection: "psycopg.Connection[Any]", table: str, asked: Asked) -> bool | None:
    """Whether the row was read by a task that did not know the signal table; None if that is not known yet.

    After a change of its configuration the connector's task of before goes on for a moment, and runs as the next does.
    """
    past = over(settings, asked)  # asked first: the mark is there before the place is recorded
    if connection.execute(sql.SQL(_BEGUN).format(table=sql.Identifier(*table.split("."))), (asked.signal,)).fetchone():
        return False
    return True if past else None


def _refuse_other(settings: Settings, name: str, config: Mapping[str, str]) -> None:
    """A connector that does not run, or not yet by its file, would never see the row, or read other tables."""
    place = f"connector {name}"
    status, running = connect.ask(settings, "GET", f"/connectors/{name}/config")
    if status != 200:
        raise StackError(place, "Connect does not have it", 'Run "deltaworks up"')
    if changed := connect.differing(config, running):
        raise StackError(place, f"{', '.join(changed)} differ from the project's file", 'Run "deltaworks up"')
    _refuse_idle(name, connect.states(settings, name), "the tables would wait")


def _refuse_idle(name: str, states: Sequence[str], finding: str) -> None:
    if idle := [state for state in states if state in {"FAILED", "PAUSED", "STOPPED"}]:
        raise StackError(f"connector {name}", f"is {idle[0]}: {finding}", 'Run "deltaworks logs connect"')


def _ask(connection: "psycopg.Connection[Any]", table: str, tables: Sequence[str], signal: str) -> Asked:
    insert = sql.SQL("insert into {} values (%s, 'execute-snapshot', %s)").format(sql.Identifier(*table.split(".")))
    connection.execute(insert, (signal, _data(tables)))
    ((place,),) = connection.execute("select (pg_current_wal_lsn() - '0/0')::bigint").fetchall()
    return Asked(signal=signal, place=int(place))


def _data(tables: Sequence[str]) -> str:
    return json.dumps({"type": "incremental", "data-collections": list(tables)})
