"""The table of `source_table`, with copies beside the lake, and its owner in random batches."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from deltaworks.engine import maintenance
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.outlets.feed import Feed
from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.flows import BY_ARROW, Log
from tests.source_table import SourceTable, lived, people

NAME = "silver.people"
_PUBLISHES = {"members.changelog": "compact", "members.new": "delete"}


def copied(folder: Path, words: str) -> Settings:
    """The project `people`, whose table has these words too."""
    settings = people(folder)
    declaration = settings.project / "tables/silver/people/table.py"
    text = declaration.read_text().replace('    owner="tests",', f'    owner="tests",\n    {words}')
    imported = "import Column, Table, changelog, debezium, events, latest, postgres"
    declaration.write_text(text.replace("import Column, Table, debezium, latest", imported))
    topics = settings.project / "topics.toml"
    added = "".join(
        f'["{topic}"]\npartitions = 3\nkey = "id"\ncleanup = "{cleanup}"\n\n' for topic, cleanup in _PUBLISHES.items()
    )
    topics.write_text(topics.read_text() + added)
    return Settings.load(settings.project, environment={}, data=settings.data)


def batches(owner: ArrowOwner, chance: Random, changes: int) -> Iterator[SourceTable]:
    """Let the owner take a table's life in batches, with compactions and restarts between; gives it after each."""
    source, log = lived(chance, changes, keys=6), Log()
    left = list(source.log)
    while left:
        size = chance.randrange(1, 12)
        log.send(left[:size])
        del left[:size]
        owner.take(log.batch())
        roll = chance.random()
        if roll < 0.2:
            compact(owner)
        elif roll < 0.3:
            owner.start()
        yield source


def compact(owner: ArrowOwner) -> None:
    """Put the table's files together."""
    maintenance.compact(owned(owner), command=1, committer=BY_ARROW)


def owned(owner: ArrowOwner) -> OwnedTable:
    """The table's handle."""
    return owner.flow.inputs[NAME].table


def feed(owner: ArrowOwner, *, bytes_max: int = 2**26) -> Feed:
    """Its feed, as the driver opens it."""
    return Feed(owner.catalog[NAME], owned(owner).path, bytes_max=bytes_max)


def rows(owner: ArrowOwner) -> list[dict[str, Any]]:
    """What the table holds."""
    return owner.rows(NAME)
