"""The fused flow of an app: one micro-batch goes to bronze and through every table above it, in order.

Everything here runs under the app's lock. Bronze is committed first and is the truth from then on; a table that is
behind takes one bounded slice per turn, so a backlog in one table does not hold up the others.
"""

import logging
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Catalog, Declared
from deltaworks.control.unmet import Unmet
from deltaworks.engine import disk, stage
from deltaworks.engine.broker import Edge
from deltaworks.engine.caution import Caution, is_of_memory
from deltaworks.engine.clocks import Clocks, believed, believed_spark
from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Committer, Guard
from deltaworks.engine.entry import Counts, Entry, Offsets, Position, ahead
from deltaworks.engine.expiry import days_ahead, expire, expires, first_kept, kept_from
from deltaworks.engine.feed import let_go
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.log import read_log
from deltaworks.engine.maintenance import FILES_MIN, SIZES, SmallFiles
from deltaworks.engine.origin import lines_noted, told
from deltaworks.engine.own_columns import addable
from deltaworks.engine.partition import partition_of
from deltaworks.engine.poison import is_of_rows
from deltaworks.engine.record_book import RecordBook
from deltaworks.engine.rule_counts import Broken, RuleCounts, plan_of, rule_counts, told_of
from deltaworks.engine.same_input import known, refuse_others
from deltaworks.engine.same_log import Asked
from deltaworks.engine.same_log import refuse_others as refuse_other_records
from deltaworks.engine.schemas import arrow_schema, own_schema
from deltaworks.engine.session import suit
from deltaworks.engine.source import BRONZE, start_from
from deltaworks.engine.spark.planned import PLANS
from deltaworks.engine.stretches import times
from deltaworks.engine.suspended import Clock, Suspended, Suspensions, first_line, is_tables_own
from deltaworks.engine.trimming import (
    COMMITS_FOLLOWED,
    COMMITS_KEPT,
    COMMITS_OPENED,
    FILES_AT_ONCE,
    STAGED,
    is_staged,
    trim,
)
from deltaworks.engine.turns import MICRO_BATCH, Turns
from deltaworks.engine.writers import history, latest
from deltaworks.engine.writers.aggregate import AggregateWriter
from deltaworks.engine.writers.append import AppendWriter, told_micros
from deltaworks.engine.writers.fitting import with_places
from deltaworks.engine.writers.history import HistoryWriter
from deltaworks.engine.writers.late_rows import LATE_ADDED, LATE_SYSTEM
from deltaworks.engine.writers.latest import LatestWriter
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.patches import PATCHES, SUFFIX, Patch, Patches
from deltaworks.engine.writers.quarantine import DECIDED, QUARANTINE, Place, Quarantine
from deltaworks.engine.writers.raw import RawWriter
from deltaworks.engine.writers.stateful import StatefulWriter
from deltaworks.engine.writers.view import ViewWriter
from deltaworks.engine.writers.writer import EVENT, Input, Turn, Writer
from deltaworks.errors import (
    CommandError,
    DeclarationError,
    DeltaworksError,
    LakeError,
    LeadersMovedError,
    NoAnswerError,
    UnmetError,
)
from deltaworks.quality.planning import by_validations
from deltaworks.settings import Settings
from deltaworks.words.keeping import Aggregate, Append, History, Latest, Raw, Stateful, View
from deltaworks.words.lateness import SideOutput

log = logging.getLogger("deltaworks.flow")

Computed = AggregateWriter | StatefulWriter | ViewWriter
"""What a transform computes from other tables."""
TRIED_AT_ONCE = 100
"""So much of what was left out is tried again in one step: each of it may be a job of its own."""
Steps = Generator[Mapping[str, int], None, dict[str, int]]
"""An order's way in short steps: each yields how far it is; what it returns is the result."""
RECORD_SECONDS = 60.0  # each time one commit and one small file; the logs keep their commits for much longer
USES_LOOKED_FOR = 5_000
"""So many commits ago a command may have used late rows, and died, for its result to tell of them."""
COUNT_SECONDS_MAX = 0.5  # of the time between two batches, now and then: what is left is counted the next time
ARROW_AGAIN = 2
"""A batch with fewer rows than the last collected limit over this goes back to the Arrow path."""


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """A table's version, and the rows that it has read and refused since this driver started."""

    version: int
    read: int
    refused: int


@dataclass(frozen=True, kw_only=True)
class FlowStatus:
    """What the heartbeat tells, as it was after the last table's turn; counted since this driver started.

    Nothing of it changes: whoever works puts another in its place, and any thread may read the one that is there.
    `rows` are those of bronze, times seconds since 1970, `offsets` the next ones as committed to bronze. `behind`:
    tables that have not taken all that their inputs have, and since when, in seconds of time.monotonic().
    """

    batches: int = 0
    rows: int = 0
    last_batch_at: float | None = None
    last_commit_at: float | None = None
    offsets: Offsets = field(default_factory=dict)
    tables: Mapping[str, TableStatus] = field(default_factory=dict)
    behind: Mapping[str, float] = field(default_factory=dict)
    suspended: Mapping[str, Suspended] = field(default_factory=dict)
    broken: Mapping[str, Sequence[Broken]] = field(default_factory=dict)
    """Of tables that are computed the rules that rows of them break..."""
    uncounted: Mapping[str, int] = field(default_factory=dict)
    """...and how many of their files were not read for it yet."""


class Flow:
    """Owns the app's tables. Not thread-safe: hold the app's lock; without it read `status` alone."""

    def __init__(
        self,
        *,
        app: str,
        epoch: int,
        catalog: Catalog,
        settings: Settings,
        guard: Guard,
        path: str = "auto",
        clock: Clock = time.monotonic,
        suspends: bool = True,
        only: str | None = None,
        knows_inputs: bool = False,
        clocks: Clocks | None = None,
        caution: Caution | None = None,
    ) -> None:
        """Open (or create) every table of the app, and roll back side tables that ran ahead of their table.

        `path` forces one commit path: "arrow", "spark", or "auto" to choose by bytes. `clock` gives seconds.
        Unless it `suspends`, a table that fails is not suspended: its error is raised. `only`: this table, and its
        inputs as they are, which nobody writes. `knows_inputs`: they were laid out for these tables, and need not be
        those that rows were taken from. `clocks`: what time it is, this machine's alone unless others are given.
        `caution`: tables that take a batch by Spark first, as the life before may have had no memory for it.
        """
        self.suspends, self._knows_inputs = suspends, knows_inputs
        self.app, self.epoch, self.settings, self.guard, self.path = app, epoch, settings, guard, path
        self.clocks = clocks or Clocks()
        self.caution = caution or Caution()
        self.catalog = catalog
        self.inputs: dict[str, Input] = {}
        self.sides: dict[str, dict[str, OwnedTable]] = {}
        """Tables beside a table, by its name and their suffix."""
        self.bronze: list[RawWriter] = []
        self.writers: list[Writer] = []
        self.suspended = Suspensions(clock=clock)
        self.commits_kept, self.commits_opened = COMMITS_KEPT, COMMITS_OPENED
        self._trim_next = 0
        self.status = FlowStatus()
        self._counts: dict[str, Counts] = {}
        self._settled_at = self._recorded_at = time.monotonic()
        self.on_commit: Callable[[Writer], None] = lambda _: None
        self.rule_counts: dict[str, RuleCounts] = {}
        self._not_counted: set[str] = set()
        self.suspending: dict[str, set[str]] = {}
        """By table the expectations for which it is suspended where a validation found them unmet."""
        self._unmet: dict[str, str] = {}
        """Tables that are to be suspended by what validations said of them, with the reason."""
        self._large = path == "spark"
        for declared in catalog.app(app):
            if only is None or declared.name == only:
                self._open(declared)
            elif declared.name in catalog[only].inputs:
                self._open_input(declared)
        self.small_files = SmallFiles()
        self.files_of_book = SmallFiles(files_max=FILES_MIN, sizes=SIZES)  # nobody gives orders for it
        self.book = RecordBook(app=app, epoch=epoch, lake=settings.lake)
        self.turns = Turns(app=app, epoch=epoch, lake=settings.lake, guard=guard)
        self._tell()

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self, declared: Declared) -> None:
        own = self._open_input(declared)
        if isinstance(declared.table.kept_as, Raw):
            return
        self.writers.append(self._writer(declared, own))
        if self.suspends:
            plan = plan_of(declared)
            self.suspending[declared.name] = by_validations(plan)
            if declared.is_computed:
                self.rule_counts[declared.name] = rule_counts(own.table, plan)

    def _open_input(self, declared: Declared) -> Input:
        """A table to be read; bronze is only written."""
        kept = declared.table.kept_as
        if isinstance(kept, Raw):
            own = self._input(declared, BRONZE)
            if own.table.outdated is not None:
                raise own.table.outdated
            self.bronze.append(RawWriter(declared, own))
        else:
            own = self._input(declared, arrow_schema(declared.columns, system=own_schema(type(kept))))
        self.inputs[declared.name] = own
        return own

    def _writer(self, declared: Declared, own: Input) -> Writer:
        """A writer that takes up where its table's last entry stands."""
        sources, direct = tuple(self.inputs[name] for name in declared.inputs), self.settings.direct_plans
        match declared.table.kept_as:
            case Append():
                side = self._beside(declared, "quarantine", QUARANTINE)
                patches = self._patches(declared, own.table)
                return AppendWriter(declared, own=own, source=sources[0], quarantine=side, patches=patches)
            case Latest():
                side = self._beside(declared, "quarantine", QUARANTINE)
                deleted = self._beside(declared, "deleted", latest.deleted_schema(declared))
                waiting, patches = self._waiting(declared, own.table), self._patches(declared, own.table)
                return LatestWriter(
                    declared, own=own, source=sources[0], quarantine=side, patches=patches, deleted=deleted,
                    waiting=waiting,
                )  # fmt: skip
            case History():
                side = self._beside(declared, "quarantine", QUARANTINE)
                deleted = self._beside(declared, "deleted", history.deleted_schema(declared))
                patches = self._patches(declared, own.table)
                return HistoryWriter(
                    declared, own=own, source=sources[0], quarantine=side, patches=patches, deleted=deleted
                )
            case Aggregate():
                return _begun(
                    AggregateWriter(declared, own=own, source=sources[0], late=self._late(declared), direct=direct),
                    sources,
                )
            case Stateful():
                late = self._late(declared)
                return _begun(
                    StatefulWriter(declared, own=own, sources=sources, catalog=self.catalog, late=late, direct=direct),
                    sources,
                )
            case View():
                return ViewWriter(declared, own=own, sources=sources, direct=direct)
            case kept:
                raise DeclarationError(declared.name, f"cannot be kept as {kept}", 'Run "deltaworks table check"')

    def _input(self, declared: Declared, schema: pa.Schema) -> Input:
        views = sum(isinstance(reader.table.kept_as, View) for reader in self.catalog.readers(declared.name))
        followed = declared.copied or views > 0
        partition = partition_of(declared, schema)
        gains = addable(declared)
        return Input(
            table=self._owned(declared.name, schema, change_feed=followed, partition=partition, addable=gains),
            shared=views > 1,
            told_by=declared.keys or schema.names[:1],
            placed_by=declared.row_keys or (EVENT,),
        )

    def _owned(self, name: str, schema: pa.Schema, **how: Any) -> OwnedTable:
        entry = Entry(kind="create", app=self.app, epoch=self.epoch)
        path = folder_of(name, self.settings.lake)
        return OwnedTable(name=name, path=path, schema=schema, entry=entry, replaceable=True, **how)

    def _late(self, declared: Declared) -> OwnedTable | None:
        """Where rows of its only input go that come too late, if they are set aside."""
        if not isinstance(declared.table.late, SideOutput):
            return None
        columns = self.catalog[declared.inputs[0]].columns
        return self._beside(declared, "late", arrow_schema(columns, system=LATE_SYSTEM))

    def _beside(self, declared: Declared, suffix: str, schema: pa.Schema) -> OwnedTable:
        """A table beside another; where it is open already, as it stands now."""
        sides = self.sides.setdefault(declared.name, {})
        if suffix in sides:
            sides[suffix].reopen()
        else:
            rows_of = self.catalog[declared.inputs[0]] if suffix == "late" else declared
            gains = DECIDED if suffix == "quarantine" else addable(rows_of) | LATE_ADDED
            own = self.inputs[declared.name].table
            sides[suffix] = self._owned(f"{declared.name}__{suffix}", schema, addable=gains, beside=own)
            own.sides[suffix] = sides[suffix]
        return sides[suffix]

    def _waiting(self, declared: Declared, own: OwnedTable) -> Callable[[], OwnedTable]:
        """Most tables never need it: it is made when first asked for, and opened at once where it must be there."""
        sides = self.sides.setdefault(declared.name, {})

        def waiting() -> OwnedTable:
            return sides["waiting"] if "waiting" in sides else self._beside(declared, "waiting", own.schema)

        if own.entry.position.newest is not None or own.path.with_name(f"{own.path.name}__waiting").exists():
            self._beside(declared, "waiting", own.schema)
        return waiting

    def _patches(self, declared: Declared, own: OwnedTable) -> Patches:
        """Most tables never need them: made when first asked for, and opened at once where they must be there."""
        there = own.path.with_name(f"{own.path.name}__{SUFFIX}").exists()
        return Patches(lambda: self._beside(declared, SUFFIX, PATCHES), there=there)

    def last_commit(self) -> datetime | None:
        """When earlier owners have committed to bronze for the last time; None where there were none."""
        tables = [one.table for one in self.bronze if one.table.entry.epoch < self.epoch]
        logged = [read_log(one.path, one.version) for one in tables]
        return max((one.at for one in logged if one is not None and one.at is not None), default=None)

    def fence(self) -> None:
        """Commit this owner's epoch to every table, so that an older owner's next commit fails.

        What has taken rows of another input than there is, or of one that has gone back, is suspended.
        """
        committer, places = self._committer(None), self._places()  # before a commit takes an input further
        for table in self.tables():
            stage.clear(table.path)
            if table.entry.kind == "create" and table.entry.epoch == self.epoch:
                continue
            if table.entry.epoch != self.epoch:
                entry = table.entry.follow("fence", position=places.get(table.name, table.entry.position))
                committer.mark(table, _with_epoch(entry, self.app, self.epoch))
        for name, sides in self.sides.items():
            self._refuse_new_sides(name, sides)
            self._roll_back_sides(name)
        for writer in self.writers:
            if isinstance(writer, OverBronze):
                writer.release(committer)

    def _places(self) -> dict[str, Position]:
        """Where each table stands that reads others, with which tables those are; suspends, or refuses, as above."""
        found = {}
        for writer in self.writers:
            name, entry, sources = writer.declared.name, writer.table.entry, self._sources(writer)
            found[name] = place = known(entry, sources)
            now = writer.progress.position
            writer.progress.position = replace(now, inputs=place.inputs, epochs=place.epochs)
            try:
                self._refuse_other_inputs(writer)
            except LakeError as error:
                if not self.suspends:
                    raise
                self.suspend(name, error)
        return found

    def _refuse_other_inputs(self, writer: Writer) -> None:
        if not self._knows_inputs:
            refuse_others(writer.declared.name, writer.table.entry, self._sources(writer))

    def _sources(self, writer: Writer) -> list[OwnedTable]:
        return [self.inputs[name].table for name in writer.declared.inputs]

    def _refuse_new_sides(self, name: str, sides: Mapping[str, OwnedTable]) -> None:
        """What was set aside beside a table that has rows is part of it."""
        if self.inputs[name].table.outdated is not None:  # it may have been kept in another way, without this one
            return
        for suffix, side in sides.items():
            main = self.inputs[name].table.entry
            expected = main.ingest_seq > 0 and suffix not in ("late", SUFFIX)
            if suffix == "waiting":
                expected = main.position.newest is not None
            if expected and side.entry.kind == "create":
                raise LakeError(
                    side.name,
                    f"is gone, and {name} is not",
                    f"Bring it back, or move {name} and those that read it out of the lake too, and start the app",
                )

    def _roll_back_sides(self, name: str) -> None:
        for side in self.sides.get(name, {}).values():
            self._roll_back(side, self.inputs[name].table)

    def _roll_back(self, side: OwnedTable, main: OwnedTable) -> None:
        """After a crash between a side table's commit and its table's: the rows come again, so these must go."""
        there, mine = side.entry, main.entry
        of_tables = "_version" in side.schema.names
        if not ahead(there, mine, of_tables=of_tables):
            return
        if of_tables:
            where = f"_version > {max(mine.position.versions.values(), default=0)}"
        else:
            where = f"_seq > {mine.ingest_seq}"
        entry = there.follow("redo", position=mine.position, ingest_seq=mine.ingest_seq)
        self._committer(None).delete(side, where, entry)

    def tables(self) -> Iterator[OwnedTable]:
        """Every table of the app, side tables and the copy of the entries included."""
        yield from (source.table for source in self.inputs.values())
        for sides in self.sides.values():
            yield from sides.values()
        yield self.book.table

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that the app's bronze tables read."""
        return tuple(topic for writer in self.bronze for topic in writer.declared.topics)

    def begin(self, edges: Mapping[str, Mapping[str, Edge]], *, broker: Asked | None) -> dict[str, dict[str, int]]:
        """Where each topic's source starts: the ledger's positions, checked against what the broker has.

        `broker` is asked whether the records before them are those of bronze; None where rows come from none.
        """
        starts: dict[str, dict[str, int]] = {}
        for writer in self.bronze:
            mine = {topic: edges[topic] for topic in writer.declared.topics}
            position = start_from(writer.table.entry.position, mine)
            if broker is not None:
                refuse_other_records(writer.table.path, writer.table.entry.position, mine, broker)
            writer.begin(position)
            for topic in writer.declared.topics:
                known = starts.setdefault(topic, {})
                for partition, offset in position.offsets[topic].items():
                    # two tables may read one topic: the source starts where the slower one stands
                    known[partition] = min(offset, known.get(partition, offset))
        return starts

    def offsets(self) -> dict[str, dict[str, int]]:
        """Next offset per topic and partition, as committed to bronze."""
        merged: dict[str, dict[str, int]] = {}
        for writer in self.bronze:
            merged |= {topic: dict(parts) for topic, parts in writer.table.entry.position.offsets.items()}
        return merged

    # -- working ------------------------------------------------------------------------------------------------

    def micro_batch(self, batch: DataFrame) -> None:
        """Commit a micro-batch to bronze and let every table take its turn."""
        with self.turns.measure(MICRO_BATCH) as watch:
            watch.rows = self._micro_batch(batch)

    def _micro_batch(self, batch: DataFrame) -> int:
        """Commit it, and take turns; how many rows came."""
        spark = batch.sparkSession
        committer = self._committer(spark)
        lagging = {writer.declared.name for writer in self.writers if writer.behind()}
        large = self._large or not self.caution.tables.isdisjoint(raw.declared.name for raw in self.bronze)
        suit(spark, many_rows=large)  # what came before may have been planned for many
        rows, until = None, self.clocks.believed_until()
        if not large:
            with PLANS.paused():
                rows = collected(batch, during="read")
        if rows is None:
            batch = believed_spark(batch, until)
        else:
            rows = believed(rows, until)
        took = 0
        for writer in self.bronze:
            turn = writer.take_spark(batch, committer) if rows is None else writer.take_arrow(rows, committer)
            took += self._note(writer, turn)
            self.caution.came_through(writer.declared.name)  # all of them: what waits for any is in the batch
        if self.path == "auto":
            self._large = rows is None and took > self.settings.app(self.app).rows_per_batch_max // ARROW_AGAIN
        self._tell(batches=self.status.batches + 1, rows=self.status.rows + took, last_batch_at=time.time())
        self.turn(spark, last=lagging)
        self.tend()
        return took

    def plan_ahead(self, spark: SparkSession) -> None:
        """Plan what the first turn will ask for, in its order and beside it: none waits for the plans of others."""
        for writer in self.writers:
            if isinstance(writer, Computed):
                writer.plan_ahead(spark)

    def turn(self, spark: SparkSession, *, last: Collection[str] = ()) -> bool:
        """Each table above bronze takes one slice; True when some table is still behind.

        Those named in `last` come last: who has a backlog must not hold up who has none.
        """
        committer = self._committer(spark)
        order = sorted(range(len(self.writers)), key=lambda at: self.writers[at].declared.name in last)
        for at in order:
            kept = self._snapshots()
            self._take(at, spark, committer)
            if self._snapshots() > kept:  # as after a start, when each view reads its inputs
                let_go(self.inputs.values(), self.settings.arrow_bytes_max)
        self._forget_fresh()
        return self.behind()

    def _snapshots(self) -> int:
        return sum(source.snapshot is not None for source in self.inputs.values())

    def _forget_fresh(self) -> None:
        """What a turn has of its inputs in memory is for that turn."""
        for source in self.inputs.values():
            source.fresh = source.shown = source.feed = None
        let_go(self.inputs.values(), self.settings.arrow_bytes_max)

    def accept_bad(self, name: str, *, command: int) -> dict[str, int]:
        """Let a table set aside what bronze has now, however much of it is bad; says up to which ingest batch."""
        writer = self._parsing(name, command)
        upto = writer.source.table.entry.ingest_seq
        self._committer(None).mark(writer.table, writer.table.entry.follow("accept", accepted=upto, command=command))
        return {"batches_up_to": upto}

    def revise_mark(self, name: str, *, to: int, command: int) -> dict[str, str]:
        """Say how far the events of a table have come, in microseconds since 1970, where a wrong clock said more."""
        writer = next((one for one in self.writers if one.declared.name == name), None)
        if not isinstance(writer, AppendWriter) or writer.declared.table.event_time is None:
            step = "Name the table of events, kept as append, from which it is computed"
            raise CommandError(f"command {command}", f"{name} has no events that say how far time has come", step)
        self._refuse_suspended(name, command)
        told_micros(to)  # before it is done: one that has no words is refused
        was, now = writer.revise(self._committer(None), to=to, command=command)
        return {"was": told_micros(was), "is": told_micros(now)}

    def replay_refused(self, name: str, *, cause: str | None, command: int, spark: SparkSession | None) -> Steps:
        """Judge a table's refused rows again, those of one cause or all; the result says where they went.

        The steps order it; the table does it when its turn comes, and tables over it take what comes of that in
        theirs. Given again after a crash the result tells all of it.
        """
        if any(one.declared.name == name and isinstance(one, Computed) for one in self.writers):
            return (yield from self._try_again(name, cause=cause, command=command, spark=spark))
        writer = self._parsing(name, command)
        if spark is None and isinstance(writer, HistoryWriter) and writer.is_large(self.settings.arrow_bytes_max):
            finding = f"{name} is too large for an owner without Spark"
            raise CommandError(f"command {command}", finding, f"Start app {self.app} and give the order again")
        raw = next(one for one in self.bronze if one.table is writer.source.table)
        begun = [one.seq for one in raw.table.entry.position.replays if one.command == command]
        yield from self._passed(name, max(begun, default=0), command, {})
        aside = Quarantine(writer.quarantine)
        if cause is not None and not begun and cause not in (there := aside.causes()):
            known = ", ".join(sorted(there)) or "there are no undecided rows"
            raise CommandError(
                f"command {command}", f"{name} has refused nothing for {cause!r}", f"Causes are: {known}"
            )
        pieces = aside.pieces(cause=cause, bytes_max=self.settings.arrow_bytes_max)
        progress = {"done": 0, "total": sum(rows for *_, rows in pieces)}
        for after, upto, rows in pieces:
            taken = {one.declared.name: one.after for one in self.writers if isinstance(one, OverBronze)}
            seq = raw.replay(
                name, self._committer(None), after=after, upto=upto, cause=cause, command=command, taken=taken
            )
            yield from self._passed(name, seq, command, progress)
            progress = {**progress, "done": progress["done"] + rows}
        found = self._replayed(raw, name, command)
        still = sum(rows for reason, rows in aside.causes().items() if cause in (None, reason))
        return {"moved": -found.refused, "taken": found.taken, "superseded": found.superseded,
                "duplicate": found.duplicate, "not_mine": found.not_mine, "filtered": found.filtered,
                "still_refused": still}  # fmt: skip

    def _try_again(self, name: str, *, cause: str | None, command: int, spark: SparkSession | None) -> Steps:
        """Have what a transform could not compute computed by the transform as it is now, in steps of a commit each."""
        if spark is None:
            finding = f"{name} is computed by a transform, which an owner without Spark cannot run"
            raise CommandError(f"command {command}", finding, f"Start app {self.app} and give the order again")
        self._refuse_suspended(name, command)
        self.open_anew(name)
        there = self.inputs[name].table.entry.position.unfit
        moved = self._moved(name, command)
        if cause is not None and not moved and cause not in (known := {one.error for one in there}):
            told = ", ".join(sorted(known)) or "nothing is left out"
            raise CommandError(f"command {command}", f"{name} has left out nothing for {cause!r}", f"Causes: {told}")
        wanted = [one for one in there if cause in (None, one.error)]
        for at in range(0, len(wanted), TRIED_AT_ONCE):
            self._refuse_suspended(name, command)
            writer = next(one for one in self.writers if one.declared.name == name)
            assert isinstance(writer, Computed)
            still = [one for one in wanted[at : at + TRIED_AT_ONCE] if one in writer.progress.position.unfit]
            try:
                counts = writer.try_again(spark, self._committer(spark), still, command=command) if still else Counts()
            except Exception as error:
                self._failed(name, error, "what it left out", command)
                raise
            self._note(writer, Turn(table=name, counts=counts))
            self._forget_fresh()
            yield {"done": min(at + TRIED_AT_ONCE, len(wanted)), "total": len(wanted)}
        left = self.inputs[name].table.entry.position.unfit
        still_refused = sum(cause in (None, one.error) for one in left)
        return {"moved": self._moved(name, command), "still_refused": still_refused}

    def _moved(self, name: str, command: int) -> int:
        """How much of what was left out this command has brought in so far, by the table's entries."""
        found, newer = 0, None
        entries = islice(self.inputs[name].table.entries_backwards(), USES_LOOKED_FOR)
        for entry in entries:
            there = {(one.of, one.place) for one in entry.position.unfit}
            if newer is not None and newer.kind == "replay" and newer.command == command:
                found += len(there - {(one.of, one.place) for one in newer.position.unfit})
            newer = entry
        return found

    def _failed(self, name: str, error: Exception, rows: str, command: int) -> None:
        """Suspend a table that an order about these rows failed with; a row's error is told without its text."""
        self.suspend(name, error)  # what it remembers may not be what is committed
        if is_of_rows(error):
            finding = f"{name} cannot be computed with {rows}: {told(error, self.catalog[name].transform)}"
            raise CommandError(f"command {command}", finding, "Mend its transform, then order it again") from error

    def _refuse_suspended(self, name: str, command: int) -> None:
        if name in self.suspended:
            finding = f"{name} is suspended: {self.suspended.tables[name].error}"
            raise CommandError(f"command {command}", finding, "Mend it and give the order again")

    def _replayed(self, raw: RawWriter, name: str, command: int) -> Counts:
        """What a command's ingest batches have done to the table so far, by its entries."""
        first = min((one.seq for one in raw.table.entry.position.replays if one.command == command), default=None)
        found = Counts()
        if first is None:
            return found
        for entry in self.inputs[name].table.entries_backwards():
            if entry.ingest_seq < first:
                break
            if entry.kind == "replay" and entry.command == command:
                found += entry.counts
        return found

    def apply_late(self, name: str, *, command: int, spark: SparkSession | None, only: set[str] | None = None) -> Steps:
        """Use rows that came too late for a table and were set aside; how many were by this command.

        `only`: none but those with these coordinates. Given again after a crash the result tells all of it.
        """
        writer = next((one for one in self.writers if one.declared.name == name), None)
        if not isinstance(writer, AggregateWriter | StatefulWriter) or writer.used is None:
            finding = f"{name} sets no late rows aside"
            raise CommandError(f"command {command}", finding, "Name a table whose late= is side_output(...)")
        if spark is None:
            finding = f"{name} is computed by a transform, which an owner without Spark cannot run"
            raise CommandError(f"command {command}", finding, f"Start app {self.app} and give the order again")
        total, done = writer.used.open().num_rows, 0
        while True:
            writer = next(one for one in self.writers if one.declared.name == name)  # it may have been opened anew
            assert isinstance(writer, AggregateWriter | StatefulWriter)
            assert writer.used is not None
            self._refuse_suspended(name, command)
            committer = self._committer(spark)
            try:
                bytes_max = self.settings.arrow_bytes_max
                rows = writer.used.claim(committer, command=command, bytes_max=bytes_max, only=only)
                if not rows.num_rows:
                    break
                counts = writer.use_late(spark, committer, rows, command=command)
            except Exception as error:
                self._failed(name, error, "these late rows", command)
                raise
            self._note(writer, Turn(table=name, counts=counts))
            done += rows.num_rows
            yield {"done": done, "total": total}
        return {"used": self._used(name, command)}

    def _used(self, name: str, command: int) -> int:
        """How many late rows this command has used so far, by the table's entries."""
        used, first = 0, 0
        for number, entry in enumerate(self.inputs[name].table.entries_backwards()):
            if entry.position.applied is None:
                break
            use, _ = entry.position.applied
            if entry.kind == "late" and entry.command == command:
                used, first = used + entry.counts.taken, use
            # between two uses of one command others take their turns
            elif use < first - 1 or (not first and number > USES_LOOKED_FOR):
                break
        return used

    def _passed(self, name: str, seq: int, command: int, progress: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
        """Give way until a table over bronze has taken this ingest batch; raises CommandError if it is suspended."""
        while self._parsing(name, command).after < seq:
            if name in self.suspended:
                finding = f"{name} is suspended: {self.suspended.tables[name].error}"
                raise CommandError(f"command {command}", finding, "Mend it; what was begun goes on with it")
            yield progress

    def take_slice(self, name: str, spark: SparkSession | None) -> None:
        """Let one table alone take its slice, as in a turn; bronze and the tables of the engine have none to take.

        Without Spark nothing is computed by a transform.
        """
        for at, one in enumerate(self.writers):
            if one.declared.name == name and (spark is not None or not isinstance(one, Computed)):
                self._take(at, spark, self._committer(spark))
        self._forget_fresh()

    def expire(self, name: str, *, command: int, spark: SparkSession | None) -> Steps:
        """Delete the rows of a table that are older than it keeps them; nothing where less than a day of them is.

        What is computed from them has taken them by then, and has deleted its own. Raises CommandError where an owner
        without Spark would wait for that in vain.
        """
        declared, table = self.catalog[name], self.inputs[name].table
        if declared.table.keep_days is None or not expires(declared):
            finding = f"{name} keeps its rows for ever"
            raise CommandError(f"command {command}", finding, "Name a table that has keep_days")
        self.refuse_outdated(declared)
        while True:
            over = self._over(name)
            for one in (name, *(writer.declared.name for writer in over)):
                self._refuse_suspended(one, command)
            behind = [writer.declared.name for writer in over if writer.behind()]
            if not behind:
                break
            if spark is None:
                finding = f"what is computed from {name} is behind ({', '.join(behind)}), and this owner has no Spark"
                raise CommandError(f"command {command}", finding, f"Start app {self.app} and give the order again")
            yield {"expired": 0}
        events = [name] if isinstance(declared.table.kept_as, Append) else declared.inputs
        now, marks = self.clocks.earliest(), [self.inputs[one].table.entry.position.mark for one in events]
        beyond_now = {"days_ahead": days} if (days := days_ahead(marks, now)) else {}
        if beyond_now:
            log.warning("%s: its events are %d days ahead of the time: what expires is counted from today", name, days)
        before = kept_from(
            declared,
            marks=marks,
            readers=[
                (one.declared, one.table.entry.position)
                for one in over
                if not isinstance(one, ViewWriter)  # it follows what goes
            ],
            left_out=self._left_out(name),
            now=now,
        )
        if before <= (table.entry.position.kept_from or 0):
            return {"expired": 0, **beyond_now}
        return {"expired": self.expire_before(name, before, command=command), **beyond_now}

    def expire_before(self, name: str, before: int | None, *, command: int) -> int:
        """The same up to an event time that was decided before (None: there is none), where rows were made again."""
        declared, own = self.catalog[name], self.inputs[name]
        if before is None or not expires(declared):
            return 0
        gone = expire(own.table, declared, before, committer=self._committer(None), command=command)
        writer = next(one for one in self.writers if one.declared.name == name)
        writer.progress.position = replace(writer.progress.position, kept_from=before)
        if isinstance(writer, StatefulWriter):
            writer.forget()
        own.fresh = None
        return gone

    def _left_out(self, name: str) -> list[int]:
        """Event times of the rows of a table that tables above have left out, in microseconds since 1970."""
        table, column = self.inputs[name].table, self.catalog[name].table.event_time
        over = [one for one in self._over(name) if not isinstance(one, ViewWriter)]  # it follows what goes
        out = {one.place for writer in over for one in writer.progress.position.unfit if one.of == name}
        if not out or column is None:
            return []
        rows = with_places(table, sorted(out))
        return [int(time) for time in times(rows, column)]

    def _over(self, name: str) -> "list[Computed]":
        """Who computes from the rows of a table."""
        return [one for one in self.writers if isinstance(one, Computed) and name in one.declared.inputs]

    def discard_refused(self, name: str, *, cause: str | None, place: Place | None, command: int) -> dict[str, int]:
        """Decide that a table's refused rows stay out: those of one cause, the one from a place, or all."""
        writer = self._parsing(name, command)
        return {"discarded": writer.discard(self._committer(None), cause=cause, place=place, command=command)}

    def patched(self, name: str, place: Place, *, command: int) -> bool:
        """Whether the patch that an order gave a row stands."""
        return self._parsing(name, command).patches.has(place, command=command)

    def patch_refused(self, name: str, patch: Patch) -> dict[str, int]:
        """Give a refused row another value; raises CommandError as the writer does."""
        self._parsing(name, patch.command).patch(self._committer(None), patch)
        return {"patched": 1}

    def withdraw_patch(self, name: str, place: Place, *, command: int) -> dict[str, int]:
        """Let a refused row be judged as it came again."""
        return {"withdrawn": self._parsing(name, command).withdraw(self._committer(None), place, command=command)}

    def open_anew(self, name: str) -> None:
        """Read a table's place and memory from what is committed, after it was written to in another way."""
        at = next(at for at, one in enumerate(self.writers) if one.declared.name == name)
        writer = self.writers[at] = self._anew(self.writers[at].declared)
        if isinstance(writer, OverBronze):
            writer.release(self._committer(None))
        self._go_on(name)
        self.inputs[name].in_vain = None
        self._forget_fresh()

    def side(self, name: str, suffix: str) -> OwnedTable | None:
        """The table beside a table, made now where it is one that most tables never need; None if it has none."""
        writer = next(one for one in self.writers if one.declared.name == name)
        if suffix == "waiting" and isinstance(writer, LatestWriter):
            return writer.waiting()
        return self.sides.get(name, {}).get(suffix)

    def readers(self, name: str) -> dict[str, int]:
        """The tables that read the versions of a table, and the last one that each has taken in full."""
        return {
            # what it has committed: of what is only remembered it knows nothing after a death
            writer.declared.name: writer.table.entry.position.versions.get(name, 0)
            for writer in self.writers
            if not isinstance(writer, OverBronze) and name in writer.declared.inputs
        }

    def _parsing(self, name: str, command: int) -> OverBronze:
        writer = next((one for one in self.writers if one.declared.name == name), None)
        if not isinstance(writer, OverBronze):
            raise CommandError(f"command {command}", f"{name} sets no rows aside", "Name a table that parses")
        return writer

    def behind(self) -> bool:
        """Whether some table that is not suspended has not yet taken what its inputs have."""
        return any(
            writer.behind() or writer.declared.name in self.suspended  # it is opened anew, whatever there is to take
            for writer in self.writers
            if not self.suspended.waits(writer.declared.name)
        )

    def _take(self, at: int, spark: SparkSession | None, committer: Committer) -> None:
        """Let one table take its slice; one that fails by its own fault is suspended."""
        writer = self.writers[at]
        name = writer.declared.name
        if self.suspended.waits(name):
            return
        if spark is not None and name in self.caution.tables:  # without it there is no other way
            committer = Committer(spark=spark, arrow_bytes_max=0, guard=self.guard)
        try:
            self.refuse_outdated(writer.declared)
            if name in self.suspended:
                writer = self.writers[at] = self._anew(writer.declared)
                self._refuse_other_inputs(writer)
                self._roll_back_sides(name)
                if isinstance(writer, OverBronze):
                    writer.release(committer)
            # what failed may fail again: then its error says where
            with self.turns.measure(name) as watch, lines_noted() if name in self.suspended else nullcontext():
                turn = writer.take(spark, committer)  # type: ignore[arg-type]  # None is for tables over bronze only
                watch.rows = None if turn is None else turn.counts.read
            unmet = self._unmet_of(name)
            if unmet is not None:
                writer.settle(committer)  # a slice that brought nothing is only remembered, and is not to come again
        except Exception as error:
            if not self.suspends or not is_tables_own(error, writer.declared.transform):
                raise
            self.suspend(name, error)
            self.inputs[name].fresh = None
            return
        if unmet is None:
            self._go_on(name)
        else:  # what was committed stands
            self.suspend(name, unmet)
            self.inputs[name].fresh = None
        if turn is not None and turn.counts.read and spark is not None:
            self.caution.came_through(name)
        self._note(writer, turn)

    def learn_unmet(self, found: Iterable[Unmet]) -> None:
        """What validations found unmet suspends its table, where its suite says so; from any thread."""
        told: dict[str, list[str]] = {}
        for one in found:
            if one.expectation in self.suspending.get(one.table_name, ()):
                told.setdefault(one.table_name, []).append(one.reason)
        self._unmet = {name: "; ".join(reasons) for name, reasons in told.items()}

    def _unmet_of(self, name: str) -> UnmetError | None:
        """Why a table is to be suspended that has taken what it had to; None where nothing speaks against it."""
        counts, found = self.rule_counts.get(name), []
        if counts is not None and counts.suspending:
            counts.look()
            self._tell_broken(name)
            found = [str(one) for one in counts.broken() if one.suspends]
        if found:
            return UnmetError(name, "; ".join(found), "Mend what it is computed from; it is tried again by itself")
        reason = self._unmet.get(name)
        step = f'Mend it, and then run "deltaworks quality run {name}"'
        return None if reason is None else UnmetError(name, reason, step)

    def _count_broken(self) -> None:
        """Count for a moment the rows of computed tables that break rules, as the tables stand."""
        until = time.monotonic() + COUNT_SECONDS_MAX
        for name, counts in self.rule_counts.items():
            try:
                counts.look(lambda: time.monotonic() < until)
            except Exception as error:
                if not is_tables_own(error, None):
                    raise
                if name not in self._not_counted:
                    log.warning("%s: rows that break rules cannot be counted (%s)", name, first_line(error))
                self._not_counted.add(name)
            else:
                self._not_counted.discard(name)
            self._tell_broken(name)

    def _tell_broken(self, name: str) -> None:
        counts = self.rule_counts[name]
        found, uncounted = counts.broken(), counts.uncounted
        if found != list(self.status.broken.get(name, ())):
            log.log(logging.WARNING if found else logging.INFO, "%s: %s", name, told_of(found))
            self._tell(broken={**self.status.broken, name: found})
        if uncounted != self.status.uncounted.get(name, 0):
            self._tell(uncounted={**self.status.uncounted, name: uncounted})

    def refuse_outdated(self, declared: Declared) -> None:
        """Raise LakeError where its rows, or an input's, lack declared columns, or only a part of it was replaced."""
        own, sides = self.inputs[declared.name].table, self.sides.get(declared.name, {}).values()
        for table in (own, *sides, *(self.inputs[name].table for name in declared.inputs)):
            if table.outdated is not None:
                raise table.outdated
        for side in sides:
            if side.entry.replaced is not None and side.entry.replaced[1:] != (own.entry.replaced or ())[1:]:
                finding = f"{side.name} was replaced, and it was not"
                raise LakeError(own.name, finding, f'Run "deltaworks rebuild {own.name}"')

    def _anew(self, declared: Declared) -> Writer:
        """A table as after a restart: its transform may have been mended, its last batch may be half committed."""
        own = self.inputs[declared.name]
        own.table.reopen()
        try:
            return self._writer(declared, own)
        except DeltaworksError:
            raise
        except Exception as error:  # a transform that does not even load: any error of Python
            finding, next_step = f"cannot be loaded ({type(error).__name__}: {error})", "Mend its transform"
            raise DeclarationError(declared.name, finding, next_step) from error

    def settle(self, *, after_seconds: float = 0.0) -> None:
        """Commit positions that are only remembered, if they are so old: now and then, and before a stop.

        Raises LeadersMovedError, when all else is done, if gaps cannot be booked before reading has begun anew.
        """
        now = time.monotonic()
        if now - self._settled_at < after_seconds:
            return
        self._settled_at = now
        committer, moved = self._committer(None), None
        try:
            for raw in self.bronze:
                raw.settle(committer)
        except LeadersMovedError as error:
            moved = error
        except NoAnswerError as error:  # the next driver asks again, if this one leaves
            log.warning("gaps are booked later: %s", error)
        for writer in self.writers:
            if writer.declared.name not in self.suspended:
                writer.settle(committer)
        if not after_seconds or now - self._recorded_at >= RECORD_SECONDS:
            more = self.book.record(self.tables(), committer)
            more |= self.trim() >= FILES_AT_ONCE
            self._recorded_at = -RECORD_SECONDS if more else now
            self.turns.tell()
        self.tend()
        self._count_broken()  # not in each turn: what is replaced meanwhile need not be read
        self._tell()
        if moved is not None:
            raise moved

    def tend(self) -> None:
        """Give logs their checkpoints, and have very many small files put together in one table that is at work."""
        committer = self._committer(None)
        self.small_files.put_together(self._at_work(), committer)
        self.files_of_book.put_together([self.book.table], committer)
        due = [table for table in self.tables() if table.wants_checkpoint]
        if due:
            disk.sync(self.settings.lake)
        for table in due:
            table.checkpoint(on_disk=True)

    def _at_work(self) -> Iterator[OwnedTable]:
        """The tables that are not suspended, with those beside them."""
        for name, source in self.inputs.items():
            if name not in self.suspended:
                yield source.table
                yield from self.sides.get(name, {}).values()

    def trim(self) -> int:
        """Shorten the tables' logs to about their last commits, as far as nobody needs older ones; how many files went.

        While something is staged, nothing is cut: what it needs is known when it is published.
        """
        if is_staged(self.settings.data / STAGED):
            return 0
        gone, tables = 0, list(self.tables())
        for _ in tables:
            if gone >= FILES_AT_ONCE:
                break
            table = tables[self._trim_next % len(tables)]
            self._trim_next += 1  # who used a turn up comes last in the next
            gone += trim(
                table,
                needed=self._needed(table),
                kept=self.commits_kept,
                opened=self.commits_opened,
                files_max=FILES_AT_ONCE - gone,
                guard=self.guard,
            )
        return gone

    def _needed(self, table: OwnedTable) -> Iterator[int]:
        """From which versions on a log is needed: what is not copied yet, and what tables above have not taken.

        Those that have taken nothing take what there is. What follows a table outside the lake may be a while behind.
        """
        if table is not self.book.table:
            yield self.book.copied_upto(table) + 1
        declared = self.catalog.tables.get(table.name)
        if declared is not None and (declared.table.serves is not None or declared.table.publishes is not None):
            yield table.version - COMMITS_FOLLOWED
        yield from (taken + 1 for taken in self.readers(table.name).values() if taken)

    def rebuild_book(self) -> int:
        """Write the copy of the entries anew from the commits; returns how many there are."""
        return self.book.rebuild(self.tables(), self._committer(None))

    def _note(self, writer: Writer | RawWriter, turn: Turn | None) -> int:
        if turn is None:
            return 0
        self._counts[turn.table] = self._counts.get(turn.table, Counts()) + turn.counts
        # a position that is only remembered is no commit; what is judged again was read before
        passed_by = turn.counts.not_mine + turn.counts.filtered
        committed = turn.counts.read > passed_by or turn.counts.refused < 0 or turn.counts.late < 0
        self._tell(last_commit_at=time.time() if committed else self.status.last_commit_at)
        if not isinstance(writer, RawWriter) and writer.declared.name not in self.suspended:
            self.on_commit(writer)
        return turn.counts.read

    def suspend(self, name: str, error: Exception) -> None:
        """Leave a table out until it is tried again, and tell so."""
        self.suspended.failed(name, error, transform=self.catalog[name].transform)
        if is_of_memory(error):
            self.caution.had_no_memory(name)
        self._tell()

    def _go_on(self, name: str) -> None:
        self.suspended.recovered(name)
        if name in self.status.suspended:
            self._tell()

    def _tell(self, **changes: Any) -> None:
        """Put a status of now in the place of the last one; `changes` are what is not read off the tables."""
        tables = {
            name: TableStatus(version=source.table.version, read=counts.read, refused=counts.refused)
            for name, source in self.inputs.items()
            for counts in (self._counts.get(name, Counts()),)
        }
        now, before = time.monotonic(), self.status.behind
        names = (writer.declared.name for writer in self.writers if writer.behind())
        behind = {name: before.get(name, now) for name in names}
        self.status = replace(
            self.status, offsets=self.offsets(), tables=tables, behind=behind, suspended=dict(self.suspended.tables),
            **changes,
        )  # fmt: skip

    def _committer(self, spark: SparkSession | None) -> Committer:
        limit = 0 if self.path == "spark" else self.settings.arrow_bytes_max
        return Committer(spark=spark, arrow_bytes_max=limit, guard=self.guard)


def _begun(writer: AggregateWriter | StatefulWriter, sources: Collection[Input]) -> AggregateWriter | StatefulWriter:
    """A table that is new does not begin with groups of which some rows have gone."""
    progress = writer.progress
    if not progress.position.versions:
        begin = first_kept(writer.declared, [source.table.entry.position for source in sources])
        progress.position = replace(progress.position, kept_from=begin)
    return writer


def _with_epoch(entry: Entry, app: str, epoch: int) -> Entry:
    return replace(entry, app=app, epoch=epoch)
