"""Offsets without a row in bronze, and what the broker says of them. No Spark here.

A reader of committed rows sees neither the markers that end transactions nor the records of aborted ones, and on a
compacted topic not what compaction took away. What a gap is, only the broker can tell, and only while it keeps the
records around it: so each gap is asked once, soon after it was read over, and the answer goes into bronze's entries.
"""

import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Literal, Protocol, Self, cast

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from deltaworks.engine.broker import AT_THE_END, Edge
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Entry, Position
from deltaworks.errors import SourceError

Kind = Literal["marker", "aborted", "compacted", "missing", "gone"]
"""`marker`: ends a transaction. `aborted`: a record of an aborted one. `compacted`: on a compacted topic, no record is
there (any more). `missing`: a committed record that bronze should have. `gone`: deleted by the broker before anybody
asked; what it was is not known."""
KINDS: tuple[Kind, ...] = ("marker", "aborted", "compacted", "missing", "gone")
OFFSETS_MAX = 250_000
"""So many offsets are looked at in one stretch: a bound on memory, and on how long one look takes."""
LISTED_MAX = 1_000
"""A stretch ends where it has so many gaps to list: an entry stays small."""
SEEK_OVER = 1_000
"""To read over so many records costs the consumer about as much as to seek."""
_POLL_SECONDS = 5.0
_BESIDE_MAX = OFFSETS_MAX
"""Up to so many offsets since all was explained, their rows are read once for all partitions of a table."""
Booked = tuple[str, str, str, int, int]
Hole = tuple[int, int]
"""Offsets [first, upto)."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Neighbouring offsets of one kind, [first, upto)."""

    topic: str
    partition: str
    kind: Kind
    first: int
    upto: int

    @classmethod
    def read(cls, booked: Booked) -> Self:
        """As an entry has it."""
        topic, partition, kind, first, upto = booked
        return cls(topic=topic, partition=partition, kind=cast("Kind", kind), first=first, upto=upto)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What is known of the offsets [first, upto) of a partition: how many of each kind, and those that are listed.

    Markers are counted only: there is one after each transaction, and nothing to do about them.
    """

    topic: str
    partition: str
    first: int
    upto: int
    counts: Mapping[Kind, int] = field(default_factory=dict)
    listed: tuple[Gap, ...] = ()


class Standing(Protocol):
    """A bronze table's name, place and last entry."""

    name: str
    path: Path
    entry: Entry


class Examined(Protocol):
    """Who owns a bronze table and books what is found."""

    @property
    def table(self) -> Standing:
        """The table."""
        ...

    explained: deque[Stretch]


class Witness(Protocol):
    """Who can say what is at an offset."""

    def edge(self, topic: str, partition: str) -> Edge:
        """What is there at all."""
        ...

    def compacts(self, topic: str) -> bool:
        """Whether records may have been compacted away."""
        ...

    def records(self, topic: str, partition: str, holes: Iterable[Hole], *, committed: bool) -> set[int]:
        """Offsets in the holes that have a record; with `committed` only those of committed transactions."""
        ...


class BrokerWitness:
    """Asks the broker, with one consumer that sees aborted records and one that does not."""

    def __init__(self, *, bootstrap: str, timeout_seconds: float = 15.0) -> None:
        """Connect lazily."""
        self._timeout = timeout_seconds
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000, "log_level": 2})
        self._consumers = {
            committed: Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": "deltaworks.gaps",  # required; nothing is ever committed to it
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",  # else a jump to other offsets would look like a gap
                    "isolation.level": "read_committed" if committed else "read_uncommitted",
                    "fetch.wait.max.ms": 100,
                    "fetch.message.max.bytes": 128 * 1024,  # mostly a few records are wanted of a place
                    "fetch.queue.backoff.ms": 10,  # the default, a second, is waited each time the queue is full
                    "socket.timeout.ms": 10_000,
                    "log_level": 2,
                }
            )
            for committed in (False, True)
        }
        self._compacted: dict[str, bool] = {}

    def __enter__(self) -> Self:
        """Use it in a with statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close at the end of the with statement."""
        self.close()

    def close(self) -> None:
        """Leave the broker."""
        for consumer in self._consumers.values():
            consumer.close()

    def edge(self, topic: str, partition: str) -> Edge:
        """Low and high offset now."""
        with _own_errors(topic):
            place = TopicPartition(topic, int(partition))
            low, high = self._consumers[False].get_watermark_offsets(place, timeout=self._timeout)
        return Edge(int(low), int(high))

    def compacts(self, topic: str) -> bool:
        """Whether the topic's cleanup policy names compaction."""
        if topic not in self._compacted:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            with _own_errors(topic):
                found = self._admin.describe_configs([resource])[resource].result(timeout=self._timeout)
            self._compacted[topic] = "compact" in found["cleanup.policy"].value
        return self._compacted[topic]

    def records(self, topic: str, partition: str, holes: Iterable[Hole], *, committed: bool) -> set[int]:
        """Read where the holes are, and over the records between holes that are close to each other."""
        consumer, found = self._consumers[committed], set[int]()
        wanted = sorted(holes)
        try:
            with _own_errors(topic):
                for place in _places(wanted):
                    first, upto = place[0][0], place[-1][1]
                    consumer.assign([TopicPartition(topic, int(partition), first)])
                    inside = _inside(place)
                    found.update(offset for offset in self._read(consumer, topic, upto) if offset in inside)
        finally:
            consumer.unassign()
        return found

    def _read(self, consumer: Consumer, topic: str, upto: int) -> Iterator[int]:
        """Offsets of the records from where the consumer stands, until one at or beyond `upto` or the end."""
        while True:
            # one call returns as soon as it has one record: what is buffered comes in the next ones
            messages = consumer.consume(num_messages=SEEK_OVER, timeout=0.01) or consumer.consume(1, _POLL_SECONDS)
            if not messages:
                raise SourceError(f"topic {topic}", "the broker does not answer", 'Look at "deltaworks status"')
            for message in messages:
                error, offset = message.error(), message.offset()
                if error is not None:
                    if error.code() == AT_THE_END:
                        return
                    raise SourceError(f"topic {topic}", error.str(), "It is asked again later")
                assert offset is not None, "a record has an offset"
                if offset >= upto:
                    return
                yield offset


class _own_errors:  # noqa: N801  # reads as a verb where it is used
    """Turns the client's errors into ours."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaException):
            raise SourceError(f"topic {self._topic}", error.args[0].str(), 'Look at "deltaworks status"') from None


def rows_of(bronze: Path) -> ds.Dataset:
    """The rows of a bronze table as of now, to look for gaps in."""
    return dataset_of(deltalake.DeltaTable(str(bronze)))


def _together(position: Position) -> int:
    """The sum of the offsets up to which partitions were read: what it grows by, rows are at most."""
    return sum(upto for parts in position.offsets.values() for upto in parts.values())


def _newer(bronze: ds.Dataset, seq: int) -> ds.Dataset:
    """The rows of the ingest batches after `seq`, read once: each partition asks for its own among them."""
    names = ["topic", "partition", "offset"]
    return ds.dataset(bronze.to_table(columns=names, filter=ds.field("_seq") > seq, use_threads=False))


def holes(bronze: ds.Dataset, *, topic: str, partition: str, first: int, upto: int) -> list[Hole]:
    """Offsets in [first, upto) without a row, from the offset column alone; files elsewhere are not opened."""
    if first >= upto:
        return []
    where = (
        (ds.field("topic") == topic)
        & (ds.field("partition") == int(partition))
        & (ds.field("offset") >= first)
        & (ds.field("offset") < upto)
    )
    rows = bronze.to_table(columns=["offset"], filter=where)
    there = pa.concat_arrays([pa.array([first - 1, upto], pa.int64()), *rows["offset"].chunks])
    there = there.take(pc.sort_indices(there))
    breaks = pc.indices_nonzero(pc.greater(pc.fill_null(pc.pairwise_diff(there), 0), 1))
    befores, afters = there.take(pc.subtract(breaks, pa.scalar(1, breaks.type))), there.take(breaks)
    return [(before + 1, after) for before, after in zip(befores.to_pylist(), afters.to_pylist(), strict=True)]


def explain(witness: Witness, bronze: ds.Dataset, *, topic: str, partition: str, first: int, upto: int) -> Stretch:
    """What the gaps of a bronze table in [first, upto) are, as far as one stretch goes: look at its `upto`.

    Raises SourceError when the broker cannot be asked.
    """
    upto = min(upto, first + OFFSETS_MAX)
    found = holes(bronze, topic=topic, partition=partition, first=first, upto=upto)
    if not found:
        return Stretch(topic=topic, partition=partition, first=first, upto=upto)
    low = witness.edge(topic, partition).low
    gone = [(begin, min(end, low)) for begin, end in found if begin < low]
    asked = [(max(begin, low), end) for begin, end in found if end > low]
    seen = witness.records(topic, partition, asked, committed=False)
    with_records = [hole for hole in asked if any(offset in seen for offset in range(*hole))] if seen else []
    missing = witness.records(topic, partition, with_records, committed=True) if with_records else set[int]()
    nothing: Kind = "compacted" if witness.compacts(topic) else "marker"
    gaps = [Gap(topic=topic, partition=partition, kind="gone", first=begin, upto=end) for begin, end in gone]
    for hole in asked:
        gaps += _split(topic, partition, hole, seen=seen, missing=missing, nothing=nothing)
    return _stretch(topic, partition, first, upto, gaps)


def booked(position: Position, found: Iterable[Stretch]) -> tuple[Position, tuple[Booked, ...]]:
    """A bronze table's position with these findings in it, and the gaps to list."""
    asked = {topic: dict(parts) for topic, parts in position.asked.items()}
    explained = {t: {p: dict(kinds) for p, kinds in parts.items()} for t, parts in position.explained.items()}
    listed: list[Gap] = []
    for stretch in found:
        asked.setdefault(stretch.topic, {})[stretch.partition] = stretch.upto
        kinds = explained.setdefault(stretch.topic, {}).setdefault(stretch.partition, {})
        for kind, count in stretch.counts.items():
            kinds[kind] = kinds.get(kind, 0) + count
        listed += stretch.listed
    gaps = tuple((gap.topic, gap.partition, gap.kind, gap.first, gap.upto) for gap in listed)
    return replace(position, asked=asked, explained=explained), gaps


class Examiner:
    """Asks about each gap of some bronze tables once: begins where their entries say that somebody left off."""

    def __init__(self, witness: Witness, writers: Iterable[Examined]) -> None:
        """Nothing is asked yet."""
        self._witness, self._writers = witness, tuple(writers)
        self._asked: dict[tuple[str, str, str], int] = {}
        self._through: dict[str, tuple[int, int]] = {}
        """By table the last ingest batch up to which all was explained, and the sum of its partitions' offsets."""
        self._lock = Lock()

    def look(self, *, seconds_max: float) -> bool:
        """Go on for a while, by one stretch at least; True when all that was read is explained. Raises SourceError."""
        with self._lock:  # of two threads that look at once, the second finds nothing left
            return self._look(time.monotonic() + seconds_max)

    def _look(self, until: float) -> bool:
        for writer in self._writers:
            table, entry, rows = writer.table, writer.table.entry, None
            for topic, parts in entry.position.offsets.items():
                for partition, upto in parts.items():
                    while (first := self._from(table.name, entry.position, topic, partition)) < upto:
                        rows = rows or self._rows(table, entry.position)
                        self._one(writer, rows, topic, partition, first, upto)
                        if time.monotonic() > until:
                            return False
            self._through[table.name] = entry.ingest_seq, _together(entry.position)
        return True

    def _rows(self, table: Standing, position: Position) -> ds.Dataset:
        """Those in which gaps are looked for: where few are new, without what was looked through before."""
        rows, known = rows_of(table.path), self._through.get(table.name)
        if known is None:
            return rows
        seq, before = known
        return _newer(rows, seq) if _together(position) - before <= _BESIDE_MAX else rows

    def _from(self, table: str, position: Position, topic: str, partition: str) -> int:
        begun = position.first.get(topic, {}).get(partition, 0)
        # what is found but not yet committed is remembered here only
        return self._asked.get((table, topic, partition), position.asked.get(topic, {}).get(partition, begun))

    def _one(self, writer: Examined, rows: ds.Dataset, topic: str, partition: str, first: int, upto: int) -> None:
        found = explain(self._witness, rows, topic=topic, partition=partition, first=first, upto=upto)
        self._asked[writer.table.name, topic, partition] = found.upto
        writer.explained.append(found)


def _stretch(topic: str, partition: str, first: int, upto: int, gaps: Iterable[Gap]) -> Stretch:
    """Sum up; ends early, after a gap, when there is too much to list."""
    counts: Counter[Kind] = Counter()
    listed: list[Gap] = []
    for gap in gaps:
        counts[gap.kind] += gap.upto - gap.first
        if gap.kind != "marker":
            listed.append(gap)
        if len(listed) >= LISTED_MAX:
            upto = gap.upto
            break
    return Stretch(topic=topic, partition=partition, first=first, upto=upto, counts=dict(counts), listed=tuple(listed))


def _split(
    topic: str, partition: str, hole: Hole, *, seen: Collection[int], missing: Collection[int], nothing: Kind
) -> Iterator[Gap]:
    """One hole as gaps of one kind each."""
    begin, kinds = hole[0], [_kind(offset, seen, missing, nothing) for offset in range(*hole)]
    bounds = [0, *(at for at, (one, other) in enumerate(pairwise(kinds), 1) if one != other), len(kinds)]
    for low, high in pairwise(bounds):
        yield Gap(topic=topic, partition=partition, kind=kinds[low], first=begin + low, upto=begin + high)


def _kind(offset: int, seen: Collection[int], missing: Collection[int], nothing: Kind) -> Kind:
    if offset in missing:
        return "missing"
    return "aborted" if offset in seen else nothing


def _places(wanted: Iterable[Hole]) -> Iterator[list[Hole]]:
    """Holes that are read in one go."""
    place: list[Hole] = []
    for hole in wanted:
        if place and hole[0] - place[-1][1] > SEEK_OVER:
            yield place
            place = []
        place.append(hole)
    if place:
        yield place


def _inside(place: Iterable[Hole]) -> set[int]:
    return {offset for hole in place for offset in range(*hole)}
