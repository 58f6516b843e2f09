"""`keep_days`: rows of events that are long past go, and what was computed from them; the ledger counts them.

How far events have come says what is long past: where nothing comes, nothing goes. A clock only holds that back, where
events have come further than the time it is. Whole days (UTC) go at once, first from what is computed, later from what
it is computed from: so each group and each stretch that is there can be computed again. From then on no row of before
is in the table, whoever brings it and whenever.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from deltaworks.catalog import Declared
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.commit import Committer, Rows, literal
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Counts, Position
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.stretches import micros
from deltaworks.words.keeping import Aggregate, Append, Stateful

_DAY = timedelta(days=1)


def expires(declared: Declared) -> bool:
    """Whether the rows of a table are of a time; other tables say what holds."""
    table = declared.table
    return isinstance(table.kept_as, Append | Aggregate | Stateful) and table.event_time is not None


def kept_from(
    declared: Declared,
    *,
    marks: Iterable[int | None],
    readers: Iterable[tuple[Declared, Position]],
    left_out: Iterable[int],
    now: int,
) -> int:
    """The event time from which on a table's rows are kept, in microseconds since 1970; 0 where all are.

    `marks`: how far the events have come that it holds, or is computed from. `readers`: those that are computed again
    from its rows, and where they stand. `left_out`: times of rows about which somebody still has to decide. `now`: the
    time, which a mark is beyond only where clocks are ahead.
    """
    days, known = declared.table.keep_days, list(marks)
    if days is None or None in known:
        return 0
    found = [_day(min(mark, now)) - days * micros(_DAY) for mark in known if mark is not None]
    found += [(position.kept_from or 0) - around(reader) for reader, position in readers]
    return max(0, min([*found, *map(_day, left_out)]))


def days_ahead(marks: Iterable[int | None], now: int) -> int:
    """How many days the events that say what is long past have come further than the time it is."""
    return max(0, (min((mark for mark in marks if mark is not None), default=now) - now) // micros(_DAY))


def expire(
    table: OwnedTable, declared: Declared, before: int, *, committer: Committer, command: int | None = None
) -> int:
    """Delete the rows whose event time is before this, in microseconds since 1970; one commit; how many there were."""
    time = _moment(table.schema, declared, before)
    column = declared.table.event_time
    gone: int = dataset_of(table.delta).count_rows(filter=ds.field(column) < time)
    counts = Counts(taken=-gone, expired=gone) if isinstance(declared.table.kept_as, Append) else Counts()
    position = replace(table.entry.position, kept_from=before)
    entry = table.entry.follow("expire", command=command, counts=counts, position=position)
    if gone:
        committer.delete(table, f'"{column}" < {literal(time)}', entry)
    else:
        committer.mark(table, entry)
    return gone


def expire_staged(held: Held, own: OwnedTable, declared: Declared, *, committer: Committer) -> Held:
    """A table that is to take the place of another one, without what has gone from that one."""
    before = own.entry.position.kept_from
    if before is None or before <= (held.entry.position.kept_from or 0) or not expires(declared):
        return held
    schema = pa.schema([own.schema.field(name) for name in own.schema.names if name in held.schema.names])
    staged = OwnedTable(name=held.name, path=held.path, schema=schema, entry=held.entry, partition=own.partition)
    expire(staged, declared, before, committer=committer)
    return Held(held.name, held.path)


def still_kept(rows: Rows, declared: Declared, position: Position) -> Rows:
    """What was computed, without what has expired; one without event time never expires."""
    if position.kept_from is None or not expires(declared):
        return rows
    if isinstance(rows, pa.Table):
        moment = _moment(rows.schema, declared, position.kept_from)
        return rows.filter(pc.fill_null(pc.greater_equal(rows[declared.table.event_time], moment), True))
    return rows.where(not_before(declared, position.kept_from))


def not_before(declared: Declared, time: int) -> Column:
    """Whether a row's event time is at a time or later; one without event time never expires."""
    column = declared.table.event_time
    assert column is not None, "asked for rows of a time only"
    at = datetime.fromtimestamp(time / 1_000_000, UTC)
    return F.coalesce(F.col(column) >= F.expr(f"timestamp'{at.isoformat()}'"), F.lit(True))


def taken_of(rows: pa.Table, declared: Declared, position: Position) -> pa.Table:
    """Events that are about to be taken, without those whose day has gone."""
    if position.kept_from is None or not expires(declared):
        return rows
    return rows.filter(
        pc.greater_equal(rows[declared.table.event_time], _moment(rows.schema, declared, position.kept_from))
    )


def around(reader: Declared) -> int:
    """So far before the event time of what is computed lie rows that it is computed from: whole days, microseconds."""
    kept_as = reader.table.kept_as
    length = kept_as.reach or kept_as.gap if isinstance(kept_as, Stateful) else None
    return micros(_DAY * (1 + math.ceil(2 * (length or timedelta()) / _DAY)))


def first_kept(declared: Declared, inputs: Iterable[Position]) -> int | None:
    """From when on a new table keeps rows, where some of its inputs' have gone: it can compute what is later."""
    gone = [position.kept_from for position in inputs if position.kept_from is not None]
    return max(gone) + around(declared) if gone and expires(declared) else None


def _day(time: int) -> int:
    return time // micros(_DAY) * micros(_DAY)


def _moment(schema: pa.Schema, declared: Declared, time: int) -> date:
    """A time as the table's event time is written."""
    at = datetime.fromtimestamp(time / 1_000_000, UTC)
    return at.date() if pa.types.is_date(schema.field(declared.table.event_time).type) else at
