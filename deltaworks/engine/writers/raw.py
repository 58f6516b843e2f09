"""Bronze: Kafka's rows as they came, numbered by ingest batch. After this commit bronze is the truth."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.catalog import Declared
from deltaworks.engine.clocks import disbelieved, disbelieved_spark
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry, Position, Replay
from deltaworks.engine.gaps import Stretch, booked
from deltaworks.engine.phases import phase
from deltaworks.engine.same_log import ANSWER_SECONDS_MAX
from deltaworks.engine.source import BRONZE
from deltaworks.engine.writers.writer import Fresh, Input, Turn

SETTLE_SECONDS_MAX = 2.0  # nothing else of the app goes on meanwhile, and it can wait
Reach = Iterable[tuple[str, int, int, int]]
"""Per topic and partition: (topic, partition, next offset, rows)."""


class RawWriter:
    """Appends what a micro-batch brought for one bronze table."""

    def __init__(self, declared: Declared, source: Input) -> None:
        """Own `source`, which the tables over it read."""
        self.declared, self.source, self.table = declared, source, source.table
        self.explained: deque[Stretch] = deque()
        """What another thread has found out about gaps; the next commit books it."""
        self.before_commit: Callable[[float], None] = lambda _: None
        """Called when all that the broker has to say has been read, with the seconds that it may take.

        Its error keeps that out of bronze.
        """

    def begin(self, position: Position) -> None:
        """Take over where reading starts (first offsets, losses) before the first batch."""
        self.start = position

    def take_arrow(self, rows: pa.Table, committer: Committer) -> Turn | None:
        """Commit a small batch; rows that bronze already has are left out."""
        rows = self._mine(rows)
        if rows.num_rows == 0:
            return None
        seq = self.table.entry.ingest_seq + 1
        rows = rows.append_column("_seq", pa.array([seq] * rows.num_rows, pa.int64())).cast(BRONZE)
        grouped = rows.group_by(["topic", "partition"]).aggregate([("offset", "max"), ("offset", "count")])
        reach = [(r["topic"], r["partition"], r["offset_max"] + 1, r["offset_count"]) for r in grouped.to_pylist()]
        ahead = pc.sum(disbelieved(rows["timestamp"])).as_py() or 0
        entry = self._entry(seq, reach, self._vouched(ANSWER_SECONDS_MAX), ahead=ahead)
        committer.commit(self.table, rows, entry)
        self.source.fresh = Fresh(after=seq - 1, upto=seq, rows=rows)
        return Turn(table=self.declared.name, counts=entry.counts)

    @phase("read")
    def take_spark(self, rows: DataFrame, committer: Committer) -> Turn | None:
        """Commit a batch that is too large to collect."""
        rows = rows.where(F.col("topic").isin(*self.declared.topics)).where(_beyond(self.table.entry.position))
        rows = rows.persist(StorageLevel.DISK_ONLY)  # read Kafka once for the counts and the commit
        try:
            ahead = F.count_if(disbelieved_spark())
            grouped = rows.groupBy("topic", "partition").agg(F.max("offset"), F.count("*"), ahead).collect()
            if not grouped:
                return None
            seq = self.table.entry.ingest_seq + 1
            reach = [(r[0], r[1], r[2] + 1, r[3]) for r in grouped]
            entry = self._entry(seq, reach, self._vouched(ANSWER_SECONDS_MAX), ahead=sum(r[4] for r in grouped))
            committer.commit(self.table, rows.withColumn("_seq", F.lit(seq).cast("bigint")), entry)
            self.source.fresh = None
            return Turn(table=self.declared.name, counts=entry.counts)
        finally:
            rows.unpersist()

    def settle(self, committer: Committer) -> None:
        """Book what was found out about gaps, if no batch comes to do it.

        Raises NoAnswerError, and keeps them, if the broker does not answer at once.
        """
        if any(stretch.counts for stretch in self.explained.copy()):  # another thread may append meanwhile
            position, gaps = booked(self.table.entry.position, self._vouched(SETTLE_SECONDS_MAX))
            committer.mark(self.table, self.table.entry.follow("gaps", position=position, gaps=gaps))

    def replay(
        self, table: str, committer: Committer, *, after: int, upto: int, cause: str | None, command: int,
        taken: Mapping[str, int],
    ) -> int:  # fmt: skip
        """Commit an ingest batch without rows, in which a table judges refused rows again (`Replay`); its number.

        `taken`: per table over this one the last ingest batch that it has; what is older need not be known any more.
        """
        last, seq = self.table.entry.position, self.table.entry.ingest_seq + 1
        one = Replay(table=table, after=after, upto=upto, cause=cause, command=command, seq=seq)
        begun = min((older.seq for older in last.replays if older.command == command), default=0)
        waiting = tuple(
            older
            for older in last.replays
            if older.seq == begun
            or older.seq > taken.get(older.table, older.seq)  # the first: a result tells all since
        )
        position = replace(last, replays=(*waiting, one))
        committer.mark(
            self.table, self.table.entry.follow("replay", position=position, ingest_seq=seq, command=one.command)
        )
        self.source.fresh = Fresh(after=seq - 1, upto=seq, rows=BRONZE.empty_table())
        return seq

    def _mine(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(pc.is_in(rows["topic"], pa.array(self.declared.topics)))
        have = self.table.entry.position.offsets
        if not any(have.get(topic) for topic in self.declared.topics) or rows.num_rows == 0:
            return rows
        nexts = [
            have.get(topic, {}).get(str(partition), 0)
            for topic, partition in zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
        ]
        return rows.filter(pc.greater_equal(rows["offset"], pa.array(nexts, pa.int64())))

    def _vouched(self, seconds_max: float) -> list[Stretch]:
        """What was found out about gaps until now, taken out, once it is known to be of the topics that were read."""
        count = len(self.explained)  # what comes while the question runs nobody has vouched for
        self.before_commit(seconds_max)
        return [self.explained.popleft() for _ in range(count)]

    def _entry(self, seq: int, reach: Reach, found: Iterable[Stretch], *, ahead: int) -> Entry:
        last = self.table.entry.position
        offsets = _deep(self.start.offsets, last.offsets)
        rows = _deep(last.rows)
        read = 0
        for topic, partition, upto, count in reach:
            offsets.setdefault(topic, {})[str(partition)] = upto
            counted = rows.setdefault(topic, {})
            counted[str(partition)] = counted.get(str(partition), 0) + count
            read += count
        position = replace(
            last, offsets=offsets, rows=rows, first=_deep(self.start.first, last.first), lost=self.start.lost
        )
        position, gaps = booked(position, found)
        counts = Counts(read=read, taken=read, ahead=ahead)
        return self.table.entry.follow("batch", counts=counts, position=position, ingest_seq=seq, gaps=gaps)


def _beyond(position: Position) -> F.Column:  # type: ignore[name-defined]  # re-exported by pyspark without a stub
    """True for rows at or beyond the position."""
    known = [
        ~((F.col("topic") == topic) & (F.col("partition") == int(partition)) & (F.col("offset") < upto))
        for topic, parts in position.offsets.items()
        for partition, upto in parts.items()
    ]
    condition = F.lit(True)
    for one in known:
        condition = condition & one
    return condition


def _deep(*layers: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Copy nested offsets, later layers over earlier ones where they are further."""
    merged: dict[str, dict[str, int]] = {}
    for layer in layers:
        for topic, parts in layer.items():
            own = merged.setdefault(topic, {})
            for partition, value in parts.items():
                own[partition] = max(value, own.get(partition, value))
    return merged
