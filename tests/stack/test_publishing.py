"""A table's topic on the real broker: read committed, each message once, folded it is the table."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from deltaworks.engine.broker import AT_THE_END
from deltaworks.engine.outlets import publishing
from deltaworks.engine.outlets.publishing import Publishing
from deltaworks.engine.outlets.pusher import Outlets
from deltaworks.errors import OutletError, QueryError
from deltaworks.local.kafka import topic_config
from deltaworks.local.stack import state
from deltaworks.served import ask
from deltaworks.settings import ROOT, Settings, TopicSettings
from tests.arrow_flows import ArrowOwner
from tests.chance import seeded
from tests.copied_table import NAME, batches, copied, feed, rows
from tests.flows import Crash, Log
from tests.running_stack import wait_until
from tests.source_table import SourceTable

CHANGELOG = 'publishes=changelog("members.changelog"),'
EVENTS = 'publishes=events("members.new", key=("city",)),'
COMPACTION_SECONDS_MAX = 60
KILLS = 3
BACK_SECONDS_MAX = 90
PUBLISHED_SECONDS_MAX = 90
SECONDS_MAX = 240


@pytest.fixture
def services(stack: Callable[..., Settings]) -> Settings:
    """Give the settings of a running Kafka and serving database."""
    return stack(parts=("kafka", "control"))


@pytest.fixture
def broker(services: Settings) -> Iterator[str]:
    """Address of a broker with both topics, without messages."""
    bootstrap = services.kafka
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = ["members.changelog", "members.new"]
    for future in admin.create_topics(
        [NewTopic(name, num_partitions=3, replication_factor=1) for name in names]
    ).values():
        future.result(30)
    yield bootstrap
    for future in admin.delete_topics(names).values():
        future.result(30)
    forget(bootstrap)


def forget(bootstrap: str) -> None:
    """Have the broker lose how far the table was told."""
    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), f"deltaworks.published.{NAME}"
    for future in admin.delete_topics([topic]).values():
        error = future.exception(30)
        assert error is None or error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, what="the topic is gone")


Told = list[tuple[bytes, dict[str, Any] | None, str]]


def read(bootstrap: str, topic: str) -> Told:
    """Key, row and message id of every committed message, in order per partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "look", "isolation.level": "read_committed",
         "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    consumer.subscribe([topic])
    found: Told = []
    ended: set[int | None] = set()
    while len(ended) < 3:
        message = consumer.poll(30)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == AT_THE_END
            ended.add(message.partition())
            continue
        key, value, identity = message.key(), message.value(), dict(message.headers() or [])["id"]
        assert key is not None
        assert isinstance(identity, bytes)
        found.append((key, None if value is None else json.loads(value), identity.decode()))
    consumer.close()
    return found


def folded(messages: Told) -> list[dict[str, Any]]:
    """The newest row of each key that is not gone."""
    newest = {key: row for key, row, _ in messages}
    return sorted((row for row in newest.values() if row is not None), key=str)


def push(owner: ArrowOwner, bootstrap: str, publisher: Publishing | None = None) -> Publishing:
    """Publish what is new, by a publisher of its own unless there is one."""
    publisher = publisher or Publishing(owner.catalog[NAME], feed(owner), bootstrap=bootstrap)
    newest = publisher.feed.newest()
    assert newest is not None
    publisher.push(newest)
    return publisher


class Dying(Producer):
    """Dies when it commits, before or after, if it is told to."""

    when: str | None = None

    def commit_transaction(self, *given: Any) -> None:
        """As the name says."""
        when, Dying.when = Dying.when, None
        if when == "before":
            raise Crash
        super().commit_transaction(*given)
        if when == "after":
            raise Crash


def test_folded_changelog_is_the_table_whoever_publishes(broker: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Publishers are replaced, and die before and after a transaction ends; no message comes twice."""
    monkeypatch.setattr(publishing, "Producer", Dying)
    monkeypatch.setattr(Publishing, "close", lambda _: None)  # the dead do not clean up
    chance, deaths = seeded(), 0
    owner = ArrowOwner(copied(tmp_path, CHANGELOG), "tiny")
    publisher = push(owner, broker)
    for _ in batches(owner, chance, 200):
        roll = chance.random() if deaths > 1 else 0.1 * deaths + 0.05  # one of each sort at least
        Dying.when = "before" if roll < 0.1 else "after" if roll < 0.2 else None
        try:
            publisher = push(owner, broker, publisher if chance.random() < 0.7 else None)
        except Crash:
            publisher, deaths = push(owner, broker), deaths + 1

    messages = read(broker, "members.changelog")
    assert deaths > 1
    assert folded(messages) == rows(owner)
    ids = [identity for _, _, identity in messages]
    assert len(ids) == len(set(ids)) > 50
    assert all(key == json.dumps({"id": row["id"]}, separators=(",", ":")).encode() for key, row, _ in messages if row)


def test_succeeded_publisher_publishes_nothing_more(broker: str, tmp_path: Path) -> None:
    """A driver sleeps past its lease, its successor publishes; awake again it is refused, and nothing is mixed up."""
    owner, log, source = ArrowOwner(copied(tmp_path, CHANGELOG), "tiny"), Log(), SourceTable()

    def change(city: str) -> None:
        source.insert(1, city=city) if not source.rows else source.update(1, city=city)
        log.send(source.log[-1:])
        owner.take(log.batch())

    change("Graz")
    asleep = push(owner, broker)
    change("Linz")
    push(owner, broker)
    change("Wien")

    with pytest.raises(OutletError, match=r"silver\.people to topic members\.changelog"):
        push(owner, broker, asleep)

    cities = [row["city"] for _, row, _ in read(broker, "members.changelog") if row]
    assert cities == ["Graz", "Linz"]


def test_events_are_told_once_each_as_they_came(broker: str, tmp_path: Path) -> None:
    """Of a table whose rows change each row is told when it is new; told all again, it has the same message id."""
    owner, log, source = ArrowOwner(copied(tmp_path, EVENTS), "tiny"), Log(), SourceTable()
    source.insert(1, city="Graz")
    source.insert(2, city="Linz")
    source.update(1, city="Wien")
    source.delete(2)
    publisher = None
    for record in source.log:
        log.send([record])
        owner.take(log.batch())
        publisher = push(owner, broker, publisher)

    told = read(broker, "members.new")
    assert sorted((row["id"], row["city"]) for _, row, _ in told if row) == [(1, "Graz"), (2, "Linz")]
    asleep = push(owner, broker)
    asleep.push(asleep.version - 2)  # it slept: what it knows is older than what was told
    assert len(read(broker, "members.new")) == 2
    assert {key for key, _, _ in told} == {b'{"city":"Graz"}', b'{"city":"Linz"}'}
    assert publisher is not None
    publisher.close()
    forget(broker)
    push(owner, broker)
    again = read(broker, "members.new")
    assert len(again) == 3  # the row that is left
    assert {identity for _, _, identity in again} == {identity for _, _, identity in told}


def test_position_that_is_forgotten_is_made_good(broker: str, tmp_path: Path) -> None:
    """The broker has forgotten how far the table was told; meanwhile a row went. All is told again, its end too."""
    owner, log, source = ArrowOwner(copied(tmp_path, CHANGELOG), "tiny"), Log(), SourceTable()
    source.insert(1, city="Graz")
    source.insert(2, city="Linz")
    log.send(source.log)
    owner.take(log.batch())
    push(owner, broker).close()
    forget(broker)
    source.delete(1)
    log.send(source.log[2:])
    owner.take(log.batch())

    push(owner, broker)

    messages = read(broker, "members.changelog")
    assert folded(messages) == rows(owner)
    assert [row["id"] for row in folded(messages)] == [2]


def test_broker_that_dies_holds_no_copy_up(
    services: Settings, broker: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Killed again and again while the driver's thread publishes; it goes on, and each message is there once."""
    chance = seeded()
    owner = ArrowOwner(copied(tmp_path, CHANGELOG), "tiny")
    outlets = Outlets([owner.catalog[NAME]], services.changed(data=owner.settings.data), guard=lambda: None)
    request.addfinalizer(outlets.close)  # else its thread would take the topic from the tests that follow
    outlets.start()

    def even() -> bool:
        (line,) = outlets.progress()
        return line["error"] is None and line["version"] == feed(owner).newest()

    taken = batches(owner, chance, 2000)
    for _ in range(KILLS):
        next(taken)
        wait_until(even, what="all is published", seconds_max=PUBLISHED_SECONDS_MAX)
        for _ in range(chance.randrange(5, 20)):
            next(taken)
            time.sleep(chance.uniform(0, 0.15))  # so that a kill meets a push at any of its steps
        dead = state(services).parts["kafka"].pid
        assert dead is not None
        os.kill(dead, signal.SIGKILL)
        next(taken)
        wait_until(partial(ready, services, but=dead), what="Kafka is back", seconds_max=BACK_SECONDS_MAX)
    wait_until(even, what="all is published", seconds_max=PUBLISHED_SECONDS_MAX)
    outlets.close()

    messages = read(broker, "members.changelog")
    assert folded(messages) == rows(owner)
    ids = [identity for _, _, identity in messages]
    assert len(ids) == len(set(ids)) > 20


def ready(settings: Settings, *, but: int) -> bool:
    """Whether the supervisor has brought the broker back."""
    part = state(settings).parts["kafka"]
    return part.state == "ready" and part.pid != but


def test_compaction_leaves_the_newest_row_of_each_key(services: Settings, broker: str, tmp_path: Path) -> None:
    """Users 123, 456 and 789: of all that they were the last is left, and a command makes the table from that alone."""
    owner, log, source = ArrowOwner(copied(tmp_path, CHANGELOG), "tiny"), Log(), SourceTable()
    declared = TopicSettings(key="id", cleanup="compact", compaction_hours_max=0.2 / 3600)
    configure(broker, "members.changelog", topic_config(declared))
    steps: list[tuple[int, str | None]] = [
        (123, "V1"), (456, "Bob"), (123, "V2"), (789, "Carol"), (456, "Bob Updated"), (123, "V3"),
        (5, "Eve"), (5, None),
    ]  # fmt: skip
    publisher = None
    for key, name in steps:
        before = len(source.log)
        if name is None:
            source.delete(key)
        elif key in source.rows:
            source.update(key, city=name)
        else:
            source.insert(key, city=name)
        log.send(source.log[before:])
        owner.take(log.batch())
        publisher = push(owner, broker, publisher)

    def left() -> list[str]:
        # the active segment is never compacted: what comes after the time of a segment rolls it
        roll(broker, "members.changelog")
        messages = read(broker, "members.changelog")
        assert folded(messages) == rows(owner)
        return sorted(row["city"] if row else "(gone)" for _, row, _ in messages)

    wait_until(
        lambda: [city for city in left() if city != "(gone)"] == ["Bob Updated", "Carol", "V3"],
        what="compaction", seconds_max=COMPACTION_SECONDS_MAX,
    )  # fmt: skip
    made = subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", "rebuild", NAME, "--from-changelog"],
        env=services.changed(project=owner.settings.project).inherited(), cwd=ROOT, capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    assert "rebuilt.people: 3 rows, from the topic alone" in made.stdout
    assert sorted(ask(services.serving_dsn("reader"), "select * from rebuilt.people").dicts(), key=str) == rows(owner)
    with pytest.raises(QueryError, match="gives no rows"):
        ask(services.serving_dsn("reader"), "delete from rebuilt.people")


def configure(bootstrap: str, topic: str, values: dict[str, str]) -> None:
    """Set a topic's configuration."""
    setting = AlterConfigOpType.SET
    entries = [ConfigEntry(key, value, incremental_operation=setting) for key, value in values.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def roll(bootstrap: str, topic: str) -> None:
    """Send the end of a row that never was to each partition, after the time of a segment."""
    time.sleep(0.3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(3):
        producer.produce(topic, key=b'{"id":-1}', value=None, headers=[("id", b"roll")], partition=partition)
    assert producer.flush(30) == 0
