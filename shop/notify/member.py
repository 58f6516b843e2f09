"""A member of the consumer group: takes its share of the partitions, and acknowledges each message after the work."""

import logging
import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from deltaworks.errors import StackError
from shop.notify.channels import TemporaryError
from shop.notify.confirmation import Letter
from shop.notify.delivery import Delivery

TOPIC = "order_confirmations"
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.5, 30.0
_POLL_SECONDS_MAX = 0.5  # how soon a member hears that it is to stop
_ASK_SECONDS_MAX = 5.0  # for each question to the broker; a rebalance waits for the answers
log = logging.getLogger("shop.notify")


@dataclass(kw_only=True)
class _Held:
    """A message that could not be told yet; its partition is paused behind it."""

    message: Message
    pause_seconds: float
    due: float


class Member:
    """One consumer. A partition whose message must wait is paused, the others go on, and it stays in the group."""

    def __init__(self, *, bootstrap: str, group: str, name: str, delivery: Delivery) -> None:
        """Connect; raises StackError if the broker is away or lacks the topic."""
        self._delivery = delivery
        self._held: dict[int, _Held] = {}  # by partition
        self._unacknowledged = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "classic",  # of the newer one the broker decides how soon a dead member is given up
                "client.id": name,
                "partition.assignment.strategy": "cooperative-sticky",  # a rebalance stops only partitions that move
                "session.timeout.ms": 6_000,  # a killed member is given up after that; the broker allows no less
                "heartbeat.interval.ms": 1_500,
                "max.poll.interval.ms": 180_000,  # between two polls two messages are told, a held one and a new one
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,  # what is acknowledged is what was done, not what was fetched
                "auto.offset.reset": "earliest",  # a new group skips nothing
                "isolation.level": "read_committed",
                "log_level": 2,  # lost connections are expected, and told by what follows from them
            }
        )
        self._require_topic(bootstrap)

    def run(self, stopping: threading.Event) -> None:
        """Work until told to stop, then leave the group, which hands the partitions to the others at once."""
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )  # fmt: skip
        try:
            while not stopping.is_set():
                self._try_again()
                self._acknowledge()
                message = self._consumer.poll(self._poll_seconds())
                if message is not None and not stopping.is_set():  # who takes the partition over tells it
                    self._take(message)
        finally:
            self._consumer.close()  # calls `_revoked`
        log.info("left the group")

    def _poll_seconds(self) -> float:
        due = min((held.due - time.monotonic() for held in self._held.values()), default=_POLL_SECONDS_MAX)
        return min(max(due, 0.0), _POLL_SECONDS_MAX)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._work(message, pause_seconds=_PAUSE_SECONDS_MIN)
        elif error.fatal():
            raise StackError(f"topic {TOPIC}", error.str(), 'Run "deltaworks status"')
        else:
            log.warning("the broker says: %s", error.str())  # the client goes on by itself

    def _try_again(self) -> None:
        """At most one message that is due: between two polls there is not time for many."""
        due = min(self._held.values(), key=lambda held: held.due, default=None)
        if due is not None and due.due <= time.monotonic():
            self._work(due.message, pause_seconds=min(due.pause_seconds * 2, _PAUSE_SECONDS_MAX))

    def _work(self, message: Message, *, pause_seconds: float) -> None:
        """Tell a message. If that must wait, hold it: nothing behind it in its partition is taken before."""
        place = _place(message)
        try:
            if message.value() is not None:  # a tombstone: there is nothing to tell
                self._delivery.deliver(Letter.of(message))
        except (TemporaryError, StackError) as error:
            log.warning("%s/%d waits for %.1f s: %s", place.topic, place.partition, pause_seconds, error)
            self._consumer.pause([place])
            due = time.monotonic() + pause_seconds
            self._held[place.partition] = _Held(message=message, pause_seconds=pause_seconds, due=due)
        else:
            held = self._held.pop(place.partition, None)
            self._done(message)
            if held is not None:
                self._tell_overrun([place])
                self._consumer.resume([place])

    def _done(self, message: Message) -> None:
        try:
            self._consumer.store_offsets(message=message)
        except KafkaException as error:  # the partition was lost meanwhile: it comes again to somebody, who knows it
            log.warning("%s: not acknowledged (%s)", message.offset(), error.args[0].str())
            return
        self._unacknowledged = True
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Commit the offsets of what was done; what fails is tried again at the next turn."""
        if not self._unacknowledged:
            return
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001  # its public name
                log.warning("not acknowledged yet: %s", error.args[0].str())
                return
        self._unacknowledged = False

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:  # a rebalance that changes nothing here is no news
            log.info("got %s", _told(partitions))
            self._tell_overrun(partitions)

    def _tell_overrun(self, partitions: list[TopicPartition]) -> None:
        """Warn of what the broker has deleted unread: the client goes on behind it without a word."""
        try:
            for one in self._consumer.committed(partitions, timeout=_ASK_SECONDS_MAX):
                first, _ = self._consumer.get_watermark_offsets(one, timeout=_ASK_SECONDS_MAX)
                if 0 <= one.offset < first:  # below 0: a group that never acknowledged there
                    deleted = first - one.offset
                    log.warning("%s/%d: retention has deleted %d unread", one.topic, one.partition, deleted)
        except KafkaException as error:
            log.warning("not known whether retention has deleted any unread: %s", error.args[0].str())

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._acknowledge()
        self._forget(partitions)
        log.info("gave %s", _told(partitions))

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else has them already: what is not acknowledged comes again there."""
        self._unacknowledged = False
        self._forget(partitions)
        log.warning("lost %s", _told(partitions))

    def _forget(self, partitions: list[TopicPartition]) -> None:
        held = [one for one in partitions if self._held.pop(one.partition, None) is not None]
        if held:
            self._consumer.resume(held)  # else it would be paused when it comes back

    def _require_topic(self, bootstrap: str) -> None:
        try:
            there = self._consumer.list_topics(timeout=15).topics
        except KafkaException as error:
            raise StackError(f"Kafka {bootstrap}", error.args[0].str(), 'Run "deltaworks status"') from None
        if TOPIC not in there:
            raise StackError(f"Kafka {bootstrap}", f'no topic "{TOPIC}"', 'Run "deltaworks up"')


def _place(message: Message) -> TopicPartition:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return TopicPartition(topic, partition)


def _told(partitions: list[TopicPartition]) -> str:
    return f"{len(partitions)} partitions ({', '.join(str(one.partition) for one in partitions)})"
