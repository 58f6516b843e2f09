"""A Delta table that this process owns: its handle, its last entry, the files that its commits added.

Local disk is assumed here: log files are read by path. Everything that writes goes through `commit.py`.
"""

import json
import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine import disk
from deltaworks.engine.copies import copied
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import ROW_KINDS, Entry
from deltaworks.engine.file_statistics import Written, told_by, written
from deltaworks.engine.log import actions_of, is_told, log_has
from deltaworks.engine.partition import Partition
from deltaworks.engine.past import begin_anew
from deltaworks.engine.phases import phase
from deltaworks.engine.points import reached
from deltaworks.engine.repeats import Repeats
from deltaworks.engine.stage import Stage
from deltaworks.errors import CommitLostError, ForeignCommitError, LakeError

CHECKPOINT_COMMITS = 20
"""So many commits without a log checkpoint cost each further commit, and each reader, more than a checkpoint does."""
# Log clean-up and checkpoints are the owner's work, outside the hot path: both are off in each commit.
HOOKS_OFF = deltalake.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
TXN_APP = "deltaworks"
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
_FILES_AHEAD = 1
"""Where rows may be too many, those of further files are not unpacked beforehand."""
_Part = TypeVar("_Part", pa.Table, pa.RecordBatch)
log = logging.getLogger("deltaworks.lake")


class TooMuchError(Exception):
    """What is to be read is more than the driver takes into memory: let Spark do it."""


@dataclass(frozen=True)
class Commit:
    """One version of a table as its log tells it."""

    version: int
    entry: Entry | None
    operation: str
    added: tuple[str, ...]


class OwnedTable:
    """Handle of one table. Not thread-safe: the app's lock is held around every use."""

    def __init__(
        self,
        *,
        name: str,
        path: Path,
        schema: pa.Schema,
        entry: Entry,
        change_feed: bool = False,
        addable: Container[str] = (),
        partition: Partition | None = None,
        replaceable: bool = False,
        beside: "OwnedTable | None" = None,
    ) -> None:
        """Open the table, creating it with `entry` (its app and epoch) if it does not exist.

        `schema` is what writers give and readers get; a partition's hidden column is stored beside it. Columns that the
        table on disk lacks are added if they are `addable`: rows that are there have null.
        Raises LakeError if the table on disk has other partitions, or other columns than `schema` otherwise, unless it
        is `replaceable`: then it is `outdated`. `beside`: what it is beside; its entries say where that stands.
        """
        self.name, self.path, self.schema, self.partition, self._beside = name, path, schema, partition, beside
        self.sides: dict[str, OwnedTable] = {}
        """Those beside it, by suffix: its entries say where they stand."""
        self.stored = schema if partition is None else schema.append(partition.field)
        if not deltalake.DeltaTable.is_deltatable(str(path)):
            self._create(entry, change_feed)
        self.delta = deltalake.DeltaTable(str(path))
        self._adds: tuple[int, pa.Table] | None = None
        self._addable = addable
        self._refuse_other_partitions()
        self.outdated: LakeError | None = self._outdated()
        """Why its rows can neither be read nor written as declared, until others take their place."""
        if self.outdated is not None and not replaceable:
            raise self.outdated
        self.version: int = self.delta.version()
        self.entry: Entry = self._last_entry()
        self.made = str(self.delta.metadata().id)
        """Which table this is: one that is made in its place is another."""
        self._opened = (self.version, self.entry.ingest_seq)
        if self.outdated is None:
            self._add_columns(entry)
            if change_feed:
                self._keep_changes(entry)
            self._tell_of_doubles_no_more(entry)
        self._checkpointed = _last_checkpoint(path)
        self.data_version: int = self.version
        """Last version that may have brought rows; the tables below are current when they have taken it."""
        self.stage = Stage(path)
        self.repeats = Repeats()

    def _create(self, entry: Entry, change_feed: bool) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        begin_anew(self.path)
        reached(self.name, entry.kind, "before-commit")
        configuration = {**(CHANGE_FEED if change_feed else {}), **told_by(self.stored, self._parts_by)}
        deltalake.DeltaTable.create(
            str(self.path),
            schema=self.stored,
            partition_by=self._parts_by,
            name=self.name,
            configuration=configuration,
            commit_properties=deltalake.CommitProperties(
                custom_metadata={"userMetadata": self.placed(entry).to_json()}
            ),
            post_commithook_properties=HOOKS_OFF,
        )
        reached(self.name, entry.kind, "after-commit")

    @property
    def keeps_changes(self) -> bool:
        """Whether each of its commits tells which rows it changed, for those that follow it."""
        return bool(self.delta.metadata().configuration.items() >= CHANGE_FEED.items())

    @property
    def _parts_by(self) -> list[str]:
        return [] if self.partition is None else [self.partition.name]

    def _outdated(self) -> LakeError | None:
        try:
            self.refuse_other_columns(pa.schema(self.delta.schema()))
        except LakeError as error:
            return error
        return None

    def _refuse_other_partitions(self) -> None:
        there = self.delta.metadata().partition_columns
        if there != self._parts_by:
            declared, found = (", ".join(names) or "none" for names in (self._parts_by, there))
            finding = f"declared with partitions by {declared}, the table has {found}"
            raise LakeError(
                self.name, finding, "Declare partition_by as it was, or move it and those that read it out of the lake"
            )

    def _add_columns(self, opened: Entry) -> None:
        """Declared since the table was made: one commit without rows, by this owner."""
        there = {field.name for field in self.delta.schema().fields}
        missing = [field for field in self.schema if field.name not in there]
        if not missing:
            return
        fields = [deltalake.Field.from_arrow(field) for field in missing]
        entry = self._widened(opened)
        self.delta.alter.add_columns(
            fields, commit_properties=self.properties(entry), post_commithook_properties=HOOKS_OFF
        )
        self._follow(entry)
        log.warning("%s: added %s; rows from before have null", self.name, ", ".join(field.name for field in missing))

    def _keep_changes(self, opened: Entry) -> None:
        """Somebody follows its changes who did not when the table was made: they are told from here on."""
        if self.keeps_changes:
            return
        entry = self._widened(opened)
        self.delta.alter.set_table_properties(
            CHANGE_FEED, commit_properties=self.properties(entry), post_commithook_properties=HOOKS_OFF
        )
        self._follow(entry)
        log.info("%s: its changes are kept from version %d on", self.name, self.version)

    def _tell_of_doubles_no_more(self, opened: Entry) -> None:
        """Made by a version that had statistics of them, or has columns since that it had not."""
        told = told_by(self.stored, self._parts_by)
        if self.delta.metadata().configuration.items() >= told.items():
            return
        entry = self._widened(opened)
        self.delta.alter.set_table_properties(
            told, commit_properties=self.properties(entry), post_commithook_properties=HOOKS_OFF
        )
        self._follow(entry)

    @property
    def written(self) -> Written:
        """How delta-rs writes its files, as arguments for it."""
        return written(self.stored)

    def _widened(self, opened: Entry) -> Entry:
        return self.placed(replace(self.entry.follow("widen"), app=opened.app, epoch=opened.epoch))

    def _follow(self, entry: Entry) -> None:
        self.delta = deltalake.DeltaTable(str(self.path))
        self.version, self.entry = self.delta.version(), entry

    def refuse_other_columns(self, schema: pa.Schema) -> None:
        """Raise LakeError where rows of this schema are not as declared; columns that may be added may be missing."""
        there = {field.name: field.type for field in schema}
        for field in self.stored:
            if field.name not in there:
                if field.name in self._addable:
                    continue
                finding = "declared, but not in the table"
            elif not _same(there[field.name], field.type):
                finding = f"declared {field.type}, the table has {there[field.name]}"
            else:
                continue
            raise LakeError(
                f"{self.name}.{field.name}", finding, f'Declare it as it was, or run "deltaworks rebuild {self.name}"'
            )
        extra = sorted(set(there) - set(self.stored.names))
        if extra:
            next_step = f'Declare it, or run "deltaworks rebuild {self.name}"'
            raise LakeError(f"{self.name}.{extra[0]}", "in the table, not declared", next_step)

    def _last_entry(self) -> Entry:
        for commit in self.commits_backwards():
            if commit.entry is None:
                raise ForeignCommitError(
                    self.name,
                    f"version {commit.version} ({commit.operation}) was committed by somebody else",
                    "Only the owner may write. Move this table and those that read it out of the lake, start the app",
                )
            return commit.entry
        raise LakeError(self.name, "its log has no entry", "Rebuild the table")

    def commits_backwards(self) -> Iterator[Commit]:
        """The commits in log and past, newest first, from the version that this handle knows."""
        return logged_backwards(self.path, self.version if hasattr(self, "version") else self.delta.version())

    def entries_backwards(self) -> Iterator[Entry]:
        """The entries of all commits, newest first: those in log and past, then the copies of older ones."""
        return (entry for _, entry in self.told_backwards())

    def told_backwards(self) -> Iterator[tuple[int, Entry]]:
        """The same, each with its version."""
        first = self.version + 1
        for commit in self.commits_backwards():
            first = commit.version
            if commit.entry is not None:
                yield first, commit.entry
        for copy in copied(self.path, before=first):
            first = copy.version
            if copy.entry is not None:
                yield first, copy.entry
        if first:
            log.warning("%s: what version %d did, and those before, is neither in its log nor in ops.ledger",
                        self.name, first - 1)  # fmt: skip

    def is_own(self, taken: int, *, batch: bool) -> bool:
        """Whether this process has committed a version, or an ingest batch."""
        return taken > self._opened[batch]

    def placed(self, entry: Entry) -> Entry:
        """An entry as it is committed now."""
        sides = {**entry.sides, **{suffix: side.version for suffix, side in self.sides.items()}}  # some open later
        return replace(entry, beside=None if self._beside is None else self._beside.version, sides=sides)

    def moved_to(self, version: int, entry: Entry, *, brought_rows: bool) -> None:
        """Follow a commit of our own."""
        self.version, self.entry = version, entry
        if brought_rows:
            self.data_version = version

    @property
    def wants_checkpoint(self) -> bool:
        """Whether enough was committed since the last one."""
        return self.version - self._checkpointed >= CHECKPOINT_COMMITS

    def checkpoint(self, *, on_disk: bool = False) -> None:
        """Write the table's state beside its log, so that nobody has to read the commits before; rows are not touched.

        This handle starts anew from it, at our own version: a foreign commit beyond is still met as a conflict. What it
        stands for is on the disk before, or already (`on_disk`): so a power cut tears commits beyond it only.
        """
        reached(self.name, "checkpoint", "before-write")
        if not on_disk:
            disk.sync(self.path)
        self.delta.create_checkpoint()
        reached(self.name, "checkpoint", "after-write")
        self.delta = deltalake.DeltaTable(str(self.path), version=self.version)
        self._checkpointed = self.version

    def reopen(self) -> None:
        """Forget what is remembered and read the table's state anew."""
        self.delta = deltalake.DeltaTable(str(self.path))
        self._adds = None
        self.outdated = self._outdated()
        self.version = self.delta.version()
        self.entry = self._last_entry()
        self.made = str(self.delta.metadata().id)
        self.data_version = self.version
        self.repeats = Repeats()

    def refresh(self) -> None:
        """Read the log up to the newest version, after a commit of our own through Spark."""
        self.delta.update_incremental()

    def left_behind(self) -> CommitLostError | None:
        """What to raise where the log has a commit that this handle does not know, as after one that failed halfway.

        Also where it is somebody else's. Either way a driver that starts again reads what there is.
        """
        if not log_has(self.path, self.version + 1):
            return None
        finding = f"version {self.version + 1} is committed, and this process does not know it"
        return CommitLostError(self.name, finding, "Restart the app")

    def transaction(self) -> deltalake.Transaction:
        """The fence of the next commit: one sequence for both commit paths, the version itself."""
        return deltalake.Transaction(TXN_APP, self.version + 1)

    def properties(self, entry: Entry, *, counted: Mapping[str, int] | None = None) -> deltalake.CommitProperties:
        """Commit properties that carry the entry and what was counted, and never rebase over a foreign commit."""
        return deltalake.CommitProperties(
            custom_metadata={"userMetadata": entry.to_json()}
            | {name: f"{many}" for name, many in (counted or {}).items()},
            max_commit_retries=0,  # by default delta-rs silently rebases an append over another owner's commit
            app_transactions=[self.transaction()],
        )

    @phase("read")
    def read(
        self, columns: list[str] | None = None, where: ds.Expression | None = None, *, bytes_max: int | None = None
    ) -> pa.Table:
        """The rows of the present version as Arrow, in the declared types.

        Raises TooMuchError where they are more than `bytes_max` bytes in memory.
        """
        names = columns or self.schema.names
        dataset = dataset_of(self.delta)  # as_large_types off: strings come back as `string`, as declared
        try:
            table = _read(dataset, bytes_max, columns=names, filter=where)
        except pa.ArrowNotImplementedError:
            # delta-rs writes string views when it merges or deletes, and Arrow cannot prune files by those
            batches = (pa.Table.from_batches([batch]).filter(where) for batch in dataset.to_batches())
            table = pa.concat_tables(bounded(chain([dataset.schema.empty_table()], batches), bytes_max)).select(names)
        return table.cast(pa.schema([self.schema.field(name) for name in names]))

    def memory_per_row(self, keys: list[str], where: ds.Expression | None = None) -> pa.Table:
        """These columns of the rows, and in `bytes` about how much memory each whole row takes as Arrow."""
        names = [*dict.fromkeys((*keys, *self.schema.names))]
        schema = pa.schema([*(self.schema.field(name) for name in keys), pa.field("bytes", pa.int64())])
        found = [schema.empty_table()]
        # filtered here: see `read`
        for batch in dataset_of(self.delta).to_batches(columns=names, fragment_readahead=_FILES_AHEAD):
            rows = pa.Table.from_batches([batch]).cast(pa.schema([self.schema.field(name) for name in names]))
            rows = rows if where is None else rows.filter(where)
            found.append(rows.select(keys).append_column("bytes", _memory(rows)))
        return pa.concat_tables(found)

    def rows(self) -> int:
        """How many rows the present version has."""
        return int(pc.sum(self.adds()["num_records"]).as_py() or 0)

    def files(self) -> list[str]:
        """The present version's files, as the log names them."""
        names: list[str] = self.adds()["path"].to_pylist()
        return names

    def bytes(self) -> int:
        """Size of the present version's files."""
        return int(pc.sum(self.adds()["size_bytes"]).as_py() or 0)

    def adds(self) -> pa.Table:
        """A row for each file of the present version: `path`, `size_bytes`, `num_records` (null: not known).

        Also `modification_time` (ms since 1970), and `part`, the value of the hidden column (null without parts too).
        Several views ask about one input in each turn, so it is read once for each version.
        """
        if self._adds is None or self._adds[0] != self.delta.version():
            actions = pa.table(self.delta.get_add_actions(flatten=self.partition is not None))
            named = None if self.partition is None else actions[f"partition.{self.partition.name}"]
            part = pa.nulls(actions.num_rows) if named is None else named
            chosen = actions.select(["path", "size_bytes", "num_records", "modification_time"])
            self._adds = (self.delta.version(), chosen.append_column("part", part))
        return self._adds[1]

    def smaller(self, size_max: int, part: tuple[str, Any] | None = None) -> pa.Table:
        """The files of less than `size_max` bytes, as `adds` tells them; of a part (hidden column, value) or of all."""
        files = self.adds()
        files = files.filter(pc.less(files["size_bytes"], size_max))
        if part is None:
            return files
        return files.filter(pc.is_null(files["part"]) if part[1] is None else pc.equal(files["part"], part[1]))

    def rows_added(self, after: int, upto: int) -> list[str]:
        """Absolute paths of the files that batch commits in (after, upto] added."""
        return files_added(self.path, after, upto)

    @phase("read")
    def read_added(self, after: int, upto: int, *, bytes_max: int | None = None) -> pa.Table:
        """The rows that batch commits in (after, upto] added; raises TooMuchError as above."""
        paths = self.rows_added(after, upto)
        if not paths:
            return self.schema.empty_table()
        return _read(ds.dataset(paths, schema=self.schema, format="parquet"), bytes_max).cast(self.schema)

    def bytes_added(self, after: int, upto: int) -> int:
        """Size of the files of `rows_added`."""
        return sum(Path(path).stat().st_size for path in self.rows_added(after, upto))


def logged_backwards(path: Path, version: int) -> Iterator[Commit]:
    """The commits of a table up to this version, newest first, as far back as its log and its past go."""
    try:
        while version >= 0:
            yield read_commit(path, version)
            version -= 1
    except LakeError:  # its owner may be shortening it
        if is_told(path, version):
            raise


def _read(dataset: ds.Dataset, bytes_max: int | None, **which: Any) -> pa.Table:
    if bytes_max is None:
        return dataset.to_table(**which)
    scanner = dataset.scanner(fragment_readahead=_FILES_AHEAD, **which)
    return pa.Table.from_batches(bounded(scanner.to_batches(), bytes_max), schema=scanner.projected_schema)


def bounded(parts: Iterable[_Part], bytes_max: int | None) -> list[_Part]:
    """All parts; raises TooMuchError as soon as they are too much: a file may unpack to a thousand times its size."""
    found, size = [], 0
    for part in parts:
        size += part.nbytes
        if bytes_max is not None and size > bytes_max:
            raise TooMuchError(bytes_max)
        found.append(part)
    return found


def _memory(rows: pa.Table) -> pa.Array:
    """About how many bytes each row takes: texts and bytes by their length, all else as one number of 64 bits."""
    sizes = pa.array([8 * rows.num_columns] * rows.num_rows, pa.int64())
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()))
    return sizes


def files_added(path: Path, after: int, upto: int) -> list[str]:
    """Absolute paths of the files that batch commits in (after, upto] added; LakeError if the log lacks them."""
    commits = (read_commit(path, version) for version in range(after + 1, upto + 1))
    return [
        str(path / name)
        for commit in commits
        if commit.entry is not None and commit.entry.kind in ROW_KINDS
        for name in commit.added
    ]


def all_there(path: Path, after: int, upto: int) -> bool:
    """Whether those files are: none of them has been replaced and deleted since."""
    try:
        return all(Path(file).exists() for file in files_added(path, after, upto))
    except LakeError:
        return False


def read_commit(path: Path, version: int) -> Commit:
    """Read one version; raises LakeError if neither the log nor the past has it."""
    try:
        actions = actions_of(path, version)
    except FileNotFoundError:
        finding = f"its log begins after version {version}"
        raise LakeError(f"{path.parent.name}.{path.name}", finding, "Rebuild the tables that need it") from None
    info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    added = tuple(unquote(a["add"]["path"]) for a in actions if "add" in a)
    entry = Entry.from_json(info.get("userMetadata"), place=f"{path.parent.name}.{path.name}")
    return Commit(version, entry, str(info.get("operation", "unknown")), added)


def _same(there: pa.DataType, declared: pa.DataType) -> bool:
    """Whether Delta's type is the declared one (Delta has no large or fixed variants)."""
    if pa.types.is_list(declared) or pa.types.is_large_list(declared):
        return bool(pa.types.is_list(there) or pa.types.is_large_list(there))
    return bool(there == declared) or str(there).removeprefix("large_") == str(declared)


def _last_checkpoint(path: Path) -> int:
    """Version of the last log checkpoint, -1 if there is none (Delta protocol, "Last Checkpoint File")."""
    try:
        return int(json.loads((path / "_delta_log" / "_last_checkpoint").read_text())["version"])
    except (FileNotFoundError, ValueError, KeyError):  # it is a hint: without it one checkpoint more is made
        return -1
