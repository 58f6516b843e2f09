"""Drive a fused flow by hand: micro-batches made of Kafka rows, restarts, crashes. No broker; all else is real."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.control.commands import Command
from deltaworks.engine import commands
from deltaworks.engine.broker import Edge
from deltaworks.engine.caution import Caution
from deltaworks.engine.clocks import Clocks
from deltaworks.engine.commit import Committer
from deltaworks.engine.flow import Flow
from deltaworks.engine.ledger import Ledger
from deltaworks.engine.source import BRONZE
from deltaworks.engine.torn import mend
from deltaworks.settings import Settings

START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
BY_ARROW = Committer(spark=None, arrow_bytes_max=2**26, guard=lambda: None)
"""Commits for whoever owns a table."""
KAFKA = pa.schema([BRONZE.field(name) for name in BRONZE.names if name != "_seq"])


class Crash(BaseException):
    """The process dies here: nothing in it that catches errors catches this."""


@dataclass(kw_only=True)
class Record:
    """One Kafka record on its way to a topic."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    at: datetime = START


@dataclass
class Log:
    """A broker's memory: records get their offsets here, in order, per partition."""

    rows: list[dict[str, object]] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    cut: int = 0

    def send(self, records: Iterable[Record]) -> None:
        """Append records; they arrive a millisecond apart unless they say otherwise."""
        for record in records:
            offset = self.ends.get((record.topic, record.partition), 0)
            self.ends[record.topic, record.partition] = offset + 1
            arrived = record.at + timedelta(milliseconds=len(self.rows)) if record.at == START else record.at
            self.rows.append(
                {"topic": record.topic, "partition": record.partition, "offset": offset, "timestamp": arrived,
                 "key": record.key, "value": record.value, "headers": None}
            )  # fmt: skip

    def batch(self) -> pa.Table:
        """What has been sent since the last batch."""
        fresh, self.cut = self.rows[self.cut :], len(self.rows)
        return pa.Table.from_pylist(fresh, schema=KAFKA)

    def beyond(self, offsets: Mapping[str, Mapping[str, int]]) -> pa.Table:
        """What a new reader gets that starts from these positions."""
        rows = [
            r for r in self.rows[: self.cut]
            if int(str(r["offset"])) >= offsets.get(str(r["topic"]), {}).get(str(r["partition"]), 0)
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, schema=KAFKA)


class Owner:
    """An app's driver without its process: opens flows, one after the other, over one lake."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        app: str,
        *,
        path: str = "auto",
        epoch: int = 0,
        suspends: bool = False,
        only: Collection[str] = (),
    ) -> None:
        """Open the first flow, over a lake whose last owner had this epoch.

        Unless it `suspends`, the error of a table that is suspended is raised. With `only`, no other table above bronze
        takes rows: each costs time.
        """
        self.only = only
        self.spark, self.settings, self.app, self.path, self.suspends = spark, settings, app, path, suspends
        self.now = 0.0
        self.caution = Caution()
        self.clocks = Clocks(wall=START.replace(year=2030).timestamp)  # no event of a test is beyond it unawares
        self.catalog = catalog.load(settings.project)
        self.epoch, self.commits, self.crash_at = epoch, 0, -1
        self.flow = self.start()

    def start(self) -> Flow:
        """Begin anew, as a restarted driver does."""
        self.epoch += 1
        inputs = {one.name: one.inputs for one in self.catalog.app(self.app)}
        mend(self.app, inputs, lake=self.settings.lake, guard=self._guard)
        self.flow = Flow(
            app=self.app, epoch=self.epoch, catalog=self.catalog, settings=self.settings, guard=self._guard,
            path=self.path, clock=lambda: self.now, suspends=self.suspends, clocks=self.clocks,
            caution=self.caution,
        )  # fmt: skip
        if self.only:
            self.flow.writers = [writer for writer in self.flow.writers if writer.declared.name in self.only]
        self.flow.fence()
        edges = {topic: {str(p): Edge(0, 10**9) for p in range(2)} for topic in self.flow.topics}
        self.starts = self.flow.begin(edges, broker=None)
        return self.flow

    def take(self, rows: pa.Table) -> None:
        """One micro-batch."""
        self.flow.micro_batch(self.spark.createDataFrame(rows))
        self.turn()

    def turn(self) -> None:
        """What the driver does between batches, until no table is behind but those suspended."""
        while self.flow.behind():
            self.flow.turn(self.spark)

    def go_on(self, ordered: str) -> None:
        """What a driver does between two steps of an order about a table: every table takes its turn."""
        del ordered
        self.flow.turn(self.spark)

    def catch_up(self, log: Log) -> None:
        """After a restart: what bronze lacks comes from the log, what the tables lack from bronze."""
        rows = log.beyond(self.starts)
        if rows.num_rows:
            self.take(rows)
        self.turn()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's declared columns, sorted; times are UTC, without a zone."""
        layer, name = table.split(".")
        read = deltalake.DeltaTable(str(self.settings.lake / layer / name)).to_pyarrow_table()
        shown = {column: read[column] for column in read.column_names if not column.startswith("_")}
        naive = {
            column: values.cast(pa.timestamp("us")) if pa.types.is_timestamp(values.type) else values
            for column, values in shown.items()
        }
        return sorted(pa.table(naive).to_pylist(), key=str)

    def ledger(self) -> Ledger:
        """The books as they stand."""
        self.flow.settle()
        return Ledger(self.catalog, self.settings.lake)

    def verdicts(self) -> set[str]:
        """What the ledger says of the tables that take rows."""
        return {sheet.verdict for sheet in self.ledger().sheets() if not self.only or sheet.table in self.only}

    def _guard(self) -> None:
        """Counts commits; dies right before the chosen one."""
        if self.commits == self.crash_at:
            raise Crash(f"before commit {self.commits}")
        self.commits += 1


def between_commits() -> datetime:
    """A time by which all that there is was committed, and nothing that is to come will have been."""
    now = datetime.now(UTC)
    while datetime.now(UTC) <= now + timedelta(milliseconds=1):  # so precise are the times of commits
        pass
    return now


def take_arrow(flow: Flow, rows: pa.Table, *, above: bool = True) -> None:
    """One micro-batch without Spark, into tables that have no transform: into bronze, and `above` it."""
    for writer in flow.bronze:
        writer.take_arrow(rows, BY_ARROW)
    for one in flow.writers if above else ():
        one.take(None, BY_ARROW)  # type: ignore[arg-type]  # no DataFrame is made of so few rows


def carry_out(owner: Owner, order: Command) -> dict[str, Any]:
    """Carry an order out as a driver does: between two steps tables take rows."""
    steps = commands.carry_out(order, owner.flow, owner.spark)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return dict(done.value)
        owner.go_on(str(order.table_name))
