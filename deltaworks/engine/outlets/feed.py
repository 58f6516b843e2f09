"""What became of a table's rows since a version, as its log tells it. No Spark here.

Reads what is committed, so it needs neither the app's lock nor its handles. Raises nothing where the log, the feed or
files are gone: then there are no changes to be told, and who asks takes the whole table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError

from deltaworks.catalog import Declared
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import ROW_KINDS
from deltaworks.engine.lake import TooMuchError, bounded, read_commit
from deltaworks.engine.log import newest_version
from deltaworks.engine.parsing.values import arrow_type
from deltaworks.errors import LakeError
from deltaworks.words.keeping import Append

PLACE = "_source"
"""Of a table without keys: the column that tells its rows apart."""
_BEFORE = ("delete", "update_preimage")
_Told = tuple[int, str, tuple[Any, ...], tuple[Any, ...]]
"""Version, what the change feed calls it, key, row."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a key: `row` is what it has since `version`, None if it is gone."""

    version: int
    key: tuple[Any, ...]
    row: tuple[Any, ...] | None


class Feed:
    """The changes of one table. Not thread-safe."""

    def __init__(self, declared: Declared, path: Path, *, bytes_max: int) -> None:
        """Open nothing yet. Changes of more than `bytes_max` bytes in memory are not told."""
        self.declared, self.path = declared, path
        self.columns = tuple(column.name for column in declared.columns)
        self.keyed = not isinstance(declared.table.kept_as, Append)
        self.keys = declared.keys if self.keyed else (PLACE,)
        self._bytes_max = bytes_max
        self._names = self.columns if self.keyed else (*self.columns, PLACE)
        types = {column.name: arrow_type(column.type) for column in declared.columns} | {PLACE: pa.string()}
        self._schema = pa.schema([pa.field(name, types[name]) for name in self._names])
        self._places = [self._names.index(key) for key in self.keys]
        self._table: deltalake.DeltaTable | None = None
        self._known = -1

    def newest(self) -> int | None:
        """The newest version; None while there is no table. Costs a look for one file."""
        newest = newest_version(self.path, self._known)
        self._known = -1 if newest is None else newest
        return newest

    def forget(self) -> None:
        """Let go of the table: a handle in which Rust has panicked may answer nothing any more."""
        self._table = None

    def identity(self) -> str:
        """What tells this table from one that is made anew in its place."""
        return str(self._opened(self._known).metadata().id)

    def changes(self, after: int, upto: int) -> list[Change] | None:
        """The last change of each key in versions (after, upto], oldest first; None if they cannot be told."""
        found = self._told(after, upto)
        return None if found is None else sorted(_last(found).values(), key=lambda change: change.version)

    def inserts(self, after: int, upto: int) -> list[Change] | None:
        """The rows whose key a version in (after, upto] brought and the one before lacked, oldest first; None as above.

        They are the same however the versions are cut: a row that changed or went since is told as it came. What is
        published by a command takes the place of rows, and brings none.
        """
        found = self._told(after, upto)
        if found is None:
            return None
        replaced = {version for version in {one[0] for one in found} if self._replaces(version)}
        found = [one for one in found if one[0] not in replaced]
        before = {(version, key) for version, what, key, _ in found if what in _BEFORE}
        return [Change(v, key, row) for v, what, key, row in found if what not in _BEFORE and (v, key) not in before]

    def rows(self, version: int) -> Iterator[list[Change]]:
        """All rows of a version, in parts, as if each was new."""
        dataset = dataset_of(self._opened(version))
        for batch in dataset.to_batches(columns=list(self._names)):
            rows = _tuples(batch.cast(self._schema))
            yield [Change(version, self._key(row), row[: len(self.columns)]) for row in rows]

    def _opened(self, version: int) -> deltalake.DeltaTable:
        if self._table is None:
            self._table = deltalake.DeltaTable(str(self.path))
        if self._table.version() < version:
            self._table.update_incremental()
        if self._table.version() != version:  # it was made anew, or went on since: this version is asked for
            self._table = deltalake.DeltaTable(str(self.path), version=version)
        return self._table

    def _told(self, after: int, upto: int) -> list[_Told] | None:
        try:
            return self._of_feed(after, upto) if self.keyed else list(self._of_files(after, upto))
        except (DeltaError, LakeError, TooMuchError, OSError, pa.ArrowException):  # it, or a file of it, is gone
            return None

    def _replaces(self, version: int) -> bool:
        entry = read_commit(self.path, version).entry
        return entry is not None and entry.kind == "publish"

    def _of_feed(self, after: int, upto: int) -> list[_Told]:
        opened = pa.RecordBatchReader.from_stream(
            self._opened(upto).load_cdf(starting_version=after + 1, ending_version=upto)
        )
        feed = pa.Table.from_batches(bounded(opened, self._bytes_max), schema=opened.schema)
        rows = _tuples(feed.select(self._names).cast(self._schema))
        told = zip(feed["_commit_version"].to_pylist(), feed["_change_type"].to_pylist(), rows, strict=True)
        return sorted(((v, what, self._key(row), row) for v, what, row in told), key=lambda one: one[0])

    def _of_files(self, after: int, upto: int) -> Iterator[_Told]:
        size = 0
        for version in range(after + 1, upto + 1):
            commit = read_commit(self.path, version)
            if commit.entry is None or commit.entry.kind not in ROW_KINDS or not commit.added:
                continue
            names = [str(self.path / name) for name in commit.added]
            files = ds.dataset(names, schema=self._schema, format="parquet")  # older files lack newer columns
            for batch in files.to_batches():
                size += batch.nbytes
                if size > self._bytes_max:
                    raise TooMuchError(self._bytes_max)
                for row in _tuples(batch):
                    yield version, "insert", self._key(row), row[: len(self.columns)]

    def _key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(row[place] for place in self._places)


def _last(told: list[_Told]) -> dict[tuple[Any, ...], Change]:
    found: dict[tuple[Any, ...], Change] = {}
    for version, what, key, row in told:  # by version
        if what not in _BEFORE:
            found[key] = Change(version, key, row)
        elif key not in found or found[key].version < version:  # else the row that took its place is known
            found[key] = Change(version, key, None)
    return found


def _tuples(rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)
