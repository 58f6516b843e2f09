"""A stage: what is committed there is the table's next version, or nothing. Here delta-rs stands in for Spark."""

import errno
import os
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from deltaworks.engine.stage import STAGES, OtherCommitError, Stage, TakenError, clear

ENTRY = "one text"
"""What a commit says that no test looks at."""


def put(table: Path, *keys: int, entry: str = ENTRY) -> None:
    """Append rows as a commit of their own."""
    rows = pa.table({"key": pa.array(keys, pa.int64()), "day": ["a b"] * len(keys)})
    said = deltalake.CommitProperties(custom_metadata={"userMetadata": entry})
    deltalake.write_deltalake(str(table), rows, mode="append", partition_by=["day"], commit_properties=said)


def keys(table: Path) -> list[int]:
    """What a reader of the table sees."""
    found: list[int] = deltalake.DeltaTable(str(table)).to_pyarrow_table()["key"].to_pylist()
    return sorted(found)


def files(table: Path) -> list[str]:
    """The files of the newest version, as its owner knows them."""
    names: list[str] = pa.table(deltalake.DeltaTable(str(table)).get_add_actions())["path"].to_pylist()
    return names


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Give a table with one row, key 1, in version 0; its partitions have a space in their names."""
    put(tmp_path / "things", 1)
    return tmp_path / "things"


def test_published_version_is_the_table_s_next(table: Path) -> None:
    """Before that nobody sees it, afterwards it is a version like any other, and the stage goes on from it."""
    stage = Stage(table)

    for version, key in ((1, 2), (2, 3)):
        stage.follow(version - 1, files=files(table))
        put(stage.path, key)
        unseen = keys(table)
        published = stage.publish(version, entry=ENTRY)

        assert published
        assert key not in unseen
    assert deltalake.DeltaTable(str(table)).version() == 2
    assert keys(table) == [1, 2, 3]


def test_sums_of_hadoop_stay_on_the_stage(table: Path) -> None:
    """What a power cut leaves empty of them, Spark could not read a file beside."""
    stage = Stage(table)
    stage.follow(0, files=files(table))
    put(stage.path, 2)
    sums = stage.path / ".part-0.parquet.crc"
    sums.write_bytes(b"crc")

    assert stage.publish(1, entry=ENTRY)

    assert sums.exists()
    assert list(table.glob("**/*.crc")) == [sums]


def test_taken_version_leaves_the_table_as_its_taker_left_it(table: Path) -> None:
    """The owner slept, a successor committed: its version stays whole, and nothing of the late commit can be seen."""
    stage = Stage(table)
    stage.follow(0, files=files(table))
    put(stage.path, 2)

    put(table, 3)
    with pytest.raises(TakenError):
        stage.publish(1, entry=ENTRY)

    assert keys(table) == [1, 3]
    assert deltalake.DeltaTable(str(table)).version() == 1


def test_stage_after_a_lost_race_shows_the_table_anew(table: Path) -> None:
    """A commit that was lost is not in the stage from which the next one is made."""
    stage = Stage(table)
    stage.follow(0)
    put(stage.path, 2)
    put(table, 3)
    with pytest.raises(TakenError):
        stage.publish(1, entry=ENTRY)

    stage.follow(1, files=files(table))

    assert keys(stage.path) == [1, 3]


def test_stage_begins_at_the_last_checkpoint(table: Path) -> None:
    """Commits before a checkpoint may be gone from the log: the stage does without them."""
    deltalake.DeltaTable(str(table)).create_checkpoint()
    put(table, 2)
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    stage = Stage(table)

    stage.follow(1, files=files(table))

    assert keys(stage.path) == [1, 2]


def test_stage_that_could_not_follow_begins_anew(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full: half of it is there, and what is there is not linked a second time."""
    for key in (2, 3):
        put(table, key)
    stage, link, left = Stage(table), os.link, [1]

    def full(source: Path, target: Path) -> None:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left.pop()
        link(source, target)

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space"):
        stage.follow(2)
    monkeypatch.undo()

    stage.follow(2, files=files(table))
    put(stage.path, 4)
    assert stage.publish(3, entry=ENTRY)
    assert keys(table) == [1, 2, 3, 4]


def test_nothing_committed_is_nothing_published(table: Path) -> None:
    """Spark commits nothing when nothing changes: the caller is told."""
    stage = Stage(table)
    stage.follow(0)

    assert not stage.publish(1, entry=ENTRY)
    assert deltalake.DeltaTable(str(table)).version() == 0


def test_stages_of_earlier_owners_are_cleared_away(table: Path) -> None:
    """What they left is gone, and the table is as it was; one that still lives cannot publish any more."""
    stage = Stage(table)
    stage.follow(0, files=files(table))
    put(stage.path, 2)

    clear(table)

    assert not list(table.glob(f"{STAGES}*"))
    with pytest.raises(TakenError):
        stage.publish(1, entry=ENTRY)
    assert keys(table) == [1]


def test_cleared_stage_is_not_taken_for_a_change_of_nothing(table: Path) -> None:
    """Nothing was committed there, and nobody knows any more: an entry that says so would lose the rows."""
    stage = Stage(table)
    stage.follow(0)
    clear(table)

    with pytest.raises(TakenError):
        stage.publish(1, entry=ENTRY)


def test_what_a_failed_attempt_has_committed_is_not_on_the_stage_any_more(table: Path) -> None:
    """It failed after its commit there: the next one would find its txn, leave its own rows out, and publish those."""
    stage = Stage(table)

    def attempt() -> None:
        with stage.attempt(0, files=files(table)):
            put(stage.path, 2)
            raise OSError(errno.EIO, "after the commit")

    with pytest.raises(OSError, match="after the commit"):
        attempt()
    with stage.attempt(0, files=files(table)):
        shown = keys(stage.path)
        put(stage.path, 3)
        stage.publish(1, entry=ENTRY)

    assert shown == [1]
    assert keys(table) == [1, 3]


@pytest.mark.parametrize("meant", ["another", "", "two\u2028lines"])
def test_commit_that_says_something_else_is_not_published(table: Path, meant: str) -> None:
    """Whose rows these are, nobody knows: the table stays as it is, and so do its files."""
    stage = Stage(table)
    stage.follow(0)
    put(stage.path, 2, entry="one\u2028line")
    before = sorted(table.glob("day=*/*"))

    with pytest.raises(OtherCommitError):
        stage.publish(1, entry=meant)

    assert keys(table) == [1]
    assert sorted(table.glob("day=*/*")) == before
    assert stage.publish(1, entry="one\u2028line")
