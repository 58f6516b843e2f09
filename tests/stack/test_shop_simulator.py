"""The simulator as it is started, against the real Kafka and Postgres: its totals are exact, whatever is killed."""

import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deltaworks.engine.broker import Broker
from deltaworks.errors import StackError
from deltaworks.local import stack as local_stack
from deltaworks.settings import ROOT, Settings
from shop.events import TOPICS
from shop.evidence import TopicLog, make_page_views, open_database, parse_page_views
from shop.topic import QUEUE_MESSAGES_MAX, TOPIC, Topics
from tests.producers_time import producers_time
from tests.running_stack import START_SECONDS_MAX, part, wait_until

StartParts = Callable[..., Settings]
FAULTS = ("--duplicates", "0.02", "--out-of-order", "0.05", "--late", "0.05", "--malformed", "0.01")


@pytest.fixture
def services(stack: StartParts) -> Settings:
    """Give the settings of a running Kafka and Postgres."""
    return stack(parts=("source", "kafka"))


def started(settings: Settings, *arguments: str) -> subprocess.Popen[str]:
    """Start `python -m shop.simulate`."""
    command = [str(settings.spark_python), "-m", "shop.simulate", "--json", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=settings.inherited(), stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for its end and read its totals."""
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    totals: dict[str, Any] = json.loads(printed)
    return totals


def in_topic(settings: Settings, run: str, folder: Path) -> Counter[str]:
    """How often each event id of a run is in the topic."""
    with open_database(folder) as database:
        log = TopicLog(database, bootstrap=settings.kafka, topic="page_views", table="log")
        make_page_views(database, wellformed="wellformed", malformed="malformed")
        for rows in log.read():
            parse_page_views(database, rows, wellformed="wellformed", malformed="malformed")
        log.close()
        query = "select event_id, count(*) from wellformed where starts_with(event_id, ?) group by all"
        return Counter(dict(database.execute(query, [f"{run}-"]).fetchall()))


def messages_in(settings: Settings) -> Counter[str]:
    """How many messages each of the other events' topics ever held."""
    broker = Broker(bootstrap=settings.kafka, group="test.simulator")
    edges = broker.edges(TOPICS)
    broker.close()
    return Counter({topic: sum(edge.high for edge in edges[topic].values()) for topic in TOPICS})


def test_totals_are_what_is_in_kafka_though_the_broker_is_killed(services: Settings, tmp_path: Path) -> None:
    """A kill -9 of the broker in the middle: each view and other event arrives once, copies are those meant."""
    run, before = uuid.uuid4().hex, messages_in(services)
    process = started(services, "--run", run, "--rate", "1000", "--order-rate", "5", "--seconds", "8", *FAULTS)
    time.sleep(4)
    killed = part(services, "kafka").pid
    assert killed is not None
    assert process.poll() is None, "the run was over before the broker was killed"

    os.kill(killed, signal.SIGKILL)
    totals = ended(process)

    wait_until(lambda: part(services, "kafka").pid not in {None, killed}, what="Kafka is started again")
    seen = in_topic(services, run, tmp_path)
    assert totals["views_sent"] + totals["malformed"] == 8_000
    assert len(seen) == totals["views_sent"]
    assert seen.total() == totals["views_sent"] + totals["duplicates"]
    events = totals["events"]
    assert sum(sent["sent"] + sent["malformed"] for sent in events.values()) == 4_000  # half of the views' rate
    told = Counter({topic: sent["sent"] + sent["duplicates"] + sent["malformed"] for topic, sent in events.items()})
    assert messages_in(services) - before == told


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_simulator_delivers_what_it_counted(services: Settings, tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C and SIGTERM: exit code 0, totals on stdout, all of it in Kafka and Postgres."""
    run = uuid.uuid4().hex
    orders = "select count(*) from orders"
    with psycopg.connect(services.source_dsn("shop"), autocommit=True) as connection:
        before = connection.execute(orders).fetchone()
        process = started(services, "--run", run, "--rate", "500", "--order-rate", "20")
        wait_until(lambda: connection.execute(orders).fetchone() != before, what="the first order is placed")
        time.sleep(1)

        process.send_signal(how)
        totals = ended(process)
        after = connection.execute(orders).fetchone()

    assert before is not None
    assert after is not None
    assert totals["orders_placed"] == after[0] - before[0] > 0
    assert len(in_topic(services, run, tmp_path)) == totals["views_sent"] > 0


def test_a_backlog_is_made_without_the_database(services: Settings, tmp_path: Path) -> None:
    """Tens of thousands of views at once, each in the topic once, and nothing else."""
    run, before = uuid.uuid4().hex, messages_in(services)

    totals = ended(started(services, "--run", run, "--backlog", "50000"))

    seen = in_topic(services, run, tmp_path)
    assert totals["views_sent"] == len(seen) == seen.total() == 50_000
    assert totals["orders_placed"] == 0
    assert messages_in(services) == before


def test_the_past_came_then(services: Settings, tmp_path: Path) -> None:
    """Topics that believe it have the time of then for a message of the past, and of its sending for the run's."""
    run, began = uuid.uuid4().hex, datetime.now(UTC)
    rates = ("--rate", "50", "--order-rate", "0", "--event-rate", "0", "--seconds", "1")

    with producers_time(services, [TOPIC, *TOPICS]):
        totals = ended(
            started(services, "--run", run, *rates, "--past-days", "2", "--past-views", "960", "--past-events", "480")
        )

    assert totals["views_sent"] == 50 + 960
    assert sum(sent["sent"] for sent in totals["events"].values()) == 480
    wanted = {"page_views": 960} | {topic: sent["sent"] for topic, sent in totals["events"].items()}
    for topic, count in wanted.items():
        past, live = (came_of(services, topic, name, tmp_path) for name in (f"{run}-past", run))
        assert len(past) == count, topic
        assert past[0] >= began - timedelta(days=2), topic
        assert past[-1] - past[0] > timedelta(days=1), topic
        assert len(live) == (50 if topic == "page_views" else 0), topic
        assert all(came >= began for came in live), topic


def came_of(settings: Settings, topic: str, run: str, folder: Path) -> list[datetime]:
    """When the messages of a run came in, as Kafka has it, in order."""
    with open_database(folder) as database:
        log = TopicLog(database, bootstrap=settings.kafka, topic=topic, table="log")
        for _ in log.read():  # each piece is in the table
            pass
        log.close()
        query = "select timestamp from log where regexp_matches(value::varchar, ?) order by timestamp"
        return [came for (came,) in database.execute(query, [f"{run}-[0-9]+"]).fetchall()]


def test_other_events_can_be_sent_alone_or_left_out(services: Settings) -> None:
    """Without page views there are none unless they are asked for; with page views they can be switched off."""
    neither = ended(started(services, "--rate", "0", "--orders", "1"))
    alone = ended(started(services, "--rate", "0", "--order-rate", "0", "--event-rate", "100", "--seconds", "2"))
    off = ended(started(services, "--rate", "100", "--order-rate", "0", "--event-rate", "0", "--seconds", "2"))

    sent = [sum(topic["sent"] for topic in totals["events"].values()) for totals in (neither, alone, off)]
    assert sent == [0, 200, 0]
    assert [totals["messages"] for totals in (neither, alone, off)] == [0, 0, 200]


def test_a_full_queue_holds_its_sender_up_and_drops_nothing(services: Settings) -> None:
    """The broker is away: the queue takes what it may, the sender waits until it is back; patience ends in an error."""
    topic, sent = f"fast-{uuid.uuid4().hex}", [str(number).encode() for number in range(QUEUE_MESSAGES_MAX + 20_000)]
    admin = AdminClient({"bootstrap.servers": services.kafka})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=30)
    wait_until(lambda: topic in admin.list_topics(timeout=10).topics, what="the topic is known")
    hasty = Topics(services.kafka, topics=(topic,), stopping=threading.Event(), patience_seconds=2)
    patient = Topics(services.kafka, topics=(topic,), stopping=threading.Event())
    with ThreadPoolExecutor(max_workers=1) as sender:
        local_stack.hold(services, "kafka")
        try:
            sending = sender.submit(lambda: all(patient.send_to(topic, b"k", value) for value in sent))
            wait_until(lambda: patient.sent >= QUEUE_MESSAGES_MAX, what="a full queue")
            hasty.send_to(topic, b"k", b"in vain")
            with pytest.raises(StackError, match="a message was not delivered"):
                hasty.flush()  # two seconds, in which the other sender waits
            waiting = patient.sent, sending.done()
        finally:
            local_stack.up(services, parts=("kafka",), seconds_max=START_SECONDS_MAX)
        went_on = sending.result(timeout=60)
    patient.flush()

    assert waiting == (QUEUE_MESSAGES_MAX, False)
    assert went_on
    assert values_in(services, topic) == sent


def values_in(settings: Settings, topic: str) -> list[bytes | None]:
    """What a topic of one partition holds, in its order."""
    reader = Consumer({"bootstrap.servers": settings.kafka, "group.id": "test", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := reader.poll(30)) is not None and message.error() is None:
        values.append(message.value())
    reader.close()
    return values
