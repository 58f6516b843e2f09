"""Somebody who writes a table behind its owner's back."""

import json
from collections.abc import Callable
from typing import Any

import deltalake
import pyarrow as pa

from deltaworks.engine.entry import Entry
from deltaworks.settings import Settings


class Intruder:
    """Knows the engine: each of its commits carries a copy of the owner's last entry."""

    def __init__(self, settings: Settings, table: str) -> None:
        """Open it."""
        self.path = settings.lake / table.replace(".", "/")
        self.delta = deltalake.DeltaTable(str(self.path))
        self.log = self.path / "_delta_log" / f"{self.delta.version():020d}.json"
        info = next(line["commitInfo"] for line in self._lines() if "commitInfo" in line)
        entry = Entry.from_json(info["userMetadata"], place=table)
        assert entry is not None
        self.entry = entry

    def delete(self, where: str) -> None:
        """Delete rows."""
        before = self.delta.to_pyarrow_table().num_rows
        self.delta.delete(where, commit_properties=self._copied())
        assert self.delta.to_pyarrow_table().num_rows < before

    def add(self, where: Callable[[dict[str, Any]], bool], **changes: object) -> None:
        """Add copies of rows, changed so."""
        rows = self.delta.to_pyarrow_table()
        more = [row | changes for row in rows.to_pylist() if where(row)]
        assert more
        table = pa.Table.from_pylist(more, schema=rows.schema)
        deltalake.write_deltalake(self.delta, table, mode="append", commit_properties=self._copied())

    def update(self, column: str, value: str, where: str) -> None:
        """Change values."""
        met = self.delta.update({column: value}, predicate=where, commit_properties=self._copied())
        assert met["num_updated_rows"] >= 1

    def rewrite(self, entry: Entry) -> None:
        """Put another entry into the last commit."""
        lines = self._lines()
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["userMetadata"] = entry.to_json()
        self.log.write_text("\n".join(map(json.dumps, lines)) + "\n")

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line]

    def _copied(self) -> deltalake.CommitProperties:
        copied = self.entry.follow("compact").to_json()
        return deltalake.CommitProperties(custom_metadata={"userMetadata": copied})
