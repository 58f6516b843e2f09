"""The spare topic beside its bronze table: what the broker still has is there once, byte for byte of its value."""

from collections import Counter
from collections.abc import Iterator, Mapping

import deltalake
from confluent_kafka import Consumer, KafkaException, TopicPartition

from deltaworks.settings import Settings

TOPIC = "spare"
_SECONDS = 30.0


def ends(settings: Settings) -> dict[int, int]:
    """By partition, where its next record goes."""
    consumer = _consumer(settings)
    try:
        partitions = consumer.list_topics(TOPIC, timeout=_SECONDS).topics[TOPIC].partitions
        return {number: _edges(consumer, number)[1] for number in partitions}
    finally:
        consumer.close()


def otherwise(settings: Settings, upto: Mapping[int, int]) -> Iterator[str]:
    """Records below these offsets that bronze lacks, has in another form or more than once; rows are read, no book."""
    path = settings.lake / "bronze" / TOPIC
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table(columns=["partition", "offset", "value"]).to_pylist()
    times = Counter((row["partition"], row["offset"]) for row in rows)
    values = {(row["partition"], row["offset"]): row["value"] for row in rows}
    for place, value in _records(settings, upto):
        if times[place] != 1 or values[place] != value:
            form = "" if values.get(place, value) == value else ", in another form"
            yield f"{TOPIC}/{place[0]}/{place[1]}: {times[place]} times in bronze{form}"


def _records(settings: Settings, upto: Mapping[int, int]) -> Iterator[tuple[tuple[int, int], bytes | None]]:
    consumer = _consumer(settings)
    try:
        for partition, end in upto.items():
            at = _edges(consumer, partition)[0]
            consumer.assign([TopicPartition(TOPIC, partition, at)])
            while at < end:
                record = consumer.poll(_SECONDS)
                if record is None:
                    raise TimeoutError(f"{TOPIC}/{partition}/{at} is not given out")
                if (error := record.error()) is not None:
                    raise KafkaException(error)
                at = (record.offset() or 0) + 1
                if at <= end:
                    yield (partition, at - 1), record.value()
    finally:
        consumer.close()


def _edges(consumer: Consumer, partition: int) -> tuple[int, int]:
    found = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=_SECONDS)
    if found is None:
        raise TimeoutError(f"{TOPIC}/{partition}: no answer about its ends")
    return found


def _consumer(settings: Settings) -> Consumer:
    """One that belongs to nobody's group, and says so where its place is gone; nothing here is a transaction's."""
    return Consumer(
        {
            "bootstrap.servers": settings.kafka, "group.id": "chaos-spare", "enable.auto.commit": False,
            "auto.offset.reset": "error", "log_level": 0,
        }
    )  # fmt: skip
