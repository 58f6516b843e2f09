"""`append`: events, each once. Of the copies inside the horizon the first one ingested counts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.engine.commit import Committer, Rows, pruning
from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Counts, Entry, Replay
from deltaworks.engine.expiry import still_kept, taken_of
from deltaworks.engine.lake import OwnedTable, TooMuchError
from deltaworks.engine.marks import (
    Walk,
    ahead_in,
    ahead_of,
    highest_in,
    highest_of,
    late_by,
    looked_up,
    stamp_spark,
    walk,
    walk_as_recorded,
)
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.writer import Fresh, span
from deltaworks.errors import CommandError
from deltaworks.words.keeping import Append

Key = tuple[Any, ...]
LOOKED_BACK = 5_000
"""So many commits ago a command may have revised the mark, and its owner died."""
BYTES_MAX = 16 * 2**20
"""So much of the keys of a time is taken into memory at once; as Python's values it is some ten times as much..."""
KEYS_MAX = 500_000
"""...and so many at most, and are added to; what grows beyond is read anew."""


class AppendWriter(OverBronze):
    """Appends the events of a batch that are no copies of accepted ones."""

    def __init__(self, *args: Any, **given: Any) -> None:
        """As every writer over bronze; remembers the keys inside the horizon."""
        super().__init__(*args, **given)
        kept = self.declared.table.kept_as
        assert isinstance(kept, Append)
        self.kept = kept
        self.seen = Seen(self.table, by=kept.dedupe_by, within=kept.within)
        self.recorded: Sequence[tuple[int, int]] | None = None
        """Of a recomputation: the marks as the stream has raised them."""
        self.between = False
        """Of a recomputation: whether what is taken lies between older and newer rows that stay."""

    def _is_copy(self, judged: pa.Table) -> bool:
        """By its keys and its time of arrival, as a replay finds out."""
        if not self.kept.dedupe_by:
            return False
        seen = Seen(self.table, by=self.kept.dedupe_by, within=self.kept.within)
        new: int = seen.first_ones(_named(judged), alone=True).num_rows
        return not new

    def _keep(self, committer: Committer, parsed: Rows, counts: Counts) -> Counts:
        if isinstance(parsed, pa.Table):
            return self._keep_arrow(committer, parsed, counts)
        return self._keep_spark(committer, parsed, counts)

    def _keep_again(self, committer: Committer, parsed: pa.Table, counts: Counts, due: Replay) -> Counts:
        """Events keep the ingest batch that brought them: how late they are was decided then."""
        return self._keep_arrow(committer, parsed, counts, due)

    def _keep_arrow(self, committer: Committer, parsed: pa.Table, counts: Counts, due: Replay | None = None) -> Counts:
        before = self.table.data_version
        rows = parsed.filter(pc.equal(parsed["_kind"], "row"))
        rows = _named(rows).sort_by([("_seq", "ascending"), ("_source", "ascending")])
        offered = rows.num_rows
        alone = due is not None or self.between
        if self.kept.dedupe_by:
            seen = Seen(self.table, by=self.kept.dedupe_by, within=self.kept.within) if alone else self.seen
            rows = seen.first_ones(rows, alone=alone)
        first = rows.num_rows
        rows = taken_of(rows, self.declared, self.progress.position)
        counts = replace(
            counts, taken=rows.num_rows, duplicate=offered - first, expired=first - rows.num_rows
        )  # fmt: skip
        event_time = self.declared.table.event_time
        if event_time is not None:
            counts = replace(counts, ahead=ahead_in(rows, event_time))
        low, high = span(rows, event_time)
        if event_time is None:
            rows = rows.append_column("_late_by", pa.array([0] * rows.num_rows, pa.int64()))
        elif due is None:
            walked = self._walk(highest_in(rows, event_time))
            rows = late_by(rows, event_time, walked.before)
        else:
            marks = looked_up(self.table.told_backwards(), rows["_seq"].to_pylist())
            rows = late_by(rows, event_time, marks)
        rows = rows.select(self.table.schema.names)
        committer.commit(self.table, rows, self.progress.entry(counts, low=low, high=high))
        if alone:
            self.seen.forget()
        else:
            self.seen.accept(rows)
        self.own.fresh = Fresh(after=before, upto=self.table.version, rows=rows)
        return counts

    def _keep_spark(self, committer: Committer, parsed: DataFrame, counts: Counts) -> Counts:
        good = parsed.where(F.col("_kind") == "row").withColumnRenamed("_timestamp", "_arrived")
        rows = good.select(*(name for name in self.table.schema.names if name != "_late_by"))
        copies = self._copies(rows)
        if copies is not None:
            rows = rows.join(copies, "_source", "left_anti")
        try:
            event_time = self.declared.table.event_time
            spans = [F.lit(None), F.lit(None), F.lit(0)]
            if event_time is not None:
                spans = [F.min(event_time), F.max(event_time), ahead_of(event_time)]
            first = rows.count() if self.progress.position.kept_from else None
            rows = still_kept(rows, self.declared, self.progress.position)
            count, low, high, ahead = rows.agg(F.count("*"), *spans).collect()[0]
            expired = 0 if first is None else first - count
            if event_time is None:
                rows = rows.withColumn("_late_by", F.lit(0).cast("bigint"))
            else:
                rows = stamp_spark(rows, event_time, self._walk(highest_of(rows, event_time)))
            rows = rows.select(*self.table.schema.names)
            copied = counts.read - counts.refused - counts.not_mine - counts.filtered - count - expired
            counts = replace(counts, taken=count, duplicate=copied, expired=expired, ahead=ahead)
            self.seen.forget()
            committer.commit(self.table, rows, self.progress.entry(counts, low=low, high=high))
        finally:
            if copies is not None:
                copies.unpersist()
        return counts

    def _walk(self, highest: list[tuple[int, int | None]]) -> Walk:
        """How far event time had come before each ingest batch of the batch in hand."""
        mark = self.progress.position.mark
        if self.recorded is None:
            walked = walk(highest, mark)
        else:
            walked = walk_as_recorded((seq for seq, _ in highest), mark, self.recorded)
        self.progress.marked(walked)
        return walked

    def revise(self, committer: Committer, *, to: int, command: int) -> tuple[int, int]:
        """Say that the events have only come so far; the mark that was there, and the one that is.

        What has come stays as late as it was. Done again for the same command it changes nothing.
        Raises CommandError where the mark is not beyond it: nobody is late who was not.
        """
        self.settle(committer)
        at = self.table.entry
        later: Entry | None = None
        for entry in islice(self.table.entries_backwards(), LOOKED_BACK):
            if later is not None:  # its owner died before it could say so
                assert entry.position.mark is not None
                assert later.position.mark is not None
                return entry.position.mark, later.position.mark
            later = entry if entry.kind == "revise" and entry.command == command else None
        was = at.position.mark
        if was is None or to >= was:
            come = "nowhere" if was is None else f"to {told_micros(was)}"
            finding = f"the events of {self.declared.name} have come {come}, which is not beyond {told_micros(to)}"
            raise CommandError(f"command {command}", finding, "Name a time before that")
        position = replace(at.position, mark=to, closed=at.passed)
        entry = at.follow("revise", position=position, marks=((at.ingest_seq, to),), command=command)
        committer.mark(self.table, entry)
        now = self.progress.position
        self.progress.position = replace(now, mark=to, closed=position.closed)
        return was, to

    def _copies(self, good: DataFrame) -> DataFrame | None:
        """Which rows of a batch that is too large to collect are copies: only keys that occur twice are walked.

        One column, `_source`, kept on disk until it is unpersisted; None where there can be no copy.
        """
        by, within = list(self.kept.dedupe_by), self.kept.within
        if not by:
            return None
        low, high = good.agg(F.min("_arrived"), F.max("_arrived")).collect()[0]
        if low is None:
            return None
        delta = good.sparkSession.read.format("delta")
        known = (
            delta.load(str(self.table.path))
            .where(F.col("_arrived").between(low - within, high + within))
            .select(*by, "_arrived", F.expr("cast(null as string) as _source"), F.expr("-1L as _seq"))
        )  # fmt: skip
        both = good.select(*by, "_arrived", "_source", "_seq").unionByName(known)
        twice = both.groupBy(*by).count().where("count > 1").select(*by)
        suspects = both.join(twice, by, "left_semi")

        def walk(part: pa.Table) -> pa.Table:
            known_first = part.sort_by([("_seq", "ascending"), ("_source", "ascending")])
            accepted: list[datetime] = []
            copies = []
            for row in known_first.select(["_arrived", "_source"]).to_pylist():
                if row["_source"] is None:
                    accepted.append(row["_arrived"])
                elif any(abs(row["_arrived"] - time) <= within for time in accepted):
                    copies.append(row["_source"])
                else:
                    accepted.append(row["_arrived"])
            return pa.table({"_source": pa.array(copies, pa.string())})

        return suspects.groupBy(*by).applyInArrow(walk, "_source string").persist(StorageLevel.DISK_ONLY)


class Seen:
    """The keys accepted lately and when they arrived: read from the table when needed, so restarts change nothing.

    Where they are more than memory should hold, each batch looks its own keys up in the table, with the same result.
    """

    def __init__(self, table: OwnedTable, *, by: tuple[str, ...], within: timedelta) -> None:
        """Know nothing yet."""
        self.table, self.by, self.within = table, by, within
        self.forget()

    def forget(self) -> None:
        """Read from the table again at the next batch."""
        self._times: dict[Key, list[datetime]] = {}
        self._since: datetime | None = None
        """All that arrived since then is known; None where that is so of some keys only."""
        self._crowded: datetime | None = None
        """Until rows of that time come, not all keys are known: they are too many."""

    def first_ones(self, rows: pa.Table, *, alone: bool = False) -> pa.Table:
        """The rows, in order of ingestion, that are no copy of an accepted one.

        `alone`: no rows come after these, so what arrived later than a copy of them can is not looked at.
        """
        if rows.num_rows == 0:
            return rows
        arrived = pc.min_max(rows["_arrived"]).as_py()
        since = arrived["min"] - self.within
        if alone or not self._reach(since):
            self._look_up(rows, since, arrived["max"] + self.within)
        mine: dict[Key, list[datetime]] = {}
        keep = np.ones(rows.num_rows, np.bool_)
        suspects = self._suspects(rows)
        for place, (key, arrived) in zip(suspects.tolist(), self._pairs(rows.take(suspects)), strict=True):
            times = [*self._times.get(key, ()), *mine.get(key, ())]
            if any(abs(arrived - time) <= self.within for time in times):
                keep[place] = False
            else:
                mine.setdefault(key, []).append(arrived)
        return rows.filter(pa.array(keep))

    def _suspects(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Places, in order, of the rows that may be copies.

        A row whose key comes once here, and whose first key column no known key shares, is none.
        """
        places = np.arange(rows.num_rows)
        if len(self._times) >= rows.num_rows:  # to look each up costs less than to list what is known
            return places
        by, first = list(self.by), self.by[0]
        counted = rows.append_column("_place", pa.array(places)).group_by(by).aggregate(
            [("_place", "min"), ("_place", "count")]
        )  # fmt: skip
        alone = counted.filter(pc.equal(counted["_place_count"], 1))["_place_min"].to_numpy()
        suspect = np.ones(rows.num_rows, np.bool_)
        suspect[alone] = False
        known = pa.array([key[0] for key in self._times], rows.schema.field(first).type)
        suspect |= pc.is_in(rows[first], value_set=known).to_numpy()
        return places[suspect]

    def accept(self, rows: pa.Table) -> None:
        """Remember rows that have been committed; forget what is out of reach for what arrives now."""
        if not self.by or rows.num_rows == 0:
            return
        if self._since is None or len(self._times) > KEYS_MAX:
            self._times, self._since = {}, None
            return
        for key, arrived in self._pairs(rows):
            self._times.setdefault(key, []).append(arrived)
        newest = pc.max(rows["_arrived"]).as_py()
        if newest - self._since > 3 * self.within:
            self._since = newest - 2 * self.within
            since = self._since
            self._times = {key: times for key, times in self._times.items() if max(times) >= since}

    def _reach(self, since: datetime) -> bool:
        """Know all that arrived since then; whether that is not too much to know."""
        if self._since is not None and self._since <= since:
            return True
        if self._crowded is not None and since < self._crowded:
            return False
        try:
            rows = self._read(ds.field("_arrived") >= pa.scalar(since), bytes_max=BYTES_MAX)
        except TooMuchError:
            rows = None
        if rows is None or rows.num_rows > KEYS_MAX:  # more would be forgotten with the next that are accepted
            self._crowded = since + self.within
            return False
        self._know(self._pairs(rows))
        self._since = since
        return True

    def _look_up(self, rows: pa.Table, since: datetime, until: datetime) -> None:
        """Only keys of these rows: between the first and the last of them may lie months."""
        where = (ds.field("_arrived") >= pa.scalar(since)) & (ds.field("_arrived") <= pa.scalar(until))
        mentioned = pruning(rows, self.by)  # a column alone may have few values
        where = where if mentioned is None else where & mentioned
        mine = {key for key, _ in self._pairs(rows)}
        self._know((key, arrived) for key, arrived in self._pairs(self._read(where)) if key in mine)
        self._since = None

    def _read(self, where: ds.Expression, *, bytes_max: int | None = None) -> pa.Table:
        return self.table.read([*self.by, "_arrived"], where=where, bytes_max=bytes_max)

    def _know(self, pairs: Iterable[tuple[Key, datetime]]) -> None:
        self._times = {}
        for key, arrived in pairs:
            self._times.setdefault(key, []).append(arrived)

    def _pairs(self, rows: pa.Table) -> Iterator[tuple[Key, datetime]]:
        keys = zip(*(rows[name].to_pylist() for name in self.by), strict=True)
        return zip(keys, rows["_arrived"].to_pylist(), strict=True)


def told_micros(micros: int) -> str:
    """A time in microseconds since 1970, as people read it."""
    return f"{datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros):%Y-%m-%dT%H:%M:%S.%fZ}"


def _named(rows: pa.Table) -> pa.Table:
    return rows.rename_columns(["_arrived" if name == "_timestamp" else name for name in rows.column_names])
