"""A few drawn tables through Debezium; `python -m tests.shapes` draws forty."""

from tests.chance import seeded
from tests.chaos.changes import source_and_broker
from tests.shapes.drawn import drawn
from tests.shapes.shape import ALL_KEYED, shapes
from tests.shapes.worked import work


def test_lake_is_what_the_source_is_whatever_its_tables_are() -> None:
    """One table of each way in which records are keyed; their rows move, and Connect is killed twice."""
    chance = seeded()
    made = shapes(chance, len(ALL_KEYED))

    with source_and_broker(drawn(made)) as settings:
        found = work(settings, made, chance=chance, transactions=60, pause=0.3)

    assert not found
