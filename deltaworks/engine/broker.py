"""Questions to the broker that Spark does not answer. No Spark here."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from deltaworks.errors import SourceError

MARKERS_MAX = 1_000
"""Ends further away than this are taken for records without a look."""
_ELECTING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_Answer = TypeVar("_Answer")
_AGAIN_SECONDS = 0.2


def patiently(ask: Callable[[], _Answer], *, seconds_max: float) -> _Answer:
    """Ask again while the broker has only just started: it leads its partitions and groups a moment later."""
    until = time.monotonic() + seconds_max
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _ELECTING or time.monotonic() > until:
                raise
            time.sleep(_AGAIN_SECONDS)  # it does not tell when it has elected


@dataclass(frozen=True)
class Edge:
    """What the broker has of one partition: offsets in [low, high)."""

    low: int
    high: int


class Broker:
    """Questions to the broker that Spark does not answer, and the consumer group that lag tools look at."""

    def __init__(self, *, bootstrap: str, group: str, timeout_seconds: float = 15.0) -> None:
        """Connect lazily; nothing is consumed through this client."""
        self._timeout = timeout_seconds
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,  # tells a tail of markers from records to come
                "isolation.level": "read_committed",
                "socket.timeout.ms": 10_000,
                "log_level": 2,  # its messages about each attempt to connect repeat what the error says
            }
        )

    def edges(self, topics: Iterable[str]) -> dict[str, dict[str, Edge]]:
        """Low and high offset of every partition; raises SourceError for a topic that is not there."""
        found: dict[str, dict[str, Edge]] = {}
        for topic in topics:
            try:
                meta = self._consumer.list_topics(topic, timeout=self._timeout).topics[topic]
                if meta.error is not None or not meta.partitions:
                    raise SourceError(f"topic {topic}", "the broker has no such topic", 'Run "deltaworks up"')
                found[topic] = {str(p): Edge(*self._watermarks(topic, p)) for p in sorted(meta.partitions)}
            except KafkaException as error:
                raise SourceError(f"topic {topic}", f"{error.args[0].str()}", 'Look at "deltaworks status"') from None
        return found

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
        """
        return {
            topic: {p: self._trimmed(topic, p, edge, offsets.get(topic, {}).get(p)) for p, edge in parts.items()}
            for topic, parts in edges.items()
        }

    def _trimmed(self, topic: str, partition: str, edge: Edge, at: int | None) -> Edge:
        if at is None or not edge.low <= at < edge.high or edge.high - at > MARKERS_MAX:
            return edge
        self._consumer.assign([TopicPartition(topic, int(partition), at)])
        try:
            found = self._consumer.poll(self._timeout)
        finally:
            self._consumer.unassign()
        error = None if found is None else found.error()
        at_the_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001  # its public name
        return Edge(edge.low, at) if at_the_end else edge

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Tell the consumer group how far the lake is: for lag tools, never read back."""
        done = [TopicPartition(t, int(p), o) for t, parts in offsets.items() for p, o in parts.items()]
        if done:
            self._consumer.commit(offsets=done, asynchronous=True)
            self._consumer.poll(0)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
