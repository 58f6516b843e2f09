"""Three brokers: a topic whose end is replaced under a driver at work is refused; one that keeps it is read on."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from deltaworks.engine.broker import Broker
from deltaworks.engine.same_log import SameTopics
from deltaworks.errors import NoAnswerError, SourceError
from deltaworks.local import kafka
from deltaworks.settings import Settings
from tests.notes import NOTES, ask, send
from tests.running_driver import at_work
from tests.running_stack import running_stack, wait_until
from tests.three_brokers import OneBroker, three_brokers
from tests.tiny_project import Project

MANY, SECONDS_MAX = 40, 240
LETTERS = "select count(*) from bronze.letters"
EXPECTED = 3  # an error that is told in a line
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Give a control store for the tiny project; the brokers are the test's own."""
    with running_stack(parts=("control",), project=Project(tmp_path / "project").folder) as settings:
        yield settings


@pytest.fixture
def brokers(settings: Settings) -> Iterator[Mapping[int, OneBroker]]:
    """Give three brokers; notes are kept by the second, who leads, and the third."""
    with three_brokers(settings) as brokers:
        topics = [
            NewTopic("notes", 2, replica_assignment=[[2, 3], [2, 3]], config=UNCLEAN),
            NewTopic("members", 1, replica_assignment=[[1]]),
        ]
        admin = kafka.admin_client(settings)
        for made in admin.create_topics(topics).values():
            made.result()
        wait_until(lambda: led(settings) == {(2, 2)}, what="the third has what the second has")
        yield brokers


def led(settings: Settings) -> set[tuple[int, int]]:
    """Who leads partitions of the notes, and how many have all of it."""
    with suppress(KafkaException):  # the broker has much to do
        found = kafka.admin_client(settings).list_topics("notes", timeout=10).topics["notes"].partitions
        return {(one.leader, len(one.isrs)) for one in found.values()}
    return set()


def test_replaced_tail_is_refused_and_one_that_another_leader_has_is_read_on(
    settings: Settings, brokers: Mapping[int, OneBroker]
) -> None:
    """The second has not what was sent while it was away; led by it, the topic goes on with more than that."""
    send(settings, 0, MANY, words=1)
    with at_work(settings, "tiny") as driver:
        wait_until(lambda: ask(settings, NOTES) == [(1, MANY)], what="all are read", seconds_max=SECONDS_MAX)
        brokers[2].stop()
        wait_until(lambda: led(settings) == {(3, 1)}, what="the third leads", seconds_max=SECONDS_MAX)
        send(settings, MANY, MANY, words=2)
        read = [(1, MANY), (2, MANY)]
        wait_until(lambda: ask(settings, NOTES) == read, what="the driver reads on", seconds_max=SECONDS_MAX)
        log = settings.logs / "app-tiny.log"
        assert "has another leader" in log.read_text()
        assert driver.poll() is None

        os.killpg(driver.pid, signal.SIGSTOP)  # else it might see the topic while that is still shorter
        brokers[3].stop()
        nobody_leads(settings)
        brokers[2].start()
        wait_until(lambda: led(settings) == {(2, 1)}, what="the second leads", seconds_max=SECONDS_MAX)
        send(settings, MANY, 3 * MANY, words=3)
        os.killpg(driver.pid, signal.SIGCONT)
        wait_until(
            lambda: driver.poll() is not None or ask(settings, LETTERS) != [(2 * MANY,)],
            what="the driver refuses, or reads on",
            seconds_max=SECONDS_MAX,
        )

    assert ask(settings, LETTERS) == [(2 * MANY,)]
    assert driver.returncode == EXPECTED
    assert "than was read: it was made anew, or lost its end" in log.read_text()


def nobody_leads(settings: Settings) -> None:
    """Who asks says which partition has no leader, whichever way it asks, and waits for one no longer than it may."""
    asked = Broker(bootstrap=settings.kafka, group="test", timeout_seconds=2)
    finding = r"partition 0 of topic notes has no leader: its brokers \(2, 3\) are away, or behind"
    try:
        with pytest.raises(SourceError, match=finding):
            asked.edges(["members", "notes"])
        with pytest.raises(NoAnswerError, match=finding):
            asked.identities(["members", "notes"], seconds_max=5)
        assert set(asked.edges(["members"])["members"]) == {"0"}
        SameTopics(asked, ["members"]).check(5)
    finally:
        asked.close()
