"""Commits whose log files are gone, by their copies in `ops.ledger_<app>` (`record_book.py`). No Spark here."""

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds

from deltaworks.engine.entry import Entry
from deltaworks.engine.log import Logged, newest_version, read_log

LAYER = "ops"
COMMITS_AT_ONCE = 5_000
"""So many are in memory at once, each about a kilobyte."""
_COLUMNS = ["version", "committed_at", "entry", "rows_added", "rows_updated", "rows_deleted"]


def copied(table: Path, *, before: int) -> Iterator[Logged]:
    """The commits of a table, by its folder, before this version, newest first, as far as they were copied."""
    if before <= 0 or (copies := _copies(table)) is None:
        return
    data, mine = copies
    for upto in range(before, 0, -COMMITS_AT_ONCE):
        among = (ds.field("version") < upto) & (ds.field("version") >= upto - COMMITS_AT_ONCE)
        yield from _newest_first(data, mine & among)


def newest_copied(table: Path, which: ds.Expression) -> Entry | None:
    """The entry of the newest such commit of a table; None if none was copied."""
    copies = _copies(table)
    found = None if copies is None else next(_newest_first(copies[0], copies[1] & which), None)
    return None if found is None else found.entry


def _copies(table: Path) -> tuple[ds.Dataset, ds.Expression] | None:
    """The app's copies, and which of them are about this table; a table has one app."""
    folders = sorted((table.parent.parent / LAYER).glob("ledger_*"))
    if not folders:
        return None
    name, made = f"{table.parent.name}.{table.name}", str(deltalake.DeltaTable(str(table)).metadata().id)
    for folder in folders:
        newest = newest_version(folder)
        last = None if newest is None else read_log(folder, newest)
        if last is not None and last.entry is not None and f"{name}@{made}" in last.entry.position.versions:
            data = deltalake.DeltaTable(str(folder)).to_pyarrow_dataset()
            return data, (ds.field("table_name") == name) & (ds.field("table_id") == made)
    return None


def _newest_first(data: ds.Dataset, which: ds.Expression) -> Iterator[Logged]:
    rows: pa.Table = data.to_table(columns=_COLUMNS, filter=which).sort_by([("version", "descending")])
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            yield Logged(
                version=row["version"],
                at=row["committed_at"],
                entry=Entry.from_json(row["entry"]),
                text=row["entry"],
                rows_added=row["rows_added"],
                rows_updated=row["rows_updated"],
                rows_deleted=row["rows_deleted"],
                changes=True,  # it may have: only its log file could tell
            )
