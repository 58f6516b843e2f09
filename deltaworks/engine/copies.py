"""Commits whose log files are gone, by their copies in `ops.ledger_<app>` (`record_book.py`). No Spark here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake

from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Entry
from deltaworks.engine.log import Logged

LAYER = "ops"
COMMITS_AT_ONCE = 5_000
"""So many are in memory at once, each about a kilobyte."""
_COLUMNS = ["version", "committed_at", "entry", "rows_added", "rows_updated", "rows_deleted"]


def copied(table: Path, *, before: int) -> Iterator[Logged]:
    """The commits of a table, by its folder, before this version, newest first, as far as they were copied."""
    if before <= 0:
        return
    for upto in range(before, 0, -COMMITS_AT_ONCE):
        yield from _newest_first(table, (ds.field("version") < upto) & (ds.field("version") >= upto - COMMITS_AT_ONCE))


def newest_copied(table: Path, which: ds.Expression) -> Entry | None:
    """The entry of the newest such commit of a table; None if none was copied."""
    return next((copy.entry for copy in _newest_first(table, which)), None)


def _newest_first(table: Path, which: ds.Expression) -> Iterator[Logged]:
    name, made = f"{table.parent.name}.{table.name}", str(deltalake.DeltaTable(str(table)).metadata().id)
    mine = (ds.field("table_name") == name) & (ds.field("table_id") == made) & which
    found: dict[int, dict[str, Any]] = {}
    for folder in (table.parent.parent / LAYER).glob("ledger_*"):  # a table that changed its app is in several
        rows = dataset_of(deltalake.DeltaTable(str(folder))).to_table(columns=_COLUMNS, filter=mine)
        found |= {row["version"]: row for row in rows.to_pylist()}
    for version in sorted(found, reverse=True):
        row = found[version]
        yield Logged(
            version=version,
            at=row["committed_at"],
            entry=Entry.from_json(row["entry"], place=name),
            text=row["entry"],
            rows_added=row["rows_added"],
            rows_updated=row["rows_updated"],
            rows_deleted=row["rows_deleted"],
            changes=True,  # it may have: only its log file could tell
        )
