"""VACUUM by the owner: what nobody needs goes, what a slow reader needs stays, and the stream goes on."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deltaworks.engine import commands, maintenance
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.lake import read_commit
from deltaworks.errors import CommandError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command
from tests.flows import BY_ARROW, Log, carry_out
from tests.shop_rows import view

GOLD = "gold.page_views_per_minute"


def small_files(folder: Path) -> tuple[ArrowOwner, Log]:
    """An owner of three batches, compacted, with a file that no commit names."""
    owner, log = ArrowOwner(Shop(folder / "project").settings(folder / "data"), "web"), Log()
    for number in range(3):
        log.send([view(number)])
        owner.take(log.batch())
    for table in ("bronze.web_events", "silver.page_views"):
        carry_out(owner, command("compact", table))
        (owner.flow.inputs[table].table.path / "part-of-a-commit-that-died.parquet").write_bytes(b"PAR1")
    return owner, log


def files(owner: ArrowOwner, table: str) -> int:
    """How many data files there are on the disk."""
    return len(list(owner.flow.inputs[table].table.path.glob("*.parquet")))


def test_files_that_nobody_needs_go_and_the_stream_goes_on(tmp_path: Path) -> None:
    """Bronze is read as it stands. The commit of a VACUUM is the owner's: nobody takes it for a stranger's."""
    owner, log = small_files(tmp_path)

    done = carry_out(owner, command("vacuum", "bronze.web_events", hours=0))
    log.send([view(3)])
    owner.take(log.batch())
    owner.start()
    log.send([view(4)])
    owner.take(log.batch())

    assert done["files"] == 4  # three small ones, and the one that no commit names
    assert files(owner, "bronze.web_events") == 3  # the large one, and two new ones
    assert len(owner.rows("silver.page_views")) == 5
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=False) == []


def test_files_stay_for_a_week_unless_told_otherwise(tmp_path: Path) -> None:
    """Who reads an older version finds it."""
    owner, _ = small_files(tmp_path)

    assert carry_out(owner, command("vacuum", "bronze.web_events"))["files"] == 0
    assert files(owner, "bronze.web_events") == 5


def test_the_copy_of_the_entries_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gives orders for it: what it has left for long goes with each vacuum, whatever hours that was given."""
    owner, log = small_files(tmp_path)
    for number in range(3, 3 + 2 * maintenance.FILES_MIN):
        log.send([view(number)])
        owner.take(log.batch())
        owner.flow.settle()
        owner.flow.tend()
    book = owner.flow.book.table
    rows, there = book.read().num_rows, len(list(book.path.glob("*.parquet")))
    carry_out(owner, command("vacuum", "silver.page_views", hours=0))
    young = len(list(book.path.glob("*.parquet")))
    monkeypatch.setattr(maintenance, "VACUUM_HOURS", 0)
    carry_out(owner, command("vacuum", "silver.page_views"))

    assert young == there
    assert len(book.files()) < there
    assert len(list(book.path.glob("*.parquet"))) == len(book.files())
    assert book.read().num_rows == rows


def test_a_table_that_comes_between_two_steps_ends_no_order(tmp_path: Path) -> None:
    """What stands beside some tables is made with the first row for it; the stream goes on between the steps."""
    owner = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path), "shop")
    steps = commands.carry_out(command("vacuum", "silver.orders"), owner.flow)
    next(steps)
    assert owner.flow.side("silver.orders", "waiting") is not None
    left = list(steps)

    assert len(left) == len(owner.flow.sides["silver.orders"]) - 1


def test_what_a_table_above_has_not_taken_stays(tmp_path: Path) -> None:
    """However little time is given: its rows are in files that compaction has replaced."""
    owner, _ = small_files(tmp_path)
    silver = owner.flow.inputs["silver.page_views"].table

    carry_out(owner, command("vacuum", "silver.page_views", hours=0))

    assert owner.flow.readers("silver.page_views") == {"gold.page_views_per_minute": 0, "gold.user_sessions": 0}
    assert silver.read_added(0, silver.version)["event_id"].to_pylist() == ["e0", "e1", "e2"]


def test_what_is_computed_again_keeps_what_it_reads(tmp_path: Path) -> None:
    """The lake as it was when that began; what was left by one that was killed long ago keeps nothing."""
    owner, _ = small_files(tmp_path)
    there = files(owner, "bronze.web_events")
    scratch = owner.settings.data / "staged" / "prove-1" / "lake"
    scratch.mkdir(parents=True)

    kept = carry_out(owner, command("vacuum", "bronze.web_events", hours=0))
    for folder in (scratch, scratch.parent):
        os.utime(folder, (0, 0))
    gone = carry_out(owner, command("vacuum", "bronze.web_events", number=8, hours=0))

    assert kept["files"] == 0
    assert gone["files"] == there - files(owner, "bronze.web_events") > 0


def test_clock_that_was_set_back_deletes_nothing(tmp_path: Path) -> None:
    """Ages would be wrong."""
    owner, _ = small_files(tmp_path)
    bronze = owner.flow.inputs["bronze.web_events"].table

    with pytest.raises(CommandError, match="the clock stands before the last commit"):
        maintenance.vacuum(
            bronze, readers={}, hours=0, command=1, committer=BY_ARROW, now=datetime.now(UTC) - timedelta(hours=1)
        )

    assert files(owner, "bronze.web_events") == 5


def made(commit: Path, hours: float) -> None:
    """Have a commit say that it was made so long ago."""
    at, actions = round((time.time() - hours * 3600) * 1000), list(map(json.loads, commit.read_text().splitlines()))
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = at
        if "remove" in action:
            action["remove"]["deletionTimestamp"] = at
    commit.write_text("\n".join(map(json.dumps, actions)))


def test_clock_that_was_set_back_takes_nothing_from_a_table_above(tmp_path: Path) -> None:
    """By their times files went before they came: who has not taken them needs them all the same."""
    owner, _ = small_files(tmp_path)
    silver = owner.flow.inputs["silver.page_views"].table
    for version in range(silver.version + 1):
        found = read_commit(silver.path, version).entry
        compacted = found is not None and found.kind == "compact"
        made(silver.path / "_delta_log" / f"{version:020d}.json", 6 if compacted else 1)
    for checkpoint in (silver.path / "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    silver.reopen()
    reader = {"gold.page_views_per_minute": 1}

    done = maintenance.vacuum(silver, readers=reader, hours=0, command=1, committer=BY_ARROW)

    assert silver.read_added(1, silver.version)["event_id"].to_pylist() == ["e1", "e2"]
    without = maintenance.vacuum(silver, readers={}, hours=0, command=1, committer=BY_ARROW)
    assert (done["files"], without["files"]) == (0, 4)  # the file that no commit names among them


def test_an_owner_without_spark_waits_for_no_transform(tmp_path: Path) -> None:
    """Of a stopped app: what is computed from a table has not taken its rows, and nobody there can compute it."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    log.send([view(1)])
    owner.take(log.batch())
    version = owner.flow.inputs[GOLD].table.version

    owner.flow.take_slice(GOLD, None)
    with pytest.raises(CommandError, match=r"computed from silver.page_views is behind \(.*per_minute.*Start app web"):
        carry_out(owner, command("expire", "silver.page_views"))

    assert owner.flow.inputs[GOLD].table.version == version
