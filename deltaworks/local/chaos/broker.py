"""Faults of topics, and of those who send to them."""

import json
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from deltaworks import catalog, processes
from deltaworks.catalog import Declared
from deltaworks.errors import StackError
from deltaworks.local import kafka
from deltaworks.local.chaos.fault import Lost, Scene
from deltaworks.patience import patiently
from deltaworks.words.keeping import Append
from deltaworks.words.reading import Debezium, Json

_SECONDS = 30.0
_COPIED = 200
AHEAD = 5
_FAR = "2099-01-01T00:00:00Z"
_FAR_SECONDS = 4_070_908_800
_WIRES = {"micros": 1_000_000, "millis": 1_000, "seconds": 1}


def pass_retention(scene: Scene) -> Lost:
    """While the app is away, records come and the broker deletes them unread."""
    before = _ends(scene)
    with _app_away(scene):
        scene.until(lambda: any(end > before[p] for p, end in _ends(scene).items()), "new records in the topic")
        read = scene.read_up_to(scene.topic)
        ends = _ends(scene)
        lost = sum(max(0, end - read.get(partition, end)) for partition, end in ends.items())
        admin = kafka.admin_client(scene.settings)  # kept: an answer never comes to a client that is gone
        places = [TopicPartition(scene.topic, partition, end) for partition, end in ends.items()]
        for answer in admin.delete_records(places).values():
            answer.result(timeout=_SECONDS)
    if not lost:
        raise StackError(f"topic {scene.topic}", "everything had been read: nothing was lost", "Send it something")
    scene.say(f"{lost} records of {scene.topic} were deleted unread; bin/deltaworks ledger shows them as gone")
    return {scene.topic: lost}


def recreate(scene: Scene) -> Lost:
    """Delete the topic and make it anew; the app must refuse it; then move what was made of the old one."""
    admin, partitions = kafka.admin_client(scene.settings), len(_ends(scene))
    with _app_away(scene):
        admin.delete_topics([scene.topic])[scene.topic].result(timeout=_SECONDS)
        scene.until(lambda: scene.topic not in admin.list_topics(timeout=_SECONDS).topics, "the topic is gone")
        anew = NewTopic(scene.topic, partitions, 1, config=kafka.topic_config(scene.settings.topics[scene.topic]))
        admin.create_topics([anew])[scene.topic].result(timeout=_SECONDS)
    scene.say(f"topic {scene.topic} was deleted and made anew")
    scene.until(lambda: "it was made anew" in _last_error(scene), "the app says that the topic was made anew")
    scene.say(f"the app says: {_last_error(scene)}")
    with _app_away(scene):
        aside = _set_aside(scene)
    scene.say(f"the tables made from it were set aside in {aside}")
    return {scene.topic: 0}


def add_partitions(scene: Scene) -> Lost:
    """Add a partition while the topic is read, and declare it, as the doctor says."""
    count = len(_ends(scene)) + 1
    admin = kafka.admin_client(scene.settings)
    admin.create_partitions([NewPartitions(scene.topic, count)])[scene.topic].result(timeout=_SECONDS)
    scene.say(f"{scene.topic} has {count} partitions now")
    _declare(scene, count)
    return {}


def send_copies(scene: Scene) -> Lost:
    """Send the last records of the topic again, one to three times, in any order."""
    records = _last_records(scene, _COPIED)
    if not records:
        raise StackError(f"topic {scene.topic}", "is empty", "Send it something")
    again = [record for record in records for _ in range(scene.chance.randint(1, 3))]
    scene.chance.shuffle(again)
    producer = Producer({"bootstrap.servers": scene.settings.kafka, "acks": "all"})
    for record in again:
        producer.produce(scene.topic, record.value(), record.key())
        producer.poll(0)
    _flushed(producer)
    scene.say(f"{len(records)} records of {scene.topic} were sent {len(again)} times more, in any order")
    return {}


def send_from_2099(scene: Scene) -> Lost:
    """One sender's clock is in 2099 for a few events."""
    table = _with_event_time(scene)
    assert table is not None, "looked for in no_event_time"
    found = [one for one in map(_document, _last_records(scene, _COPIED)) if table.table.event_time in one]
    if not found:
        raise StackError(f"topic {scene.topic}", "has no event with a time yet", "Send it something")
    producer = Producer({"bootstrap.servers": scene.settings.kafka, "acks": "all"})
    for _ in range(AHEAD):
        event = scene.chance.choice(found) | _ahead(table)
        producer.produce(scene.topic, json.dumps(event).encode())
    _flushed(producer)
    scene.say(f"{AHEAD} events of 2099 were sent to {scene.topic}: {table.name} must set them aside")
    return {}


def changes_of_a_database(scene: Scene) -> str:
    """Why a topic is left as it is: a connector writes into it, and changes keep their order in one partition only."""
    tables = catalog.load(scene.settings.project).tables.values()
    bronze = {one.name for one in tables if scene.topic in one.topics}
    if any(isinstance(one.table.reads, Debezium) and one.table.reads.bronze in bronze for one in tables) and not any(
        isinstance(one.table.reads, Json) and one.table.reads.topic == scene.topic for one in tables
    ):
        return f"{scene.topic} has the changes of a database, in their order"
    return ""


def no_event_time(scene: Scene) -> str:
    """Why nobody can be ahead of time here."""
    return "" if _with_event_time(scene) else f"no table made from {scene.topic} has an event time"


def _with_event_time(scene: Scene) -> Declared | None:
    for declared in catalog.load(scene.settings.project).tables.values():
        reads = declared.table.reads
        if isinstance(reads, Json) and reads.topic == scene.topic and declared.table.event_time:
            return declared
    return None


def _ahead(table: Declared) -> dict[str, object]:
    """The event time in 2099, as it is written; and a new value of what copies are known by."""
    name, kept = table.table.event_time, table.table.kept_as
    assert name is not None, "looked for by it"
    column = next(one for one in table.columns if one.name == name)
    keys = kept.dedupe_by if isinstance(kept, Append) else ()
    texts = {one.name for one in table.columns if one.type == "string"}
    time_written = _FAR if column.wire is None else _FAR_SECONDS * _WIRES[column.wire]
    return {key: f"chaos-{uuid.uuid4()}" for key in keys if key in texts} | {name: time_written}


def _document(record: Message) -> dict[str, object]:
    try:
        found = json.loads(record.value() or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _app_away(scene: Scene) -> Iterator[None]:
    """Stop the app in good order, and want it running again afterwards."""
    lease = scene.store.lease(scene.app)
    scene.store.desire(scene.app, "stopped", by="chaos", reason="a fault")
    try:
        if lease is not None:
            scene.until(lambda: not processes.lives(lease.pid, lease.process_started), "the driver's end")
        yield
    finally:
        scene.store.desire(scene.app, "running", by="chaos", reason="a fault")


def _last_error(scene: Scene) -> str:
    beat = scene.store.heartbeat(scene.app)
    return str(beat.progress.get("error") or "") if beat is not None else ""


def _set_aside(scene: Scene) -> Path:
    """Move the folders of the topic's tables out of the lake."""
    found, settings = catalog.load(scene.settings.project), scene.settings
    folder = settings.data / f"aside-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    for name in found.tables:
        if scene.topic not in found.topics_below(name):
            continue
        layer, table = name.split(".")
        for path in (settings.lake / layer / table, *(settings.lake / layer).glob(f"{table}__*")):
            if path.is_dir():
                (folder / layer).mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.move(path, folder / layer / path.name)
    return folder


def _declare(scene: Scene, count: int) -> None:
    """Write the number of partitions into topics.toml; where it does not stand plainly, a person has to."""
    path = scene.settings.project / "topics.toml"
    name = rf'(?:{re.escape(scene.topic)}|"{re.escape(scene.topic)}")'
    declared = re.compile(rf"(^\[{name}\]\n(?:[^\[\n].*\n|\n)*?partitions = )\d+", re.MULTILINE)
    text, found = declared.subn(rf"\g<1>{count}", path.read_text(), count=1)
    if not found:
        raise StackError(str(path), f"{scene.topic} is not declared plainly", f"Declare partitions = {count}")
    path.write_text(text)
    scene.say(f"topics.toml declares {count} now")


def _consumer(scene: Scene) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": scene.settings.kafka, "group.id": "deltaworks.chaos", "enable.auto.commit": False,
            "isolation.level": "read_committed", "log_level": 2,
        }
    )  # fmt: skip


def _ends(scene: Scene) -> dict[int, int]:
    consumer = _consumer(scene)
    try:
        known = patiently(lambda: consumer.list_topics(scene.topic, timeout=_SECONDS), seconds_max=_SECONDS, away=True)
        return {p: _edge(consumer, TopicPartition(scene.topic, p))[1] for p in known.topics[scene.topic].partitions}
    finally:
        consumer.close()


def _edge(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Low and high offset; another fault may have had the broker away until now."""
    low, high = patiently(lambda: consumer.get_watermark_offsets(place, _SECONDS), seconds_max=_SECONDS, away=True)
    return int(low), int(high)


def _last_records(scene: Scene, count: int) -> list[Message]:
    """The newest records of the topic, so many of each partition at most."""
    consumer, found = _consumer(scene), list[Message]()
    try:
        for partition in _ends(scene):
            low, high = _edge(consumer, TopicPartition(scene.topic, partition))
            consumer.assign([TopicPartition(scene.topic, partition, max(low, high - count))])
            while (record := consumer.poll(2.0)) is not None and record.error() is None:
                found.append(record)
                if (record.offset() or 0) >= high - 1:
                    break
    finally:
        consumer.close()
    return found


def _flushed(producer: Producer) -> None:
    if producer.flush(_SECONDS):
        raise StackError("chaos", "the broker did not take all records", 'Run "deltaworks status"')
