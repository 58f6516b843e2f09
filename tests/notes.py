"""Notes of the tiny project: sent to a broker, and asked for in a running stack's lake."""

import json

from confluent_kafka import Producer

from deltaworks.analyst import connect
from deltaworks.settings import Settings
from tests.flows import START

NOTES = "select words, count(*) from silver.notes group by all order by all"


def send(settings: Settings, first: int, count: int, *, words: int) -> None:
    """Send numbered notes."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    at = int(START.timestamp() * 1000)
    for number in range(first, first + count):
        note = {"note_id": f"n{number}", "written_at": at + number, "member_id": 1, "words": words}
        producer.produce("notes", json.dumps(note), key=str(number))
    assert producer.flush(30) == 0


def ask(settings: Settings, query: str) -> list[tuple[object, ...]]:
    """An analyst's question."""
    with connect(settings.lake) as lake:
        return [tuple(row) for row in lake.sql(query).rows]
