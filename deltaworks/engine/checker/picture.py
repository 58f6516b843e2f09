"""The lake as the checker sees it: each table at one version, and SQL over all of them. No Spark here.

A table is opened before the tables that it reads, and before those beside it, so that a lake whose drivers work shows
inputs that are at least as far as what was taken from them. What lies beyond a reader's position is left out of the
comparison.
"""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.catalog import Catalog, Declared
from deltaworks.engine.datasets import dataset_of
from deltaworks.engine.entry import Entry
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import Commit, logged_backwards
from deltaworks.engine.log import opens_from, whole_from
from deltaworks.engine.past import opened
from deltaworks.errors import LakeError

MEMORY = "1GB"
_NOTHING = Entry(kind="create", app="", epoch=0)


class Held:
    """A table at one version."""

    def __init__(self, name: str, path: Path, version: int | None = None) -> None:
        """Open this version, or its newest; raises LakeError where the table does not go back so far."""
        self.name, self.path = name, path
        found = deltalake.DeltaTable(str(path)) if version is None else self.at(version)
        if found is None:
            finding = f"version {version} cannot be opened, those from {opens_from(path)} on can"
            raise LakeError(name, finding, "Take a later one")
        self.delta = found
        self.version: int = self.delta.version()

    @cached_property
    def entry(self) -> Entry:
        """The last ledger entry; an empty one if there is none."""
        return next((commit.entry for commit in self.commits() if commit.entry is not None), _NOTHING)

    @cached_property
    def made(self) -> str:
        """Which table it is: one that is made in its place is another."""
        return str(self.delta.metadata().id)

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema(self.delta.schema())

    def commits(self) -> Iterator[Commit]:
        """Up to this version, newest first, as far back as log and past go."""
        return logged_backwards(self.path, self.version)

    def files(self) -> list[str]:
        """Its data files, relative to its folder."""
        return [unquote(path) for path in pa.table(self.delta.get_add_actions())["path"].to_pylist()]

    def rows(self) -> int:
        """How many it has."""
        return _rows(self.delta)

    def rows_at(self, version: int) -> int | None:
        """How many an older version has; None if that version cannot be opened any more."""
        older = self.at(version)
        return None if older is None else _rows(older)

    def entry_at(self, version: int) -> Entry:
        """The ledger entry of a version that can be opened."""
        return Held(self.name, self.path, version).entry

    def is_whole(self, older: deltalake.DeltaTable) -> bool:
        """Whether the files of an older version are all there: a VACUUM deletes what only such versions have."""
        names = pa.table(older.get_add_actions())["path"].to_pylist()
        return all((self.path / unquote(name)).exists() for name in names)

    def at(self, version: int) -> deltalake.DeltaTable | None:
        """An older version; None if it cannot be opened any more."""
        with suppress(deltalake.exceptions.DeltaError):
            found = deltalake.DeltaTable(str(self.path), version=version)
            # asked afterwards: before that delta-rs may have found a part of a log to open
            if version >= whole_from(self.path):
                return found
        return opened(self.path, version)


class Picture:
    """The tables of a catalog that exist in a lake."""

    def __init__(self, catalog: Catalog, lake: Path) -> None:
        """Open them, readers first."""
        self.catalog, self.lake = catalog, lake
        self.tables: dict[str, Held] = {}
        for declared in reversed(list(catalog.tables.values())):
            folder = folder_of(declared.name, lake)
            for path in (folder, *sorted(folder.parent.glob(f"{folder.name}__*"))):
                if deltalake.DeltaTable.is_deltatable(str(path)):
                    name = f"{path.parent.name}.{path.name}"
                    self.tables[name] = Held(name, path)
        self._scratch = tempfile.TemporaryDirectory(prefix="deltaworks-checker-")
        config: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": self._scratch.name}
        self.connection = duckdb.connect(config=config)
        # Arrow cannot compare texts with the string views that delta-rs writes when it deletes or merges: DuckDB can
        self.connection.execute("set disabled_optimizers = 'filter_pushdown,join_filter_pushdown'")
        for name, held in self.tables.items():
            self.connection.register(name, dataset_of(held.delta))  # scanned when asked, never loaded whole

    def __enter__(self) -> Self:
        """Use it in a with statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up memory and scratch files."""
        self.connection.close()
        self._scratch.cleanup()

    def __iter__(self) -> Iterator[tuple[Declared, Held]]:
        """Every declared table that exists, inputs first."""
        for declared in self.catalog.tables.values():
            if declared.name in self.tables:
                yield declared, self.tables[declared.name]

    def beside(self, name: str, suffix: str) -> Held | None:
        """The table beside a table."""
        return self.tables.get(f"{name}__{suffix}")

    def count(self, sql: str) -> int:
        """The one number that a query gives."""
        found = self.connection.execute(sql).fetchone()
        assert found is not None
        return int(found[0] or 0)


def named(column: str) -> str:
    """A table's or column's name in SQL."""
    return '"' + column.replace('"', '""') + '"'


def columns(names: tuple[str, ...] | list[str]) -> str:
    """Several."""
    return ", ".join(named(name) for name in names)


def _rows(table: deltalake.DeltaTable) -> int:
    return int(pc.sum(pa.table(table.get_add_actions())["num_records"]).as_py() or 0)
