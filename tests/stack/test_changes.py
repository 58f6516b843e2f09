"""A small run of the random workload through Debezium; `python -m tests.chaos.changes` runs a large one."""

from tests.chance import seeded
from tests.chaos.changes import run, source_and_broker


def test_lake_is_what_the_source_is_after_random_changes_and_kills() -> None:
    """Keys moved, swapped, truncated and fought over; Connect killed in snapshot and stream, the driver in its rows."""
    with source_and_broker() as settings:
        found = run(settings, chance=seeded(), transactions=120, before=4_000, pause=0.6)

    assert not found.findings, found.findings
    assert {"r", "c", "u", "d", "tombstone"} <= found.events.keys()
    assert found.events["moved"] > 0
    assert found.events["unsent"] > 0
