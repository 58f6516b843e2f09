"""`keep_days`: rows of events that are long past go, and what was computed from them; the ledger counts them.

How far events have come says what is long past, not the clock: where nothing comes, nothing goes. Whole days (UTC) go
at once, first from what is computed, later from what it is computed from: so each group and each stretch that is there
can be computed again. A row that comes when its day has gone is refused, a group of that day is not written again.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Committer, literal
from deltaworks.engine.entry import Counts, Position
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.stretches import micros
from deltaworks.words.keeping import Append, Stateful

_DAY = timedelta(days=1)


def kept_from(
    declared: Declared, *, marks: Collection[int | None], readers: Iterable[tuple[Declared, Position]]
) -> int:
    """The event time from which on a table's rows are kept, in microseconds since 1970; 0 where all are.

    `marks`: how far the events have come that it holds, or is computed from. `readers`: those that are computed again
    from its rows, and where they stand.
    """
    days = declared.table.keep_days
    if days is None or not marks:
        return 0
    found = [(mark // micros(_DAY) - days) * micros(_DAY) for mark in marks if mark is not None]
    found += [(position.kept_from or 0) - micros(_around(reader)) for reader, position in readers]
    return 0 if None in marks else max(0, min(found))


def expire(
    table: OwnedTable, declared: Declared, *, before: int, spared: Collection[str], committer: Committer,
    command: int | None = None,
) -> int:  # fmt: skip
    """Delete the rows whose event time is before this, one commit; how many there were.

    `before` is in microseconds since 1970. `spared`: coordinates of rows that stay, as somebody still has to decide
    about them.
    """
    position = table.entry.position
    column, at = declared.table.event_time, datetime.fromtimestamp(before / 1_000_000, UTC)
    assert column is not None, "declared: `table check` asks for it"
    is_date = table.schema.field(column).type == "date32[day]"
    time: date = at.date() if is_date else at
    events = isinstance(declared.table.kept_as, Append)
    rows = table.read([column, *(["_source"] if spared else [])], where=ds.field(column) < time)
    where = f'"{column}" < {literal(time)}'
    if spared:
        rows = rows.filter(pc.invert(pc.is_in(rows["_source"], value_set=pc.cast(list(spared), "string"))))
        where += f" and _source not in ({', '.join(map(literal, sorted(spared)))})"
    gone: int = rows.num_rows
    counts = Counts(taken=-gone, expired=gone) if events else Counts()
    entry = table.entry.follow(
        "expire", command=command, counts=counts, position=replace(position, kept_from=before)
    )  # fmt: skip
    if gone:
        committer.delete(table, where, entry)
    else:
        committer.mark(table, entry)
    return gone


def still_kept(rows: DataFrame, declared: Declared, position: Position) -> DataFrame:
    """What was computed, without what has expired."""
    if position.kept_from is None:
        return rows
    column = declared.table.event_time
    assert column is not None, "declared: `table check` asks for it"
    at = datetime.fromtimestamp(position.kept_from / 1_000_000, UTC)
    return rows.where(F.col(column) >= F.expr(f"timestamp'{at.isoformat()}'"))


def _around(reader: Declared) -> timedelta:
    """So far before the event time of what is computed lie rows that it is computed from, in whole days."""
    kept_as = reader.table.kept_as
    length = kept_as.reach or kept_as.gap if isinstance(kept_as, Stateful) else None
    return _DAY * (1 + math.ceil(2 * (length or timedelta()) / _DAY))
