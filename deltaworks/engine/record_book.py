"""`ops.ledger_<app>`: every commit of an app's tables, kept when the tables' logs are cleaned up. No Spark here.

The entries in the commits are the truth, this is their copy: written by the owner of the tables, outside the hot path,
and made anew from the commits as far as the logs still tell them; beyond that it is all that there is. How far each
table's log is copied stands in this table's own position.
One table per app, because each Delta table has one owner; analysts see all of them as `ops.ledger`.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

from deltaworks.engine.copies import COMMITS_AT_ONCE, LAYER
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Counts, Entry, Position
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import HOOKS_OFF, OwnedTable
from deltaworks.engine.log import Logged, first_version, read_log

if TYPE_CHECKING:  # it brings Spark, and readers of the lake need this module without
    from deltaworks.engine.commit import Committer

SCHEMA = pa.schema(
    [
        ("table_name", pa.string()),
        ("table_id", pa.string()),
        ("version", pa.int64()),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("kind", pa.string()),
        ("app", pa.string()),
        ("epoch", pa.int64()),
        ("ingest_seq", pa.int64()),
        ("rows_added", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("entry", pa.string()),
    ]
)
"""A table that was moved away and made anew has another id. The rest of an entry is in its JSON."""
COMMITS_MAX = 1_000
"""So many commits are copied at once: this happens while the app's lock is held."""
_Marks = dict[str, int]
log = logging.getLogger("deltaworks.record_book")


def book_name(app: str) -> str:
    """Name of an app's table of commits."""
    return f"{LAYER}.ledger_{app}"


class RecordBook:
    """Copies what the logs of an app's tables say."""

    def __init__(self, *, app: str, epoch: int, lake: Path) -> None:
        """Open the table, or create it."""
        name = book_name(app)
        entry = Entry(kind="create", app=app, epoch=epoch)
        self.table = OwnedTable(name=name, path=folder_of(name, lake), schema=SCHEMA, entry=entry)

    def record(self, tables: Iterable[OwnedTable], committer: "Committer") -> bool:
        """Copy the next commits of these tables; True if there are more."""
        before = self.table.entry.position.versions
        marks = dict(before)
        rows: list[dict[str, object]] = []
        for table in tables:
            if table is not self.table:
                rows += islice(_beyond(table, marks), COMMITS_MAX - len(rows))
        if marks != before:
            counts = Counts(read=len(rows), taken=len(rows))
            entry = self.table.entry.follow("batch", counts=counts, position=Position(versions=marks))
            committer.commit(self.table, pa.Table.from_pylist(rows, schema=SCHEMA), entry)
        return len(rows) >= COMMITS_MAX

    def copied_upto(self, table: OwnedTable) -> int:
        """The version up to which a table's commits are copied; -1 if none is."""
        return self.table.entry.position.versions.get(_key(table), -1)

    def rebuild(self, tables: Iterable[OwnedTable], committer: "Committer") -> int:
        """Write the table anew from the logs, in one commit; what the logs no longer tell stays. Returns its rows."""
        committer.guard()
        known = [table for table in tables if table is not self.table]
        marks = {**self.table.entry.position.versions, **{_key(table): table.version for table in known}}
        others = ~ds.field("table_id").isin([_id(table) for table in known])
        kept = [*(self._older_than_log(table) for table in known), self.table.read(where=others).to_batches()]
        total = Counter()
        reader = pa.RecordBatchReader.from_batches(SCHEMA, total.count(_all(kept, known)))
        entry = self.table.entry.follow("redo", position=Position(versions=marks))
        expected = self.table.version + 1
        deltalake.write_deltalake(
            self.table.delta,
            reader,
            mode="overwrite",
            commit_properties=self.table.properties(entry),
            post_commithook_properties=HOOKS_OFF,
        )
        self.table.moved_to(expected, entry, brought_rows=True)
        self.table.checkpoint()
        return total.rows

    def _older_than_log(self, table: OwnedTable) -> Iterator[pa.RecordBatch]:
        """What only the copies tell, a part at a time: it may be far more than the logs."""
        mine, first = ds.field("table_id") == _id(table), first_version(table.path) or 0
        return _parts(dataset_of(self.table.delta), mine, first)


class Counter:
    """Counts the rows that pass."""

    def __init__(self) -> None:
        """None have passed."""
        self.rows = 0

    def count(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand the batches on."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


def _parts(data: ds.Dataset, which: ds.Expression, before: int) -> Iterator[pa.RecordBatch]:
    for low in range(0, before, COMMITS_AT_ONCE):
        among = (ds.field("version") >= low) & (ds.field("version") < min(low + COMMITS_AT_ONCE, before))
        yield from data.to_table(columns=SCHEMA.names, filter=which & among).cast(SCHEMA).to_batches()


def _all(kept: Iterable[Iterable[pa.RecordBatch]], tables: Iterable[OwnedTable]) -> Iterator[pa.RecordBatch]:
    for batches in kept:
        yield from batches
    for table in tables:
        commits = _beyond(table, {})
        while rows := list(islice(commits, COMMITS_MAX)):
            yield from pa.Table.from_pylist(rows, schema=SCHEMA).to_batches()


def _beyond(table: OwnedTable, marks: _Marks) -> Iterator[dict[str, object]]:
    """The commits of a table beyond its mark, which moves along."""
    key, first = _key(table), first_version(table.path) or 0
    begin = max(marks.get(key, -1) + 1, first)
    if key in marks and begin > marks[key] + 1:  # not by the owner, who copies first
        log.warning("%s: the commits %d to %d are in no log any more", table.name, marks[key] + 1, begin - 1)
    for version in range(begin, table.version + 1):
        logged = read_log(table.path, version)
        if logged is None:
            return
        marks[key] = version
        yield _row(table, logged)


def _row(table: OwnedTable, logged: Logged) -> dict[str, object]:
    entry = logged.entry
    return {
        "table_name": table.name,
        "table_id": _id(table),
        "version": logged.version,
        "committed_at": logged.at,
        "kind": None if entry is None else entry.kind,
        "app": None if entry is None else entry.app,
        "epoch": None if entry is None else entry.epoch,
        "ingest_seq": None if entry is None else entry.ingest_seq,
        "rows_added": logged.rows_added,
        "rows_updated": logged.rows_updated,
        "rows_deleted": logged.rows_deleted,
        "entry": logged.text,
    }


def _key(table: OwnedTable) -> str:
    return f"{table.name}@{_id(table)}"


def _id(table: OwnedTable) -> str:
    return str(table.delta.metadata().id)
