"""Gaps in what bronze has read, and what a real broker says of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deltaworks.engine.broker import Broker, Edge
from deltaworks.engine.gaps import BrokerWitness, Stretch, explain, rows_of
from deltaworks.engine.source import BRONZE
from deltaworks.errors import NoAnswerError, SourceError
from deltaworks.settings import Settings
from tests.running_stack import wait_until
from tests.stack.conftest import StartParts

COMPACTED_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}


@pytest.fixture
def broker(stack: StartParts) -> Settings:
    """Give the settings of a stack whose broker runs."""
    return stack(parts=("kafka",))


@pytest.fixture
def witness(broker: Settings) -> Iterator[BrokerWitness]:
    """Give one who can ask the broker."""
    with BrokerWitness(bootstrap=broker.kafka) as witness:
        yield witness


def make(broker: Settings, topic: str, **config: str) -> None:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(timeout=30)


def transactions(broker: Settings, topic: str, *ends: str, rows: int = 3) -> None:
    """Send transactions of some records each, that end in "commit" or "abort"."""
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": f"{topic}-sender"})
    producer.init_transactions(30)
    for end in ends:
        producer.begin_transaction()
        for number in range(rows):
            producer.produce(topic, f"{end} {number}".encode(), key=b"k")
        if end == "commit":
            producer.commit_transaction(30)
        else:
            producer.flush(30)  # else the client drops what it has not sent yet
            producer.abort_transaction(30)


def committed(broker: Settings, topic: str) -> list[int]:
    """Offsets that a reader of committed records gets."""
    reader = Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": "test", "isolation.level": "read_committed",
         "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )  # fmt: skip
    reader.assign([TopicPartition(topic, 0, 0)])
    offsets = []
    while (message := reader.poll(30)) is not None and message.error() is None:
        offsets.append(message.offset())
    reader.close()
    return [offset for offset in offsets if offset is not None]


def bronze(folder: Path, topic: str, offsets: list[int]) -> ds.Dataset:
    """Write a bronze table that has these offsets, in two files; give its rows."""
    for half in (offsets[::2], offsets[1::2]):
        rows = [{"topic": topic, "partition": 0, "offset": offset, "_seq": 1} for offset in half]
        deltalake.write_deltalake(folder, pa.Table.from_pylist(rows, schema=BRONZE), mode="append")
    return rows_of(folder)


def test_markers_and_aborted_records_are_told_apart(broker: Settings, witness: BrokerWitness, tmp_path: Path) -> None:
    """Three committed transactions of three rows, one aborted between them: its rows, and four markers."""
    make(broker, "mixed")
    transactions(broker, "mixed", "commit", "abort", "commit", "commit")
    offsets = committed(broker, "mixed")
    assert len(offsets) == 9

    found = explain(
        witness, bronze(tmp_path, "mixed", offsets), topic="mixed", partition="0", first=0, upto=max(offsets) + 1
    )

    assert found.counts == {"marker": 3, "aborted": 3}  # the last transaction's marker is beyond what was read
    assert [(gap.kind, gap.first, gap.upto) for gap in found.listed] == [("aborted", 4, 7)]


def test_committed_record_that_bronze_lacks_is_missing(
    broker: Settings, witness: BrokerWitness, tmp_path: Path
) -> None:
    """A row that a reader of committed records gets, and bronze does not have, is never taken for an aborted one."""
    make(broker, "holed")
    transactions(broker, "holed", "commit", "abort", "commit")
    offsets = committed(broker, "holed")

    found = explain(
        witness, bronze(tmp_path, "holed", offsets[:2] + offsets[3:]), topic="holed", partition="0", first=0,
        upto=max(offsets) + 1,
    )  # fmt: skip

    assert found.counts == {"marker": 2, "aborted": 3, "missing": 1}
    assert ("missing", 2, 3) in [(gap.kind, gap.first, gap.upto) for gap in found.listed]


def test_compacted_records_are_told_from_lost_ones(broker: Settings, witness: BrokerWitness, tmp_path: Path) -> None:
    """What compaction took away before it was read is no loss."""
    make(broker, "squeezed", **COMPACTED_SOON)
    producer = Producer({"bootstrap.servers": broker.kafka})
    sent = 0

    def compacted() -> bool:
        nonlocal sent  # a segment is closed, and cleaned, only when a later record comes
        producer.produce("squeezed", b"v", key=b"same")
        producer.flush(30)
        sent += 1
        return len(committed(broker, "squeezed")) < sent

    wait_until(compacted, what="compaction", seconds_max=120)
    offsets = committed(broker, "squeezed")
    upto = max(offsets) + 1

    found = explain(witness, bronze(tmp_path, "squeezed", offsets), topic="squeezed", partition="0", first=0, upto=upto)

    assert found.counts == {"compacted": upto - len(offsets)}


def test_what_retention_took_is_gone(broker: Settings, witness: BrokerWitness, tmp_path: Path) -> None:
    """Nobody can say any more what was below the first offset that the broker has."""
    make(broker, "cut")
    transactions(broker, "cut", "commit", "commit", rows=2)
    offsets = committed(broker, "cut")
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    place = TopicPartition("cut", 0, 4)
    admin.delete_records([place])[place].result(timeout=30)

    found = explain(witness, bronze(tmp_path, "cut", offsets[1:]), topic="cut", partition="0", first=0, upto=5)

    assert found.counts == {"gone": 2}
    assert [(gap.first, gap.upto) for gap in found.listed] == [(0, 1), (2, 3)]


def test_many_gaps_are_asked_in_few_reads(broker: Settings, witness: BrokerWitness, tmp_path: Path) -> None:
    """A marker after each record, and then none for long: all are explained, whether read over or jumped to."""
    make(broker, "dense")
    transactions(broker, "dense", *["commit"] * 60, rows=1)
    transactions(broker, "dense", *["commit"] * 4, rows=1500)
    offsets = committed(broker, "dense")
    rows = bronze(tmp_path, "dense", offsets)

    found = explain(witness, rows, topic="dense", partition="0", first=0, upto=max(offsets) + 1)

    assert found == Stretch(topic="dense", partition="0", first=0, upto=max(offsets) + 1, counts={"marker": 63})


def test_records_of_several_places_are_read_at_once(broker: Settings) -> None:
    """Committed ones only, to where a span ends or the topic does; none of a span whose begin is gone."""
    for topic in ("told", "untold"):
        make(broker, topic)
        transactions(broker, topic, "commit", "abort", "commit")
    asked = Broker(bootstrap=broker.kafka, group="test")

    make(broker, "trimmed")
    transactions(broker, "trimmed", "commit")
    place = TopicPartition("trimmed", 0, 2)
    admin = AdminClient({"bootstrap.servers": broker.kafka})  # kept: an answer never comes to a client that is gone
    admin.delete_records([place])[place].result(timeout=30)

    try:
        found = asked.records([("told", "0", 2, 9), ("untold", "0", 0, 10**6), ("trimmed", "0", 0, 3)])
        reader = {topic: {"0": 11} for topic in ("told", "untold")}
        reachable = asked.reachable(asked.edges(reader), reader)
    finally:
        asked.close()

    told = [record for record in found if record.topic == "told"]
    assert [record.offset for record in told] == [2, 8]
    assert [record.value for record in told] == [b"commit 2", b"commit 0"]
    assert all(record.key == b"k" and record.partition == "0" and record.time > 0 for record in told)
    assert [record.offset for record in found if record.topic != "told"] == committed(broker, "untold")
    # and who has asked for records is told as before that behind them comes a marker only
    assert reachable == {"told": {"0": Edge(0, 11)}, "untold": {"0": Edge(0, 11)}}


def test_tails_without_records_are_found_all_at_once(broker: Settings) -> None:
    """However many topics are quiet; what waits behind another one's marker still waits."""
    quiet, offsets = [f"quiet-{number}" for number in range(12)], dict[str, dict[str, int]]()
    for topic in (*quiet, "waits"):
        make(broker, topic)
        transactions(broker, topic, *(["commit", "abort"] if topic.endswith(("1", "5")) else ["commit"]), rows=1)
        offsets[topic] = {"0": 1}
    transactions(broker, "waits", *["commit"] * 50, rows=2)
    asked = Broker(bootstrap=broker.kafka, group="test")

    consumer: Any = Counting(asked._consumer)
    asked._consumer = consumer

    try:
        found = asked.reachable(asked.edges(offsets), offsets)
        again = asked.reachable(asked.edges(offsets), offsets)
    finally:
        asked.close()

    ends = {topic: parts["0"].high for topic, parts in found.items()}
    assert ends == dict.fromkeys(quiet, 1) | {"waits": 152}
    assert again == found
    assert consumer.assigned == 2


class Counting:
    """A consumer that counts how often it is given partitions: each time costs a wait of the broker's."""

    def __init__(self, consumer: Consumer) -> None:
        """Hand all on to this one."""
        self._consumer, self.assigned = consumer, 0

    def __getattr__(self, name: str) -> Any:
        """What it does not do itself."""
        return getattr(self._consumer, name)

    def assign(self, places: list[TopicPartition]) -> None:
        """Count it."""
        self.assigned += 1
        self._consumer.assign(places)


def test_a_tail_that_nobody_answers_for_is_no_tail_of_records() -> None:
    """Nor one of markers."""
    nobody = Broker(bootstrap="127.0.0.1:9", group="test", timeout_seconds=1)

    try:
        with pytest.raises(NoAnswerError, match="does not answer"):
            nobody.reachable({"away": {"0": Edge(0, 5)}}, {"away": {"0": 4}})
        assert nobody.reachable({"away": {"0": Edge(0, 5)}}, {"away": {"0": 5}}) == {"away": {"0": Edge(0, 5)}}
    finally:
        nobody.close()


def test_broker_that_is_away_is_no_answer(tmp_path: Path) -> None:
    """An error, and no gap that is explained by silence."""
    rows = bronze(tmp_path, "away", [0, 2])
    with (
        BrokerWitness(bootstrap="127.0.0.1:9", timeout_seconds=1) as nobody,
        pytest.raises(SourceError, match="topic away"),
    ):
        explain(nobody, rows, topic="away", partition="0", first=0, upto=3)
