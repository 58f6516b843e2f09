"""What was being committed when the broker died is committed afterwards, or given up: nobody waits for it for ever."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from deltaworks import processes
from deltaworks.engine.broker import Broker
from deltaworks.local import kafka
from deltaworks.settings import Settings
from tests.running_stack import part, running_stack, wait_until

PRODUCERS, ENOUGH, PARTITIONS = 20, 10, {"many": 4, "other": 1}
EVERY = [TopicPartition(topic, number) for topic, many in PARTITIONS.items() for number in range(many)]
TRANSACTION_SECONDS = 10
DECLARED_DEAD = "Fencing broker 1 "
Harm = Callable[[Settings, int], None]


@pytest.fixture(scope="module")
def broker() -> Iterator[Settings]:
    """Give a broker alone, which outlives what each test does to it."""
    with running_stack(parts=("kafka",)) as settings:
        topics = [NewTopic(name, num_partitions=many) for name, many in PARTITIONS.items()]
        admin = kafka.admin_client(settings)
        for made in admin.create_topics(topics).values():
            made.result()
        yield settings


def killed(_settings: Settings, pid: int) -> None:
    """Kill the broker."""
    os.kill(pid, signal.SIGKILL)


def killed_again(settings: Settings, pid: int) -> None:
    """Kill the broker, and the next one twice while its controller runs alone: before it has done its work, and after.

    That it has is read from its log.
    """
    log = settings.logs / "kafka.log"
    declared = times_in(log, DECLARED_DEAD)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: part(settings, "kafka").pid not in (None, pid), what="the next one begins")
    second = part(settings, "kafka").pid
    assert second is not None
    wait_until(lambda: len(processes.members(second)) > 1, what="its controller runs")
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: times_in(log, DECLARED_DEAD) > declared, what="the dead one is declared dead")
    third = part(settings, "kafka").pid
    assert third not in (None, second)
    os.kill(third, signal.SIGKILL)


def stopped(_settings: Settings, pid: int) -> None:
    """Stop the broker for longer than a registration usually holds (9 s), and let it go on."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(10)  # the time is what harms: nothing is to be waited for
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("harm", [killed, killed_again, stopped])
def test_transactions_end_whatever_the_broker_went_through(broker: Settings, harm: Harm) -> None:
    """Many are between their commit and its markers at any time."""
    pid = part(broker, "kafka").pid
    assert pid is not None

    with committing(broker) as committed:
        wait_until(lambda: min(committed) > ENOUGH, what="all of them commit")
        harm(broker, pid)
    wait_until(lambda: is_back(broker, pid, other=harm is not stopped), what="the broker is back", seconds_max=120)

    wait_until(lambda: unfinished(broker) == [], what=f"no transaction is left: {committed}")


def test_topic_is_known_again_after_the_brokers_death(broker: Settings) -> None:
    """Who asks which topics there are waits for the next one's answer, and is told that it leads anew.

    It may not have all that the dead one had: what was not on the disk is gone where the machine died with it.
    """
    asked = Broker(bootstrap=broker.kafka, group="test")
    topics = [*PARTITIONS, *PARTITIONS, "none"]
    wait_until(
        lambda: len(asked.identities(topics, seconds_max=10)) == len(PARTITIONS), what="the new topics are known"
    )
    pid = part(broker, "kafka").pid
    assert pid is not None

    try:
        before = asked.identities(topics, seconds_max=10)
        os.kill(pid, signal.SIGKILL)
        after = asked.identities(PARTITIONS, seconds_max=120)
    finally:
        asked.close()

    ids = {topic: known.topic_id for topic, known in before.items()}
    assert ids == {topic: known.topic_id for topic, known in after.items()}
    assert len(set(ids.values())) == len(PARTITIONS)
    for topic, many in PARTITIONS.items():
        assert set(before[topic].epochs) == {str(number) for number in range(many)}
        assert all(after[topic].epochs[number] > epoch for number, epoch in before[topic].epochs.items())


@contextmanager
def committing(settings: Settings) -> Iterator[list[int]]:
    """Commit transactions over both topics all the time, and count them by producer."""
    counts, over = [0] * PRODUCERS, Event()

    def commit(number: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": settings.kafka,
                "transactional.id": f"producer-{number}",
                "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
                "log_level": 0,
            }
        )
        with suppress(KafkaException):  # the broker was away for too long: this producer is not needed any more
            producer.init_transactions(60)
            while not over.is_set():
                producer.begin_transaction()
                for topic in PARTITIONS:
                    producer.produce(topic, b"one")
                producer.commit_transaction(TRANSACTION_SECONDS)
                counts[number] += 1

    threads = [Thread(target=commit, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join()


def unfinished(settings: Settings) -> list[TopicPartition]:
    """The partitions whose end is not read by who reads only what is committed."""
    admin = kafka.admin_client(settings)

    def ends(level: IsolationLevel) -> dict[TopicPartition, int]:
        end = OffsetSpec.latest()
        asked = admin.list_offsets(dict.fromkeys(EVERY, end), isolation_level=level)
        return {one: answer.result().offset for one, answer in asked.items()}

    try:
        every, committed = ends(IsolationLevel.READ_UNCOMMITTED), ends(IsolationLevel.READ_COMMITTED)
    except KafkaException:  # it is not quite back
        return EVERY
    assert all(every.values())
    return [one for one in EVERY if every[one] != committed[one]]


def is_back(settings: Settings, before: int, *, other: bool) -> bool:
    """Whether the broker is ready, as another process or the same."""
    found = part(settings, "kafka")
    return found.state == "ready" and (found.pid != before) == other


def times_in(log: Path, text: str) -> int:
    """How often a log has a text."""
    return log.read_text().count(text)
