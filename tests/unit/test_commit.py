"""Commits by Arrow: what a merge must find, and what counts as a change."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.aggregate import combined

UPSERT = (
    Clause(on="matched", act="update", set={"value": "s.value"}),
    Clause(on="not matched", act="insert", set={"key": "s.key", "value": "s.value"}),
)
EMPTY = Clause(on="not matched by source", act="delete", set={})


def owned(folder: Path, key: pa.DataType) -> OwnedTable:
    """Give a table of one key and one value."""
    schema = pa.schema([("key", key), ("value", pa.string())])
    return OwnedTable(
        name="silver.things", path=folder / "things", schema=schema, entry=Entry(kind="create", app="a", epoch=1)
    )


def commit(table: OwnedTable, rows: list[dict[str, object]], *clauses: Clause) -> None:
    """Merge rows by key."""
    made = pa.Table.from_pylist(rows, schema=table.schema)
    entry = table.entry.follow("batch", counts=Counts(read=len(rows), taken=len(rows)))
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    committer.commit(table, made, entry, how=Merge(keys=("key",), clauses=clauses))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (pa.decimal128(20, 0), Decimal(12345678901234567890)),
        (pa.decimal128(18, 2), Decimal("1234567890123456.78")),
        (pa.decimal128(18, 2), Decimal("0.05")),
        (pa.decimal128(18, 2), Decimal("0.00")),
        (pa.int64(), 2**63 - 1),
        (pa.int64(), -(2**63)),
        (pa.string(), "it's\N{GRINNING FACE}" * 40),
    ],
)
def test_second_change_of_a_key_finds_the_first(tmp_path: Path, kind: pa.DataType, key: object) -> None:
    """Whatever a file's statistics say of the key, its row is updated and not inserted again."""
    table = owned(tmp_path, kind)

    for value in ("old", "new"):
        commit(table, [{"key": key, "value": value}], *UPSERT)

    assert table.read().to_pylist() == [{"key": key, "value": "new"}]


@pytest.mark.parametrize(
    ("kind", "most", "more"),
    [
        (pa.int32(), 2**31 - 1, 1),
        (pa.int64(), 2**63 - 1, 1),
        (pa.int64(), -(2**63), -1),
        (pa.decimal128(5, 2), Decimal("999.99"), Decimal("0.01")),
        (pa.decimal128(37, 0), Decimal("9" * 37), Decimal(1)),
    ],
)
def test_sum_that_does_not_fit_is_refused(tmp_path: Path, kind: pa.DataType, most: object, more: object) -> None:
    """Integers must not start again from below: nothing is committed, and the sum that is there stays."""
    schema = pa.schema([("key", pa.int64()), ("value", kind)])
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="gold.sums", path=tmp_path / "sums", schema=schema, entry=entry)
    add = Clause(on="matched", act="update", set={"value": combined("value", "add", kind)})
    commit(table, [{"key": 1, "value": most}], UPSERT[1])

    with pytest.raises(Exception, match="too large|out of range|[Oo]verflow"):
        commit(table, [{"key": 1, "value": more}], add)

    table.reopen()
    assert (table.version, table.read().to_pylist()) == (1, [{"key": 1, "value": most}])


def test_emptied_table_is_a_change(tmp_path: Path) -> None:
    """A truncation brings no row, but the tables below must look again."""
    table = owned(tmp_path, pa.int64())
    commit(table, [{"key": 1, "value": "a"}], *UPSERT)

    commit(table, [], *UPSERT, EMPTY)

    assert table.read().num_rows == 0
    assert table.data_version == table.version


def test_batch_without_rows_is_no_change(tmp_path: Path) -> None:
    """Only the position moved."""
    table = owned(tmp_path, pa.int64())
    commit(table, [{"key": 1, "value": "a"}], *UPSERT)
    before = table.version

    commit(table, [], *UPSERT)

    assert (table.version, table.data_version) == (before + 1, before)


def test_row_of_a_merged_file_is_found_by_its_text(tmp_path: Path) -> None:
    """delta-rs writes such a file with another type of string; a filter still finds what it should."""
    table = owned(tmp_path, pa.string())
    for value in ("old", "new"):
        commit(table, [{"key": "a", "value": value}, {"key": "b", "value": value}], *UPSERT)

    assert table.read(["value"], where=ds.field("key").isin(["b"])).to_pylist() == [{"value": "new"}]


def test_merge_of_no_rows_leaves_its_entry_whatever_columns_they_have(tmp_path: Path) -> None:
    """Nothing came too late, and a backfill numbers what did anew."""
    table = owned(tmp_path, pa.int64())
    nothing = pa.schema([("key", pa.int64())]).empty_table()
    how = Merge(keys=("key",), clauses=(Clause(on="matched", act="update", set={"value": "'new'"}),))

    Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None).commit(
        table, nothing, table.entry.follow("redo"), how=how
    )

    assert (table.version, table.entry.kind, table.rows()) == (1, "redo", 0)
