"""Rules of tables that are kept as `stateful`: parts, lengths, what closes a row, inputs whose rows have a time."""

from collections.abc import Iterator
from datetime import timedelta

from deltaworks.catalog.reading import Readable
from deltaworks.findings import Finding, nearest
from deltaworks.words import Column
from deltaworks.words.keeping import Append, Raw, Stateful
from deltaworks.words.lateness import SideOutput

COMPLETE = "complete"
"""The column that says whether a row can still change; kept by the engine where `closes` is declared."""


def stateful_findings(table: Readable) -> Iterator[Finding]:
    """What is wrong with a stateful table in itself."""
    declared, kept_as = table.declared.table, table.declared.table.kept_as
    if not isinstance(kept_as, Stateful):
        return
    yield from _lengths(table, kept_as)
    if not kept_as.part:
        next_step = 'Name the columns of rows that belong together, as in part=("user_id",)'
        yield table.at_field("kept_as", "there is no part", next_step)
    if len(set(kept_as.part)) < len(kept_as.part):
        yield table.at_field("kept_as", "a part column is named twice", "Name each once")
    columns = {column.name: column for column in declared.columns}
    if declared.event_time is None:
        next_step = 'Name the column that places a row in time, as in event_time="session_start"'
        yield table.at_field("event_time", "a stateful table without event_time", next_step)
    elif declared.event_time in columns and columns[declared.event_time].type == "date":
        yield table.at_field("event_time", f"event_time {declared.event_time} is a date", "Name a timestamp column")
    for what, name in [*(("part column", name) for name in kept_as.part), ("event_time", declared.event_time)]:
        if name is not None and name not in kept_as.keys:
            next_step = "Add it: rows of different parts and times are different rows"
            yield table.at_field("kept_as", f"the keys do not have the {what} {name}", next_step)
    yield from _closes(table, kept_as, columns)


def _lengths(table: Readable, kept_as: Stateful) -> Iterator[Finding]:
    if (kept_as.gap is None) == (kept_as.reach is None):
        finding = "neither gap nor reach" if kept_as.gap is None else "both gap and reach"
        next_step = "Write gap=minutes(...) for sessions, else reach=minutes(...)"
        yield table.at_field("kept_as", finding, next_step)
    for name, length in (("gap", kept_as.gap), ("reach", kept_as.reach)):
        if length is not None and length <= timedelta(0):
            yield table.at_field("kept_as", f"{name} is not above zero", "Say how far apart, as in minutes(10)")


def _closes(table: Readable, kept_as: Stateful, columns: dict[str, Column]) -> Iterator[Finding]:
    complete = columns.get(COMPLETE)
    if kept_as.closes is None:
        return
    closes = columns.get(kept_as.closes)
    if closes is not None and (closes.type != "timestamp" or closes.null):
        next_step = "Name a timestamp column with null=False: from then on nothing in time changes the row"
        yield table.at_field(
            "kept_as",
            f"closes names {closes.name}, a {closes.type} that may be null"
            if closes.null
            else f"closes names {closes.name}, a {closes.type}",
            next_step,
        )
    if complete is None or complete.type != "boolean" or complete.null:
        next_step = f'Declare Column("{COMPLETE}", "boolean", null=False, ...): the engine keeps it'
        yield table.at_field("kept_as", f"closes without the column {COMPLETE}", next_step)
    elif COMPLETE in (*kept_as.keys, *kept_as.part):
        yield table.at_field("kept_as", f"{COMPLETE} is a key", "Take it out: it changes when the row is closed")


def stateful_relations(table: Readable, inputs: list[Readable]) -> Iterator[Finding]:
    """What is wrong between a stateful table and its inputs: rows that never change, have a time and the part."""
    declared, kept_as = table.declared.table, table.declared.table.kept_as
    if not isinstance(kept_as, Stateful):
        return
    if isinstance(declared.late, SideOutput) and len(table.declared.inputs) > 1:
        finding = f"side_output of {len(table.declared.inputs)} inputs: their rows have different columns"
        yield table.at_field("late", finding, "Write drop(...) or correct(...)")
    for read in inputs:
        name, other = read.declared.name, read.declared.table
        if isinstance(other.kept_as, Raw):
            continue
        if not isinstance(other.kept_as, Append):
            finding = f"{name} is kept as {type(other.kept_as).__name__.lower()}: its rows change"
            yield table.at_field("reads", finding, "Keep this table as view(...), or read an append table")
            continue
        times = [column for column in other.columns if column.name == other.event_time]
        if not times or times[0].type != "timestamp":
            finding = f"{name} has no timestamp as event_time"
            yield table.at_field("reads", finding, f"Name one in {name}: rows must be placed in time")
        yield from _part(table, kept_as, read)


def _part(table: Readable, kept_as: Stateful, read: Readable) -> Iterator[Finding]:
    """Part columns mean the same here and there."""
    mine = {column.name: column.type for column in table.declared.table.columns}
    theirs = {column.name: column.type for column in read.declared.table.columns}
    for name in kept_as.part:
        if name not in theirs:
            finding = f"{read.declared.name} has no part column {name}"
            yield table.at_field("kept_as", finding, nearest(name, theirs, "columns"))
        elif name in mine and mine[name] != theirs[name]:
            finding = f"is {mine[name]} here, {theirs[name]} in {read.declared.name}"
            yield table.at_column(name, finding, f"Declare it as {theirs[name]}: it tells parts apart in both")
