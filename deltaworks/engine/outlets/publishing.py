"""A table's changes, or its new rows, as messages of a topic; how far it is told goes into the same transaction.

So whoever reads committed messages gets each once, whoever dies when. A driver that was succeeded while it slept cannot
publish any more: its successor's first call ends its transactions (Kafka, "transactional.id").

The position is the group's committed offset in partition 0, as the table's next version. If the broker has forgotten it
everything is published again, under the same message ids for events.
"""

import hashlib
import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from deltaworks.catalog import Declared
from deltaworks.engine.broker import patiently
from deltaworks.engine.outlets.feed import Change, Feed
from deltaworks.errors import OutletError
from deltaworks.words.outlets import Changelog, Events

SECONDS_MAX = 30.0
"""For one call to the broker."""
ROWS_PER_TRANSACTION = 20_000
"""Of a whole table: the broker ends transactions that take long."""
_ENCODER = msgspec.json.Encoder(decimal_format="string")
log = logging.getLogger("deltaworks.publishing")
Message = tuple[bytes, bytes | None, str]
"""Key, value, message id."""


class Publishing:
    """One table's topic."""

    def __init__(self, declared: Declared, feed: Feed, *, bootstrap: str) -> None:
        """Connect to nothing yet."""
        publishes = declared.table.publishes
        assert publishes is not None, "who makes this has looked"
        self.declared, self.version = declared, -1
        self.to = f"topic {publishes.topic}"
        self._publishes: Changelog | Events = publishes
        self.feed, self._bootstrap = feed, bootstrap
        self._producer: Producer | None = None
        self._group: Consumer | None = None
        self._sure = False  # whether `version` is what the broker was told; after a failure it may be further

    def push(self, newest: int) -> None:
        """Publish what is new up to this version of the table. Raises OutletError."""
        try:
            self.version = self._push(newest)
        except KafkaException as error:
            self.close()
            finding = error.args[0].str()
            raise OutletError(f"{self.declared.name} to {self.to}", finding, 'Look at "deltaworks status"') from error
        except BaseException:
            self.close()
            raise
        self._sure = True

    def close(self) -> None:
        """Leave the broker; what is not committed is not told."""
        self._sure = False
        producer, self._producer = self._producer, None
        group, self._group = self._group, None
        if producer is not None:
            with suppress(KafkaException):  # none is open, or a successor's first call has ended it
                producer.abort_transaction(5)
        if group is not None:
            group.close()

    def _push(self, newest: int) -> int:
        if self._producer is None:
            self._open()
        told = self.version if self._sure else self._told()
        while told is not None:
            if told >= newest:  # beyond, a successor was here
                return told
            upto, changes = self._changes(told, newest)
            if changes is None:
                break
            self._transaction(map(self._message, changes), upto)
            told = upto
        messages = self._all(newest)
        rows = 0
        for part in messages:
            rows += len(part)
            self._transaction(part, None)
        self._transaction([], newest)
        log.info("%s: version %d is published whole, %d messages", self.declared.name, newest, rows)
        return newest

    def _changes(self, told: int, newest: int) -> tuple[int, list[Change] | None]:
        """What came beyond a version, up to the newest or as many versions as can be told at once; None if not one."""
        tell = self.feed.inserts if isinstance(self._publishes, Events) else self.feed.changes
        while (changes := tell(told, newest)) is None and newest > told + 1:
            newest = told + (newest - told) // 2
        return newest, changes

    def _open(self) -> None:
        name = f"deltaworks.publishes.{self.declared.name}"
        common = {"bootstrap.servers": self._bootstrap, "log_level": 2, "socket.timeout.ms": 10_000}
        self._producer = Producer(
            common | {"transactional.id": name, "linger.ms": 5, "compression.type": "lz4", "acks": "all"}
        )
        self._producer.init_transactions(SECONDS_MAX)
        group = {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._group = Consumer(common | group)

    def _told(self) -> int | None:
        """The version that was published last; None if nothing was, or of another table of this name."""
        group, asked = self._group, [TopicPartition(self._publishes.topic, 0)]
        assert group is not None, "opened before"
        (place,) = patiently(lambda: group.committed(asked, timeout=SECONDS_MAX), seconds_max=SECONDS_MAX)
        if place.error is not None:
            raise KafkaException(place.error)
        return place.offset - 1 if place.offset > 0 and place.metadata == self._made_of() else None

    def _made_of(self) -> str:
        """The table, and for a changelog what its rows look like: another one is told whole again."""
        if isinstance(self._publishes, Events):
            return self.feed.identity()
        shape = repr([(column.name, column.type, column.null) for column in self.declared.columns]) + repr(
            self.feed.keys
        )
        return f"{self.feed.identity()} {hashlib.sha256(shape.encode()).hexdigest()[:16]}"

    def _transaction(self, messages: Iterable[Message], newest: int | None) -> None:
        """Publish messages, and that version `newest` is told with them if it is given."""
        producer, group, topic = self._producer, self._group, self._publishes.topic
        assert producer is not None, "opened before"
        assert group is not None, "opened before"
        producer.begin_transaction()
        for key, value, identity in messages:
            _produce(producer, topic, key=key, value=value, headers=[("id", identity.encode())])
        if newest is not None:
            place = TopicPartition(topic, 0, newest + 1, self._made_of())
            producer.send_offsets_to_transaction([place], group.consumer_group_metadata(), SECONDS_MAX)
        producer.commit_transaction(SECONDS_MAX)

    def _all(self, version: int) -> Iterator[list[Message]]:
        """The whole table; for a changelog also tombstones of the keys that the topic has and the table has not."""
        there: set[bytes] = set()
        part: list[Message] = []
        for rows in self.feed.rows(version):
            for message in map(self._message, rows):
                there.add(message[0])
                part.append(message)
                if len(part) >= ROWS_PER_TRANSACTION:
                    yield part
                    part = []
        if isinstance(self._publishes, Changelog):
            gone = self._keys_in_topic() - there
            part += [(key, None, self._id(version, key)) for key in sorted(gone)]
        yield part

    def _message(self, change: Change) -> Message:
        row = None if change.row is None else dict(zip(self.feed.columns, map(_plain, change.row), strict=True))
        value = None if row is None else _ENCODER.encode(row)
        if isinstance(self._publishes, Changelog):
            key = self._encoded(self.feed.keys, change.key)
            return key, value, self._id(change.version, key)
        assert row is not None, "only rows that came are events"
        own = self._encoded(self.feed.keys, change.key)
        return _ENCODER.encode({name: row[name] for name in self._publishes.key}), value, self._id(None, own)

    def _encoded(self, names: tuple[str, ...], values: tuple[Any, ...]) -> bytes:
        return _ENCODER.encode(dict(zip(names, map(_plain, values), strict=True)))

    def _id(self, version: int | None, key: bytes) -> str:
        """The message id: a redelivery has the same, and no other message of the topic has it."""
        name = self.declared.name if version is None else f"{self.declared.name}/{version}"
        return f"{name}/{key.decode()}"

    def _keys_in_topic(self) -> set[bytes]:
        """Keys whose newest message is a row."""
        found: dict[bytes, bool] = {}
        for key, value in messages_of(self._publishes.topic, bootstrap=self._bootstrap):
            found[key] = value is not None
        return {key for key, row in found.items() if row}


def messages_of(topic: str, *, bootstrap: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of the committed messages that have a key, up to where the topic ends now, in order per partition.

    Raises OutletError if there is no such topic or the broker falls silent.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "deltaworks.changelog", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 2,
        }
    )  # fmt: skip
    try:
        known = consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic]
        if known.error is not None:
            raise OutletError(f"topic {topic}", "the broker has no such topic", 'Run "deltaworks up"')
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in known.partitions])
        left = set(known.partitions)
        while left:
            message = consumer.poll(SECONDS_MAX)
            if message is None:
                raise OutletError(f"topic {topic}", "the broker does not answer", 'Look at "deltaworks status"')
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # its public name
                left.discard(message.partition())
            elif error is not None:
                raise KafkaException(error)
            elif (key := message.key()) is not None:
                yield key, message.value()
    finally:
        consumer.close()


def _produce(producer: Producer, topic: str, **message: Any) -> None:
    """Wait while the queue is full; what is not delivered fails the transaction."""
    while True:
        try:
            producer.produce(topic, **message)
        except BufferError:
            producer.poll(1.0)
        else:
            return


def _plain(value: Any) -> Any:
    """JSON has no number for these; texts stand for them as in Debezium's messages."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
