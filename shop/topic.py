"""Sending events to Kafka as an application does that may lose none: acknowledged by all, idempotent, bounded."""

import threading
import time
from collections.abc import Collection
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential_jitter,
)

from deltaworks.errors import StackError

TOPIC = "page_views"
"""The topic of page views."""
QUEUE_MESSAGES_MAX = 100_000
"""Messages that may wait for the broker; who has one more waits too."""
_POLL_EVERY = 1_000  # messages; a poll serves the reports of failed deliveries


class Topics:
    """One producer for several topics. `sent` counts what was handed to it and not refused."""

    def __init__(
        self, bootstrap: str, *, topics: Collection[str], stopping: threading.Event, patience_seconds: float = 120
    ) -> None:
        """Connect; raises StackError if the broker stays away for `patience_seconds` or lacks one of the topics."""
        self._bootstrap, self._stopping = bootstrap, stopping
        self._failed: KafkaError | None = None
        self._patience = patience_seconds
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "shop.simulate",
                "acks": "all",
                "enable.idempotence": True,  # retries after a lost answer neither double nor reorder
                "message.timeout.ms": int(patience_seconds * 1000),  # how long a broker may be away
                "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
                "queue.buffering.max.kbytes": 64 * 1024,
                "linger.ms": 5,  # larger batches; a viewer does not notice 5 ms
                "compression.type": "lz4",
                "delivery.report.only.error": True,  # a report for each of two million would cost more than sending
                "on_delivery": self._on_delivery,
                "reconnect.backoff.max.ms": 2_000,  # 10 s by default: a broker restarts faster
                "log_level": 2,  # lost connections are expected, and told by what follows from them
            },
        )
        self._require(topics)

    def __enter__(self) -> Self:
        """Return the connected producer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Deliver what is queued. After another error what cannot be delivered in time is given up silently."""
        if kind is None:
            self.flush()
        else:
            self._producer.flush(5)

    def send_to(self, topic: str, key: bytes, value: bytes, *, came_us: int | None = None) -> bool:
        """Queue a message, waiting while the queue is full; False if the simulator was stopped before there was room.

        `came_us` is when it came, in microseconds since 1970 (Kafka keeps milliseconds); default: now. A topic takes
        that from its producers with message.timestamp.type=CreateTime only; else it is the broker's time.
        Raises StackError when a message that was queued earlier could not be delivered.
        """
        came = 0 if came_us is None else came_us // 1_000  # 0: now
        while True:
            try:
                self._producer.produce(topic, value, key, timestamp=came)
            except BufferError:
                self._producer.poll(0.05)
                self._raise_failure()
                if self._stopping.is_set():
                    return False
            else:
                self.sent += 1
                if self.sent % _POLL_EVERY == 0:
                    self.serve()
                return True

    def serve(self) -> None:
        """Hear of failed deliveries; raises StackError for one."""
        self._producer.poll(0)
        self._raise_failure()

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises StackError if it is not in time."""
        deadline = time.monotonic() + self._patience
        while left := self._producer.flush(1):
            self._raise_failure()
            if time.monotonic() > deadline:
                raise self._lost(f"{left} messages were not acknowledged in {self._patience:g} s")
        self._raise_failure()

    def _require(self, topics: Collection[str]) -> None:
        retrying = Retrying(
            retry=retry_if_exception_type(KafkaException),
            wait=wait_exponential_jitter(multiplier=0.1, max=2),
            stop=stop_after_delay(self._patience) | stop_when_event_set(self._stopping),
            sleep=sleep_using_event(self._stopping),
            reraise=True,
        )
        try:
            # all topics: asking for one by name may create it, with the broker's defaults
            there = retrying(lambda: self._producer.list_topics(timeout=5).topics)
        except KafkaException as error:
            raise self._lost(f"no answer ({error.args[0].str()})") from None
        for topic in topics:
            if topic not in there:
                raise StackError(f"Kafka {self._bootstrap}", f'no topic "{topic}"', 'Run "deltaworks up"')

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._lost(f"a message was not delivered ({self._failed.str()})")

    def _lost(self, finding: str) -> StackError:
        return StackError(f"Kafka {self._bootstrap}", finding, 'Run "deltaworks status"')


class PageViewTopic(Topics):
    """A producer of page views alone."""

    def __init__(self, bootstrap: str, *, stopping: threading.Event, patience_seconds: float = 120) -> None:
        """Connect, as `Topics` does."""
        super().__init__(bootstrap, topics=(TOPIC,), stopping=stopping, patience_seconds=patience_seconds)

    def send(self, key: bytes, value: bytes) -> bool:
        """Queue a page view, as `send_to` does."""
        return self.send_to(TOPIC, key, value)
