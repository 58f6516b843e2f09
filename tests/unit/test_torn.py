"""Commits that a power cut has torn are cut off with what has taken them, told, and what they brought comes again."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deltaworks.analyst import connect
from deltaworks.engine import disk, maintenance
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.closing import Closing
from deltaworks.engine.commit import Clause, Merge
from deltaworks.engine.flow import FlowStatus, TableStatus
from deltaworks.engine.heart import Heart
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.ledger import Ledger
from deltaworks.engine.log import checkpoints, newest_version, read_log
from deltaworks.engine.outlets.pusher import Outlets
from deltaworks.engine.points import listening
from deltaworks.engine.torn import ASIDE
from deltaworks.errors import DiskError, LakeError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.copied_table import copied
from tests.flows import BY_ARROW, Crash, Log
from tests.shop_rows import broken, view

BRONZE, VIEWS, REFUSED, BOOK = (
    "bronze.web_events",
    "silver.page_views",
    "silver.page_views__quarantine",
    "ops.ledger_web",
)
ROWS = 12


def streamed(folder: Path) -> tuple[ArrowOwner, Log]:
    """An owner of page views after six batches of two, each with one that is refused."""
    owner, log = ArrowOwner(Shop(folder / "project").without_gold().settings(folder / "data"), "web"), Log()
    for number in range(0, ROWS, 2):
        log.send([view(number, user=number), view(number + 1, user=number), broken(b"{")])
        owner.take(log.batch())
    owner.flow.settle()
    return owner, log


def path_of(owner: ArrowOwner, name: str) -> Path:
    """A table's folder."""
    return owner.settings.lake.joinpath(*name.split("."))


def last_log(folder: Path) -> Path:
    """The file of the newest commit."""
    return max((folder / "_delta_log").glob("*.json"))


def last_rows(folder: Path) -> Path:
    """The file of rows that was written last."""
    return max(folder.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def emptied(file: Path) -> None:
    """What is left of it is its name."""
    os.truncate(file, 0)


def halved(file: Path) -> None:
    """The end is not there."""
    os.truncate(file, file.stat().st_size // 2)


def zeroed(file: Path) -> None:
    """As long as it was, and nothing in it."""
    file.write_bytes(bytes(file.stat().st_size))


def goes_on(owner: ArrowOwner, log: Log) -> None:
    """Start another owner, and see that nothing is missing and nothing there twice."""
    owner.start()
    owner.catch_up(log)
    owner.flow.settle()
    assert len(owner.rows(VIEWS)) == ROWS
    with Picture(owner.catalog, owner.settings.lake) as picture:
        found = check(picture, at_rest=True)
    assert found == []


@pytest.mark.parametrize("tear", [emptied, halved, zeroed])
@pytest.mark.parametrize("of", [last_log, last_rows])
@pytest.mark.parametrize("name", [BRONZE, VIEWS, REFUSED])
def test_torn_tail_is_cut_off_and_told(
    tmp_path: Path,
    name: str,
    of: Callable[[Path], Path],
    tear: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whichever table it is of, log or rows: the next owner reads again what is gone, and says so once."""
    caplog.set_level(logging.WARNING, "deltaworks.torn")
    owner, log = streamed(tmp_path)
    tear(of(path_of(owner, name)))

    goes_on(owner, log)

    assert [one for one in caplog.messages if one.startswith(f"{name}: a power cut has torn version")]
    assert list((path_of(owner, name) / ASIDE).iterdir())
    caplog.clear()
    goes_on(owner, log)
    assert caplog.messages == []


def test_who_has_taken_what_is_gone_goes_back_too(tmp_path: Path) -> None:
    """Bronze lost its last batch, silver and its quarantine have it: they lose it as well, and so does the book."""
    owner, _ = streamed(tmp_path)
    seq = owner.flow.inputs[BRONZE].table.entry.ingest_seq
    bronze = path_of(owner, BRONZE)
    brought = next(v for v in range(newest_version(bronze) or 0, -1, -1) if (entry_of(bronze, v).ingest_seq) < seq) + 1
    emptied(bronze / "_delta_log" / f"{brought:020d}.json")

    owner.start()

    for name in (BRONZE, VIEWS, REFUSED):
        table = next(one for one in owner.flow.tables() if one.name == name)
        assert table.entry.ingest_seq == seq - 1
    assert list((path_of(owner, VIEWS) / ASIDE).iterdir())
    copied_upto = {key.partition("@")[0]: at for key, at in owner.flow.book.table.entry.position.versions.items()}
    assert copied_upto.get(BRONZE, -1) < brought


def entry_of(folder: Path, version: int) -> Any:
    """What a commit says."""
    found = read_log(folder, version)
    assert found is not None
    return found.entry


def test_table_whose_quarantine_lost_rows_goes_back(tmp_path: Path) -> None:
    """The refused rows come again with the others of their batch: the books would have them, and nobody else."""
    owner, log = streamed(tmp_path)
    before = newest_version(path_of(owner, VIEWS))
    emptied(last_log(path_of(owner, REFUSED)))

    owner.start()

    assert list((path_of(owner, VIEWS) / ASIDE).iterdir())
    assert before is not None
    goes_on(owner, log)


def test_power_cut_while_it_is_mended_changes_nothing(tmp_path: Path) -> None:
    """Some tables are cut already and do not say so any more: the plan does."""
    for stops in range(1, 6):
        owner, log = streamed(tmp_path / str(stops))
        emptied(last_log(path_of(owner, BRONZE)))
        emptied(last_log(path_of(owner, REFUSED)))
        owner.commits, owner.crash_at = 0, stops  # the guard is asked before each table
        with pytest.raises(Crash):
            owner.start()

        owner.crash_at = -1

        goes_on(owner, log)


def test_torn_checkpoint_is_put_aside(tmp_path: Path) -> None:
    """The commits before it are there, as its owner deletes none before the checkpoint is on the disk."""
    owner, log = streamed(tmp_path)
    for name in (BRONZE, VIEWS):
        table = next(one for one in owner.flow.tables() if one.name == name)
        table.checkpoint()
        emptied(table.path / "_delta_log" / f"{table.version:020d}.checkpoint.parquet")
        emptied(table.path / "_delta_log" / "_last_checkpoint")
        assert checkpoints(table.path)

    goes_on(owner, log)

    assert not checkpoints(path_of(owner, BRONZE))
    assert list((path_of(owner, BRONZE) / ASIDE).glob("*.checkpoint.parquet.*"))


def test_table_that_was_put_back_is_not_cut(tmp_path: Path) -> None:
    """Only what is torn counts: an older folder is a decision of somebody, and is refused as ever."""
    owner, _ = streamed(tmp_path)
    log = path_of(owner, BRONZE) / "_delta_log"
    versions = sorted(log.glob("*.json"))
    for file in versions[-3:]:
        file.unlink()
    owner.suspends = True

    owner.start()

    assert VIEWS in owner.flow.suspended.tables
    assert not (path_of(owner, VIEWS) / ASIDE).exists()


def test_what_a_vacuum_deleted_is_not_torn(tmp_path: Path) -> None:
    """Files of rows and of changes that only old versions have: their commits stay, and all that came since."""
    owner, log = streamed(tmp_path)
    views = owner.flow.inputs[VIEWS].table
    views._keep_changes(views.entry)
    merge = Merge(keys=("event_id",), clauses=(Clause(on="matched", act="update", set={"page": "s.page"}),))
    for _ in range(3):
        BY_ARROW.commit(views, views.read().slice(0, 1), views.entry.follow("redo"), how=merge)
    changes = list(views.path.glob("_change_data/*.parquet"))
    maintenance.compact(views, command=1, committer=BY_ARROW)
    maintenance.vacuum(views, readers={}, hours=0, command=2, committer=BY_ARROW)
    before = views.version
    assert changes
    assert not any(file.exists() for file in changes)

    goes_on(owner, log)

    assert newest_version(views.path) == before + 1  # the fence
    assert not (views.path / ASIDE).exists()


def test_former_life_of_a_table_says_nothing_of_this_one(tmp_path: Path) -> None:
    """The copies of its entries stay, though that life had come further than this one."""
    owner, log = streamed(tmp_path)
    shutil.rmtree(path_of(owner, VIEWS))
    for beside in path_of(owner, VIEWS).parent.glob("page_views__*"):
        shutil.rmtree(beside)
    owner.start()
    owner.catch_up(log)
    owner.flow.settle()
    lives = {key for key in owner.flow.book.table.entry.position.versions if key.startswith(f"{VIEWS}@")}
    copied = owner.flow.book.table.rows()
    emptied(last_log(path_of(owner, VIEWS)))
    assert len(lives) == 2

    goes_on(owner, log)

    assert lives <= owner.flow.book.table.entry.position.versions.keys()
    assert owner.flow.book.table.rows() >= copied - 1


def test_plan_of_before_is_made_anew_where_a_table_went_on(tmp_path: Path) -> None:
    """Somebody else has opened the lake meanwhile: what is good is not cut."""
    owner, log = streamed(tmp_path)
    newest = newest_version(path_of(owner, VIEWS))
    assert newest is not None
    (owner.settings.lake / "torn.web.json").write_text(json.dumps({VIEWS: (0, newest - 1)}))

    goes_on(owner, log)

    assert not (path_of(owner, VIEWS) / ASIDE).exists()
    assert not (owner.settings.lake / "torn.web.json").exists()


def test_readers_of_a_torn_lake_are_told_what_to_do(tmp_path: Path) -> None:
    """Until its owner starts, the ledger says which version is not whole."""
    owner, _ = streamed(tmp_path)
    emptied(last_log(path_of(owner, VIEWS)))

    with pytest.raises(LakeError, match=r"silver\.page_views: its version \d+ is not whole.*Start its app"):
        Ledger(owner.catalog, owner.settings.lake).sheets()

    with connect(owner.settings.lake) as analyst:  # what was whole can be asked
        assert analyst.sql(f"select count(*) from {BRONZE}").rows == [(ROWS + ROWS // 2,)]


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the disk was asked for, by folder, between other things that a test notes there."""
    asked = list[str]()
    monkeypatch.setattr(disk, "sync", lambda folder: asked.append(f"sync {folder.name}"))
    return asked


def test_copies_are_of_what_is_on_the_disk(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a version that a power cut takes would be of rows that never were."""
    settings = copied(tmp_path, "serves=postgres(),")
    (settings.secrets).mkdir(parents=True)
    (settings.secrets / "serving").write_text("secret")
    owner = ArrowOwner(settings, "tiny")
    outlets = Outlets(owner.catalog.app("tiny"), settings, guard=lambda: None)
    (line,) = outlets._lines
    monkeypatch.setattr(line.outlet, "push", lambda newest: asked.append(f"push {newest}"))

    outlets._push(line)

    assert asked == ["sync people", f"push {newest_version(line.outlet.feed.path)}"]


def test_closed_days_are_told_once_they_are_on_the_disk(tmp_path: Path, asked: list[str]) -> None:
    """A day that is closed starts the runs of others."""
    owner, _ = streamed(tmp_path)
    store: Any = type("Told", (), {"close_partition": lambda _, *day: asked.append(f"close {day[1]}")})()
    closing = Closing(owner.flow, store)
    asked.clear()

    closing.announce()
    assert asked == []

    closing._untold["gold.days", "2026-11-20"] = 1
    closing.announce()
    assert asked == ["sync lake", "close 2026-11-20"]


def test_checkpoint_follows_what_it_stands_for(tmp_path: Path, asked: list[str]) -> None:
    """So a table is looked at from its last checkpoint on."""
    owner, _ = streamed(tmp_path)
    table = owner.flow.inputs[VIEWS].table
    asked.clear()

    with listening(asked.append):
        table.checkpoint()

    assert asked == [f"{VIEWS}.checkpoint.before-write", "sync page_views", f"{VIEWS}.checkpoint.after-write"]


def test_log_is_cut_once_its_checkpoint_is_on_the_disk(tmp_path: Path, asked: list[str]) -> None:
    """What is deleted, the checkpoint stands for."""
    owner, _ = streamed(tmp_path)
    owner.flow.commits_kept = owner.flow.commits_opened = 2
    for table in owner.flow.tables():
        table.checkpoint()
    streamed_more(owner)
    asked.clear()

    with listening(asked.append):
        owner.flow.settle()

    deleted = [at for at, one in enumerate(asked) if one == f"{VIEWS}.trim.before-delete"]
    assert deleted
    assert "sync page_views" in asked[: deleted[0]]


def streamed_more(owner: ArrowOwner) -> None:
    """Another four commits to each log."""
    committer = owner.flow._committer(None)
    for table in owner.flow.tables():
        for _ in range(4):
            committer.mark(table, table.entry.follow("fence"))


def test_heart_has_the_disk_hold_what_was_committed(tmp_path: Path, asked: list[str]) -> None:
    """Once for all that came since the last look; where the disk fails, the driver ends."""
    owner, log = streamed(tmp_path)
    none: Any = None
    heart = Heart(none)
    asked.clear()

    heart._save(owner.flow)
    heart._save(owner.flow)
    assert asked == ["sync lake"]

    log.send([view(100)])
    owner.take(log.batch())
    owner.flow._tell()
    heart._save(owner.flow)
    assert asked == ["sync lake", "sync lake"]


@pytest.fixture(name="failing")
def _failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails once, which the kernel says once."""
    answers = iter([-1])
    monkeypatch.setattr(disk, "_failures", [])
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(disk, "_LIBC", type("Libc", (), {"syncfs": lambda _, __: next(answers, 0)})())


@pytest.mark.usefixtures("failing")
def test_disk_that_failed_is_trusted_no_more(tmp_path: Path) -> None:
    """The kernel says so once: whoever asks later is told too."""
    for _ in range(2):
        with pytest.raises(DiskError, match="could not take what was written"):
            disk.sync(tmp_path)


@pytest.mark.usefixtures("failing")
def test_heart_of_a_driver_whose_disk_failed_stops_it(tmp_path: Path) -> None:
    """What it commits may be lost."""
    none: Any = None
    heart, flow = Heart(none), SimpleNamespace(settings=SimpleNamespace(lake=tmp_path), status=status_of(version=3))
    heart._save(flow)  # type: ignore[arg-type]  # no more than these of a flow is looked at

    assert isinstance(heart.lost, DiskError)


def status_of(*, version: int) -> FlowStatus:
    """The status of a flow whose one table has come to this version."""
    return FlowStatus(tables={VIEWS: TableStatus(version=version, read=0, refused=0)})


def test_missing_folder_is_no_failed_disk(tmp_path: Path) -> None:
    """It says so, and the next question is asked of the disk."""
    disk.sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        disk.sync(tmp_path / "nowhere")

    disk.sync(tmp_path)


def test_entries_say_where_those_beside_stand(tmp_path: Path) -> None:
    """They were committed before: a table that says more than its quarantine has must go back."""
    owner, _ = streamed(tmp_path)
    views, refused = owner.flow.inputs[VIEWS].table, owner.flow.sides[VIEWS]["quarantine"]

    last = next(entry for entry in views.entries_backwards() if entry.kind == "batch")

    assert isinstance(refused, OwnedTable)
    assert last.sides["quarantine"] == refused.version
