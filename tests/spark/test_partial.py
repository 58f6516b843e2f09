"""Partial changes through the flow: Arrow and Spark fold the same changes to the same table, through restarts."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.settings import Settings
from tests.chance import seeded
from tests.flows import Crash, Log, Owner
from tests.source_table import SourceTable, lived
from tests.tiny_project import Project

CHANGES = '''"""Changes, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="tiny", reads=kafka("shop.changes"), kept_as=raw(), owner="tests")
'''
PEOPLE = '''"""Members with their large values."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="tiny",
    reads=debezium("bronze.changes", table="public.members"),
    kept_as=latest(keys=("id",)),
    columns=(
        Column("id", "bigint", null=False, doc="The key."),
        Column("city", "string", doc="Small."),
        Column("bio", "string", doc="Large."),
        Column("cv", "string", doc="Large."),
    ),
    owner="tests",
)
'''


@pytest.fixture
def people(tmp_path: Path) -> Settings:
    """Give a project with a table over the changes of public.members."""
    project = Project(tmp_path / "project")
    project.delete("tables/gold")
    project.delete("tables/silver")
    project.write("tables/bronze/changes/table.py", CHANGES)
    project.write("tables/silver/people/table.py", PEOPLE)
    return Settings.load(project.folder, environment={}, data=tmp_path / "data")


def there(source: SourceTable) -> list[dict[str, object]]:
    """Give what the source's table says."""
    return sorted(source.rows.values(), key=str)


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_both_ways_fold_alike(spark: SparkSession, people: Settings, path: str) -> None:
    """Shuffled, with copies, over three batches and a restart, then equal to the source, and the books balance."""
    chance = seeded()
    source = lived(chance, 40, keys=4)
    source.insert(9, city="x", bio="b9", cv="v9")
    source.update(9, city="y")
    records = chance.sample(source.log, len(source.log)) + chance.sample(source.log, 5)
    owner, log = Owner(spark, people, "tiny", path=path), Log()

    for start in range(0, len(records), 20):
        log.send(records[start : start + 20])
        owner.take(log.batch())
        if start == 20:
            owner.start()

    assert owner.rows("silver.people") == there(source)
    assert {sheet.verdict for sheet in owner.ledger().sheets()} == {"ok"}


def test_death_between_what_waits_and_the_table(spark: SparkSession, people: Settings) -> None:
    """A row that began to wait too early goes at the restart, and comes again with its batch."""
    source = SourceTable()
    source.insert(1, city="Graz", bio="b", cv="v")
    source.update(1, city="Linz")
    first, second = source.log
    owner, log = Owner(spark, people, "tiny"), Log()
    log.send([second])
    rows = log.batch()
    owner.crash_at = owner.commits + 3  # bronze, the refused change, the row that waits; then the table
    with pytest.raises(Crash):
        owner.take(rows)
    assert owner.flow.sides["silver.people"]["waiting"].rows() == 1

    owner.crash_at = -1
    owner.start()
    waiting = owner.flow.sides["silver.people"]["waiting"].rows()
    owner.catch_up(log)
    log.send([first])
    owner.take(log.batch())

    assert waiting == 0
    assert owner.rows("silver.people") == there(source)
    assert {sheet.verdict for sheet in owner.ledger().sheets()} == {"ok"}
