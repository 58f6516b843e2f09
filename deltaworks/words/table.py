"""A table's declaration."""

import dataclasses
from datetime import timedelta
from typing import Literal

from deltaworks.words._word import word
from deltaworks.words.duration import days
from deltaworks.words.keeping import KeptAs
from deltaworks.words.lateness import Late
from deltaworks.words.outlets import Changelog, Events, Postgres
from deltaworks.words.partitioning import DayOf
from deltaworks.words.reading import Reads
from deltaworks.words.sharing import Share, share


@dataclasses.dataclass(frozen=True)
class Column:
    """One column: Spark's name of the type; `wire` says how the source encodes it where that is not the obvious way.

    `wire` values: `micros`, `millis`, `seconds` (a timestamp as a number since 1970), `days` (a date as a number),
    `arrival` (no field of the source, but the time at which the record came, which is the same in every replay).
    `previously`: the name that the source gave it before; counts where a record lacks the present one.
    `absent`: what an update of a database's row says by not having the column at all: `null`, or that it is `kept` as
    it was, as a column that Postgres generates has to be.
    """

    name: str
    type: str
    null: bool = dataclasses.field(default=True, kw_only=True)
    pii: bool = dataclasses.field(default=False, kw_only=True)
    wire: str | None = dataclasses.field(default=None, kw_only=True)
    previously: str | None = dataclasses.field(default=None, kw_only=True)
    absent: Literal["null", "kept"] = dataclasses.field(default="null", kw_only=True)
    doc: str = dataclasses.field(kw_only=True)


@word
class Table:
    """One table: who owns it, what it reads, how it is kept, what its columns mean."""

    app: str
    reads: Reads
    kept_as: KeptAs
    owner: str
    columns: tuple[Column, ...] = ()
    only: str | None = None
    """Of events: SQL that says which rows the table keeps, as in `only="amount > 100"`; null is no. A row that does not
    fit or breaks a critical rule is refused before it is asked."""
    event_time: str | None = None
    subject: str | None = None
    future_max: timedelta = days(1)
    """Of events: one whose time is further ahead of its arrival is refused. One that is ahead by less counts where its
    time says, and makes nobody late: for others events have come no further than they have arrived. So it is with the
    time from which a state of a history holds (`by=`)."""
    late: Late | None = None
    partition_by: str | DayOf | None = None
    """A column, or the day of one: rows of one value lie in files of their own, which merges and deletions by range
    find without opening the others. A table cannot change it later."""
    keep_days: int | None = None
    """Of events and what is computed from them: rows are deleted when their event time is so many days before the
    latest one that has come, and before today. Of a group or a session that is to be the time at which it begins."""
    serves: Postgres | None = None
    """A copy in the serving database, for look-ups in milliseconds and search by words."""
    publishes: Changelog | Events | None = None
    """A topic that its changes or its new rows are published to."""
    bad_rows_max: Share = share(0.5, of=1_000)
    """Of a table that parses: if more of its last rows are refused, its app stops. `share(1.0, of=1)` never does."""
