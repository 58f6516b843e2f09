"""A topic that was deleted and made anew is refused however long it has become; one that was carried over is not."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deltaworks.local.stack import up
from deltaworks.settings import ROOT, Settings
from tests.notes import NOTES, ask, send
from tests.running_driver import at_work
from tests.running_stack import part, running_stack, wait_until
from tests.tiny_project import Project

SECONDS_MAX = 240
LONG_AFTER = 4_070_908_800_000  # milliseconds since 1970: 2099 begins
MANY = 40
EXPECTED = 3  # an error that is told in a line


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Give a broker and a control store for the tiny project."""
    with running_stack(parts=("control", "kafka"), project=Project(tmp_path / "project").folder) as settings:
        yield settings


def make_anew(settings: Settings, records: Iterable[Message] = ()) -> None:
    """Delete the topic and make one of its name, that has these records in their places."""
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    admin.delete_topics(["notes"])["notes"].result(timeout=30)
    wait_until(lambda: "notes" not in admin.list_topics(timeout=30).topics, what="the topic is gone")
    # so that a copy of a record has its time, also one of 2099, which a broker refuses by default
    config = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}
    admin.create_topics([NewTopic("notes", 2, 1, config=config)])["notes"].result(timeout=30)
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    for record in records:
        partition, (_, time_ms) = record.partition() or 0, record.timestamp()
        producer.produce("notes", record.value(), record.key(), partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0


def records(settings: Settings) -> list[Message]:
    """What the topic has, in the order of each partition."""
    reader = Consumer({"bootstrap.servers": settings.kafka, "group.id": "test", "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition("notes", partition, 0) for partition in range(2)])
    found = reader.consume(MANY, 30)
    reader.close()
    assert [record.error() for record in found] == [None] * MANY
    return found


def call(settings: Settings, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the command line."""
    return subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", *words],
        env=settings.inherited(), cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip


def test_topic_made_anew_is_refused_and_one_carried_over_is_read_on(settings: Settings) -> None:
    """Made anew under a driver at work, with more records than were read; then brought back, record by record."""
    send(settings, 0, MANY, words=1)
    with at_work(settings, "tiny") as driver:
        wait_until(lambda: ask(settings, NOTES) == [(1, MANY)], what="all are read", seconds_max=60)
        old = records(settings)
        os.killpg(driver.pid, signal.SIGSTOP)  # else it might see the topic while that is still shorter
        make_anew(settings)
        send(settings, 0, 3 * MANY, words=2)
        os.killpg(driver.pid, signal.SIGCONT)
        driver.wait(timeout=SECONDS_MAX)
    log = (settings.logs / "app-tiny.log").read_text()

    refused = call(settings, "run", "tiny", "--drain")
    assert driver.returncode == EXPECTED
    assert "its reading began with" in log
    assert ask(settings, "select count(*) from bronze.letters") == [(MANY,)]
    assert refused.returncode != 0
    assert "than was read: it was made anew" in refused.stdout + refused.stderr

    make_anew(settings, old)
    send(settings, MANY, MANY, words=3)
    drained, books = call(settings, "run", "tiny", "--drain"), call(settings, "ledger", "--json")

    assert drained.returncode == 0, drained.stderr[-3000:]
    assert ask(settings, NOTES) == [(1, MANY), (3, MANY)]
    assert books.returncode == 0, books.stdout


def test_topic_that_lost_its_end_is_refused(settings: Settings) -> None:
    """The machine dies with what the broker had not on its disk; then more comes than was read, under a held driver."""
    send(settings, 0, MANY, words=1)
    with at_work(settings, "tiny") as driver:
        wait_until(lambda: ask(settings, NOTES) == [(1, MANY)], what="all are read", seconds_max=60)
        segments = {one: one.stat().st_size for one in settings.data.glob("kafka/notes-*/*.log")}
        send(settings, MANY, MANY, words=2)
        wait_until(lambda: ask(settings, NOTES) == [(1, MANY), (2, MANY)], what="all are read", seconds_max=60)
        os.killpg(driver.pid, signal.SIGSTOP)  # as above
        for segment, size in segments.items():
            os.truncate(segment, size)
        pid = part(settings, "kafka").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: part(settings, "kafka").pid not in (None, pid), what="the next one begins")
        up(settings, parts=("kafka",), seconds_max=SECONDS_MAX)
        send(settings, MANY, 3 * MANY, words=3)
        os.killpg(driver.pid, signal.SIGCONT)
        letters = "select count(*) from bronze.letters"
        wait_until(
            lambda: driver.poll() is not None or ask(settings, letters) != [(2 * MANY,)],
            what="the driver refuses, or reads on", seconds_max=SECONDS_MAX,
        )  # fmt: skip

    assert len(segments) == 2
    assert ask(settings, letters) == [(2 * MANY,)]
    assert driver.returncode == EXPECTED
    assert "than was read: it was made anew, or lost its end" in (settings.logs / "app-tiny.log").read_text()


def test_record_that_was_stamped_in_2099_arrives_when_it_is_read(settings: Settings) -> None:
    """It is counted, its note is refused as one of the future, and the topic is known again by all others."""
    make_anew(settings)
    stamped = {"note_id": "far", "written_at": LONG_AFTER, "member_id": 1, "words": 1}
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    for partition in range(2):
        producer.produce("notes", json.dumps(stamped), partition=partition, timestamp=LONG_AFTER)
    assert producer.flush(30) == 0
    first = call(settings, "run", "tiny", "--drain")
    send(settings, 0, MANY, words=2)
    second, books = call(settings, "run", "tiny", "--drain"), call(settings, "ledger", "--json")
    examined = call(settings, "doctor", "--json")

    assert (first.returncode, second.returncode) == (0, 0), (first.stderr + second.stderr)[-3000:]
    assert ask(settings, NOTES) == [(2, MANY)]
    assert ask(settings, "select reason, count(*) from silver.notes__quarantine group by all") == [
        ("written_at: future", 2)
    ]
    soon = "select count(*) from bronze.letters where timestamp < now() + interval 2 minute"
    assert ask(settings, soon) == [(MANY + 2,)]
    ahead = {sheet["table"]: sheet["ahead"] for sheet in json.loads(books.stdout)[0]["tables"]}
    assert (ahead["bronze.letters"], ahead["silver.notes"]) == (2, 0)
    told = {one["finding"].split()[0] for one in json.loads(examined.stdout) if one["check"] == "arrival"}
    assert told == {"notes"}
