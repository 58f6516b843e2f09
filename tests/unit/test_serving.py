"""A table's copy in a real Postgres is, after each push, exactly the version that it says."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from psycopg.rows import dict_row

from deltaworks import catalog
from deltaworks.engine.outlets.serving import Copy, Serving
from deltaworks.errors import OutletError
from tests.arrow_flows import ArrowOwner
from tests.chance import seeded
from tests.copied_table import NAME, batches, compact, copied, feed, owned, rows
from tests.flows import Log
from tests.scratch_postgres import ScratchPostgres
from tests.source_table import SourceTable

SEARCHED = 'serves=postgres(search=("city", "bio")),'


@pytest.fixture
def serving(postgres: ScratchPostgres, request: pytest.FixtureRequest) -> str:
    """Address of an empty database whose server knows the role of readers."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        if connection.execute("select from pg_roles where rolname = 'reader'").fetchone() is None:
            connection.execute("create role reader")
    return postgres.database(f"serving_{abs(hash(request.node.nodeid))}")


def asked(dsn: str, question: str, *values: Any) -> list[dict[str, Any]]:
    """The rows of an answer."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        return connection.execute(question, values).fetchall()


def copy_of(dsn: str) -> tuple[int, list[dict[str, Any]]]:
    """The version that the copy says it is, and its rows, of one moment."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        version = connection.execute("select version from deltaworks.served").fetchone()
        found = connection.execute("select id, city, bio, cv from silver.people").fetchall()
    assert version is not None
    return version["version"], sorted(found, key=str)


def held(owner: ArrowOwner, version: int) -> list[dict[str, Any]]:
    """What the table held in a version."""
    found = DeltaTable(str(owned(owner).path), version=version).to_pyarrow_table(columns=["id", "city", "bio", "cv"])
    return sorted(found.to_pylist(), key=str)


def test_copy_is_the_version_that_it_says_after_each_push(serving: str, tmp_path: Path) -> None:
    """Inserts, updates, deletes, truncations, other keys, compaction, restarts of the owner; two copyists in turn."""
    chance = seeded()
    owner = ArrowOwner(copied(tmp_path, SEARCHED), "tiny")
    copyists = [Serving(owner.catalog[NAME], feed(owner), dsn=serving) for _ in range(2)]
    versions = set()
    for _ in batches(owner, chance, 300):
        if chance.random() < 0.6:
            copyist = chance.choice(copyists)
            newest = feed(owner).newest()
            assert newest is not None
            copyist.feed.newest()
            copyist.push(newest)
            version, found = copy_of(serving)
            assert version == newest
            assert found == held(owner, version)
            versions.add(version)
    assert len(versions) > 10


def test_changes_are_told_and_not_the_whole_table_again(serving: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Once the copy is made, only changes travel; where they are too many, the whole table does."""
    owner, log, source = ArrowOwner(copied(tmp_path, SEARCHED), "tiny"), Log(), SourceTable()
    whole: list[str] = []
    fill = Copy.fill

    def filled(*given: Any) -> int:
        whole.append("whole")
        return fill(*given)

    monkeypatch.setattr(Copy, "fill", filled)
    copyist = Serving(owner.catalog[NAME], feed(owner), dsn=serving)

    for city in ("Graz", "Linz", "Wien"):
        source.insert(len(source.rows), city=city, bio="b")
        log.send(source.log[-1:])
        owner.take(log.batch())
        newest = copyist.feed.newest()
        copyist.push(newest or 0)
    compact(owner)
    copyist.push(copyist.feed.newest() or 0)
    assert whole == ["whole"]

    small = Serving(owner.catalog[NAME], feed(owner, bytes_max=10), dsn=serving)
    source.update(1, city="Enns")
    log.send(source.log[-1:])
    owner.take(log.batch())
    small.push(small.feed.newest() or 0)

    assert whole == ["whole", "whole"]
    assert copy_of(serving)[1] == rows(owner)


def test_who_comes_late_sets_nothing_back(serving: str, tmp_path: Path) -> None:
    """A driver slept between its look at the table and its push; its successor has gone further meanwhile."""
    owner, log, source = ArrowOwner(copied(tmp_path, SEARCHED), "tiny"), Log(), SourceTable()
    source.insert(1, city="Graz")
    log.send(source.log)
    owner.take(log.batch())
    asleep, successor = (Serving(owner.catalog[NAME], feed(owner), dsn=serving) for _ in range(2))
    seen = asleep.feed.newest() or 0
    source.insert(2, city="Linz")
    log.send(source.log[1:])
    owner.take(log.batch())
    newest = successor.feed.newest() or 0
    successor.push(newest)

    asleep.push(seen)

    assert asleep.version == newest > seen
    assert copy_of(serving) == (newest, rows(owner))


def test_words_are_found_and_ranked(serving: str, tmp_path: Path) -> None:
    """The first search column weighs more; characters that Postgres has no text for do not stop the copy."""
    owner, log, source = ArrowOwner(copied(tmp_path, SEARCHED), "tiny"), Log(), SourceTable()
    source.insert(1, city="Steyr", bio="was in Linz once")
    source.insert(2, city="Linz", bio="a\x00b")
    source.insert(3, city="Wels", bio=None)
    log.send(source.log)
    owner.take(log.batch())
    copyist = Serving(owner.catalog[NAME], feed(owner), dsn=serving)
    copyist.push(copyist.feed.newest() or 0)

    found = asked(
        serving,
        "select id, bio from silver.people, websearch_to_tsquery('simple', %s) as query"
        " where _words @@ query order by ts_rank(_words, query) desc",
        "linz",
    )
    assert [row["id"] for row in found] == [2, 1]
    assert found[0]["bio"] == "a\ufffdb"


def test_what_fails_changes_nothing_and_is_tried_again(serving: str, tmp_path: Path) -> None:
    """The server ends the connection amid a push: rows and version stay as they were, the next push does all."""
    owner, log, source = ArrowOwner(copied(tmp_path, SEARCHED), "tiny"), Log(), SourceTable()
    source.insert(1, city="Graz")
    log.send(source.log)
    owner.take(log.batch())
    copyist = Serving(owner.catalog[NAME], feed(owner), dsn=serving)
    copyist.push(copyist.feed.newest() or 0)
    before = copy_of(serving)
    source.insert(2, city="Wels")
    log.send(source.log[-1:])
    owner.take(log.batch())
    asked(serving, "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'deltaworks %%'")

    with pytest.raises(OutletError, match=r"silver\.people in Postgres"):
        copyist.push(copyist.feed.newest() or 0)
    assert copy_of(serving) == before

    copyist.push(copyist.feed.newest() or 0)
    assert copy_of(serving)[1] == rows(owner)


def test_a_copy_of_another_shape_is_made_anew(serving: str, tmp_path: Path) -> None:
    """Declared with other columns or other words to search, it is made anew at the first push."""
    owner, log, source = ArrowOwner(copied(tmp_path / "one", "serves=postgres(),"), "tiny"), Log(), SourceTable()
    source.insert(1, city="Graz")
    log.send(source.log)
    owner.take(log.batch())
    first = Serving(owner.catalog[NAME], feed(owner), dsn=serving)
    first.push(first.feed.newest() or 0)
    other = ArrowOwner(copied(tmp_path / "two", SEARCHED), "tiny")
    again = Serving(other.catalog[NAME], feed(owner), dsn=serving)

    again.push(again.feed.newest() or 0)

    assert [row["_words"] for row in asked(serving, "select _words from silver.people")] == ["'graz':1A"]


def test_changes_are_kept_from_when_somebody_follows_them(serving: str, tmp_path: Path) -> None:
    """A table that nobody followed has no change feed; when it gets a copy its owner begins one."""
    owner = ArrowOwner(copied(tmp_path, ""), "tiny")
    log, source = Log(), SourceTable()
    source.insert(1, city="Graz")
    log.send(source.log)
    owner.take(log.batch())
    declaration = owner.settings.project / "tables/silver/people/table.py"
    declaration.write_text(declaration.read_text().replace('owner="tests",', f'owner="tests", {SEARCHED}'))
    owner.catalog = catalog.load(owner.settings.project)
    owner.start()
    copyist = Serving(owner.catalog[NAME], feed(owner), dsn=serving)
    copyist.push(copyist.feed.newest() or 0)
    before = copyist.feed.newest() or 0
    source.insert(2, city="Wels")
    source.delete(1)
    log.send(source.log[1:])
    owner.take(log.batch())

    newest = copyist.feed.newest() or 0
    changes = copyist.feed.changes(before, newest)
    copyist.push(newest)

    assert changes is not None
    assert {change.key: change.row is not None for change in changes} == {(1,): False, (2,): True}
    assert copy_of(serving)[1] == rows(owner)
