"""How carefully an owner goes: what follows a death must not die of the same batch in the same way (decision 59).

What was in hand when the last owner died comes again first. If that died because there was no memory for it, the next
one would too, and so on. So where a life has said that there was none, or two in a row have ended without a word, each
table takes one batch by Spark, which has only a part of it in memory, before it goes the ordinary way again; and where
lives go on ending so, less is read from Kafka at once until all is caught up. After a single end without a word, a kill
or a power cut as a rule, all goes the ordinary way: batches by Spark would make it some times as long until gold is
fresh again.

How the last life ended is in the control store, in the heartbeat of its owner: who ends in order says so last.
"""

from collections.abc import Container, Iterable
from typing import Any

from py4j.protocol import Py4JNetworkError

from deltaworks.control.heartbeats import Heartbeat

SMALLER = 4
"""From the second death on, so many times fewer rows are read at once after each: of 50,000 rows 800 after the fourth.

By halves it would take twice as many deaths to come from there to a batch that was far from full.
"""
ROWS_MIN = 100
"""Not fewer than that: Kafka's records have a megabyte at most, as a rule, and every batch costs the same."""
BATCHES_TO_GROW = 10
"""After so many batches with rows in one life more is read at once again, as before the last death.

A topic that brings more than is read so would else never be caught up with. What may kill is further on then, and costs
a death more: each life is ten batches further, and more where it read more.
"""


class Caution:
    """How an owner goes, from what it knows of the life before. One thread changes it, any may read."""

    def __init__(self, *, deaths: int = 0, tables: Iterable[str] = ()) -> None:
        """`deaths`: so many lives in a row have ended without a word, or out of memory, and are not made up for yet.

        `tables`: those of which a batch by Spark has to come through first.
        """
        self.deaths = deaths
        self.tables = frozenset(tables)
        self._batches = 0  # with rows, since as much is read at once as now

    def came_through(self, table: str) -> None:
        """A batch of this table was committed: it goes the ordinary way from now on."""
        if table in self.tables:
            self.tables -= {table}

    def had_no_memory(self, table: str) -> None:
        """A batch of this table failed for it and the owner lives: it takes the next one by Spark."""
        self.tables |= {table}

    def brought_rows(self, full: int) -> None:
        """A batch with rows was committed, by an app that reads `full` rows at once in an ordinary life."""
        self._batches += 1
        if not self.deaths or self._batches < BATCHES_TO_GROW:
            return
        self._batches, before = 0, self.rows_max(full)
        self.deaths -= 1
        while self.deaths and self.rows_max(full) == before:  # a hundred deaths read no less at once than ten
            self.deaths -= 1

    def caught_up(self, *, suspended: Container[str] = ()) -> None:
        """Nothing is left of what was in hand when the last owner died, but for tables that are suspended."""
        self.deaths, self.tables = 0, frozenset(table for table in self.tables if table in suspended)

    def rows_max(self, full: int) -> int:
        """How many rows are read from a topic at once, where an ordinary life reads `full`."""
        fewer = full // int(SMALLER ** max(0, self.deaths - 1))
        return max(fewer, min(full, ROWS_MIN))

    def told(self) -> dict[str, Any] | None:
        """For the heartbeat; None in an ordinary life."""
        return {"deaths": self.deaths, "tables": sorted(self.tables)} if self.deaths or self.tables else None


def caution_after(last: Heartbeat | None, tables: Iterable[str]) -> Caution:
    """What the last heartbeat of an app asks of its next owner.

    Who ends in order before it has caught up leaves what it knew: the batch is still there. So is that of a table that
    was suspended, or failed for memory, which had caught up otherwise.
    """
    if last is None:
        return Caution()
    known = last.progress.get("careful") or {}
    no_memory = last.state == "failed" and bool(last.progress.get("out_of_memory"))
    said = last.state == "stopped" or (last.state == "failed" and not last.progress.get("java_gone"))
    ended = said and not no_memory
    deaths, left = int(known.get("deaths", 0)) + (not ended), known.get("tables", ())
    return Caution(deaths=deaths, tables=[table for table in tables if no_memory or deaths > 1 or table in left])


def is_of_memory(error: BaseException | None) -> bool:
    """Whether an error says that there was no memory: Java's is an OutOfMemoryError, a worker's stands in the text."""
    return error is not None and (isinstance(error, MemoryError) or "MemoryError" in str(error))


def is_java_gone(error: BaseException | None) -> bool:
    """Whether the JVM has ended under its driver: somebody killed it, or the kernel, which had no memory for it."""
    return isinstance(error, Py4JNetworkError | ConnectionError)
