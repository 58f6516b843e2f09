"""`view`: touched keys are recomputed from all inputs, as of this batch, and replaced; vanished keys go."""

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable, TooMuchError
from deltaworks.engine.slices import PACKED
from deltaworks.engine.transforms import by_short_name, load_keys_from, load_transform
from deltaworks.engine.writers.replacing import replace_keys
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of, frame, suite_of
from deltaworks.errors import LakeError


@dataclass(frozen=True)
class Touched:
    """Keys to recompute; `keys` None means all of them."""

    keys: pa.Table | None
    changes: int


class ViewWriter:
    """Recomputes and replaces the keys that changed rows of the inputs map to."""

    def __init__(self, declared: Declared, *, own: Input, sources: tuple[Input, ...]) -> None:
        """Own `own`; follow the change feeds of `sources`."""
        self.declared, self.own, self.sources, self.table = declared, own, sources, own.table
        self.transform, self.keys_from = load_transform(declared), load_keys_from(declared)
        self.progress = Progress(own.table, code=code_of(declared), suite=suite_of(declared))

    def after(self, source: Input) -> int | None:
        """Last version of an input taken in full; None when the view was never computed."""
        return self.progress.position.versions.get(source.table.name)

    def behind(self) -> bool:
        """Whether an input has changed beyond this view's position."""
        return any(_older(self.after(source), source.table.data_version) for source in self.sources)

    def take(self, spark: SparkSession, committer: Committer) -> Turn | None:
        """Bring the touched keys up to the inputs' present versions."""
        if not self.behind():
            return None
        touched = self._touched(spark, committer.arrow_bytes_max)
        self.progress.over_tables(
            {source.table.name: source.table.version for source in self.sources},
            ingest_seq=max(source.table.entry.ingest_seq for source in self.sources),
        )
        counts = Counts(read=touched.changes, taken=touched.changes)
        if touched.keys is None or touched.keys.num_rows:
            self._replace(spark, committer, touched, counts)
        else:
            self.progress.remember(counts)
        return Turn(table=self.declared.name, counts=counts)

    def settle(self, committer: Committer) -> None:
        """Commit the remembered position."""
        self.progress.settle(committer)

    def _touched(self, spark: SparkSession, bytes_max: int) -> Touched:
        keys, changes = [], 0
        for source in self.sources:
            after = self.after(source)
            feed = None if after is None else _changes(spark, source.table, after, bytes_max)
            if feed is None:
                return Touched(None, 0)
            read = feed.num_rows if isinstance(feed, pa.Table) else feed.count()
            changes += read
            if read == 0:
                continue
            rows = frame(spark, feed)
            found = collected(self.keys_from(**by_short_name({source.table.name: rows})).distinct())
            if found is None:
                return Touched(None, changes)
            keys.append(self._keys(found))
        empty = pa.schema([self.table.schema.field(key) for key in self.declared.keys]).empty_table()
        all_keys = pa.concat_tables([empty, *keys])
        return Touched(all_keys.group_by(list(self.declared.keys)).aggregate([]), changes)

    def _keys(self, rows: pa.Table) -> pa.Table:
        schema = pa.schema([self.table.schema.field(key) for key in self.declared.keys])
        keys = rows.select(schema.names).cast(schema)
        keys.validate(full=True)  # raises ArrowInvalid for texts that are none
        return keys

    def _replace(self, spark: SparkSession, committer: Committer, touched: Touched, counts: Counts) -> None:
        inputs = {s.table.name: _present(spark, s.table, committer.arrow_bytes_max) for s in self.sources}
        computed = self.transform(**by_short_name(inputs))
        replace_keys(self.declared, self.progress, spark, committer, computed, keys=touched.keys, counts=counts)


def _older(after: int | None, version: int) -> bool:
    return after is None or after < version


def _changes(spark: SparkSession, table: OwnedTable, after: int, bytes_max: int) -> Rows | None:
    """Before- and after-images of the rows changed beyond version `after`; None when the feed is gone."""
    if after >= table.version:
        return table.schema.empty_table()
    if after < table.entry.replaced_at:  # every row went and came
        return None
    names = [name for name in table.schema.names if not name.startswith("_")]
    try:
        size = table.bytes_added(after, table.version)
    except (FileNotFoundError, LakeError):
        return None
    if size > bytes_max // PACKED:
        return _changes_by_spark(spark, table, after, names)
    try:
        feed = pa.table(table.delta.load_cdf(starting_version=after + 1, ending_version=table.version))
    except DeltaError:  # its files or log entries are gone: the view is recomputed whole
        return None
    if feed.nbytes > bytes_max:
        return _changes_by_spark(spark, table, after, names)
    schema = pa.schema([table.schema.field(name) for name in names])
    return pa.table(feed.select(names).cast(schema))


def _changes_by_spark(spark: SparkSession, table: OwnedTable, after: int, names: list[str]) -> DataFrame:
    return (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", after + 1)
        .option("endingVersion", table.version)
        .load(str(table.path))
        .select(*names)
    )


def _present(spark: SparkSession, table: OwnedTable, bytes_max: int) -> DataFrame:
    """The input as of the version that this batch reads, without the engine's columns."""
    names = [name for name in table.schema.names if not name.startswith("_")]
    if table.bytes() <= bytes_max // PACKED:
        with suppress(TooMuchError):
            return spark.createDataFrame(table.read(names, bytes_max=bytes_max))
    return spark.read.format("delta").option("versionAsOf", table.version).load(str(table.path)).select(*names)
