"""Whether the source database and its connector give what the project's tables read: else it never comes, unseen."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from deltaworks.errors import StackError
from deltaworks.settings import Settings
from deltaworks.words.keeping import History, Latest
from deltaworks.words.reading import ARRIVAL, Debezium
from deltaworks.words.table import Column, Table

_Wrong = tuple[str, str]
"""A finding and the next step."""
_ANEW = 'then "deltaworks up", and "deltaworks source resnapshot" for the rows that are there'
SECONDS_MAX = 5
_MILLIS_UPTO = 3
"""Digits of a second: a timestamp with so many is a number of milliseconds in the connector's adaptive modes."""
_SNAPSHOT = "snapshot.include.collection.list"
_REPLACES = "value.converter.replace.null.with.default"
_RELATIONS = """
    select c.oid::int, n.nspname || '.' || c.relname, c.relreplident::text, c.relkind = 'p'
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and n.nspname || '.' || c.relname = any(%s)"""
_INDEXES = """
    select i.indrelid::int, i.indisprimary, i.indisreplident, i.indimmediate and i.indpred is null,
        array(
            select a.attname::text from unnest(i.indkey::int2[]) with ordinality as k(attnum, at)
            join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum where k.at <= i.indnkeyatts)
    from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = any(%s) and i.indisunique and i.indexprs is null
    order by not i.indisclustered, c.relname"""
"""Unique indexes, as the connector looks for one where there is no primary key: it takes the first."""
_ATTRIBUTES = """
    select a.attrelid::int, a.attname::text, format_type(a.atttypid, null), a.atttypmod, a.attgenerated::text <> '',
        a.atthasdef and not a.attnotnull,
        t.typtype::text = 'c' or coalesce(e.typtype::text, '') = 'c' or coalesce(e.typname, '') = 'interval'
    from pg_attribute a join pg_type t on t.oid = a.atttypid left join pg_type e on e.oid = t.typelem and t.typlen = -1
    where a.attrelid = any(%s) and a.attnum > 0 and not a.attisdropped"""
_PUBLISHED = """
    select schemaname || '.' || tablename, to_jsonb(p) -> 'attnames' from pg_publication_tables p where pubname = %s"""
_PARTITIONS = """
    select n.nspname || '.' || c.relname from pg_partition_tree(%s) t join pg_class c on c.oid = t.relid
    join pg_namespace n on n.oid = c.relnamespace where t.isleaf and t.level > 0 order by 1"""
_DESCENDANTS = """
    with recursive down (oid) as (
        select %s::oid union select i.inhrelid from pg_inherits i join down on i.inhparent = down.oid)
    select n.nspname || '.' || c.relname from down join pg_class c using (oid)
    join pg_namespace n on n.oid = c.relnamespace"""
"""Of partitions and of tables that inherit."""
_FORBIDDEN = """
    select rolname from pg_roles where not has_table_privilege(oid, %s::oid, %s) and rolname = %s"""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What of a table, or of one of its columns, does not come, and what to do."""

    place: str
    finding: str
    next_step: str


@dataclass(frozen=True, kw_only=True)
class _Attribute:
    type: str
    digits: int
    """Of a timestamp: of its seconds' fraction."""
    room: int | None
    """Characters that it takes at most, if it is a character varying with a length."""
    generated: bool
    may_lack: bool
    """Whether it has a default, and may be null all the same."""
    left_out: bool
    """Whether the connector has no form for such values."""


@dataclass(frozen=True, kw_only=True)
class _Index:
    primary: bool
    identity: bool
    """Whether it is the table's replica identity."""
    sound: bool
    """Whether no two rows have the same at any moment; not a partial index, nor one that is looked at later."""
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A table of the source, as Postgres and the connector see it."""

    oid: int
    name: str
    identity: str
    partitioned: bool
    indexes: tuple[_Index, ...]
    """Unique ones."""
    attributes: Mapping[str, _Attribute]

    @property
    def told(self) -> set[str]:
        """The columns that updates and deletions tell of the row that they found: its replica identity."""
        if self.identity == "f":
            return {*self.attributes}
        mine = {"d": "primary", "i": "identity"}.get(self.identity)
        return {name for one in self.indexes if mine and getattr(one, mine) for name in one.columns}

    def key(self, config: Mapping[str, str]) -> tuple[str, ...]:
        """The columns of a record's key; none: its records have no key."""
        for pattern, _, columns in (one.partition(":") for one in config.get("message.key.columns", "").split(";")):
            if pattern and _listed(pattern, self.name):
                return tuple(column.strip() for column in columns.split(","))
        primary = sorted(self.indexes, key=lambda one: not one.primary)
        return primary[0].columns if primary else ()


@contextmanager
def asking(settings: Settings) -> Iterator["psycopg.Connection[Any]"]:
    """Give a connection to the source database; what goes wrong with it, or lasts too long, is a StackError.

    The view pg_publication_tables opens every published table: it waits for whoever has one locked.
    """
    options = f"-c statement_timeout={SECONDS_MAX * 1000}"
    try:
        with psycopg.connect(
            settings.source_dsn(), connect_timeout=SECONDS_MAX, autocommit=True, options=options
        ) as connection:
            yield connection
    except psycopg.errors.QueryCanceled:
        finding = f"has given no answer within {SECONDS_MAX} s: somebody may hold a lock on one of its tables"
        raise StackError("source", finding, "See pg_locks there for who; ask again when that has ended") from None
    except psycopg.OperationalError as error:
        told = _first_line(error).partition("FATAL:")[2].strip()
        raise StackError("source", told or "does not answer", 'Run "deltaworks up"') from None
    except psycopg.Error as error:
        raise StackError("source", _first_line(error), 'Run "deltaworks doctor"') from None


def _first_line(error: psycopg.Error) -> str:
    return str(error).partition("\n")[0]


def gaps(
    connection: "psycopg.Connection[Any]", config: Mapping[str, str], tables: Mapping[str, Table]
) -> Iterator[Gap]:
    """Compare what tables declare with the source and the connector's configuration.

    The connection is to the source database, as a role that may read its catalogs.
    """
    reading = {name: table for name, table in tables.items() if isinstance(table.reads, Debezium)}
    there = relations(connection, [_source(table) for table in reading.values()])
    published = published_by(connection, config)
    for name, table in reading.items():
        relation = there.get(_source(table))
        if relation is None:
            yield Gap(
                place=name,
                finding=f"reads {_source(table)}, which the source does not have",
                next_step="Mend the name in its declaration, or create the table",
            )
            continue
        missing = _not_captured(connection, name, _reads(table), relation, config, published)
        if missing is not None:
            yield missing
            continue
        yield from _strangers(connection, name, _reads(table), relation, config, published)
        yield from _keys(name, table, relation, config)
        yield from _columns(name, table, relation, config, published.get(relation.name))


def publication_of(config: Mapping[str, str]) -> str:
    """Name of the publication that the connector reads."""
    return config.get("publication.name", "dbz_publication")


def published_by(connection: "psycopg.Connection[Any]", config: Mapping[str, str]) -> dict[str, Any]:
    """The columns of each table whose changes the connector's publication has, by the name under which they come."""
    return dict(connection.execute(_PUBLISHED, (publication_of(config),)).fetchall())


def partitions(connection: "psycopg.Connection[Any]", relation: Relation) -> list[str]:
    """Names of the partitions that have a table's rows; none if it has none."""
    return [one for (one,) in connection.execute(_PARTITIONS, (relation.oid,))] if relation.partitioned else []


def forbidden(connection: "psycopg.Connection[Any]", relation: Relation, config: Mapping[str, str], right: str) -> bool:
    """Whether the connector's role lacks a right on a table; what a role may that is not known here nobody knows."""
    user = config.get("database.user")
    return bool(user and connection.execute(_FORBIDDEN, (relation.oid, right, user)).fetchone())


def _source(table: Table) -> str:
    return _reads(table).table


def _reads(table: Table) -> Debezium:
    assert isinstance(table.reads, Debezium)
    return table.reads


def relations(connection: "psycopg.Connection[Any]", names: Sequence[str]) -> dict[str, Relation]:
    """The tables of the source that have these names, each as schema.table."""
    rows = connection.execute(_RELATIONS, (list(names),)).fetchall()
    attributes: dict[int, dict[str, _Attribute]] = {row[0]: {} for row in rows}
    for oid, name, kind, modifier, generated, may_lack, left_out in connection.execute(
        _ATTRIBUTES, (list(attributes),)
    ):
        digits = 6 if modifier < 0 else modifier
        room = modifier - 4 if kind == "character varying" and modifier >= 0 else None
        attributes[oid][name] = _Attribute(
            type=kind, digits=digits, room=room, generated=generated, may_lack=may_lack, left_out=left_out
        )
    indexes: dict[int, list[_Index]] = {row[0]: [] for row in rows}
    for oid, primary, of_identity, sound, columns in connection.execute(_INDEXES, (list(indexes),)):
        one = _Index(primary=primary, identity=of_identity, sound=sound, columns=tuple(columns))
        indexes[oid].append(one)
    return {
        name: Relation(
            oid=oid,
            name=name,
            identity=identity,
            partitioned=partitioned,
            indexes=tuple(indexes[oid]),
            attributes=attributes[oid],
        )
        for oid, name, identity, partitioned in rows
    }


def _not_captured(
    connection: "psycopg.Connection[Any]",
    name: str,
    reads: Debezium,
    relation: Relation,
    config: Mapping[str, str],
    published: Mapping[str, object],
) -> Gap | None:
    """Why no change of the table comes at all, or none of a part of it; None if they come."""
    parts = partitions(connection, relation)
    by_parts = bool(parts) and relation.name not in published
    for one in parts if by_parts and reads.partitions is not None else [relation.name]:
        left_out = unlisted(name, one, config)
        if left_out is not None:
            return left_out
    if forbidden(connection, relation, config, "select"):
        user = config["database.user"]
        finding = f"the connector's role {user} may not read {relation.name}"
        return Gap(place=name, finding=finding, next_step=f"grant select on {relation.name} to {user}, {_ANEW}")
    if relation.name in published:
        return None
    publication = publication_of(config)
    if by_parts and any(one in published for one in parts):
        other = next((one for one in parts if not reads.is_partition(one)), None)
        if other is None:
            return None
        finding = f"changes of {relation.name} are published under its partitions' names, not its own"
        if reads.partitions is not None:
            finding = f"{other} is a partition of {relation.name}, and not named by partitions={reads.partitions!r}"
        step = f"alter publication {publication} set (publish_via_partition_root = true)"
        return Gap(place=name, finding=finding, next_step=f"Declare partitions= for {other}; or {step}, {_ANEW}")
    finding = f"{relation.name} is not in the publication {publication}"
    step = f"alter publication {publication} add table {relation.name}, {_ANEW}"
    return Gap(place=name, finding=finding, next_step=step)


def _strangers(
    connection: "psycopg.Connection[Any]",
    name: str,
    reads: Debezium,
    relation: Relation,
    config: Mapping[str, str],
    published: Iterable[str],
) -> Iterator[Gap]:
    """Captured tables that are called like the table's partitions and are none: their rows come as its own."""
    lists = beside_snapshots(config)
    called = [one for one in sorted(published) if reads.is_partition(one) and unlisted(name, one, lists) is None]
    own = {one for (one,) in connection.execute(_DESCENDANTS, (relation.oid,))} if called else set()
    for one in called:
        if one not in own:
            finding = f"takes the rows of {one} too, which partitions={reads.partitions!r} names and is none"
            next_step = f'Name its partitions only; if rows of {one} have come, then "deltaworks rebuild {name}"'
            yield Gap(place=name, finding=finding, next_step=next_step)


def beside_snapshots(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration without the list of what snapshots read: changes come anyway."""
    return {setting: patterns for setting, patterns in config.items() if setting != _SNAPSHOT}


def unlisted(name: str, relation: str, config: Mapping[str, str]) -> Gap | None:
    """By which of its lists the connector leaves a table of the source out."""
    for setting in ("table.include.list", _SNAPSHOT):
        patterns = config.get(setting)
        if patterns is not None and not _listed(patterns, relation):
            finding = f"{relation} is not in the connector's {setting}"
            return Gap(place=name, finding=finding, next_step=f"Add it there, {_ANEW}")
    if _listed(config.get("table.exclude.list", ""), relation):
        finding = f"{relation} is in the connector's table.exclude.list"
        return Gap(place=name, finding=finding, next_step=f"Take it out there, {_ANEW}")
    return None


def _listed(patterns: str, name: str) -> bool:
    """Whether a comma-separated list of regular expressions has one for the whole name (as Debezium reads it)."""
    return any(re.fullmatch(one.strip(), name, re.IGNORECASE) for one in patterns.split(",") if one.strip())


def _keys(name: str, table: Table, relation: Relation, config: Mapping[str, str]) -> Iterator[Gap]:
    """Whether changes tell which row they are of, by the columns that it is kept by."""
    if not isinstance(table.kept_as, Latest | History):
        return
    for finding, next_step in _of_keys(table, _kept_by(table, relation), relation, relation.key(config)):
        yield Gap(place=name, finding=finding, next_step=next_step)


def _kept_by(table: Table, relation: Relation) -> set[str]:
    """The declared keys, by their names in the source."""
    keys = table.kept_as.keys if isinstance(table.kept_as, Latest | History) else ()
    older = {column.name: column.previously for column in table.columns}
    return {name if name in relation.attributes else older.get(name) or name for name in keys}


def _of_keys(table: Table, declared: set[str], relation: Relation, key: Sequence[str]) -> Iterator[_Wrong]:
    assert isinstance(table.reads, Debezium)
    full, told, kept = relation.identity == "f", relation.told, f"is kept by {', '.join(sorted(declared))}"
    to_full = f"alter table {relation.name} replica identity full"
    if any(one.generated for one in relation.attributes.values()):  # refused by 18: an identity that is not published
        to_full += " (in Postgres 18 after the publication's publish_generated_columns = stored: else updates fail)"
    if not told:
        lacks = "replica identity nothing" if relation.identity == "n" else "no primary key, and no other identity"
        yield f"{relation.name} has {lacks}: Postgres refuses updates and deletions", to_full
        return
    keyed = f"records of {relation.name} are keyed by {', '.join(key)}"
    if untold := [column for column in key if column not in told]:
        finding = (
            f"{keyed}, and its replica identity lacks {', '.join(untold)}: deletions name another row, and where a key"
            " changes the old row stays"
        )
        yield finding, to_full
    elif key and not declared <= {*key} and not (full and table.reads.replica_identity == "full"):
        finding = f"{kept}, and {keyed}: updates and deletions are refused"
        word = 'write replica_identity="full"'
        yield finding, f"Declare {', '.join(key)} as keys, or {word if full else f'{to_full}, and {word}'}"
    if table.reads.replica_identity == "full" and not full:
        finding = f"declares replica identity full, and {relation.name} has another: what was before is invented"
        yield finding, to_full
    if not any(one.sound and {*one.columns} <= declared for one in relation.indexes):
        finding = (
            f"{kept}, and no unique index of {relation.name} sees to it at each moment: of rows that have the same"
            " one is kept"
        )
        yield finding, "Declare the columns of such an index as keys, or create one"


def _columns(
    name: str, table: Table, relation: Relation, config: Mapping[str, str], published: Sequence[str] | None
) -> Iterator[Gap]:
    assert isinstance(table.reads, Debezium)
    moves = not _kept_by(table, relation) <= {*relation.key(config)}
    for column in table.columns:
        if column.wire == ARRIVAL or column.name == table.reads.unknown_fields.column:
            continue
        field = next((one for one in (column.name, column.previously) if one in relation.attributes), None)
        wrong: _Wrong | None = None
        if field is not None:
            wrong = _not_sent(column, field, relation.attributes[field], config, published)
            if wrong is None and moves and column.absent == "kept" and relation.attributes[field].generated:
                wrong = (
                    "is generated in the source, and a row that gets other keys comes without it: it is not there then",
                    "Compute it in a table above",
                )
        elif not column.null:
            wrong = f"{relation.name} has no such column: every row is refused", "Take it out, or write null=True"
        if wrong is not None:
            yield Gap(place=f"{name}.{column.name}", finding=wrong[0], next_step=wrong[1])


def _not_sent(
    column: Column, field: str, found: _Attribute, config: Mapping[str, str], published: Sequence[str] | None
) -> _Wrong | None:
    """Why a column's value does not come, or comes as another one."""
    sent_once = column.absent == "kept"
    if found.generated and not sent_once:
        return (
            "is generated in the source, and Postgres does not send such values",
            'Compute it in a table above, or write absent="kept"',
        )
    if published is not None and field not in published and not sent_once:
        return "is not in the publication's list of columns", "Add it there"
    if found.left_out:
        return (
            f"is of type {found.type}, for which the connector sends nothing",
            "Take it out, or cast it in the source",
        )
    if column.type == "string" and found.type == "numeric":
        return (
            "is numeric in the source: NaN and infinite values come as the connector's words for them",
            "Declare a decimal, which refuses them, or cast it in the source",
        )
    if found.may_lack and _replaces_null(config):
        next_step = f'Write "{_REPLACES}": "false" into its file, {_ANEW}'
        return "may be null and has a default in the source, which the connector sends instead of null", next_step
    if column.type == "timestamp" and found.type == "timestamp without time zone":
        sent, declared = _unit(found.digits, config), column.wire or "micros"
        if sent != declared:
            return f"is sent in {sent}, declared is {declared}: another time is read", f'Write wire="{sent}"'
    return None


def _replaces_null(config: Mapping[str, str]) -> bool:
    """Whether the connector's converter sends defaults for nulls: its own does by default, the local worker's not."""
    return config.get(_REPLACES, "true" if "value.converter" in config else "false") != "false"


def _unit(digits: int, config: Mapping[str, str]) -> str:
    """In which unit the connector sends a timestamp without a zone."""
    mode = config.get("time.precision.mode", "adaptive")
    return "millis" if mode == "connect" or (mode.startswith("adaptive") and digits <= _MILLIS_UPTO) else "micros"
