"""Gather what a fold needs, on both commit paths: the batch, and of its keys what is there, waits, was deleted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.engine.commit import Rows, is_bounded
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.parsing.sheet import SYSTEM
from deltaworks.engine.schemas import spark_schema
from deltaworks.engine.writers.left import KEYED
from deltaworks.engine.writers.partial import ACT, COUNTED, ORIGIN, WHY, folded
from deltaworks.engine.writers.writer import span

ROWS_PER_GROUP = 20_000
"""Of changes that Spark folds: so many are Python objects at once, some times over for what is there of their keys."""


@dataclass(frozen=True, kw_only=True)
class Folding:
    """The tables that hold the state of a table's keys, each as of the version that is known."""

    table: OwnedTable
    deleted: OwnedTable
    waiting: OwnedTable
    keys: Sequence[str]
    floor: str

    @contextmanager
    def fold(self, parsed: Rows, *, everything: bool, rows: int) -> "Iterator[Folded]":
        """Fold the batch's changes; `everything`: also the keys whose row has a note, for the floor has risen.

        `rows`: about how many the batch has.
        """
        if isinstance(parsed, pa.Table):
            batch = parsed.filter(pc.is_in(parsed["_kind"], pa.array(KEYED)))
            together = pa.concat_tables(list(self._arrow(batch, everything))).combine_chunks()
            yield Folded(folded(together, self.keys, floor=self.floor), self.table.schema)
            return
        changes = parsed.where(F.col("_kind").isin(*KEYED))
        made = self._spark(changes, everything, 1 + rows // ROWS_PER_GROUP).persist(StorageLevel.DISK_ONLY)
        try:
            yield Folded(made, self.table.schema)
        finally:
            made.unpersist()

    def newest(self) -> str:
        """The newest sequence that is there."""
        highest = ""
        for one in (self.table, self.deleted):
            for batch in dataset_of(one.delta).to_batches(columns=["_source"]):
                highest = max(highest, pc.max(batch.column(0)).as_py() or "")
        return highest

    @cached_property
    def schema(self) -> pa.Schema:
        """What is folded: the table's columns, then those of parsing that it lacks, then where a row comes from."""
        own = self.table.schema
        return pa.schema([*own, *(field for field in SYSTEM if field.name not in own.names), ORIGIN])

    def _arrow(self, batch: pa.Table, everything: bool) -> Iterator[pa.Table]:
        yield self._as(batch, "batch", None)
        # files are left out by their statistics: only by those that can be trusted
        first = next((key for key in self.keys if is_bounded(batch.schema.field(key).type)), None)
        mine = None if first is None else ds.field(first).isin(batch[first].unique())
        noted = mine if mine is None or not everything else mine | ds.field("_sent").is_valid()
        yield self._as(self.table.read(where=noted), "table", "row")
        if self.waiting.rows():
            yield self._as(self.waiting.read(where=mine), "waiting", "row")
        if self.deleted.rows():
            yield self._as(self.deleted.read(where=mine), "deleted", "delete")

    def _as(self, rows: pa.Table, origin: str, kind: str | None) -> pa.Table:
        made = []
        for field in self.schema:
            if field.name == ORIGIN.name or (field.name == "_kind" and kind is not None):
                text = origin if field.name == ORIGIN.name else kind
                made.append(pa.array([text] * rows.num_rows, pa.string()))
            elif field.name in rows.column_names:
                made.append(rows[field.name].cast(field.type))
            else:
                made.append(pa.nulls(rows.num_rows, field.type))
        return pa.table(made, schema=self.schema)

    def _spark(self, changes: DataFrame, everything: bool, groups: int) -> DataFrame:
        spark, keys = changes.sparkSession, list(self.keys)
        wanted = changes.select(*keys).distinct()
        table = _read(spark, self.table)
        there = table.join(wanted, keys, "left_semi")
        if everything:
            noted = table.where(F.col("_sent").isNotNull()).join(wanted, keys, "left_anti")
            there = there.unionByName(noted)
        together = changes.withColumn(ORIGIN.name, F.lit("batch"))
        for rows, origin, kind in (
            (there, "table", "row"),
            (_read(spark, self.waiting).join(wanted, keys, "left_semi"), "waiting", "row"),
            (_read(spark, self.deleted).join(wanted, keys, "left_semi"), "deleted", "delete"),
        ):
            known = rows.withColumn("_kind", F.lit(kind)).withColumn(ORIGIN.name, F.lit(origin))
            together = together.unionByName(known, allowMissingColumns=True)
        together = together.select(*self.schema.names)
        schema, folded_keys, floor = self.schema, tuple(keys), self.floor

        def fold(rows: pa.Table) -> pa.Table:
            return folded(rows.select(schema.names).cast(schema), folded_keys, floor=floor)

        out = spark_schema(pa.schema([*schema, ACT, COUNTED, WHY]))
        bucket = F.pmod(F.hash(*keys), F.lit(groups))
        return together.groupBy(bucket.alias("_bucket")).applyInArrow(fold, out)


class Folded:
    """The result of a fold, by what becomes of its rows (see `partial.ACT`)."""

    def __init__(self, made: Rows, table: pa.Schema) -> None:
        """Count them."""
        self.made, self.table = made, table
        self._counts: dict[tuple[str, bool], int]
        if isinstance(made, pa.Table):
            grouped = made.group_by(["_act", "_taken"]).aggregate([([], "count_all")]).to_pylist()
            self._counts = {(one["_act"], one["_taken"]): one["count_all"] for one in grouped}
        else:
            self._counts = {(r[0], r[1]): r[2] for r in made.groupBy("_act", "_taken").count().collect()}

    @property
    def taken(self) -> int:
        """Keys that the batch has changed."""
        return sum(count for (_, counted), count in self._counts.items() if counted)

    def count(self, act: str) -> int:
        """Rows of which that becomes."""
        return sum(count for (one, _), count in self._counts.items() if one == act)

    def rows(self, act: str, schema: pa.Schema, *, seq: int) -> Rows:
        """Rows for a side table, as of this ingest batch."""
        if isinstance(self.made, pa.Table):
            mine = self.made.filter(pc.equal(self.made["_act"], act)).select(schema.names)
            return mine.set_column(schema.get_field_index("_seq"), "_seq", pa.array([seq] * mine.num_rows, pa.int64()))
        mine = self.made.where(F.col("_act") == act).withColumn("_seq", F.lit(seq).cast("bigint"))
        return mine.select(*schema.names)

    def refused(self) -> Rows:
        """Changes of the batch that have nothing to take a value from, as parsing refuses a row."""
        if isinstance(self.made, pa.Table):
            mine = self.made.filter(pc.equal(self.made["_act"], "refuse"))
            kinds = pa.array(["refused"] * mine.num_rows, pa.string())
            for name, column in (("_kind", kinds), ("_reason", mine["_why"])):
                mine = mine.set_column(mine.schema.get_field_index(name), name, column)
            return mine
        mine = self.made.where(F.col("_act") == "refuse")
        return mine.withColumn("_kind", F.lit("refused")).withColumn("_reason", F.col("_why"))

    def changed(self) -> Rows:
        """What is merged: the table's columns and whether the row is gone."""
        if isinstance(self.made, pa.Table):
            mine = self.made.filter(pc.is_in(self.made["_act"], pa.array(["put", "remove"])))
            return mine.select(self.table.names).append_column("_gone", pc.equal(mine["_act"], "remove"))
        mine = self.made.where(F.col("_act").isin("put", "remove"))
        return mine.select(*self.table.names, (F.col("_act") == "remove").alias("_gone"))

    def span(self, event_time: str | None) -> tuple[Any, Any]:
        """Lowest and highest event time of the rows that are there now."""
        if event_time is None:
            return None, None
        if isinstance(self.made, pa.Table):
            return span(self.made.filter(pc.equal(self.made["_act"], "put")), event_time)
        row = self.made.where(F.col("_act") == "put").agg(F.min(event_time), F.max(event_time)).collect()[0]
        return row[0], row[1]


def _read(spark: SparkSession, table: OwnedTable) -> DataFrame:
    """As of now: what this batch will commit beside the table must not count for it."""
    return spark.read.format("delta").option("versionAsOf", table.version).load(str(table.path))
