"""Questions to the broker that Spark does not answer. No Spark here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from deltaworks.errors import SourceError


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
                "isolation.level": "read_committed",
                "socket.timeout.ms": 10_000,
                "log_level": 3,  # its reconnect messages repeat what the heartbeat says
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
        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=self._timeout)
        return int(low), int(high)

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Tell the consumer group how far the lake is: for lag tools, never read back."""
        done = [TopicPartition(t, int(p), o) for t, parts in offsets.items() for p, o in parts.items()]
        if done:
            self._consumer.commit(offsets=done, asynchronous=True)
            self._consumer.poll(0)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
