"""`latest`: one row per key, placed by the change's sequence, so that order of arrival does not matter."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Clause, Committer, Merge, Rows, is_bounded
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.schemas import arrow_schema
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.writer import span

SYSTEM = pa.schema([("_seq", pa.int64()), ("_source", pa.string())])
"""The ingest batch and the change's sequence, stored with the row."""


def deleted_schema(declared: Declared) -> pa.Schema:
    """Remembered deletes: keys, the sequence of the deletion, the ingest batch that brought it."""
    columns = arrow_schema(declared.table.columns)
    return pa.schema([*(columns.field(key) for key in declared.keys), *SYSTEM])


class LatestWriter(OverBronze):
    """Merges the newest change of each key of a batch.

    A deletion leaves no row that an older change could be compared with, so deletions are remembered beside the
    table, and the last truncation in the position.
    """

    def __init__(self, *args: Any, deleted: OwnedTable, **given: Any) -> None:
        """As every writer over bronze; `deleted` remembers deletions."""
        super().__init__(*args, **given)
        self.deleted = deleted

    def _keep(self, committer: Committer, parsed: Rows, counts: Counts) -> Counts:
        truncated = self._truncated_at(parsed)
        if truncated is not None:
            self.progress.truncated(truncated)
        floor = max(truncated or "", self.progress.position.truncated or "")
        if isinstance(parsed, pa.Table):
            rows, gone = self._newest_arrow(parsed, floor)
            left, there = rows.num_rows, rows.filter(pc.invert(rows["_gone"]))
            low, high = span(there, self.declared.table.event_time)
        else:
            rows, gone = self._newest_spark(parsed, floor)
            row = rows.agg(F.count("*"), *self._span_columns()).collect()[0]
            left, (low, high) = row[0], (row[1], row[2])
        counts = replace(counts, taken=left, superseded=counts.read - counts.refused - counts.not_mine - left)
        if gone is not None:
            self._beside(committer, self.deleted, gone)
        entry = self.progress.entry(counts, low=low, high=high)
        committer.commit(self.table, rows, entry, how=self._merge(truncated))
        return counts

    def _span_columns(self) -> list[F.Column]:  # type: ignore[name-defined]  # re-exported without a stub
        name = self.declared.table.event_time
        return [F.min(name), F.max(name)] if name else [F.lit(None), F.lit(None)]

    def _truncated_at(self, parsed: Rows) -> str | None:
        """Sequence of the last truncation in the batch: everything before it is gone."""
        if isinstance(parsed, pa.Table):
            at = pc.max(pc.filter(parsed["_source"], pc.equal(parsed["_kind"], "truncate"))).as_py()
            return None if at is None else str(at)
        found = parsed.where(F.col("_kind") == "truncate").agg(F.max("_source")).collect()[0][0]
        return None if found is None else str(found)

    def _newest_arrow(self, parsed: pa.Table, floor: str) -> tuple[pa.Table, pa.Table | None]:
        """The changes that count, one per key, and the deletions among them."""
        rows = parsed.filter(pc.is_in(parsed["_kind"], pa.array(["row", "delete"])))
        rows = rows.filter(pc.greater(rows["_source"], floor)).sort_by("_source")
        last = {key: at for at, key in enumerate(self._keys(rows))}
        rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
        known = self._remembered(rows)
        newer = [
            source > known.get(key, "")
            for key, source in zip(self._keys(rows), rows["_source"].to_pylist(), strict=True)
        ]
        rows = rows.filter(pa.array(newer, pa.bool_()))
        rows = rows.append_column("_gone", pc.equal(rows["_kind"], "delete"))
        gone = rows.filter(rows["_gone"]).select(self.deleted.schema.names)
        return rows.select([*self.table.schema.names, "_gone"]), gone if gone.num_rows else None

    def _newest_spark(self, parsed: DataFrame, floor: str) -> tuple[DataFrame, DataFrame | None]:
        """The same for a batch that is too large to collect."""
        keys = list(self.declared.keys)
        rows = parsed.where(F.col("_kind").isin("row", "delete")).where(F.col("_source") > floor)
        newest_first = Window.partitionBy(*keys).orderBy(F.col("_source").desc())
        rows = rows.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1")
        rows = rows.withColumn("_gone", F.col("_kind") == "delete").select(*self.table.schema.names, "_gone")
        # as of now: this batch's own deletions, soon committed, must not supersede themselves
        known = (
            parsed.sparkSession.read.format("delta")
            .option("versionAsOf", self.deleted.version)
            .load(str(self.deleted.path))
            .groupBy(*keys)
            .agg(F.max("_source").alias("_deleted"))
        )
        rows = rows.join(known, keys, "left").where(F.coalesce("_deleted", F.lit("")) < F.col("_source"))
        rows = rows.select(*self.table.schema.names, "_gone")
        gone = rows.where("_gone").select(*self.deleted.schema.names)
        return rows, None if gone.isEmpty() else gone

    def _keys(self, rows: pa.Table) -> Iterator[tuple[Any, ...]]:
        return zip(*(rows[key].to_pylist() for key in self.declared.keys), strict=True)

    def _remembered(self, rows: pa.Table) -> dict[tuple[Any, ...], str]:
        """The newest remembered deletion of each of these rows' keys."""
        if rows.num_rows == 0 or self.deleted.rows() == 0:
            return {}
        keys = self.declared.keys
        # files are left out by their statistics: only by those that can be trusted
        first = next((key for key in keys if is_bounded(rows.schema.field(key).type)), None)
        mine = None if first is None else ds.field(first).isin(rows[first].unique())
        found = self.deleted.read([*keys, "_source"], where=mine)
        known: dict[tuple[Any, ...], str] = {}
        for key, source in zip(self._keys(found), found["_source"].to_pylist(), strict=True):
            known[key] = max(source, known.get(key, ""))
        return known

    def _merge(self, truncated: str | None) -> Merge:
        own = {name: f"s.{name}" for name in self.table.schema.names}
        newer = "s._source > t._source"
        clauses = [
            Clause(on="matched", act="delete", when=f"s._gone and {newer}", set={}),
            Clause(on="matched", act="update", when=newer, set=own),
            Clause(on="not matched", act="insert", when="not s._gone", set=own),
        ]
        if truncated is not None:
            before = f"t._source < '{truncated}'"
            clauses.append(Clause(on="not matched by source", act="delete", when=before, set={}))
        return Merge(keys=self.declared.keys, clauses=tuple(clauses))
