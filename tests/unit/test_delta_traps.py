"""What delta-rs does if nobody looks, each beside what our commits do instead."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltaworks.engine.commit import Clause, Committer, Merge, _on
from deltaworks.engine.entry import Counts, Entry, Position
from deltaworks.engine.lake import HOOKS_OFF, TXN_APP, OwnedTable
from deltaworks.engine.maintenance import compact, vacuum
from deltaworks.engine.writers.aggregate import combined
from deltaworks.errors import CommitLostError
from deltaworks.settings import ROOT, Settings
from deltaworks.words.keeping import Combine
from tests.arrow_flow import ArrowOwner

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
COMMITTER = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)


def owned(folder: Path, schema: pa.Schema = SCHEMA, *, epoch: int = 1) -> OwnedTable:
    """Open the table of this folder, making it if it is not there."""
    entry = Entry(kind="create", app="a", epoch=epoch)
    return OwnedTable(name="silver.things", path=folder / "things", schema=schema, entry=entry)


def rows(*pairs: tuple[int | None, int | None]) -> pa.Table:
    """Rows of key and value."""
    return pa.table([pa.array(column, pa.int64()) for column in zip(*pairs, strict=True)], schema=SCHEMA)


def batch(table: OwnedTable, made: pa.Table, how: Merge | None = None, *, seq: int = 1) -> None:
    """Commit one batch."""
    position = Position(batches={"bronze.things": seq})
    counts = Counts(read=made.num_rows, taken=made.num_rows)
    entry = table.entry.follow("batch", counts=counts, position=position, ingest_seq=seq)
    COMMITTER.commit(table, made, entry, how=how)


def foreign_append(table: OwnedTable, made: pa.Table) -> None:
    """Somebody else commits."""
    deltalake.write_deltalake(str(table.path), made, mode="append")


def newer(*keys: str, nullable: Sequence[str] = ()) -> Merge:
    """Take what has the higher value."""
    own = {"key": "s.key", "value": "s.value"}
    clauses = (
        Clause(on="matched", act="update", when="s.value > t.value", set=own),
        Clause(on="not matched", act="insert", set=own),
    )
    return Merge(keys=keys, nullable_keys=frozenset(nullable), clauses=clauses)


def test_append_is_not_rebased_over_a_foreign_commit(tmp_path: Path) -> None:
    """By default both appends would be in the table, and neither owner would know."""
    table = owned(tmp_path)
    stale = deltalake.DeltaTable(str(table.path))
    foreign_append(table, rows((1, 1)))
    deltalake.write_deltalake(stale, rows((2, 2)), mode="append")
    assert stale.version() == 2, "the default rebases"
    table.reopen = None  # type: ignore[assignment, method-assign]  # nothing may look at the log before the commit

    with pytest.raises(CommitLostError, match="version 1 was taken"):
        batch(table, rows((3, 3)))

    assert sorted(deltalake.DeltaTable(str(table.path)).to_pyarrow_table()["key"].to_pylist()) == [1, 2]


def _merge(table: OwnedTable) -> None:
    batch(table, rows((1, 9)), newer("key"), seq=9)


def _delete(table: OwnedTable) -> None:
    COMMITTER.delete(table, "key = 1", table.entry.follow("redo"))


def _replace(table: OwnedTable) -> None:
    COMMITTER.replace(table, (), table.entry.follow("publish"))


def _compact(table: OwnedTable) -> None:
    compact(table, command=1, committer=COMMITTER)


def _vacuum(table: OwnedTable) -> None:
    vacuum(table, readers={}, hours=0, command=1, committer=COMMITTER)


@pytest.mark.parametrize("way", [_merge, _delete, _replace, _compact, _vacuum])
def test_no_way_to_commit_passes_over_a_foreign_commit(tmp_path: Path, way: Callable[[OwnedTable], None]) -> None:
    """delta-rs's own compaction and vacuum do, whatever the properties of their commits say."""
    table = owned(tmp_path)
    for seq in (1, 2):
        batch(table, rows((seq, seq)), seq=seq)
    (table.path / "part-that-no-commit-names.parquet").write_bytes(b"PAR1")
    shutil.copytree(tmp_path, tmp_path / "other")
    by_default = deltalake.DeltaTable(str(tmp_path / "other" / "things"))
    deltalake.write_deltalake(by_default.table_uri, rows((3, 3)), mode="append")
    by_default.optimize.compact(commit_properties=table.properties(table.entry.follow("compact")))
    assert by_default.version() == 4, "the default rebases"
    foreign_append(table, rows((3, 3)))

    with pytest.raises(CommitLostError):
        way(table)

    there = deltalake.DeltaTable(str(table.path))
    assert there.version() == 3
    assert sorted(there.to_pyarrow_table()["key"].to_pylist()) == [1, 2, 3]
    assert (table.path / "part-that-no-commit-names.parquet").exists()


def test_older_owner_fails_after_the_fence_of_a_newer_one(tmp_path: Path) -> None:
    """The fence is a commit without rows: it takes the version that the older owner expects."""
    older, successor = owned(tmp_path), owned(tmp_path, epoch=2)
    COMMITTER.mark(successor, successor.entry.follow("fence"))

    with pytest.raises(CommitLostError):
        batch(older, rows((1, 1)))

    assert successor.rows() == 0


def test_batch_in_which_every_row_is_older_leaves_its_entry(tmp_path: Path) -> None:
    """A merge that changes nothing commits nothing: the batch would be taken again and again."""
    table = owned(tmp_path)
    batch(table, rows((1, 5)))
    merged = deltalake.DeltaTable(str(table.path))
    own = {"key": "s.key", "value": "s.value"}
    merged.merge(rows((1, 4)), "t.key = s.key", source_alias="s", target_alias="t").when_matched_update(
        own, "s.value > t.value"
    ).execute()
    assert merged.version() == table.version, "the default commits nothing"

    batch(table, rows((1, 4)), newer("key"), seq=2)

    assert table.entry.position.batches == {"bronze.things": 2}
    assert table.read().to_pylist() == [{"key": 1, "value": 5}]


def test_roll_back_that_finds_no_row_leaves_its_entry(tmp_path: Path) -> None:
    """A delete that finds nothing commits nothing: the table beside would stay ahead of its own, start after start."""
    web = ArrowOwner(Settings.load(ROOT, environment={}, data=tmp_path), "web")
    side = web.flow.sides["silver.page_views"]["quarantine"]
    web.committer.mark(side, side.entry.follow("batch", ingest_seq=7))
    deleted = deltalake.DeltaTable(str(side.path))
    deleted.delete("_seq > 0")
    assert deleted.version() == side.version, "the default commits nothing"

    web.start()

    side = web.flow.sides["silver.page_views"]["quarantine"]
    side.reopen()
    assert (side.entry.kind, side.entry.ingest_seq) == ("redo", 0)


def test_position_survives_compaction_and_log_cleanup(tmp_path: Path) -> None:
    """After both only the compaction's own entry may be left: it repeats the whole position, the txn goes on."""
    table = owned(tmp_path)
    for seq in range(1, 4):
        batch(table, rows((seq, seq)), seq=seq)
    compact(table, command=1, committer=COMMITTER)
    table.checkpoint()
    log = table.path / "_delta_log"
    for version in range(table.version):
        (log / f"{version:020d}.json").unlink()

    again = owned(tmp_path, epoch=2)

    assert again.entry.kind == "compact"
    assert again.entry.position.batches == {"bronze.things": 3}
    assert again.delta.transaction_version(TXN_APP) == 3
    batch(again, rows((4, 4)), seq=4)
    assert again.delta.transaction_version(TXN_APP) == again.version
    assert again.rows() == 4


def test_only_batches_bring_new_rows(tmp_path: Path) -> None:
    """Compaction writes every row anew, the undoing of a batch those that stay: whoever follows has them already."""
    table = owned(tmp_path)
    for seq in (1, 2, 3):
        batch(table, rows((seq, seq), (seq + 10, seq)), seq=seq)
    compact(table, command=1, committer=COMMITTER)
    redo = table.entry.follow("redo")
    table.delta.delete("key = 1", commit_properties=table.properties(redo), post_commithook_properties=HOOKS_OFF)
    table.moved_to(table.delta.version(), redo, brought_rows=True)
    batch(table, rows((4, 4)), seq=4)

    taken, passed, new = (table.read_added(*span) for span in ((0, 3), (3, 5), (3, 6)))

    assert table.version == 6
    assert sorted(taken["key"].to_pylist()) == [1, 2, 3, 11, 12, 13]
    assert passed.num_rows == 0
    assert new["key"].to_pylist() == [4]


def test_commits_leave_the_log_to_its_owner(tmp_path: Path) -> None:
    """By default the hundredth commit writes a checkpoint and clears old commits away, in the middle of a batch."""
    table = owned(tmp_path / "own")
    for seq in range(1, 99):
        COMMITTER.mark(table, table.entry.follow("batch", ingest_seq=seq))
    shutil.copytree(tmp_path / "own", tmp_path / "other")
    by_default = tmp_path / "other" / "things"
    deltalake.write_deltalake(str(by_default), rows((1, 1)), mode="append")
    assert list(by_default.glob("_delta_log/*.checkpoint*")), "the default writes one"

    batch(table, rows((1, 1)), seq=99)

    assert table.version == 99
    assert not list(table.path.glob("_delta_log/*.checkpoint*"))


def test_negative_zero_is_committed_as_zero(tmp_path: Path) -> None:
    """Spark does not find a -0.0 that delta-rs wrote when it looks for 0.0."""
    schema = pa.schema([("key", pa.int64()), ("ratio", pa.float64())])
    table = owned(tmp_path, schema)

    batch(table, pa.table({"key": [1, 2, 3], "ratio": [-0.0, 0.0, None]}, schema=schema))

    assert [str(value) for value in table.read()["ratio"].to_pylist()] == ["0.0", "0.0", "None"]


def test_bytes_that_are_no_text_are_refused_before_they_are_committed(tmp_path: Path) -> None:
    """delta-rs appends them, and fails at every merge from then on."""
    schema = pa.schema([("key", pa.int64()), ("name", pa.string())])
    table = owned(tmp_path, schema)
    poison = pa.StringArray.from_buffers(1, pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pa.py_buffer(b"\xff"))

    with pytest.raises(pa.ArrowInvalid, match="UTF"):
        batch(table, pa.table([pa.array([1], pa.int64()), poison], schema=schema))

    assert table.version == 0


@pytest.mark.parametrize(("how", "expected"), [("add", [3, 5, 7]), ("least", [1, 5, 7]), ("greatest", [2, 5, 7])])
def test_combining_ignores_null_and_finds_null_keys(tmp_path: Path, how: Combine, expected: list[int]) -> None:
    """A sum with null is null in SQL, and a null key equals nothing: both would lose what was counted."""
    table = owned(tmp_path)
    clauses = (
        Clause(on="matched", act="update", set={"value": combined("value", how, pa.int64())}),
        Clause(on="not matched", act="insert", set={"key": "s.key", "value": "s.value"}),
    )
    merge = Merge(keys=("key",), nullable_keys=frozenset({"key"}), clauses=clauses)

    batch(table, rows((1, 1), (2, 5), (None, None)), merge)
    batch(table, rows((1, 2), (2, None), (None, 7)), merge, seq=2)

    assert table.read().sort_by("key")["value"].to_pylist() == expected


def test_literal_bounds_of_the_keys_leave_files_out(tmp_path: Path) -> None:
    """Without them a merge of one row reads the whole table."""
    table = owned(tmp_path)
    for low in (0, 100, 200):
        batch(table, rows(*((low + one, 0) for one in range(10))), seq=low + 1)
    few = rows((105, 1))
    batch(table, few, newer("key"), seq=300)
    committed = table.delta.history(1)[0]["operationMetrics"]["num_target_files_skipped_during_scan"]

    def files_left_out(condition: str) -> int:
        merged = deltalake.DeltaTable(str(table.path)).merge(few, condition, source_alias="s", target_alias="t")
        metrics = merged.when_matched_update({"value": "s.value"}).execute()
        return int(metrics["num_target_files_skipped_during_scan"])

    bare = files_left_out("t.key = s.key")
    bounded = files_left_out(_on(newer("key"), few, None))

    assert committed == 2
    assert bounded == 2
    assert bare == 0
    assert pc.max(deltalake.DeltaTable(str(table.path)).to_pyarrow_table()["value"]).as_py() == 1
