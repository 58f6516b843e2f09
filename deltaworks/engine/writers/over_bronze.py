"""Tables over bronze: take ingest batches, parse, set refused rows aside, hand the good ones to the keeper."""

from abc import ABC, abstractmethod

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks.catalog import Declared
from deltaworks.engine import slices
from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.entry import Counts
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.parse import Parser, Timely, parser
from deltaworks.engine.schemas import spark_schema
from deltaworks.engine.writers.strays import tell
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of
from deltaworks.words.keeping import Append
from deltaworks.words.reading import Debezium, Json

QUARANTINE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
        ("_seq", pa.int64()),
    ]
)
"""Refused rows: the raw bytes, where they came from, why."""
_RENAMED = {f"_{name}": name for name in ("topic", "partition", "offset", "timestamp", "key", "value", "reason")}


class OverBronze(ABC):
    """A writer whose input is one bronze table."""

    def __init__(self, declared: Declared, *, own: Input, source: Input, quarantine: OwnedTable) -> None:
        """Own `own`; read `source`; set refused rows aside into `quarantine`."""
        reads = declared.table.reads
        assert isinstance(reads, Json | Debezium)
        self.declared, self.own, self.source, self.quarantine = declared, own, source, quarantine
        self.table = own.table
        self.parser: Parser = parser(reads, declared.table.columns, declared.keys, timely=_timely(declared))
        self.progress = Progress(own.table, code=code_of(declared))
        self.bronze = source.table.name

    @property
    def after(self) -> int:
        """Last ingest batch taken in full."""
        return self.progress.position.batches.get(self.bronze, 0)

    def behind(self) -> bool:
        """Whether bronze has ingest batches beyond this table's position."""
        return self.after < self.source.table.entry.ingest_seq

    def take(self, spark: SparkSession, committer: Committer) -> Turn | None:
        """Take the next ingest batches: quarantine first, the table's own entry closes the group."""
        self.own.fresh = None
        piece = slices.batches(spark, self.source, after=self.after, bytes_max=committer.arrow_bytes_max)
        if piece is None:
            return None
        if isinstance(piece.rows, pa.Table):
            parsed = self.parser.parse(piece.rows)
            counts = self._take(committer, parsed, piece.upto, _kinds(parsed))
        else:
            counts = self._take_spark(committer, piece.rows, piece.upto)
        return Turn(table=self.declared.name, counts=counts)

    def settle(self, committer: Committer) -> None:
        """Commit the remembered position."""
        self.progress.settle(committer)

    def _take_spark(self, committer: Committer, rows: DataFrame, upto: int) -> Counts:
        schema = spark_schema(self.parser.schema)
        parsed = rows.mapInArrow(self.parser.batches, schema).persist(StorageLevel.DISK_ONLY)
        try:
            kinds = {row["_kind"]: row["count"] for row in parsed.groupBy("_kind").count().collect()}
            return self._take(committer, parsed, upto, kinds)
        finally:
            parsed.unpersist()

    def _take(self, committer: Committer, parsed: Rows, upto: int, kinds: dict[str, int]) -> Counts:
        read, refused, other = sum(kinds.values()), kinds.get("refused", 0), kinds.get("other", 0)
        counts = Counts(read=read, refused=refused, not_mine=other + kinds.get("snapshot", 0))
        self.progress.over_bronze(self.bronze, upto)
        if read == other:
            self.progress.remember(counts)
            return counts
        self.progress.strays(tell(self.declared.name, self.progress.position.strays, parsed))
        if refused:
            self._set_aside(committer, parsed)
        kept = self._keep(committer, parsed, counts)
        self.progress.committed()
        return kept

    def _set_aside(self, committer: Committer, parsed: Rows) -> None:
        names = [*_RENAMED, "_seq"]
        if isinstance(parsed, pa.Table):
            refused = parsed.filter(pc.equal(parsed["_kind"], "refused")).select(names)
            rows: Rows = refused.rename_columns([_RENAMED.get(name, name) for name in names])
        else:
            chosen = [F.col(name).alias(_RENAMED.get(name, name)) for name in names]
            rows = parsed.where(F.col("_kind") == "refused").select(*chosen)
        self._beside(committer, self.quarantine, rows)

    def _beside(self, committer: Committer, side: OwnedTable, rows: Rows) -> None:
        """Append to a side table, as of the batch in hand; the table's own entry closes the group later."""
        count = rows.num_rows if isinstance(rows, pa.Table) else rows.count()
        mine = self.progress.entry(Counts())
        entry = side.entry.follow(
            "batch",
            counts=Counts(read=count, taken=count),
            position=mine.position,
            ingest_seq=mine.ingest_seq,
            code=mine.code,
        )
        committer.commit(side, rows, entry)

    @abstractmethod
    def _keep(self, committer: Committer, parsed: Rows, counts: Counts) -> Counts:
        """Commit what was not refused with the table's own entry; returns the whole batch's counts."""


def _timely(declared: Declared) -> Timely | None:
    """Events only: what a database says of its own rows is taken as it is."""
    table = declared.table
    if table.event_time is None or not isinstance(table.kept_as, Append):
        return None
    return Timely(column=table.event_time, future_max=table.future_max)


def _kinds(parsed: pa.Table) -> dict[str, int]:
    return {value["values"]: value["counts"] for value in pc.value_counts(parsed["_kind"]).to_pylist()}
