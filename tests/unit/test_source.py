"""Where reading goes on: by the ledger and what the broker has."""

from deltaworks.engine.broker import Edge
from deltaworks.engine.entry import Position
from deltaworks.engine.source import start_from

TOPIC = "events"


def test_a_partition_begins_where_its_reading_began() -> None:
    """One that came while the driver ran was read from its first record on, one that is new now from what is there."""
    position = Position(offsets={TOPIC: {"0": 50, "1": 20}}, first={TOPIC: {"0": 10}}, rows={TOPIC: {"0": 40, "1": 20}})

    found = start_from(position, {TOPIC: {str(n): Edge(low=4, high=90) for n in range(3)}})

    assert found.offsets == {TOPIC: {"0": 50, "1": 20, "2": 4}}
    assert found.first == {TOPIC: {"0": 10, "2": 4}}
    assert not found.lost
