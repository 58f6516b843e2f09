"""Whether a topic is still the one that was read. No Spark here.

An offset means something in one log only. One that was deleted and made anew, or that has lost its end, has other
records in the places that were read, however long it is by now: so a driver looks there when it starts. While it works,
Kafka's own numbers tell: a topic that is made anew has another id, a partition whose end may be lost another leader.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.broker import Edge, Identity, Record, Span
from deltaworks.engine.clocks import disbelieved
from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Offsets, Position
from deltaworks.engine.gaps import rows_of
from deltaworks.errors import LeadersMovedError, SourceError

OFFSETS_COMPARED_MAX = 20
"""Of each partition, before the position: the records of all partitions are in memory at once."""
_PLACE = ["topic", "partition"]
_NOT_KEPT = -2  # instead of the time of a record whose producer's clock was ahead: bronze has another one
START_SECONDS_MAX = 15.0
ANSWER_SECONDS_MAX = 60.0
"""A broker that was killed is back in this time; if not, the batch that nobody vouches for is read again."""


class Asked(Protocol):
    """Who can tell what a topic has."""

    def records(self, wanted: Collection[Span]) -> Iterable[Record]:
        """Committed records in these spans that are still there."""
        ...


class Known(Protocol):
    """Who can tell which topics there are."""

    def identities(self, topics: Collection[str], *, seconds_max: float) -> dict[str, Identity]:
        """What tells each topic, of those that are there, from others of its name."""
        ...


def made_anew(where: str, finding: str) -> SourceError:
    """The error that says so."""
    remedy = "Have what is made of it made anew: docs/how-to/operate.md"
    return SourceError(where, f"{finding}: it was made anew, or lost its end", remedy)


def refuse_others(bronze: Path, position: Position, edges: Mapping[str, Mapping[str, Edge]], broker: Asked) -> None:
    """Raise SourceError if a record right before the position is not one of bronze, or one right before the last batch.

    That one may be of another log already: a broker that hears late of a new topic has vouched for it. A topic of which
    the broker has nothing any more that was read is not judged. Where records were gone unread, one that was not read
    is no finding beside one that was: a broker that is killed forgets what it has just deleted.
    """
    last = _before(position.offsets, position, edges)
    earlier = _before(_last_batches(bronze, last), position, edges)
    rows = set(_rows(bronze, [*last, *earlier]))
    records = [record for wanted in (last, earlier) for record in broker.records(wanted)]  # once of each partition
    found = [one if one in rows else _as_kept(one, rows) for one in records]
    read = {(row.topic, row.partition, row.offset) for row in rows}
    known = {(record.topic, record.partition) for record in found if record in rows}
    for record in found:
        lost = (record.topic, record.partition) in known and position.lost.get(record.topic, {}).get(record.partition)
        back = lost and (record.topic, record.partition, record.offset) not in read
        if record not in rows and not back:
            where = f"topic {record.topic} partition {record.partition}"
            raise made_anew(where, f"has another record at {record.offset} than was read")


class SameTopics:
    """Whether topics are those that there were when this was made, and led by those who led them."""

    def __init__(self, broker: Known, topics: Collection[str]) -> None:
        """Ask who they are; raises SourceError when the broker cannot be asked."""
        self._broker, self._topics = broker, topics
        self._known = broker.identities(topics, seconds_max=START_SECONDS_MAX)

    def check(self, seconds_max: float) -> None:
        """Raise SourceError if one was made anew since, NoAnswerError if the broker does not say in that time.

        LeadersMovedError if a partition has another leader. Its records up to there may be others than were read, in
        the middle of a batch too: reading has to begin again from the position, once `refuse_others` has looked there.
        """
        found = self._broker.identities(self._topics, seconds_max=seconds_max)
        for topic, now in found.items():
            known = self._known.setdefault(topic, now)  # one that was just being created was not known everywhere
            if known.topic_id is None:
                self._known[topic] = replace(known, topic_id=now.topic_id)
            elif now.topic_id not in (known.topic_id, None):
                raise made_anew(f"topic {topic}", f"has id {now.topic_id}, its reading began with {known.topic_id}")
        for topic, now in found.items():
            begun = self._known[topic].epochs
            for partition, epoch in now.epochs.items():
                if epoch != begun.get(partition):
                    finding = f"has another leader than when its reading began: {epoch}, not {begun.get(partition)}"
                    if partition not in begun:
                        finding = "is new: it was added after the reading of its topic began"
                    raise LeadersMovedError(f"topic {topic} partition {partition}", finding, "It is read again")


def _before(uptos: Offsets, position: Position, edges: Mapping[str, Mapping[str, Edge]]) -> list[Span]:
    found = list[Span]()
    for topic, parts in edges.items():
        for partition, edge in parts.items():
            upto = uptos.get(topic, {}).get(partition, 0)
            begun = position.first.get(topic, {}).get(partition, 0)
            first = max(edge.low, begun, upto - OFFSETS_COMPARED_MAX)
            if first < upto:
                found.append((topic, partition, first, upto))
    return found


def _last_batches(bronze: Path, last: Collection[Span]) -> Offsets:
    """The first offset that the last batch has of each partition; `last` has its last rows, if they are known."""
    found = dict[str, dict[str, int]]()
    if not last:
        return found
    rows = rows_of(bronze)
    newest = _by_partition(rows.to_table(columns=[*_PLACE, "_seq"], filter=_within(last)), "_seq", "max")
    if not newest:
        return found
    batches = [_of_partition(topic, partition) & (ds.field("_seq") == seq) for topic, partition, seq in newest]
    firsts = rows.to_table(columns=[*_PLACE, "offset"], filter=reduce(or_, batches))
    for topic, partition, offset in _by_partition(firsts, "offset", "min"):
        found.setdefault(topic, {})[partition] = offset
    return found


def _by_partition(rows: pa.Table, name: str, how: str) -> list[tuple[str, str, int]]:
    found = rows.group_by(_PLACE).aggregate([(name, how)]).to_pylist()
    return [(one["topic"], str(one["partition"]), one[f"{name}_{how}"]) for one in found]


def _of_partition(topic: str, partition: str) -> ds.Expression:
    return (ds.field("topic") == topic) & (ds.field("partition") == int(partition))


def _within(spans: Collection[Span]) -> ds.Expression:
    where = [
        _of_partition(topic, partition) & (ds.field("offset") >= first) & (ds.field("offset") < upto)
        for topic, partition, first, upto in spans
    ]
    return reduce(or_, where)


def _rows(bronze: Path, wanted: Collection[Span]) -> list[Record]:
    if not wanted:
        return []
    columns = {name: ds.field(name) for name in ("topic", "offset", "key", "value")}
    columns["partition"] = ds.field("partition").cast(pa.string())
    columns["time"] = ds.field("timestamp")
    found = rows_of(bronze).to_table(columns=columns, filter=_within(wanted))
    millis = pc.floor_temporal(found["time"], unit="millisecond").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    times = pc.if_else(disbelieved(found["time"]), _NOT_KEPT, millis)
    return [Record(**row) for row in found.set_column(found.column_names.index("time"), "time", times).to_pylist()]


def _as_kept(record: Record, rows: Collection[Record]) -> Record:
    """The record as bronze has it, if bronze did not believe its time."""
    kept = replace(record, time=_NOT_KEPT)
    return kept if kept in rows else record
