"""Tell the control store which days of a gold table are closed: the first commit of a later day closes a day.

A later day is one that has begun by the clock too: a row of tomorrow closes nothing before, and today once it is over,
whether or not a commit comes then.
"""

from collections.abc import Iterable
from datetime import date, datetime

from deltaworks.control.store import Store
from deltaworks.engine import disk
from deltaworks.engine.flow import Flow
from deltaworks.engine.suspended import is_tables_own
from deltaworks.engine.writers.writer import Writer
from deltaworks.errors import ControlError


class Closing:
    """Watches the event time of gold tables; what could not be told while the store was away is told later."""

    def __init__(self, flow: Flow, store: Store) -> None:
        """Take up what an earlier driver may not have been able to tell: the store takes a day only once."""
        self.store, self._flow, self._clocks, self._lake = store, flow, flow.clocks, flow.settings.lake
        self._high: dict[str, date] = {}
        self._untold: dict[tuple[str, str], int] = {}
        for writer in flow.writers:
            if writer.declared.closes_days:
                self._begin(writer)

    def committed(self, writer: Writer) -> None:
        """After a commit: days before the newest one are closed."""
        name = writer.declared.name
        high = self._newest(writer)
        if name not in self._high and high is not None:
            if writer.declared.closes_days:
                self._begin(writer)
        elif name in self._high and high is not None and high > self._high[name]:
            before, self._high[name] = self._high[name], high
            self._close(writer, (day for day in self._days(writer) if before <= day < high))

    def look(self) -> None:
        """Between commits: days that are over since the last one of their table are closed.

        Tables are read, so hold the app's lock. One that cannot be read is suspended, as after a commit.
        """
        for writer in self._flow.writers:
            name = writer.declared.name
            if name in self._flow.suspended:
                continue
            try:
                self.committed(writer)
            except Exception as error:
                if not is_tables_own(error, writer.declared.transform):
                    raise
                self._flow.suspend(name, error)

    def announce(self) -> None:
        """Write what is not yet told; again later if the store is away."""
        untold = list(self._untold.items())
        if untold:
            disk.sync(self._lake)
        for (table, day), version in untold:
            try:
                self.store.close_partition(table, day, version)
            except ControlError:
                return
            del self._untold[table, day]

    def _begin(self, writer: Writer) -> None:
        high = self._newest(writer)
        if high is None or writer.table.outdated is not None:
            return
        self._high[writer.declared.name] = high
        self._close(writer, (day for day in self._days(writer) if day < high))

    def _newest(self, writer: Writer) -> date | None:
        """The newest day of a table's rows that has begun."""
        high = writer.table.entry.event_high
        return None if high is None else min(date.fromisoformat(high[:10]), self._clocks.today())

    def _days(self, writer: Writer) -> set[date]:
        """Days that the table has rows of; a batch may bring several, a quiet day none."""
        column = writer.declared.table.event_time
        assert column is not None, "only tables with an event time are watched"
        values = writer.table.read([column])[column].unique().to_pylist()
        return {value.date() if isinstance(value, datetime) else value for value in values if value is not None}

    def _close(self, writer: Writer, days: Iterable[date]) -> None:
        for day in sorted(days):
            self._untold[writer.declared.name, day.isoformat()] = writer.table.version
