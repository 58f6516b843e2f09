"""Questions to the broker that Spark does not answer. No Spark here."""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from deltaworks.errors import NoAnswerError, SourceError
from deltaworks.patience import ASK_AGAIN_SECONDS, no_answer, patiently

AT_THE_END = KafkaError._PARTITION_EOF  # noqa: SLF001  # its public name
"""Code of the "error" that says that a partition has nothing more now."""
MARKERS_MAX = 1_000
"""Ends further away than this are taken for records without a look."""
_NO_ID = str(Uuid(0, 0))  # what a broker says that gives topics none
# What is said of a partition whose leader has gone, or come, since its topic was described: that is asked again.
# A leader is asked by its epoch, so one that has just been replaced, or does not know yet that it leads, says no more.
_JUST_MOVED = {
    "UNKNOWN_TOPIC_OR_PART", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "_UNKNOWN_PARTITION", "_NOENT"
}  # fmt: skip
Span = tuple[str, str, int, int]
"""Topic, partition, first and next offset."""


@dataclass(frozen=True)
class Edge:
    """What the broker has of one partition: offsets in [low, high)."""

    low: int
    high: int


@dataclass(frozen=True)
class Identity:
    """What tells a topic's logs from others in their place.

    `topic_id`: another one where it was made anew; None of brokers that give topics none. `epochs`: partition -> number
    of its leader, which rises with each; what a log loses that others had, it loses when a leader begins.
    """

    topic_id: str | None
    epochs: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class OpenTransaction:
    """What holds a partition up: readers of committed records get nothing from `first` on until it ends.

    `waiting`: offsets from there on, others' too. `seconds`: how long ago its first record was written there.
    """

    topic: str
    partition: str
    first: int
    waiting: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Record:
    """What tells a record from every other one that could be in its place; `time` in milliseconds since 1970."""

    topic: str
    partition: str
    offset: int
    time: int
    key: bytes | None
    value: bytes | None


class Broker:
    """Questions to the broker that Spark does not answer, and the consumer group that lag tools look at."""

    def __init__(self, *, bootstrap: str, group: str, timeout_seconds: float = 15.0) -> None:
        """Connect lazily; nothing is consumed through this client."""
        self._timeout, self._bootstrap, self._group = timeout_seconds, bootstrap, group
        self._consumer = self._new_consumer()

    def _new_consumer(self, *, isolation: str = "read_committed") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,  # tells a tail of markers from records to come
                "auto.offset.reset": "error",  # else a reader of what has just been deleted would go to the end
                "isolation.level": isolation,
                "socket.timeout.ms": 10_000,
                "log_level": 2,  # its messages about each attempt to connect repeat what the error says
            }
        )

    def edges(self, topics: Iterable[str]) -> dict[str, dict[str, Edge]]:
        """Low and high offset of every partition; raises SourceError for a topic that is not there."""
        found: dict[str, dict[str, Edge]] = {}
        for topic in topics:
            try:
                found[topic] = {str(p): Edge(*self._watermarks(topic, p)) for p in self._led(topic)}
            except KafkaException as error:
                raise SourceError(f"topic {topic}", f"{error.args[0].str()}", 'Look at "deltaworks status"') from None
        return found

    def _led(self, topic: str) -> list[int]:
        """The topic's partitions, once each has a leader: who asks one that has none is told anything but that."""

        def led() -> list[int]:
            meta = self._consumer.list_topics(topic, timeout=self._timeout).topics[topic]
            if meta.error is not None or not meta.partitions:
                raise SourceError(f"topic {topic}", "the broker has no such topic", 'Run "deltaworks up"')
            for partition, known in sorted(meta.partitions.items()):
                if known.leader < 0:
                    raise _without_leader(topic, partition, known.replicas)
            return sorted(meta.partitions)

        return patiently(led, seconds_max=self._timeout)

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        low, high = patiently(
            lambda: self._consumer.get_watermark_offsets(place, timeout=self._timeout), seconds_max=self._timeout
        )
        return int(low), int(high)

    def reachable(
        self, edges: Mapping[str, Mapping[str, Edge]], offsets: Mapping[str, Mapping[str, int]]
    ) -> dict[str, dict[str, Edge]]:
        """The edges without a tail that holds no record: a reader at `offsets` has nothing more to get there.

        A partition's end counts transaction markers, so a reader that has every record may still stand before it.
        Raises NoAnswerError when the broker does not say so in time.
        """
        places = {
            (topic, partition): at
            for topic, parts in edges.items()
            for partition, edge in parts.items()
            if edge.low <= (at := offsets.get(topic, {}).get(partition, edge.high)) < edge.high <= at + MARKERS_MAX
        }
        ends = self._without_records(places)
        return {
            topic: {
                partition: Edge(edge.low, places[topic, partition]) if (topic, partition) in ends else edge
                for partition, edge in parts.items()
            }
            for topic, parts in edges.items()
        }

    def open_transactions(self, edges: Mapping[str, Mapping[str, Edge]]) -> list[OpenTransaction]:
        """What committed records wait behind, where there is any: most transactions are over in a moment.

        For who reads only those a partition ends at the first open transaction, whatever else comes after it.
        """
        found = list[OpenTransaction]()
        reader = self._new_consumer(isolation="read_uncommitted")
        try:
            for topic, parts in edges.items():
                for partition, edge in parts.items():
                    place = TopicPartition(topic, int(partition), edge.high)
                    high = int(reader.get_watermark_offsets(place, timeout=self._timeout)[1])
                    if high <= edge.high or (first := self._first(reader, place)) is None:
                        continue
                    if self._watermarks(topic, int(partition))[1] == edge.high:  # else it has just come, or ended
                        found.append(_open_since(first, high))
        except KafkaException as error:
            raise SourceError("the broker", error.args[0].str(), 'Look at "deltaworks status"') from None
        finally:
            reader.close()
        return found

    def _first(self, reader: Consumer, place: TopicPartition) -> Record | None:
        """The first record there; None where only markers are, of a transaction that has just ended."""
        reader.assign([place])
        message = reader.poll(self._timeout)
        return None if message is None or message.error() is not None else _record(message)

    def _without_records(self, places: Mapping[tuple[str, str], int]) -> set[tuple[str, str]]:
        """Of these partitions those that have no committed record from the offset on.

        All are asked at once: the broker takes half a second or so to say that nothing comes.
        """
        left, ends = set(places), set[tuple[str, str]]()
        until = time.monotonic() + self._timeout
        assigned = [TopicPartition(topic, int(partition), at) for (topic, partition), at in places.items()]
        self._consumer.assign(assigned)
        try:
            while left:
                message = self._consumer.poll(max(0.0, until - time.monotonic()))
                if message is None:
                    raise NoAnswerError("the broker", "does not answer", 'Look at "deltaworks status"')
                place, error = (str(message.topic()), str(message.partition())), message.error()
                if place not in left:  # what had been fetched before it was paused, or an error of the connection
                    continue
                if error is not None and error.code() == AT_THE_END:
                    ends.add(place)
                left.discard(place)
                self._consumer.pause([TopicPartition(place[0], int(place[1]))])  # there may be much more
        finally:
            self._consumer.resume(assigned)  # else it would stay so, also when assigned anew
            self._consumer.unassign()
        return ends

    def records(self, wanted: Collection[Span]) -> list[Record]:
        """Committed records that are still there; raises SourceError when the broker cannot be asked."""
        if not wanted:
            return []
        gone = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  # its public name
        found = list[Record]()
        open_ends = {(topic, partition): upto for topic, partition, _, upto in wanted}
        reader = self._new_consumer()  # a client of its own: what it pauses would stay so, also when assigned anew
        reader.assign([TopicPartition(topic, int(part), first) for topic, part, first, _ in wanted])
        try:
            while open_ends:
                message = reader.poll(self._timeout)
                if message is None:
                    raise NoAnswerError("the broker", "does not answer", 'Look at "deltaworks status"')
                error, topic, partition = message.error(), str(message.topic()), str(message.partition())
                if error is not None and error.code() not in (gone, AT_THE_END):
                    raise SourceError(f"topic {topic}", error.str(), 'Look at "deltaworks status"')
                record = None if error is not None else _record(message)
                upto = open_ends.get((topic, partition), 0)
                if record is not None and record.offset < upto:
                    found.append(record)
                if record is None or record.offset >= upto - 1:
                    open_ends.pop((topic, partition), None)
                    reader.pause([TopicPartition(topic, int(partition))])  # others may have much more
        finally:
            reader.close()
        return found

    def identities(self, topics: Collection[str], *, seconds_max: float) -> dict[str, Identity]:
        """What tells each topic, of those that are there, from others of its name.

        Raises NoAnswerError when there is none in that time, SourceError when the broker refuses.
        """
        names, until = TopicCollection(sorted(set(topics))), time.monotonic() + seconds_max
        try:
            return patiently(lambda: self._identities(names, until=until), seconds_max=seconds_max, away=True)
        except KafkaException as error:
            kind = NoAnswerError if no_answer(error) else SourceError
            raise kind("the broker", error.args[0].str(), 'Look at "deltaworks status"') from None

    def _identities(self, names: TopicCollection, *, until: float) -> dict[str, Identity]:
        seconds = max(ASK_AGAIN_SECONDS, min(self._timeout, until - time.monotonic()))
        there: dict[str, TopicDescription] = {}
        for topic, answer in self._admin.describe_topics(names, request_timeout=seconds).items():
            try:
                there[topic] = answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        epochs = self._epochs(there, seconds)
        ids = {topic: str(known.topic_id) for topic, known in there.items()}
        return {topic: Identity(None if known == _NO_ID else known, epochs[topic]) for topic, known in ids.items()}

    def _epochs(self, topics: Mapping[str, TopicDescription], seconds: float) -> dict[str, dict[str, int]]:
        """The leaders' own answer, partition by partition: others may hear late of a new one."""
        end = OffsetSpec.latest()
        asked = dict[TopicPartition, OffsetSpec]()
        for topic, known in topics.items():
            for one in known.partitions:
                if getattr(one.leader, "id", -1) < 0:  # it may be None, whatever the library declares
                    raise _without_leader(topic, one.id, [replica.id for replica in one.replicas])
                asked[TopicPartition(topic, one.id)] = end
        found: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        try:
            for place, answer in (self._admin.list_offsets(asked, request_timeout=seconds) if asked else {}).items():
                found[place.topic][str(place.partition)] = answer.result().leader_epoch
        except KafkaException as error:
            if error.args[0].name() not in _JUST_MOVED:
                raise
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, error.args[0].str())) from None
        return found

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": self._bootstrap,
                "socket.timeout.ms": 10_000,
                # what is asked goes to one of the brokers: if that leaves, the client hears of another only so
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 2,
            }
        )

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Tell the consumer group how far the lake is: for lag tools, never read back."""
        done = [TopicPartition(t, int(p), o) for t, parts in offsets.items() for p, o in parts.items()]
        if done:
            self._consumer.commit(offsets=done, asynchronous=True)
            self._consumer.poll(0)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def _without_leader(topic: str, partition: int, replicas: Iterable[int]) -> KafkaException:
    brokers = ", ".join(map(str, replicas))
    finding = f"partition {partition} of topic {topic} has no leader: its brokers ({brokers}) are away, or behind"
    return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, finding))


def _open_since(first: Record, high: int) -> OpenTransaction:
    seconds = max(0.0, time.time() - first.time / 1000)
    waiting = high - first.offset
    return OpenTransaction(
        topic=first.topic, partition=first.partition, first=first.offset, waiting=waiting, seconds=seconds
    )


def _record(message: Message) -> Record:
    (kind, time_ms), offset = message.timestamp(), message.offset()
    assert offset is not None, "a record has an offset"
    return Record(
        topic=str(message.topic()),
        partition=str(message.partition()),
        offset=offset,
        time=-1 if kind == TIMESTAMP_NOT_AVAILABLE else time_ms,
        key=message.key(),
        value=message.value(),
    )
