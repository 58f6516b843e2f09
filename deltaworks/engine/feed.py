"""What changed in a table since a version, and all that is in it now, as views read them."""

import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from deltaworks.engine.commit import Rows
from deltaworks.engine.lake import OwnedTable, TooMuchError, bounded
from deltaworks.engine.log import actions_of, log_has
from deltaworks.engine.phases import phase
from deltaworks.engine.slices import PACKED, present, refuse_replaced
from deltaworks.engine.snapshot import LostError, Snapshot, removed_in
from deltaworks.engine.suspended import first_line
from deltaworks.engine.writers.computing import declared_columns
from deltaworks.engine.writers.writer import Feed, Input, Shown, frame
from deltaworks.errors import LakeError

log = logging.getLogger("deltaworks.feed")
CHANGE = "_change_type"
SHARED = 16
"""An input of several views, or what changed in it, is kept for the turn where it is at most this part of what may be
in memory: so may be others at the same time."""
REMOVED_MAX = 20_000
"""Rows that go are looked for one by one: where more do, an input is read again that can be."""
SNAPSHOT_PART = 2
"""An input is kept from turn to turn where it is at most this part of what may be in memory."""
SNAPSHOTS_TIMES = 2
"""All inputs of an app that are kept so are, between turns, at most this many times what may be in memory."""


@phase("read")
def changes(spark: SparkSession, source: Input, after: int, bytes_max: int, *, reader: str) -> Rows | None:
    """Before- and after-images of the rows changed beyond version `after`, with `_change_type`; None: the feed is gone.

    Several readers in a turn have it read once.
    """
    table = source.table
    feed = source.feed
    if feed is not None and (feed.after, feed.upto) == (after, table.version):
        return feed.rows
    if after >= table.version:
        return _empty(source)
    if not after and table.entry.replaced_at:  # every row went and came
        return None
    refuse_replaced(table, after, reader=reader)
    try:
        # of what is in the past no feed tells
        size = table.bytes_added(after, table.version) if log_has(table.path, after + 1) else None
    except (FileNotFoundError, LakeError):
        size = None
    if size is None:
        return None
    if size > bytes_max // PACKED:
        return _by_spark(spark, source, after)
    try:
        stream = table.delta.load_cdf(starting_version=after + 1, ending_version=table.version)
        opened = pa.RecordBatchReader.from_stream(stream)
        feed_rows = pa.Table.from_batches(bounded(opened, bytes_max), schema=opened.schema)
    except (DeltaError, OSError, pa.ArrowException) as error:
        gone = _gone(table, after)
        if gone is None and isinstance(error, OSError | MemoryError):  # it is the machine's
            raise
        _tell_gone(table, after, gone or first_line(error))
        return None
    except TooMuchError:
        return _by_spark(spark, source, after)
    schema = _empty(source).schema
    rows = feed_rows.select(schema.names).cast(schema)
    if rows.nbytes <= bytes_max // SHARED:
        source.feed = Feed(after=after, upto=table.version, rows=rows)
    return rows


@phase("read")
def shown(spark: SparkSession, source: Input, bytes_max: int) -> DataFrame:
    """The input as of the version that this batch reads, without the engine's columns; a small one is read once."""
    table, known = source.table, source.shown
    if known is not None and (known.version, known.spark) == (table.version, spark):
        return known.rows
    rows = present(spark, table, bytes_max, declared_columns(table))
    made = frame(spark, rows)
    if source.shared and isinstance(rows, pa.Table) and rows.nbytes <= bytes_max // SHARED:
        source.shown = Shown(version=table.version, spark=spark, rows=made)
    return made


@phase("read")
def snapshot(spark: SparkSession, source: Input, bytes_max: int) -> Snapshot | None:
    """All rows of the input's present version, in memory from turn to turn; None where they are too large for that."""
    table, kept = source.table, source.snapshot
    if kept is not None and kept.version < table.version:
        kept = source.snapshot = _followed(spark, source, kept, bytes_max)
    if kept is None or kept.version > table.version:
        size = table.bytes()
        if source.too_large is not None and size >= source.too_large:
            return None
        rows = present(spark, table, bytes_max // SNAPSHOT_PART, declared_columns(table))
        if not isinstance(rows, pa.Table):
            source.too_large = size
            return None
        kept = source.snapshot = Snapshot(rows, version=table.version, told_by=source.told_by)
    return kept


def let_go(sources: Collection[Input], bytes_max: int) -> None:
    """Keep no more from turn to turn than may be in memory together: the largest go, and are not read so again."""
    there = 0
    kept = [(source.snapshot.nbytes, source) for source in sources if source.snapshot is not None]
    for size, source in sorted(kept, key=lambda one: one[0]):
        there += size
        if there > bytes_max * SNAPSHOTS_TIMES:
            source.snapshot, source.too_large = None, source.table.bytes()
            log.warning("%s is not kept in memory: all that is there is too much together", source.table.name)


def _followed(spark: SparkSession, source: Input, kept: Snapshot, bytes_max: int) -> Snapshot | None:
    """A snapshot brought to the present version; None where it must be read again, or has become too large."""
    if source.table.entry.replaced_at > kept.version:
        return None
    found = changes(spark, source, kept.version, bytes_max, reader=source.table.name)
    if not isinstance(found, pa.Table):
        return None
    again = source.table.bytes() <= bytes_max // SNAPSHOT_PART // PACKED
    if again and (pc.sum(removed_in(found)).as_py() or 0) > REMOVED_MAX:
        return None
    try:
        kept.follow(found, version=source.table.version)
    except LostError:
        log.warning("%s changed otherwise than its change feed says: it is read again", source.table.name)
        return None
    if not _has_all(source.table, kept):
        log.warning("%s has other rows than its change feed makes of it: it is read again", source.table.name)
        return None
    if kept.rows_nbytes > bytes_max // SNAPSHOT_PART:
        kept.compact()
    return kept if kept.rows_nbytes <= bytes_max // SNAPSHOT_PART else None


def _has_all(table: OwnedTable, kept: Snapshot) -> bool:
    """Whether a snapshot has as many rows as its table; where files do not say how many they have, nobody knows."""
    counts = table.adds()["num_records"]
    return bool(counts.null_count) or kept.num_rows == (pc.sum(counts).as_py() or 0)


def _empty(source: Input) -> pa.Table:
    schema = source.table.schema
    fields = [schema.field(name) for name in declared_columns(source.table)]
    return pa.schema([*fields, pa.field(CHANGE, pa.string())]).empty_table()


def _tell_gone(table: OwnedTable, after: int, finding: str) -> None:
    log.warning("changes of %s beyond version %d cannot be read, all of it is: %s", table.name, after, finding)


def _by_spark(spark: SparkSession, source: Input, after: int) -> DataFrame | None:
    """The changes, to be read when they are used; None where a file of them is gone, which Spark would find then."""
    if (gone := _gone(source.table, after)) is not None:
        _tell_gone(source.table, after, gone)
        return None
    return (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", after + 1)
        .option("endingVersion", source.table.version)
        .load(str(source.table.path))
        .select(*_empty(source).schema.names)
    )


def _gone(table: OwnedTable, after: int) -> str | None:
    """What is lacking of the changes beyond a version; None where nothing is."""
    try:
        files = _files(table.path, after, table.version)
        return next((f"{file.name} is gone" for file in files if not file.exists()), None)
    except FileNotFoundError:
        return "its log has them no more"


def _files(path: Path, after: int, upto: int) -> Iterator[Path]:
    """What changes are read from: of a commit its files of changes, or where it has none those that came and went."""
    for version in range(after + 1, upto + 1):
        done = actions_of(path, version)
        told = [one["cdc"]["path"] for one in done if "cdc" in one]
        came_and_went = (one.get("add") or one.get("remove") or {} for one in done)
        for name in told or [one["path"] for one in came_and_went if one.get("dataChange")]:
            yield path / unquote(name)
