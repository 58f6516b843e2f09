"""`latest`: one row per key, placed by the change's sequence, so that order of arrival does not matter."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from deltaworks.engine.commit import Clause, Committer, Merge, Rows
from deltaworks.engine.entry import Counts
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.writer import span

SYSTEM = pa.schema([("_seq", pa.int64()), ("_source", pa.string())])
"""The ingest batch and the change's sequence, stored with the row."""


class LatestWriter(OverBronze):
    """Merges the newest change of each key of a batch."""

    def _keep(self, committer: Committer, parsed: Rows, counts: Counts) -> Counts:
        truncated = self._truncated_at(parsed)
        if isinstance(parsed, pa.Table):
            rows, left = self._newest_arrow(parsed, truncated)
            low, high = span(rows.filter(pc.invert(rows["_gone"])), self.declared.table.event_time)
        else:
            rows, left = self._newest_spark(parsed, truncated), -1
            row = rows.agg(F.count("*"), *self._span_columns()).collect()[0]
            left, (low, high) = row[0], (row[1], row[2])
        counts = replace(counts, taken=left, superseded=counts.read - counts.refused - counts.not_mine - left)
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

    def _newest_arrow(self, parsed: pa.Table, truncated: str | None) -> tuple[pa.Table, int]:
        rows = parsed.filter(pc.is_in(parsed["_kind"], pa.array(["row", "delete"])))
        if truncated is not None:
            rows = rows.filter(pc.greater(rows["_source"], truncated))
        rows = rows.sort_by("_source")
        keys = zip(*(rows[key].to_pylist() for key in self.declared.keys), strict=True)
        last = {key: at for at, key in enumerate(keys)}
        rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
        rows = rows.append_column("_gone", pc.equal(rows["_kind"], "delete"))
        return rows.select([*self.table.schema.names, "_gone"]), rows.num_rows

    def _newest_spark(self, parsed: DataFrame, truncated: str | None) -> DataFrame:
        rows = parsed.where(F.col("_kind").isin("row", "delete"))
        if truncated is not None:
            rows = rows.where(F.col("_source") > truncated)
        newest_first = Window.partitionBy(*self.declared.keys).orderBy(F.col("_source").desc())
        rows = rows.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1")
        return rows.withColumn("_gone", F.col("_kind") == "delete").select(*self.table.schema.names, "_gone")

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
