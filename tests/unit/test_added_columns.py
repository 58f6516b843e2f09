"""A declaration gains a column: the table gains it too if its rows may have null, else the owner refuses to start."""

from collections.abc import Container
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.errors import LakeError

BEFORE = pa.schema([("key", pa.int64()), ("_seq", pa.int64())])
AFTER = pa.schema([("key", pa.int64()), ("price", pa.decimal128(12, 2)), ("_seq", pa.int64())])
COMMITTER = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)


def opened(folder: Path, schema: pa.Schema, *, epoch: int = 1, addable: Container[str] = ()) -> OwnedTable:
    """Open the table as an owner of this epoch does."""
    entry = Entry(kind="create", app="a", epoch=epoch)
    return OwnedTable(
        name="silver.things", path=folder / "things", schema=schema, entry=entry, change_feed=True, addable=addable
    )


def put(table: OwnedTable, *rows: tuple[object, ...], how: Merge | None = None) -> None:
    """Commit rows in the order of the declared columns."""
    made = pa.Table.from_pylist([dict(zip(table.schema.names, row, strict=True)) for row in rows], schema=table.schema)
    COMMITTER.commit(table, made, table.entry.follow("batch", counts=Counts(read=len(rows), taken=len(rows))), how=how)


def test_rows_from_before_have_null_in_a_new_column(tmp_path: Path) -> None:
    """One commit of the new owner; position and totals stay, appends, merges and the change feed go on."""
    put(opened(tmp_path, BEFORE), (1, 1), (2, 1))

    table = opened(tmp_path, AFTER, epoch=2, addable={"price"})
    added = table.entry
    put(table, (3, Decimal("1.50"), 2))
    own = {name: f"s.{name}" for name in AFTER.names}
    put(
        table, (1, Decimal("0.50"), 3), how=Merge(keys=("key",), clauses=(Clause(on="matched", act="update", set=own),))
    )

    assert (added.kind, added.epoch, added.totals.taken) == ("widen", 2, 2)
    rows = sorted(table.read().to_pylist(), key=str)
    assert [tuple(row.values()) for row in rows] == [(1, Decimal("0.50"), 3), (2, None, 1), (3, Decimal("1.50"), 2)]
    assert table.read_added(0, table.version).num_rows == 5
    feed = pa.table(deltalake.DeltaTable(str(table.path)).load_cdf(starting_version=1))
    assert feed.num_rows == 5
    assert opened(tmp_path, AFTER, epoch=2).version == table.version


def test_a_column_that_cannot_be_null_is_refused(tmp_path: Path) -> None:
    """Nothing is known of it for the rows that are there."""
    put(opened(tmp_path, BEFORE), (1, 1))

    with pytest.raises(LakeError, match=r"silver\.things\.price: declared, but not in the table"):
        opened(tmp_path, AFTER)


def test_a_column_under_another_name_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """The old one would keep its values and never be read again."""
    put(opened(tmp_path, AFTER), (1, None, 1))
    renamed = pa.schema([("key", pa.int64()), ("cost", pa.decimal128(12, 2)), ("_seq", pa.int64())])

    with pytest.raises(LakeError, match=r"silver\.things\.price: in the table, not declared"):
        opened(tmp_path, renamed, addable={"cost"})
    assert opened(tmp_path, AFTER).version == 1
