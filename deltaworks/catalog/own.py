"""Rules that a declaration keeps by itself, whatever the other tables are."""

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain

from deltaworks.catalog.declared import HISTORY_COLUMNS
from deltaworks.catalog.evolving import evolving, kept_column
from deltaworks.catalog.outlets import outlet_findings
from deltaworks.catalog.reading import NAME, Readable
from deltaworks.catalog.stateful import stateful_findings
from deltaworks.errors import DeclarationError
from deltaworks.findings import Finding, nearest
from deltaworks.quality import predicate
from deltaworks.words import Column
from deltaworks.words.keeping import Aggregate, Append, History, Latest, Raw, Stateful, View
from deltaworks.words.partitioning import DayOf
from deltaworks.words.reading import ARRIVAL, Debezium, Json, Kafka
from deltaworks.words.types import Type, parse

_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,126}")
_SOURCE_TABLE = re.compile(r"[^.\s]+\.[^.\s]+")
ORDERED = ("int", "bigint", "decimal", "date", "timestamp")
"""Types of which of two values one is higher, for whoever looks: texts have many orders, doubles no last digit."""
MOMENTS = ("date", "timestamp")
"""Of these a value says from when on something holds."""
_WIRES = {"timestamp": ("micros", "millis", "seconds", ARRIVAL), "date": ("days",)}


def own_findings(table: Readable) -> Iterator[Finding]:
    """Everything that is wrong with one declaration in itself."""
    misplaced = list(_layer(table))
    rules = (
        *(
            _texts,
            _bronze,
            _reading,
            _columns,
            _types,
            evolving,
            _named,
            _keys,
            _by,
            _absent,
            _combine,
            _times,
            _keep_days,
        ),
        _only,
        _partition,
        stateful_findings,
        outlet_findings,
    )
    further = rules if misplaced else (_keeping, _wires, *rules)  # what only follows from a wrong layer is not told
    return chain(misplaced, chain.from_iterable(rule(table) for rule in further))


def _texts(table: Readable) -> Iterator[Finding]:
    declared = table.declared
    if not declared.doc:
        finding, next_step = "there is no docstring", "Say in a line what the table holds and what one row is"
        yield Finding(place=table.source.at(1), finding=finding, next_step=next_step)
    if not declared.table.owner.strip():
        yield table.at_field("owner", "the owner is empty", "Name who answers for the table")
    if not NAME.fullmatch(declared.table.app):
        next_step = "Use lower-case letters, digits and _, a letter first, at most 63"
        yield table.at_field("app", f"{declared.table.app!r} cannot be an app's name", next_step)


def _keep_days(table: Readable) -> Iterator[Finding]:
    """Rows that are long past can go where a row is of its time, and is not changed once that has passed."""
    declared = table.declared.table
    if declared.keep_days is None:
        return
    if declared.keep_days < 1:
        yield table.at_field("keep_days", "keep_days is below 1", "Keep at least a day, or leave keep_days out")
    match declared.kept_as:
        case Raw():
            finding = "bronze is kept whole: all tables are computed from it again"
            yield table.at_field("keep_days", finding, "Take it out: declare it in the tables above")
        case Append() | Aggregate() | Stateful():
            if declared.event_time is None:
                next_step = "Name the column that says when it happened, or take keep_days out"
                yield table.at_field("keep_days", "keep_days without event_time: no row is old", next_step)
            elif isinstance(declared.kept_as, Aggregate) and declared.event_time not in declared.kept_as.keys:
                finding = f"event_time {declared.event_time} is no key: old rows and new ones go up in one group"
                yield table.at_field("keep_days", finding, "Add it to the keys, or take keep_days out")
        case kept_as:
            finding = f"a {type(kept_as).__name__.lower()} table says what holds, however long ago it began"
            yield table.at_field("keep_days", finding, "Take it out")


def _layer(table: Readable) -> Iterator[Finding]:
    layer, reads = table.declared.layer, table.declared.table.reads
    if layer == "bronze" and not isinstance(reads, Kafka):
        yield table.at_field("reads", "a bronze table reads Kafka", "Write kafka(...), or move the folder")
    if layer != "bronze" and isinstance(reads, Kafka):
        yield table.at_field("reads", f"a {layer} table reads Kafka", "Read it into a bronze table, and that one here")
    if layer == "gold" and isinstance(reads, Json | Debezium):
        yield table.at_field("reads", "a gold table parses", "Parse in a silver table, and read that one here")


def _keeping(table: Readable) -> Iterator[Finding]:
    kept_as = table.declared.table.kept_as
    allowed: tuple[type, ...]
    match table.declared.table.reads:
        case Kafka():
            what, allowed = "Kafka", (Raw,)
        case Json():
            what, allowed = "JSON", (Append, Latest, History)
        case Debezium():
            what, allowed = "Debezium", (Latest, History)
        case _:
            what, allowed = "tables", (Aggregate, View, Stateful)
    if not isinstance(kept_as, allowed):
        finding = f"{type(kept_as).__name__.lower()} does not go with reading {what}"
        words = " or ".join(f"{kind.__name__.lower()}(...)" for kind in allowed)
        yield table.at_field("kept_as", finding, f"Write {words}")


def _bronze(table: Readable) -> Iterator[Finding]:
    """Bronze holds Kafka's bytes: what is about parsed columns has no meaning there."""
    declared = table.declared.table
    if isinstance(declared.kept_as, Raw):
        for field in ("columns", "event_time", "subject", "late"):
            if getattr(declared, field):
                next_step = "Take it out: declare it in the silver table"
                yield table.at_field(field, f"{field} means nothing in a raw table", next_step)


def _reading(table: Readable) -> Iterator[Finding]:
    match table.declared.table.reads:
        case Kafka(topics=()):
            yield table.at_field("reads", "kafka() names no topic", "Name the topics to read")
        case Kafka(topics=topics) if len(set(topics)) < len(topics):
            yield table.at_field("reads", "a topic is named twice", "Name each topic once")
        case Debezium(table=name) if not _SOURCE_TABLE.fullmatch(name):
            yield table.at_field(
                "reads", f"{name!r} is no source table", 'Write schema and name, as in "public.orders"'
            )
        case Debezium(partitions=str(name)) if not _SOURCE_TABLE.fullmatch(name):
            yield table.at_field(
                "reads", f"{name!r} names no partitions", 'Write schema and name, as in "public.orders_*"'
            )
        case ():
            yield table.at_field("reads", "reads names no table", "Name the tables to read")
        case tuple(names) if len(set(names)) < len(names):
            yield table.at_field("reads", "an input is named twice", "Name each input once")


def _columns(table: Readable) -> Iterator[Finding]:
    columns = table.declared.table.columns
    if not columns and not isinstance(table.declared.table.kept_as, Raw):
        yield table.at_field("columns", "there are no columns", "Declare the columns: they are the schema")
    seen: dict[str, str] = {}
    kept = kept_column(table)
    taken = [column.name for column in HISTORY_COLUMNS] if isinstance(table.declared.table.kept_as, History) else []
    for column in columns:
        if column.name.startswith("_") and column.name != kept:
            yield table.at_column(column.name, "names that start with _ are the engine's", "Take another name")
        elif column.name.lower() in taken:
            yield table.at_column(column.name, "a history has it by itself", "Take it out, or take another name")
        elif not _COLUMN.fullmatch(column.name.removeprefix("_")):
            yield table.at_column(column.name, "cannot be a column's name", "Use letters, digits and _, a letter first")
        if column.name.lower() in seen:
            first = seen[column.name.lower()]
            what = "is declared twice" if first == column.name else f"differs from {first} by case only"
            yield table.at_column(column.name, what, "Keep one of them")
        seen.setdefault(column.name.lower(), column.name)
        if not column.doc.strip():
            yield table.at_column(column.name, "has no doc", "Say what it means, with its unit")


def _types(table: Readable) -> Iterator[Finding]:
    for column in table.declared.table.columns:
        try:
            parse(column.type)
        except DeclarationError as error:
            yield table.at_column(column.name, f"{error.place}: {error.finding}", error.next_step)


def _wires(table: Readable) -> Iterator[Finding]:
    parses = isinstance(table.declared.table.reads, Json | Debezium)
    for column in table.declared.table.columns:
        if column.wire is None:
            continue
        allowed = _WIRES.get(column.type, ())
        if not parses:
            finding = "wire means nothing in a table that does not parse"
            yield table.at_column(column.name, finding, "Take it out")
        elif column.wire not in allowed:
            next_step = f"Write {' or '.join(allowed)}" if allowed else "Take it out"
            yield table.at_column(column.name, f"wire {column.wire!r} does not go with {column.type}", next_step)
        elif column.wire == ARRIVAL and column.name in _telling(table):
            next_step = "Take one that the source sends: when a record arrived does not say which row it is about"
            yield table.at_column(column.name, "tells rows apart, but is the time of arrival", next_step)


def _named(table: Readable) -> Iterator[Finding]:
    """Columns that the declaration names elsewhere are declared."""
    declared, names = table.declared.table, [column.name for column in table.declared.columns]
    if isinstance(declared.kept_as, Raw) or not declared.columns:
        return
    mentioned = [("kept_as", "key", key) for key in table.declared.keys]
    match declared.kept_as:
        case Append(dedupe_by=columns):
            mentioned += [("kept_as", "dedupe_by column", name) for name in columns]
        case Latest(by=str(column)) | History(by=str(column)):
            mentioned.append(("kept_as", "by", column))
        case Aggregate(combine=combine):
            mentioned += [("kept_as", "combined column", name) for name in combine]
        case Stateful(part=part, closes=closes):
            mentioned += [("kept_as", "part column", name) for name in part]
            mentioned += [("kept_as", "closes", closes)] if closes else []
    mentioned += [(field, field, name) for field in ("event_time", "subject") if (name := getattr(declared, field))]
    if by := declared.partition_by:
        mentioned.append(("partition_by", "partition_by", by.column if isinstance(by, DayOf) else by))
    declared_names = [column.name for column in declared.columns]  # a history's own columns come from no source
    for field, what, name in mentioned:
        known = declared_names if what in ("key", "by") else names
        if name not in known and name in names:
            finding = f"{what} {name} is a column that the history makes itself"
            next_step = f'Declare the field under another name: Column("since", ..., previously="{name}")'
            yield table.at_field(field, finding, next_step)
        elif name not in known:
            yield table.at_field(field, f"{what} {name} is not declared", nearest(name, known, "columns"))


def _telling(table: Readable) -> tuple[str, ...]:
    """The columns that tell rows apart."""
    kept_as = table.declared.table.kept_as
    return kept_as.dedupe_by if isinstance(kept_as, Append) else table.declared.keys


def _keys(table: Readable) -> Iterator[Finding]:
    kept_as, columns = table.declared.table.kept_as, table.declared.table.columns
    keys = _telling(table)
    if isinstance(kept_as, Latest | History | Aggregate | View | Stateful) and not keys:
        yield table.at_field("kept_as", "there are no keys", "Name the columns that make a row unique")
    if len(set(keys)) < len(keys):
        yield table.at_field("kept_as", "a column is named twice", "Name each once")
    if isinstance(kept_as, Latest | History | Append):
        for column in _of(columns, keys):
            if column.null:
                next_step = "Write null=False: a row without it is refused"
                yield table.at_column(column.name, "tells rows apart, but may be null", next_step)
    if isinstance(kept_as, Append):
        if kept_as.dedupe_by and kept_as.within <= timedelta(0):
            next_step = "Say how far apart, as in within=hours(1)"
            yield table.at_field("kept_as", "dedupe_by without within finds no copies", next_step)
        if kept_as.within and not kept_as.dedupe_by:
            next_step = "Say which columns are the same in a copy"
            yield table.at_field("kept_as", "within without dedupe_by finds no copies", next_step)
        for column in _of(columns, kept_as.dedupe_by):
            if column.type == "double":
                finding = "tells copies, but is a double: NaN is like no value, not like NaN either"
                next_step = "Take a column of another type, or declare it as decimal"
                yield table.at_column(column.name, finding, next_step)


def _by(table: Readable) -> Iterator[Finding]:
    """States are placed by a column that each has, of a type that has an order; in a history by a time."""
    declared = table.declared.table
    if not isinstance(declared.kept_as, Latest | History):
        return
    by, dated = declared.kept_as.by, isinstance(declared.kept_as, History)
    if by is None:
        if dated and isinstance(declared.reads, Json):
            finding = "a history over JSON without by: nothing tells from when on a state held"
            next_step = 'Name a timestamp or date of the state, as in by="changed_at", or one with wire="arrival"'
            yield table.at_field("kept_as", finding, next_step)
        return
    if isinstance(declared.reads, Debezium):
        finding = f"by {by} means nothing here: the database's log places its changes"
        yield table.at_field("kept_as", finding, "Take by out")
        return
    for column in _of(declared.columns, (by,)):
        kind = _type(column)
        if kind and dated and kind.name not in MOMENTS:
            finding = f"by {by} is of type {column.type}: no order but time gives the interval in which a state held"
            yield table.at_field("kept_as", finding, "Name a column of type date or timestamp, or keep it as latest")
        elif kind and kind.name not in ORDERED:
            yield table.at_field("kept_as", f"by {by} is of type {column.type}", _one_of(ORDERED))
        if by in declared.kept_as.keys:
            finding = f"by {by} is a key: all states of a key have the same"
            yield table.at_field("kept_as", finding, "Name the column that says which state is newer")
        elif column.null:
            next_step = "Write null=False: a state without it is refused"
            yield table.at_column(by, "places states, but may be null", next_step)


def _absent(table: Readable) -> Iterator[Finding]:
    """What an update does not have can stay as it was where a row is what its last change makes of it."""
    declared = table.declared.table
    for column in declared.columns:
        if column.absent == "null":
            continue
        if not isinstance(declared.reads, Debezium) or not isinstance(declared.kept_as, Latest):
            finding = 'absent="kept" is for what is kept as latest over debezium(...)'
            next_step = "Take it out; a history refuses changes that leave values out: keep a latest table beside it"
            yield table.at_column(column.name, finding, next_step)
        elif column.wire == ARRIVAL or column.name in declared.kept_as.keys:
            yield table.at_column(column.name, 'absent="kept", but each change has it', "Take it out")
        elif declared.reads.replica_identity == "full":
            finding = 'absent="kept" beside replica_identity="full": a row that gets other keys would lose it'
            next_step = "Take the column out and compute it in a table above; or keep the table by its records' key"
            yield table.at_column(column.name, finding, f"{next_step}, without replica_identity")
        elif not column.null:
            finding = 'absent="kept" with null=False: each new row without it is refused'
            next_step = "Let it be null: what is inserted without it has null until the next snapshot"
            yield table.at_column(column.name, finding, next_step)


def _combine(table: Readable) -> Iterator[Finding]:
    """An aggregate's columns are its keys and what is combined; adding is exact only for some types."""
    kept_as, columns = table.declared.table.kept_as, table.declared.table.columns
    if not isinstance(kept_as, Aggregate):
        return
    for name in kept_as.combine:
        if name in kept_as.keys:
            yield table.at_field("kept_as", f"{name} is a key and combined", "Take it out of one of them")
    for column in columns:
        if column.name not in (*kept_as.keys, *kept_as.combine):
            next_step = "Add it to keys, or to combine with add, least or greatest"
            yield table.at_column(column.name, "is neither a key nor combined", next_step)
        known = _type(column)
        if kept_as.combine.get(column.name) == "add" and known and not known.adds_exactly:
            next_step = "Use bigint, or decimal(p,s) with p below 38: sums of these are exact, or noticed as too large"
            yield table.at_column(column.name, f"add does not go with {column.type}", next_step)


def _times(table: Readable) -> Iterator[Finding]:
    declared = table.declared.table
    for column in _of(declared.columns, (declared.event_time,)):
        if _type(column) and column.type not in ("timestamp", "date"):
            next_step = "Name a timestamp or date column"
            yield table.at_field("event_time", f"event_time {column.name} is of type {column.type}", next_step)
    if declared.late is not None and not isinstance(declared.kept_as, Raw):
        if not isinstance(declared.kept_as, Aggregate | Stateful):
            next_step = "Take it out: this table uses every row, however late"
            yield table.at_field("late", "late is for aggregate and stateful tables", next_step)
        if declared.late.after < timedelta(0):
            yield table.at_field("late", "after is negative", "Give the time a row may be late")
    bad = declared.bad_rows_max
    if not 0 < bad.share <= 1 or bad.of < 1:
        yield table.at_field("bad_rows_max", "no such share of rows", "Write share(0.5, of=1_000), or others above 0")
    if declared.future_max < timedelta(0):
        yield table.at_field("future_max", "future_max is negative", "Give the time that a sender's clock may be ahead")


def _only(table: Readable) -> Iterator[Finding]:
    """Events can be filtered: what does not change once it is there; the condition is about declared columns."""
    declared = table.declared.table
    if declared.only is None:
        return
    match declared.kept_as:
        case Append():
            if all(map(_type, declared.columns)):  # a wrong type is told where it stands
                try:
                    predicate.read(declared.only, declared.columns)
                except DeclarationError as error:
                    yield table.at_field("only", f"only={declared.only!r}: {error.finding}", error.next_step)
        case Raw():
            finding = "bronze is kept whole: all tables are computed from it again"
            yield table.at_field("only", finding, "Take it out: declare it in a table above")
        case Latest() | History() as kept_as:
            kind = type(kept_as).__name__.lower()
            finding = f"rows of a {kind} table change: one that does not fit any more would have to go"
            yield table.at_field("only", finding, "Take it out, and filter in a view over this table")
        case _:
            finding = "only is for tables that parse events"
            yield table.at_field("only", finding, "Take it out, and filter in transform.py")


def _partition(table: Readable) -> Iterator[Finding]:
    """Parts are few and do not move: days, or values of a plain column; of an aggregate one of its keys."""
    by, kept_as = table.declared.table.partition_by, table.declared.table.kept_as
    if by is None:
        return
    column = by.column if isinstance(by, DayOf) else by
    if isinstance(kept_as, Raw):
        if by != DayOf(column="timestamp"):
            finding = "a raw table can be partitioned by the day of arrival only"
            yield table.at_field("partition_by", finding, 'Write partition_by=day_of("timestamp"), or leave it out')
        return
    allowed = ("timestamp", "date") if isinstance(by, DayOf) else ("date", "string", "int", "bigint")
    for found in _of(table.declared.table.columns, (column,)):
        if _type(found) and found.type not in allowed:
            wanted = f"Write partition_by=day_of({column!r})" if found.type == "timestamp" else _one_of(allowed)
            finding = f"partition_by {column} is of type {found.type}"
            yield table.at_field("partition_by", finding, wanted)
    if isinstance(kept_as, Aggregate) and column in kept_as.combine:
        finding = f"partition_by {column} is combined: rows would move between parts"
        yield table.at_field("partition_by", finding, f"Name one of the keys: {', '.join(kept_as.keys)}")


def _one_of(types: tuple[str, ...]) -> str:
    return f"Name a column of type {', '.join(types[:-1])} or {types[-1]}"


def _of(columns: tuple[Column, ...], names: tuple[str | None, ...]) -> list[Column]:
    return [column for column in columns if column.name in names]


def _type(column: Column) -> Type | None:
    try:
        return parse(column.type)
    except DeclarationError:
        return None
