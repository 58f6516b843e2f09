"""The owner shortens its tables' logs: who reads the lake, and the stream, are as if all of it were there."""

import os
import shutil
import time
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from deltaworks.analyst import connect
from deltaworks.engine import maintenance
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.lake import CHECKPOINT_COMMITS, OwnedTable
from deltaworks.engine.linking import link_table
from deltaworks.engine.log import checkpoints, first_version, newest_version, whole_from
from deltaworks.engine.points import listening
from deltaworks.engine.rewind import before, plan, stage
from deltaworks.engine.slices import versions
from deltaworks.engine.stage import Stage
from deltaworks.engine.through import Lineage
from deltaworks.engine.trimming import COMMITS_KEPT, STAGED, STAGED_SECONDS, is_staged
from deltaworks.engine.writers.patches import VALUE
from deltaworks.engine.writers.writer import Input
from deltaworks.errors import CommandError, LakeError
from deltaworks.settings import Settings
from tests.arrow_flow import ArrowOwner as OwnerWithGold
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command, replay
from tests.flows import BY_ARROW, START, Crash, Log, carry_out
from tests.shop_rows import broken, view

BRONZE, VIEWS, GOLD = "bronze.web_events", "silver.page_views", "gold.page_views_per_minute"
KEPT = 10
HOUR = timedelta(hours=1)


def work(owner: ArrowOwner, log: Log, *numbers: int) -> None:
    """A micro-batch for each of these views, with a malformed one now and then; the logs get their checkpoints."""
    for number in numbers:
        log.send([view(number, user=number), *([broken(b"{")] if number % 5 == 0 else ())])
        owner.take(log.batch())
        owner.flow.tend()


def cut(owner: ArrowOwner) -> int:
    """Have the logs shortened, as the driver does now and then; how many of the events' commits are gone."""
    owner.flow.commits_kept = owner.flow.commits_opened = KEPT
    owner.flow.settle()
    return first_version(table(owner).path) or 0


def table(owner: ArrowOwner, name: str = VIEWS) -> OwnedTable:
    """A table as its owner has it."""
    return next(one for one in owner.flow.tables() if one.name == name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Log]:
    """Give a folder with a project, and data with some sixty commits in each table."""
    folder, log = tmp_path_factory.mktemp("made"), Log()
    work(ArrowOwner(Shop(folder / "project").without_gold().settings(folder / "data"), "web"), log, *range(60))
    return folder, log


@pytest.fixture
def long(made: tuple[Path, Log], tmp_path: Path) -> tuple[ArrowOwner, Log]:
    """Give an owner of a copy of them."""
    folder, log = made
    for name in ("project", "data"):
        shutil.copytree(folder / name, tmp_path / name)
    settings = Settings.load(tmp_path / "project", environment={}, data=tmp_path / "data")
    return ArrowOwner(settings, "web"), deepcopy(log)


def faultless(owner: ArrowOwner) -> bool:
    """Whether books and checker find nothing."""
    verdicts = owner.verdicts()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        return (verdicts, check(picture, at_rest=True)) == ({"ok"}, [])


def test_log_stays_at_a_bound_and_without_the_trim_it_grows(long: tuple[ArrowOwner, Log]) -> None:
    """Nothing else changes: rows, entries, books, and a start from what is left."""
    owner, log = long
    rows, sheets, entry = owner.rows(VIEWS), owner.ledger().sheets(), table(owner).entry
    assert first_version(table(owner).path) == 0
    assert len(list((table(owner).path / "_delta_log").glob("*.json"))) > 60
    assert COMMITS_KEPT <= 5_000

    for more in range(2):
        assert cut(owner) >= 60 - KEPT - CHECKPOINT_COMMITS
        for one in owner.flow.tables():
            first, newest = first_version(one.path) or 0, newest_version(one.path) or 0
            assert first in (0, *checkpoints(one.path))
            assert newest - first <= KEPT + 2 * CHECKPOINT_COMMITS
        if not more:
            assert (owner.rows(VIEWS), owner.ledger().sheets(), table(owner).entry) == (rows, sheets, entry)
        owner.start()
        work(owner, log, *range(60 + 40 * more, 100 + 40 * more))

    assert len(owner.rows(VIEWS)) == 140
    assert faultless(owner)


def test_copies_tell_what_the_log_does_not(long: tuple[ArrowOwner, Log], monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries are one sequence, for the owner, for who reads the lake, and for the list of commits."""
    monkeypatch.setattr("deltaworks.engine.copies.COMMITS_AT_ONCE", 7)
    monkeypatch.setattr("deltaworks.engine.record_book.COMMITS_AT_ONCE", 7)
    owner, _ = long
    own, lineage = table(owner), Lineage(owner.settings.lake)
    told = list(own.entries_backwards())
    listed = list(owner.ledger().commits(VIEWS))
    contained = [lineage.processed_through(VIEWS, version) for version in (0, 7, 30)]

    assert cut(owner) > 30

    lineage = Lineage(owner.settings.lake)
    assert list(own.entries_backwards()) == told == list(lineage.entries(VIEWS))
    assert [one.version for one in owner.ledger().commits(VIEWS)] == [one.version for one in listed]
    assert [one.rows_added for one in owner.ledger().commits(VIEWS)] == [one.rows_added for one in listed]
    assert [lineage.processed_through(VIEWS, version) for version in (0, 7, 30)] == contained
    owner.flow.rebuild_book()
    assert list(own.entries_backwards()) == told


def test_book_that_was_lost_takes_only_what_is_long_ago(
    long: tuple[ArrowOwner, Log], caplog: pytest.LogCaptureFixture
) -> None:
    """The stream goes on, and says what nobody can tell any more."""
    owner, log = long
    first = cut(owner)
    shutil.rmtree(owner.flow.book.table.path)
    owner.start()
    work(owner, log, 60)

    told = len(list(table(owner).entries_backwards()))

    assert told == table(owner).version - first + 1
    assert f"what version {first - 1} did, and those before, is neither in its log nor in ops.ledger" in caplog.text
    assert faultless(owner)


def test_checker_finds_what_is_wrong_in_commits_of_long_ago(long: tuple[ArrowOwner, Log]) -> None:
    """A log that was shortened hides nothing that it would have found."""
    owner, _ = long
    assert cut(owner) > 7
    book = owner.flow.book.table
    rows = book.read().to_pylist()
    for row in rows:
        if (row["table_name"], row["version"]) == (VIEWS, 7):
            row["entry"] = row["entry"].replace('"taken":1', '"taken":2', 1)
    wrong = book.read().from_pylist(rows, schema=book.schema)
    deltalake.write_deltalake(book.delta, wrong, mode="overwrite", commit_properties=book.properties(book.entry))

    with Picture(owner.catalog, owner.settings.lake) as picture:
        found = [str(one.finding) for one in check(picture, at_rest=True)]

    assert any("version 7: 1 rows read, 2 went somewhere" in one for one in found)


def test_nothing_is_cut_that_is_not_copied_yet(long: tuple[ArrowOwner, Log]) -> None:
    """What only the log tells stays in it."""
    owner, log = long
    owner.flow.commits_kept = owner.flow.commits_opened = KEPT

    assert owner.flow.trim() == 0
    owner.flow.settle()
    first = first_version(table(owner).path) or 0
    work(owner, log, *range(60, 120))
    owner.flow.commits_kept = owner.flow.commits_opened = KEPT
    owner.flow.trim()

    assert 0 < first <= (first_version(table(owner).path) or 0) <= 61


def test_slow_reader_finds_what_it_has_not_taken(tmp_path: Path) -> None:
    """Who has taken a part gets the rest by commits; who has taken nothing takes what is there."""
    owner = OwnerWithGold(Shop(tmp_path / "project").settings(tmp_path), "web")
    for number in range(60):
        owner.log.send([view(number, user=number)])
        owner.bronze()
        owner.silver()
        if number == 4:
            owner.gold(GOLD)
        owner.flow.tend()
    owner.flow.commits_kept = owner.flow.commits_opened = KEPT
    owner.flow.settle()
    taken = owner.flow.readers(VIEWS)[GOLD]
    silver = owner.flow.inputs[VIEWS]

    assert (first_version(owner.flow.inputs[BRONZE].table.path) or 0) > 0  # nobody reads its versions
    assert (first_version(silver.table.path) or 0) <= taken + 1
    assert (offered(silver, taken), offered(silver, 0)) == (55, 60)
    owner.gold(GOLD)
    owner.flow.commits_kept = owner.flow.commits_opened = KEPT
    owner.flow.settle()
    assert (first_version(silver.table.path) or 0) > taken + 1
    with pytest.raises(LakeError, match=f"its log begins after version {taken}, up to which it was taken"):
        offered(silver, taken)
    assert offered(silver, 0) == 60
    assert 0 in owner.flow.readers(VIEWS).values()  # it holds no log, and no file
    assert maintenance.vacuum(
        silver.table, readers=owner.flow.readers(VIEWS), hours=0, command=1, committer=BY_ARROW
    )  # fmt: skip


def offered(source: Input, after: int) -> int:
    """How many rows a reader gets that has taken an input up to a version."""
    nobody: Any = None  # no DataFrame is made of so few rows
    found = versions(nobody, source, after=after, bytes_max=2**30, reader="gold.above")
    assert found is not None
    assert isinstance(found.rows, pa.Table)
    return int(found.rows.num_rows)


def test_every_log_is_cut_however_little_is_cut_in_a_turn(
    long: tuple[ArrowOwner, Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that is used up by one table leaves the next one to the others."""
    owner, log = long
    cut(owner)
    monkeypatch.setattr("deltaworks.engine.flow.FILES_AT_ONCE", 25)
    for number in range(60, 160):
        work(owner, log, number)
        if number % 5 == 0:
            owner.flow.settle()

    lengths = {
        one.name: (newest_version(one.path) or 0) - (first_version(one.path) or 0)
        for one in owner.flow.tables() if one.version > 100
    }  # fmt: skip
    assert len(lengths) >= 2
    assert max(lengths.values()) <= KEPT + 3 * CHECKPOINT_COMMITS, lengths


def test_table_whose_log_was_cut_meanwhile_is_not_laid_out_empty(long: tuple[ArrowOwner, Log], tmp_path: Path) -> None:
    """It was opened long ago: what is left of its log begins later, and would open as an empty table."""
    owner, log = long
    held = Held(BRONZE, table(owner, BRONZE).path)
    work(owner, log, *range(60, 130))
    cut(owner)
    assert (first_version(held.path) or 0) > held.version

    with pytest.raises(LakeError, match=f"its log was shortened beyond version {held.version} meanwhile"):
        link_table(held, tmp_path / "other")


def test_what_is_staged_is_waited_for_but_not_for_ever(long: tuple[ArrowOwner, Log]) -> None:
    """It was laid out from versions that its publication looks at again."""
    owner, _ = long
    folder = owner.settings.data / STAGED / "one"
    folder.mkdir(parents=True)

    assert cut(owner) == 0
    long_ago = time.time() - STAGED_SECONDS - 1
    os.utime(folder, (long_ago, long_ago))
    (folder / "staged.json").write_text("{}")
    os.utime(folder, (long_ago, long_ago))
    assert is_staged(folder.parent)
    assert cut(owner) == 0
    os.utime(folder / "staged.json", (long_ago, long_ago))
    (folder.parent / "two").mkdir()
    (folder.parent / "two" / VALUE).write_text("of a patch whose order was never given")
    assert cut(owner) > 0


def test_late_rows_of_long_ago_are_as_late_as_they_were(tmp_path: Path) -> None:
    """A replay looks their marks up among the copies: as it does in a log that tells all."""
    project, found = Shop(tmp_path / "project").without_gold(), []
    for name in ("whole", "cut"):
        owner, log = ArrowOwner(project.settings(tmp_path / name), "web"), Log()
        log.send([view(1)])
        owner.take(log.batch())
        log.send([view(2, at=START - HOUR, page="no path"), view(3, at=START + 2 * HOUR, page="no path")])
        owner.take(log.batch())
        work(owner, log, *range(11, 60))
        if name == "cut":
            assert cut(owner) > 3
        project.edit("silver/page_views.yml", "'^/'", "'^(/|no)'")
        owner.start()

        result = replay(owner, VIEWS)

        project.edit("silver/page_views.yml", "'^(/|no)'", "'^/'")
        again = carry_out(owner, command("replay_refused_rows", VIEWS))  # as after a crash: it tells all that was done
        rows = {row["event_id"]: (row["_late_by"], row["_seq"]) for row in table(owner).read().to_pylist()}
        found.append((result, again["taken"], rows))
        assert rows["e2"] == (3600 * 10**6, 2)
        assert faultless(owner)

    assert found[0] == found[1]


def test_rewind_reaches_as_far_as_the_log_and_says_so(long: tuple[ArrowOwner, Log]) -> None:
    """What comes back has its statistics, whether a checkpoint told its files or a commit."""
    owner, _ = long
    first, lake = cut(owner), owner.settings.lake
    name, newest, rows = VIEWS, table(owner).version, owner.rows(VIEWS)

    with pytest.raises(LakeError, match=rf"cannot go back to version {first - 1}.*from {first} on are possible"):
        plan(name, catalog=owner.catalog, lake=lake, to=first - 1)
    with pytest.raises(LakeError, match=f"told of it begins at version {first}, after that time"):
        plan(name, catalog=owner.catalog, lake=lake, to=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(LakeError, match="neither its log nor its past goes back so far"):
        before(name, catalog=owner.catalog, lake=lake, since=("page_views", 0, 0))
    for number, to in enumerate((first, newest)):
        past = plan(name, catalog=owner.catalog, lake=lake, to=to)
        folder = owner.settings.data / STAGED / str(number)
        folder.mkdir(parents=True)
        stage(past, catalog=owner.catalog, lake=lake, folder=folder)
        carry_out(owner, command("publish", name, number=number, folder=str(number)))
        published = table(owner).read(["_seq"]).num_rows
        lows = deltalake.DeltaTable(str(table(owner).path)).get_add_actions(flatten=True)["min._seq"]
        owner.take(Log().batch())

        assert published < len(rows) if to == first else published == len(rows)
        assert None not in lows.to_pylist()
        assert owner.rows(name) == rows
        assert faultless(owner)


def test_table_that_was_empty_then_comes_back_empty(tmp_path: Path) -> None:
    """A table above that never stood there goes back to where it had taken nothing, which no log tells any more."""
    owner = OwnerWithGold(Shop(tmp_path / "project").settings(tmp_path), "web")
    for number in range(60):
        owner.log.send([view(number, user=number)])
        owner.bronze()
        owner.silver()
        if number % 2:
            owner.gold(GOLD)
        owner.flow.tend()
    owner.flow.commits_kept = owner.flow.commits_opened = KEPT
    owner.flow.settle()
    gold = owner.flow.inputs[GOLD].table
    assert (first_version(gold.path) or 0) > 0
    folder = tmp_path / "staged" / "one"
    folder.mkdir(parents=True)
    to = owner.flow.inputs[VIEWS].table.version - 1

    past = plan(VIEWS, catalog=owner.catalog, lake=owner.settings.lake, to=to)
    stage(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)

    assert {one.table: one.version for one in past}[GOLD] == 0
    made = deltalake.DeltaTable(str(folder / "lake" / "gold" / "page_views_per_minute"))
    assert made.to_pyarrow_table().num_rows == 0
    assert made.schema() == gold.delta.schema()


def test_staged_tables_whose_history_nobody_knows_are_refused(long: tuple[ArrowOwner, Log], tmp_path: Path) -> None:
    """Another order may have changed them meanwhile."""
    owner, log = long
    past = plan(VIEWS, catalog=owner.catalog, lake=owner.settings.lake, to=table(owner).version - 1)
    folder = owner.settings.data / STAGED / "one"
    folder.mkdir(parents=True)
    stage(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
    work(owner, log, *range(60, 100))
    folder.rename(tmp_path / "hidden")
    assert cut(owner) > past[0].newest + 1
    (tmp_path / "hidden").rename(folder)
    shutil.rmtree(owner.flow.book.table.path)
    owner.start()

    with pytest.raises(CommandError, match="nothing tells any more what was done to silver.page_views since"):
        carry_out(owner, command("publish", VIEWS, folder="one"))


def test_owner_that_dies_at_any_step_leaves_a_log_without_a_hole(long: tuple[ArrowOwner, Log]) -> None:
    """Every reader opens it, and the next owner goes on; what is there in part only is opened from the past."""
    owner, log = long
    owner.flow.settle()  # all is copied, nothing cut
    rows, died, at = owner.rows(VIEWS), 0, set[str]()
    owner.flow.commits_kept = owner.flow.commits_opened = KEPT
    while True:
        reached = list[str]()

        def die_later(point: str, reached: list[str] = reached, passed: int = min(died, 1)) -> None:
            if point.startswith(f"{VIEWS}.trim."):
                reached.append(point)
            if len(reached) > passed:  # at the very first step, and then each time one further
                at.add(point)
                raise Crash(point)

        try:
            with listening(die_later):
                owner.flow.trim()
        except Crash:
            died += 1
        else:
            break
        path = table(owner).path
        told = sorted(int(file.name[:20]) for file in (path / "_delta_log").glob("*.json"))
        assert told == list(range(told[0], told[-1] + 1))
        first = whole_from(path)
        if died % 6 == 0:
            assert deltalake.DeltaTable(str(path)).to_pyarrow_table().num_rows == len(rows)
            assert deltalake.DeltaTable(str(path), version=first).version() == first
            with connect(owner.settings.lake) as lake:
                assert lake.sql(f"select count(*) from {VIEWS}").rows == [(len(rows),)]
            assert Held(VIEWS, path, told[0]).version == told[0]
    owner.start()
    work(owner, log, *range(60, 70))

    assert died > 30
    assert at == {f"{VIEWS}.trim.{step}" for step in ("before-write", "after-write", "before-delete")}
    assert len(owner.rows(VIEWS)) == 70
    assert faultless(owner)


def test_checkpoint_that_cannot_be_read_is_not_relied_on(long: tuple[ArrowOwner, Log]) -> None:
    """Without what came before it would be all that there is: the one before it must do."""
    owner, _ = long
    path = table(owner).path
    one, other = [version for version in checkpoints(path) if version <= table(owner).version - KEPT][-2:]
    (path / "_delta_log" / f"{other:020d}.checkpoint.parquet").write_bytes(b"PAR1")

    assert cut(owner) == one
    assert faultless(owner)


def test_readers_from_elsewhere_open_what_is_left(long: tuple[ArrowOwner, Log]) -> None:
    """delta-rs and DuckDB, the newest version and the oldest that is told."""
    owner, _ = long
    rows = len(owner.rows(VIEWS))
    first, path = cut(owner), table(owner).path

    older = deltalake.DeltaTable(str(path), version=first)
    with connect(owner.settings.lake) as lake:
        counted = lake.sql(f"select count(*) from {VIEWS}").rows

    assert deltalake.DeltaTable(str(path)).to_pyarrow_table().num_rows == rows
    assert older.to_pyarrow_table().num_rows < rows
    assert counted == [(rows,)]
    with pytest.raises(deltalake.exceptions.DeltaError):
        deltalake.DeltaTable(str(path), version=first - 1)


def test_who_has_not_looked_for_long_finds_the_newest_version(long: tuple[ArrowOwner, Log]) -> None:
    """A walk over commits that are gone ends nowhere; so does a stage that follows them."""
    owner, log = long
    path, stage_ = table(owner).path, Stage(table(owner).path)
    lineage = Lineage(owner.settings.lake)
    lineage.newest(VIEWS)
    stage_.follow(table(owner).version)
    old, known = stage_.path, table(owner).version
    work(owner, log, *range(60, 120))

    assert cut(owner) > known + 1
    stage_.follow(table(owner).version)

    assert lineage.newest(VIEWS) == table(owner).version == newest_version(path, known)
    assert stage_.path != old
    assert deltalake.DeltaTable(str(stage_.path)).version() == table(owner).version


def test_stage_begins_anew_before_its_own_log_is_long(
    long: tuple[ArrowOwner, Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's commits are linked into it one by one, and nobody takes them out again."""
    monkeypatch.setattr("deltaworks.engine.stage.COMMITS_MAX", 20)
    own, paths = table(long[0]), []
    stage_ = Stage(own.path)

    for version in range(own.version + 1):
        stage_.follow(version)
        paths.append(stage_.path)

    assert 2 <= len(set(paths)) <= own.version // 20 + 1
    assert len(list((stage_.path / "_delta_log").glob("*.json"))) <= 2 * 20
    assert deltalake.DeltaTable(str(stage_.path)).version() == own.version
