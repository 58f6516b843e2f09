"""Which offsets a table contains, and waiting until it contains one."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.analyst import connect
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Entry, Position
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.record_book import RecordBook
from deltaworks.engine.through import Lineage
from deltaworks.errors import LakeError, NotArrivedError
from deltaworks.settings import ROOT, Settings
from tests.arrow_flow import ArrowOwner
from tests.shop_rows import broken, view

GOLD = "gold.page_views_per_minute"


@pytest.fixture
def web(tmp_path: Path) -> ArrowOwner:
    """Give the owner of the app web over an empty lake."""
    return ArrowOwner(Settings.load(ROOT, environment={}, data=tmp_path), "web")


def through(owner: ArrowOwner, table: str, version: int | None = None) -> dict[str, int]:
    """Next offset per partition of page_views."""
    found = Lineage(owner.settings.lake).processed_through(table, version)
    assert found.unknown == ()
    return dict(found.offsets.get("page_views", {}))


def write(lake: Path, name: str, position: Position, *, ingest_seq: int = 1) -> None:
    """Commit an entry with this position; the table has one column and no row."""
    path, schema = lake / name.replace(".", "/"), pa.schema([("n", pa.int64())])
    table = OwnedTable(name=name, path=path, schema=schema, entry=Entry(kind="create", app="a", epoch=1))
    entry = table.entry.follow("batch", position=position, ingest_seq=ingest_seq)
    Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None).mark(table, entry)


def cut_log(owner: ArrowOwner, table: str) -> None:
    """Clean a table's log up, but for the newest version."""
    found = next(one for one in owner.flow.tables() if one.name == table)
    found.checkpoint()
    for version in range(found.version):
        (found.path / "_delta_log" / f"{version:020d}.json").unlink()


def test_each_table_contains_what_has_come_to_it(web: ArrowOwner) -> None:
    """Bronze is ahead, silver has the first batch, gold nothing yet."""
    web.log.send(view(number, user=1) for number in range(3))
    web.bronze()
    web.silver()
    web.log.send([view(3, user=1), view(4, user=2)])
    web.bronze()

    assert through(web, "bronze.web_events") == {"0": 1, "1": 4}
    assert through(web, "silver.page_views") == {"0": 0, "1": 3}
    assert through(web, GOLD) == {}


def test_older_version_contains_less(web: ArrowOwner) -> None:
    """Every version that the log tells can be asked about."""
    versions = []
    for number in range(3):
        web.log.send([view(number, user=1)])
        web.bronze()
        web.silver()
        web.gold(GOLD)
        versions.append(web.flow.inputs[GOLD].table.version)

    assert [through(web, GOLD, version)["1"] for version in versions] == [1, 2, 3]


def test_input_that_changed_nothing_is_contained(web: ArrowOwner) -> None:
    """Gold is made from silver's version 1; silver's next one refused its only row, so gold lacks nothing of it."""
    web.log.send([view(1, user=1)])
    web.bronze()
    web.silver()
    web.gold(GOLD)
    web.log.send([broken(b"{")])
    web.bronze()
    web.silver()

    assert through(web, GOLD) == {"0": 0, "1": 2}


def test_two_ways_count_as_the_slower_one(tmp_path: Path) -> None:
    """A record is in a view once all of its inputs have taken it; a topic of one input alone counts as it is."""
    write(tmp_path, "bronze.b", Position(offsets={"t": {"0": 5}}), ingest_seq=1)
    write(tmp_path, "bronze.b", Position(offsets={"t": {"0": 9, "1": 2}}), ingest_seq=2)
    write(tmp_path, "bronze.c", Position(offsets={"u": {"0": 7}}), ingest_seq=1)
    write(tmp_path, "silver.slow", Position(batches={"bronze.b": 1}))
    write(tmp_path, "silver.fast", Position(batches={"bronze.b": 2, "bronze.c": 1}))
    write(tmp_path, "gold.both", Position(versions={"silver.slow": 1, "silver.fast": 1}))

    found = Lineage(tmp_path).processed_through("gold.both")

    assert found.offsets == {"t": {"0": 5}, "u": {"0": 7}}


def test_log_that_is_cleaned_up_is_answered_from_its_copy(web: ArrowOwner) -> None:
    """What `ops.ledger` has, silver's and bronze's logs need not tell any more."""
    web.log.send([view(1, user=1)])
    web.bronze()
    web.silver()
    web.gold(GOLD)
    web.log.send([view(2, user=1)])
    web.bronze()
    web.silver()
    web.flow.settle()
    before = through(web, GOLD)

    cut_log(web, "silver.page_views")
    cut_log(web, "bronze.web_events")

    assert before["1"] == 1
    assert through(web, GOLD) == before


def test_table_that_changed_its_app_has_its_entries_in_two_books(tmp_path: Path) -> None:
    """Each owner copies what the log tells while it owns the table."""
    name, committer = "silver.things", Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    for app, seqs in (("first", (1, 2)), ("second", (3, 4))):
        for seq in seqs:
            write(tmp_path, name, Position(), ingest_seq=seq)
        path, entry = tmp_path / "silver/things", Entry(kind="create", app=app, epoch=1)
        table = OwnedTable(name=name, path=path, schema=pa.schema([("n", pa.int64())]), entry=entry)
        RecordBook(app=app, epoch=1, lake=tmp_path).record([table], committer)
        table.checkpoint()
        for version in range(table.version):
            (path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)

    assert [entry.ingest_seq for entry in Lineage(tmp_path).entries(name)] == [4, 3, 2, 1, 0]


def test_beyond_log_and_copy_it_says_so(web: ArrowOwner) -> None:
    """No answer is made up: the table and the version that nobody tells are named."""
    web.log.send([view(1, user=1)])
    web.bronze()
    web.silver()
    web.gold(GOLD)
    web.log.send([view(2, user=1)])
    web.bronze()
    web.silver()
    cut_log(web, "silver.page_views")

    found = Lineage(web.settings.lake).processed_through(GOLD)

    assert found.offsets == {}
    assert found.unknown == ("silver.page_views version 1: neither its log nor ops.ledger goes back so far",)


def test_batch_whose_entries_are_gone_is_read_off_bronze(web: ArrowOwner) -> None:
    """Bronze's rows know their ingest batch: the offsets are exact without any log."""
    web.log.send([view(1, user=1), view(2, user=2)])
    web.bronze()
    web.silver()
    web.log.send([view(3, user=1)])
    web.bronze()
    cut_log(web, "bronze.web_events")

    assert through(web, "silver.page_views") == {"0": 1, "1": 1}


def test_own_write_is_waited_for_and_read(web: ArrowOwner) -> None:
    """Who waits goes on as soon as the table has the record, and finds it there."""
    web.log.send([view(1, user=1)])

    def arrive() -> None:
        web.bronze()
        web.silver()

    soon = threading.Timer(0.3, arrive)
    soon.start()
    with connect(web.settings.lake) as lake:
        arrived = lake.wait("silver.page_views", topic="page_views", partition=1, offset=0, timeout_seconds=30)
        rows = lake.sql("select event_id from silver.page_views").rows
    soon.join()

    assert arrived.version == 1
    assert arrived.waited_seconds > 0
    assert rows == [("e1",)]


def test_wait_that_is_over_says_what_lacks_the_record(web: ArrowOwner) -> None:
    """The first table on the way that has not got it is named, with how far it is."""
    web.log.send([view(1, user=1)])
    web.bronze()
    web.silver()
    web.log.send([view(2, user=1)])
    web.bronze()

    def why(table: str, offset: int, topic: str = "page_views") -> str:
        with connect(web.settings.lake) as lake, pytest.raises(NotArrivedError) as over:
            lake.wait(table, topic=topic, partition=1, offset=offset, timeout_seconds=0)
        return over.value.finding

    assert why("silver.page_views", 1).endswith("silver.page_views contains the offsets below 1")
    assert why("silver.page_views", 7).endswith("bronze.web_events contains the offsets below 2")
    assert why("silver.page_views", 7, "other").endswith("nothing yet of topic other partition 1")
    assert why("gold.nothing", 7).endswith("gold.nothing has no commit yet")


def test_refused_record_is_not_waited_for(web: ArrowOwner) -> None:
    """It was read, and will never be in the table: the reason comes at once."""
    web.log.send([broken(b"{")])
    web.bronze()
    web.silver()

    with connect(web.settings.lake) as lake, pytest.raises(NotArrivedError, match=r"refused by silver.page_views: "):
        lake.wait("silver.page_views", topic="page_views", partition=1, offset=0, timeout_seconds=300)


def test_table_without_a_commit_is_named(web: ArrowOwner) -> None:
    """There is nothing to walk from."""
    with pytest.raises(LakeError, match="gold.nothing: has no commit yet"):
        Lineage(web.settings.lake).processed_through("gold.nothing")
