"""A table's changes, or its new rows, as messages of a topic; how far it is told goes into the same transaction.

So whoever reads committed messages gets each once, whoever dies when. A driver that was succeeded while it slept cannot
publish any more: its successor's first call ends its transactions (Kafka, "transactional.id").

The position is a message too, of the table's own compacted topic `deltaworks.published.TABLE`: there is a call for a
group's offsets in a transaction, but librdkafka never returns from it when the broker dies meanwhile (its issue 5456).
If the broker has lost the position everything is published again, under the same message ids for events.
"""

import hashlib
import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deltaworks.catalog import Declared
from deltaworks.engine.broker import AT_THE_END
from deltaworks.engine.outlets.feed import Change, Feed
from deltaworks.errors import OutletError
from deltaworks.words.outlets import Changelog, Events

SECONDS_MAX = 30.0
"""For one call to the broker."""
ROWS_PER_TRANSACTION = 20_000
"""Of a whole table: the broker ends transactions that take long."""
_PLACES = {"cleanup.policy": "compact", "segment.bytes": str(2**20), "delete.retention.ms": "60000"}
"""Of the topic of positions: what a restart reads is a few segments at most."""
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
        self._places = f"deltaworks.published.{declared.name}"
        self._producer: Producer | None = None
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
        if producer is not None:
            with suppress(KafkaException):  # none is open, or a successor's first call has ended it
                producer.abort_transaction(5)

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
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap, "log_level": 2, "socket.timeout.ms": 10_000,
                "transactional.id": name, "linger.ms": 5, "compression.type": "lz4", "acks": "all",
                "allow.auto.create.topics": False,
            }
        )  # fmt: skip
        self._producer.init_transactions(SECONDS_MAX)  # ends what is open, so that all positions can be read

    def _told(self) -> int | None:
        """The version that was published last; None if nothing was, or of another table of this name."""
        if _created(self._places, bootstrap=self._bootstrap):
            return None
        told = None
        for _, value in messages_of(self._places, bootstrap=self._bootstrap):
            told = None if value is None else msgspec.json.decode(value, type=_Place)
        return told.version if told is not None and told.of == self._made_of() else None

    def _made_of(self) -> str:
        """The topic, the table, and for a changelog what its rows look like: another one is told whole again."""
        which = f"{self._publishes.topic} {self.feed.identity()}"
        if isinstance(self._publishes, Events):
            return which
        shape = repr([(column.name, column.type, column.null) for column in self.declared.columns]) + repr(
            self.feed.keys
        )
        return f"{which} {hashlib.sha256(shape.encode()).hexdigest()[:16]}"

    def _transaction(self, messages: Iterable[Message], newest: int | None) -> None:
        """Publish messages, and that version `newest` is told with them if it is given."""
        producer = self._producer
        assert producer is not None, "opened before"
        producer.begin_transaction()
        for key, value, identity in messages:
            headers = [("id", identity.encode())]
            _produce(producer, self._publishes.topic, key=key, value=value, headers=headers)
        if newest is not None:
            place = _ENCODER.encode(_Place(version=newest, of=self._made_of()))
            _produce(producer, self._places, key=self.declared.name.encode(), value=place)
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


class _Place(msgspec.Struct, frozen=True):
    version: int
    of: str


def _created(topic: str, *, bootstrap: str) -> bool:
    """Create the topic of positions unless it is there. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    fresh = NewTopic(topic, num_partitions=1, replication_factor=-1, config=_PLACES)
    try:
        admin.create_topics([fresh], request_timeout=SECONDS_MAX)[topic].result(SECONDS_MAX + 5)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def messages_of(topic: str, *, bootstrap: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of the committed messages that have a key, up to where the topic ends now, in order per partition.

    Raises OutletError if there is no such topic or the broker falls silent.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "deltaworks.changelog", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 2,
            "auto.offset.reset": "error",  # what retention takes meanwhile is an error: by default the rest is skipped
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
            if error is not None and error.code() == AT_THE_END:
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
