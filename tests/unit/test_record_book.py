"""`ops.ledger`: the copy of every entry, as recorded while running and as made anew from the commits."""

from pathlib import Path
from typing import Any

import pytest

from deltaworks.analyst import connect
from deltaworks.engine.maintenance import FILES_MIN
from deltaworks.engine.record_book import COMMITS_MAX
from deltaworks.settings import Settings
from shop.part import FIRST, part_of_shop
from tests.arrow_flow import ArrowOwner
from tests.shop_rows import broken, view


@pytest.fixture
def web(tmp_path: Path) -> ArrowOwner:
    """Give the owner of the app web over an empty lake."""
    return ArrowOwner(Settings.load(part_of_shop(tmp_path / "project", *FIRST), environment={}, data=tmp_path), "web")


def work(owner: ArrowOwner, *numbers: int) -> None:
    """One ingest batch with these views and a malformed one, into bronze and silver."""
    owner.log.send([*(view(number) for number in numbers), broken(b"{")])
    owner.bronze()
    owner.silver()


def copied(owner: ArrowOwner) -> list[dict[str, Any]]:
    """Every row of the copy, in order."""
    rows: list[dict[str, Any]] = owner.flow.book.table.read().to_pylist()
    return sorted(rows, key=lambda row: (row["table_name"], row["version"]))


def test_copy_has_every_commit_once(web: ArrowOwner) -> None:
    """Recorded in parts and over a restart, each version of each table stands there once, with its rows."""
    work(web, 1, 2)
    web.flow.settle()
    work(web, 3)
    web.start()
    work(web, 4)
    web.flow.settle()

    rows = copied(web)

    versions = {table.name: table.version for table in web.flow.tables() if table is not web.flow.book.table}
    assert len(versions) >= 5
    assert [(row["table_name"], row["version"]) for row in rows] == [
        (name, version) for name in sorted(versions) for version in range(versions[name] + 1)
    ]
    silver = [row for row in rows if row["table_name"] == "silver.page_views" and row["kind"] == "batch"]
    assert [row["rows_added"] for row in silver] == [2, 1, 1]
    assert all(row["committed_at"] for row in rows)


def test_made_anew_it_is_the_same(web: ArrowOwner) -> None:
    """From the commits alone comes what was recorded on the way, and recording goes on from there."""
    work(web, 1, 2)
    web.flow.settle()
    work(web, 3)
    web.flow.settle()
    recorded = copied(web)

    count = web.flow.rebuild_book()

    assert count == len(recorded) > 6
    assert copied(web) == recorded
    web.flow.settle()
    assert copied(web) == recorded
    work(web, 4)
    web.flow.settle()
    assert len(copied(web)) == len(recorded) + 3


def test_what_the_log_no_longer_tells_stays(web: ArrowOwner) -> None:
    """A copy that is made anew keeps the entries that only it still has."""
    work(web, 1)
    work(web, 2)
    web.flow.settle()
    recorded = copied(web)
    silver = web.flow.inputs["silver.page_views"].table
    silver.checkpoint()
    (silver.path / "_delta_log" / f"{0:020d}.json").unlink()

    web.flow.rebuild_book()

    assert copied(web) == recorded


def test_table_made_anew_is_told_from_the_one_before(web: ArrowOwner, tmp_path: Path) -> None:
    """Its versions begin at 0 again: both tables' commits are there, under two ids."""
    work(web, 1)
    web.flow.settle()
    (web.settings.lake / "silver" / "page_views").rename(tmp_path / "away")
    (web.settings.lake / "silver" / "page_views__quarantine").rename(tmp_path / "away too")
    web.start()
    web.silver()
    web.flow.settle()

    silver = [row for row in copied(web) if row["table_name"] == "silver.page_views"]

    assert [row["version"] for row in silver] == [0, 0, 1, 1]
    assert len({row["table_id"] for row in silver}) == 2


def test_long_backlog_is_copied_in_parts(web: ArrowOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app's lock is held meanwhile: no turn copies more than the bound."""
    monkeypatch.setattr("deltaworks.engine.record_book.COMMITS_MAX", 3)
    work(web, 1)
    work(web, 2)

    turns = [web.flow.book.record(web.flow.tables(), web.committer) for _ in range(5)]

    assert COMMITS_MAX >= 1_000
    assert turns == [True, True, True, False, False]
    assert len(copied(web)) == sum(one.version + 1 for one in web.flow.tables() if one is not web.flow.book.table)


def test_analysts_see_the_entries_of_all_apps_as_one_table(web: ArrowOwner) -> None:
    """`ops.ledger` has the counts as columns, whichever app owns the table."""
    work(web, 1, 2)
    web.flow.settle()
    shop = ArrowOwner(web.settings, "shop")
    shop.flow.settle()

    with connect(web.settings.lake) as lake:
        assert "ops.ledger" in lake.tables()
        apps = lake.sql("select distinct app from ops.ledger order by 1").rows
        sums = lake.sql(
            "select sum(read), sum(taken), sum(refused) from ops.ledger where table_name = 'silver.page_views'"
        ).rows
        work(web, 3)
        web.flow.settle()
        later = lake.sql("select sum(read) from ops.ledger where table_name = 'silver.page_views'").rows

    assert apps == [("shop",), ("web",)]
    assert sums == [(3, 2, 1)]
    assert later == [(5,)]


def test_copy_is_compacted_by_itself(web: ArrowOwner) -> None:
    """Its small files become one now and then, and it goes on from there."""
    book = web.flow.book.table
    for number in range(3 * FILES_MIN):
        work(web, number)
        web.flow.settle()
        web.flow.tend()

    assert len(book.files()) <= FILES_MIN + 1
    assert "compact" in {None if one.entry is None else one.entry.kind for one in book.commits_backwards()}
    assert len({(row["table_name"], row["version"]) for row in copied(web)}) == len(copied(web)) > 12


def test_commits_that_nobody_copied_in_time_are_told(web: ArrowOwner, caplog: pytest.LogCaptureFixture) -> None:
    """The owner was away while the log was cleaned up: it says so, and copies the rest."""
    work(web, 1)
    web.flow.settle()
    for number in (2, 3):
        work(web, number)
    silver = web.flow.inputs["silver.page_views"].table
    silver.checkpoint()
    for version in range(3):
        (silver.path / "_delta_log" / f"{version:020d}.json").unlink()

    web.flow.settle()

    versions = [row["version"] for row in copied(web) if row["table_name"] == "silver.page_views"]
    assert versions == [0, 1, 3]
    assert "silver.page_views: the commits 2 to 2 are in no log any more" in caplog.text
