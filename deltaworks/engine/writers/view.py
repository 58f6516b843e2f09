"""`view`: touched keys are recomputed from all inputs, as of this batch, and replaced; vanished keys go."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.catalog import Declared
from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Clause, Committer, Merge, Rows
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.slices import PACKED
from deltaworks.engine.transforms import by_short_name, load_keys_from, load_transform
from deltaworks.engine.writers.result import nullable_keys, result_of
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of, frame, suite_of

KEYS_LISTED_MAX = 1_000
"""Up to so many touched values of a single key are written into the filter, where Spark pushes them furthest."""


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
        return rows.select(schema.names).cast(schema)

    def _replace(self, spark: SparkSession, committer: Committer, touched: Touched, counts: Counts) -> None:
        inputs = {s.table.name: _present(spark, s.table, committer.arrow_bytes_max) for s in self.sources}
        computed = self.transform(**by_short_name(inputs)).select(*self.table.schema.names)
        if touched.keys is not None:
            computed = self._only(spark, computed, touched.keys)
        with result_of(self.declared, computed, arrow_bytes_max=committer.arrow_bytes_max) as result:
            if isinstance(result.rows, pa.Table):
                rows: Rows = self._with_vanished(result.rows.cast(self.table.schema), touched.keys)
            else:
                rows = self._with_vanished_spark(spark, result.rows, touched.keys)
            low, high = result.span
            entry = self.progress.entry(counts, low=low, high=high)
            committer.commit(self.table, rows, entry, how=self._merge(whole=touched.keys is None))
        self.progress.committed()

    def _only(self, spark: SparkSession, computed: DataFrame, keys: pa.Table) -> DataFrame:
        names = list(self.declared.keys)
        if len(names) == 1 and keys.num_rows <= KEYS_LISTED_MAX and keys[names[0]].null_count == 0:
            return computed.where(F.col(names[0]).isin([_exactly(value) for value in keys[names[0]].to_pylist()]))
        wanted = F.broadcast(spark.createDataFrame(keys))
        return computed.alias("c").join(
            wanted.alias("w"), [F.col(f"c.{name}").eqNullSafe(F.col(f"w.{name}")) for name in names], "left_semi"
        )

    def _with_vanished(self, result: pa.Table, keys: pa.Table | None) -> pa.Table:
        rows = result.append_column("_gone", pa.array([False] * result.num_rows, pa.bool_()))
        if keys is None:
            return rows
        names = list(self.declared.keys)
        there = set(zip(*(result[name].to_pylist() for name in names), strict=True))
        gone = [key for key in zip(*(keys[name].to_pylist() for name in names), strict=True) if key not in there]
        if not gone:
            return rows
        columns = [
            pa.array([key[names.index(f.name)] for key in gone], f.type)
            if f.name in names
            else pa.nulls(len(gone), f.type)
            for f in self.table.schema
        ]
        vanished = pa.table([*columns, pa.array([True] * len(gone))], schema=rows.schema)
        return pa.concat_tables([rows, vanished])

    def _with_vanished_spark(self, spark: SparkSession, computed: DataFrame, keys: pa.Table | None) -> DataFrame:
        rows = computed.withColumn("_gone", F.lit(False))
        if keys is None:
            return rows
        names = list(self.declared.keys)
        there = [F.col(f"w.{name}").eqNullSafe(F.col(f"c.{name}")) for name in names]
        gone = spark.createDataFrame(keys).alias("w").join(computed.alias("c"), there, "left_anti")
        empty = [F.lit(None).cast(computed.schema[n].dataType).alias(n) for n in computed.columns if n not in names]
        return rows.unionByName(gone.select(*names, *empty, F.lit(True).alias("_gone")))

    def _merge(self, *, whole: bool) -> Merge:
        own = {name: f"s.{name}" for name in self.table.schema.names}
        values = [name for name in own if name not in self.declared.keys]
        changed = " or ".join(f"(t.{name} is distinct from s.{name})" for name in values) or "false"
        clauses = [
            Clause(on="matched", act="delete", when="s._gone", set={}),
            Clause(on="matched", act="update", when=changed, set=own),
            Clause(on="not matched", act="insert", when="not s._gone", set=own),
        ]
        if whole:
            clauses.append(Clause(on="not matched by source", act="delete", when=None, set={}))
        return Merge(keys=self.declared.keys, nullable_keys=nullable_keys(self.declared), clauses=tuple(clauses))


def _exactly(value: Any) -> Any:
    """A value as Spark's literal: PySpark's own of dates and times go through a calendar that changed in 1582."""
    match value:
        case datetime():
            return F.expr(f"timestamp'{value.isoformat()}'")
        case date():
            return F.expr(f"date'{value.isoformat()}'")
    return value


def _older(after: int | None, version: int) -> bool:
    return after is None or after < version


def _changes(spark: SparkSession, table: OwnedTable, after: int, bytes_max: int) -> Rows | None:
    """Before- and after-images of the rows changed beyond version `after`; None when the feed is gone."""
    if after >= table.version:
        return table.schema.empty_table()
    names = [name for name in table.schema.names if not name.startswith("_")]
    if table.bytes_added(after, table.version) > bytes_max // PACKED:
        return (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", after + 1)
            .option("endingVersion", table.version)
            .load(str(table.path))
            .select(*names)
        )
    try:
        feed = pa.table(table.delta.load_cdf(starting_version=after + 1, ending_version=table.version))
    except DeltaError:  # its files or log entries are gone: the view is recomputed whole
        return None
    schema = pa.schema([table.schema.field(name) for name in names])
    return pa.table(feed.select(names).cast(schema))


def _present(spark: SparkSession, table: OwnedTable, bytes_max: int) -> DataFrame:
    """The input as of the version that this batch reads, without the engine's columns."""
    names = [name for name in table.schema.names if not name.startswith("_")]
    if table.bytes() <= bytes_max // PACKED:
        return spark.createDataFrame(table.read(names))
    return spark.read.format("delta").option("versionAsOf", table.version).load(str(table.path)).select(*names)
