"""Tables over bronze: take ingest batches, parse, set refused rows aside, hand the good ones to the keeper."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from deltaworks import suites
from deltaworks.catalog import Declared
from deltaworks.engine import slices
from deltaworks.engine.breaker import Breaker
from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.entry import Counts, Replay
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.parse import Parser, Timely, parser
from deltaworks.engine.parsing.sheet import LEFT
from deltaworks.engine.phases import phase
from deltaworks.engine.schemas import spark_schema
from deltaworks.engine.session import suit
from deltaworks.engine.writers import strays
from deltaworks.engine.writers.left import with_left
from deltaworks.engine.writers.partial import unknown
from deltaworks.engine.writers.patches import Patch, Patched, Patches, told, whole
from deltaworks.engine.writers.quarantine import DECIDED, QUARANTINE, Place, Quarantine
from deltaworks.engine.writers.writer import Input, Progress, Turn, code_of, suite_of
from deltaworks.errors import CommandError
from deltaworks.quality.compiling import rules_of
from deltaworks.suites import Suite
from deltaworks.words.keeping import Append, History, Latest
from deltaworks.words.reading import Debezium, Json

Tally = Counter[tuple[str, str | None]]
"""Rows by kind and by the warnings that they break."""
_TALLIED = ("_kind", "_warned")
_RENAMED = {f"_{name}": name for name in ("topic", "partition", "offset", "timestamp", "key", "value", "reason")}


class OverBronze(ABC):
    """A writer whose input is one bronze table."""

    def __init__(
        self, declared: Declared, *, own: Input, source: Input, quarantine: OwnedTable, patches: Patches
    ) -> None:
        """Own `own`; read `source`; set refused rows aside into `quarantine`, and judge by their `patches`."""
        reads = declared.table.reads
        assert isinstance(reads, Json | Debezium)
        self.declared, self.own, self.source, self.quarantine = declared, own, source, quarantine
        self.table, self.patches = own.table, patches
        rules = () if declared.suite is None else rules_of(_suite(declared), declared.columns, later=declared.implied)
        timed = isinstance(declared.table.kept_as, History)
        partial = isinstance(declared.table.kept_as, Latest)
        self.parser: Parser = parser(
            reads,
            declared.table.columns,
            declared.keys,
            timely=_timely(declared),
            timed=timed,
            partial=partial,
            rules=rules,
            only=declared.table.only,
            by=declared.table.kept_as.by if isinstance(declared.table.kept_as, Latest | History) else None,
        )
        code, suite = code_of(declared), suite_of(declared)
        self.progress = Progress(own.table, code=code, suite=suite, inputs=[source.table])
        self.breaker = Breaker(declared, own.table, code=self.progress.code, suite=self.progress.suite)
        self.bronze = source.table.name
        self.until: int | None = None
        """Take no ingest batch beyond this one: a recomputation ends where the stream had come to."""
        self.patched: Mapping[Place, bytes | None] | None = None
        """Of a recomputation: the patches that count in it."""

    @property
    def after(self) -> int:
        """Last ingest batch taken in full."""
        return self.progress.position.batches.get(self.bronze, 0)

    def behind(self) -> bool:
        """Whether bronze has ingest batches beyond this table's position."""
        return self.after < self._end

    @property
    def _end(self) -> int:
        there = self.source.table.entry.ingest_seq
        return there if self.until is None else min(there, self.until)

    def take(self, spark: SparkSession | None, committer: Committer) -> Turn | None:
        """Take the next ingest batches: quarantine first, the table's own entry closes the group."""
        self.own.fresh = None
        due = self._due()
        if due is not None and due.seq == self.after + 1:
            return Turn(table=self.declared.name, counts=self._take_again(committer, due))
        last = self._end if due is None else min(self._end, due.seq - 1)
        piece = slices.batches(spark, self.source, after=self.after, bytes_max=committer.arrow_bytes_max, last=last)
        if piece is None:
            return None
        if isinstance(piece.rows, pa.Table):
            parsed = self.judge(after=self.after).parse(piece.rows)
            counts = self._take(committer, parsed, piece.upto, _tally(parsed))
        else:
            counts = self._take_spark(committer, piece.rows, piece.upto)
        return Turn(table=self.declared.name, counts=counts)

    def judge(self, *, after: int) -> Parser | Patched:
        """The parser, which knows the patches of rows beyond an ingest batch."""
        values: Mapping[Place, bytes | None] | None = self.patched
        if values is None:
            values = self.patches.standing(after=after)
        return Patched(self.parser, values) if values else self.parser

    def patch(self, committer: Committer, patch: Patch) -> None:
        """Give a refused row another value, which is judged in its place from now on; what came stays.

        Raises CommandError unless the row lies in quarantine and passes with it.
        """
        row = self._refused(patch.place, patch.command)
        judged = self.parser.parse(patch.beside(row))
        if (why := self._unfit(row, patch, judged)) is not None:
            finding = f"{self.declared.name} would refuse the new value of {told(patch.place)} too: {why}"
            raise CommandError(f"command {patch.command}", finding, "Give another one; nothing has changed")
        if self._is_copy(judged):
            finding = f"{self.declared.name} has the event that {told(patch.place)} would be"
            order = f"deltaworks quarantine discard {self.declared.name} --row {told(patch.place)} --reason ..."
            next_step = f'It needs no patch: discard it with "{order}"'
            raise CommandError(f"command {patch.command}", finding, next_step)
        self.patches.put(committer, patch, seq=row["_seq"][0].as_py())

    def _unfit(self, row: pa.Table, patch: Patch, judged: pa.Table) -> str | None:
        """Why a patch of this row, judged so, may not be."""
        kind, why, floor = (judged[name][0].as_py() for name in ("_kind", "_reason", "_floor"))
        if why is not None:
            return str(why)
        if kind == "truncate" or (floor is not None and floor != self.parser.parse(row)["_floor"][0].as_py()):
            return "it would empty the table"
        if kind in ("other", "snapshot"):
            return "it is no row of this table"
        if kind == "filtered":
            return f"only={self.declared.table.only!r} leaves it out"
        if whole(judged) != [True]:
            return f"{unknown(judged['_sent'])[0]}: value not sent"
        if isinstance(self.declared.table.reads, Debezium):
            # the record tells whose row it is, by its key or by what was before: it is read by making a deletion of it
            own = self.parser.parse(patch.as_deletion().beside(row))
            keys = list(self.declared.keys)
            leaves = judged[LEFT][0].is_valid  # the record says itself whose row it was
            if own["_kind"][0].as_py() == "delete" and not leaves and own.select(keys) != judged.select(keys):
                return "its key is another row's"
        return None

    def _is_copy(self, _judged: pa.Table) -> bool:
        """Whether the table has this row of its input already."""
        return False

    def withdraw(self, committer: Committer, place: Place, *, command: int) -> int:
        """Take the patch of a refused row back; how many there were. Raises CommandError as `patch`."""
        return self.patches.withdraw(committer, self._refused(place, command), command=command)

    def discard(self, committer: Committer, *, cause: str | None, place: Place | None, command: int) -> int:
        """Decide that refused rows stay out, and take their patches back; how many. Raises CommandError as `patch`."""
        side = Quarantine(self.quarantine)
        if place is not None and not side.discarded(command).num_rows:  # else an owner died since
            self._refused(place, command)
        many = side.discard(committer, cause=cause, place=place, command=command)
        if place is not None and not many:
            finding = f"the row from {told(place)} waits for a value that is not in it"
            raise CommandError(f"command {command}", finding, "It comes when the value does, or patch it")
        self.patches.withdraw(committer, side.discarded(command), command=command)
        return many

    def _refused(self, place: Place, command: int) -> pa.Table:
        """The row in quarantine from this place, whose refusal the table has confirmed."""
        row = Quarantine(self.quarantine).row(place)
        if not row.num_rows or row["_seq"][0].as_py() > self.after:
            finding = f"{self.declared.name} has no undecided row from {told(place)}"
            next_step = f'See "deltaworks quarantine show {self.declared.name}"'
            raise CommandError(f"command {command}", finding, next_step)
        return row

    def settle(self, committer: Committer) -> None:
        """Commit the remembered position."""
        self.progress.settle(committer)

    @phase("parse")  # Spark does it as it counts, and as it commits
    def _take_spark(self, committer: Committer, rows: DataFrame, upto: int) -> Counts:
        schema = spark_schema(self.parser.schema)
        suit(rows.sparkSession, many_rows=True)
        parsed = rows.mapInArrow(self.judge(after=self.after).batches, schema).persist(StorageLevel.DISK_ONLY)
        try:
            tally = Counter(
                {(kind, warned): count for kind, warned, count in parsed.groupBy(*_TALLIED).count().collect()}
            )
            return self._take(committer, parsed, upto, tally)
        finally:
            parsed.unpersist()

    def _take(self, committer: Committer, parsed: Rows, upto: int, tally: Tally) -> Counts:
        kinds: Counter[str] = Counter()
        for (kind, _), count in tally.items():
            kinds[kind] += count
        read, refused, other, filtered = kinds.total(), kinds["refused"], kinds["other"], kinds["filtered"]
        warned = sum(count for (_, names), count in tally.items() if names)
        not_mine = other + kinds["snapshot"]
        counts = Counts(read=read, refused=refused, not_mine=not_mine, filtered=filtered, warned=warned)
        after = self.after
        self.breaker.judge(counts, after=after)
        self.progress.over_bronze(self.bronze, upto)
        self.progress.warned(_by_name(tally))
        if read == other:
            self.progress.remember(counts)
            return counts
        self._tell_strays(parsed)
        if read == other + filtered:  # a filter that lets little through would commit next to nothing all the time
            self.progress.remember(counts)
            self.breaker.committed(counts, after=after)
            return counts
        if refused:
            self._set_aside(committer, parsed)
        with self._placed(parsed) as rows:
            kept = self._keep(committer, rows, counts)
        self.progress.committed()
        self.breaker.committed(counts, after=after)
        return kept

    def _tell_strays(self, parsed: Rows) -> None:
        """Columns of a database are told by name; what a sender calls a field may be somebody's."""
        reads, known = self.declared.table.reads, self.progress.position
        assert isinstance(reads, Json | Debezium)
        if isinstance(reads, Debezium) or reads.unknown_fields.named:
            self.progress.strays(strays.tell(self.declared.name, known.strays, parsed), most=None)
        else:
            self.progress.strays((), most=strays.count(self.declared.name, known.strays_most, parsed))

    def _due(self) -> Replay | None:
        """The next ingest batch in which this table judges refused rows again."""
        mine = (one for one in self.source.table.entry.position.replays if one.table == self.declared.name)
        return min((one for one in mine if one.seq > self.after), key=lambda one: one.seq, default=None)

    def _take_again(self, committer: Committer, due: Replay) -> Counts:
        """Judge refused rows again; those that pass go to the table, in an entry of their own, and leave quarantine."""
        self.settle(committer)  # so that its entry counts nothing else
        aside = Quarantine(self.quarantine)
        rows = aside.rows(due)
        parsed = self.judge(after=0).parse(rows)
        passes = pc.not_equal(parsed["_kind"], "refused")
        aside.claim(committer, rows.filter(passes), due)
        parsed = parsed.filter(passes)
        tally = _tally(parsed)
        self.progress.over_bronze(self.bronze, due.seq)
        self.progress.replayed(due.command)
        if parsed.num_rows == 0:  # said in an entry, so that a restart with other rules does not do it again unasked
            committer.mark(self.table, self.progress.entry(Counts()))
            self.progress.committed()
            return Counts()
        self.progress.warned(_by_name(tally))
        other = sum(count for (kind, _), count in tally.items() if kind in ("other", "snapshot"))
        filtered = sum(count for (kind, _), count in tally.items() if kind == "filtered")
        warned = sum(count for (_, names), count in tally.items() if names)
        # they were read and refused already: now they are something else
        counts = Counts(refused=-parsed.num_rows, not_mine=other, filtered=filtered, warned=warned)
        with self._placed(parsed) as placed:  # while it is known which ingest batches brought them
            assert isinstance(placed, pa.Table), "what goes in as Arrow stays so"
            counts = self._keep_again(committer, placed, counts, due)
        self.progress.committed()
        self.release(committer)
        return counts

    def _keep_again(self, committer: Committer, parsed: pa.Table, counts: Counts, due: Replay) -> Counts:
        """Commit rows that were refused before: changes of a database as if they had come now, in their own order."""
        now = pa.array([due.seq] * parsed.num_rows, pa.int64())
        return self._keep(committer, parsed.set_column(parsed.schema.get_field_index("_seq"), "_seq", now), counts)

    def release(self, committer: Committer) -> None:
        """Take out of quarantine what the table has by now."""
        Quarantine(self.quarantine).release(committer, upto=self.after)

    def _set_aside(self, committer: Committer, parsed: Rows) -> None:
        names = [*_RENAMED, "_seq"]
        judged = {"code": self.progress.code, "suite": self.progress.suite, "state": "open"}
        undecided = sorted(DECIDED)
        if isinstance(parsed, pa.Table):
            refused = parsed.filter(pc.equal(parsed["_kind"], "refused")).select(names)
            found = refused.rename_columns([_RENAMED.get(name, name) for name in names])
            for name, value in judged.items():
                found = found.append_column(name, pa.repeat(pa.scalar(value, pa.string()), found.num_rows))
            for name in undecided:
                found = found.append_column(name, pa.nulls(found.num_rows, pa.int64()))
            rows: Rows = found.select(QUARANTINE.names)
        else:
            chosen = [F.col(name).alias(_RENAMED.get(name, name)) for name in names]
            more = [F.lit(value).cast("string").alias(name) for name, value in judged.items()]
            more += [F.lit(None).cast("bigint").alias(name) for name in undecided]
            rows = parsed.where(F.col("_kind") == "refused").select(*chosen, *more).select(*QUARANTINE.names)
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

    def _placed(self, parsed: Rows) -> AbstractContextManager[Rows]:
        """The rows, each with its place among those of its key; those that the table does not keep may be missing.

        Of a database's changes also what ends where a row has left its keys.
        """
        moves = isinstance(self.declared.table.reads, Debezium)
        return nullcontext(with_left(parsed, self.declared.keys) if moves else parsed)

    @abstractmethod
    def _keep(self, committer: Committer, parsed: Rows, counts: Counts) -> Counts:
        """Commit what was not refused with the table's own entry; returns the whole batch's counts."""


def _timely(declared: Declared) -> Timely | None:
    """Events, and states that say when they began: what a database says of its own rows is taken as it is."""
    table = declared.table
    match table.kept_as:
        case Append():
            column = table.event_time
        case History(by=by):
            column = by
        case _:
            column = None
    return None if column is None else Timely(column=column, future_max=table.future_max)


def _suite(declared: Declared) -> Suite:
    assert declared.suite is not None
    return suites.load(declared.suite, table=declared.name, columns=[column.name for column in declared.columns])


def _tally(parsed: pa.Table) -> Tally:
    found = parsed.group_by(list(_TALLIED)).aggregate([([], "count_all")])
    columns = (found[name].to_pylist() for name in (*_TALLIED, "count_all"))
    return Counter({(kind, warned): count for kind, warned, count in zip(*columns, strict=True)})


def _by_name(tally: Tally) -> dict[str, int]:
    """Per warning how many rows break it."""
    names: Counter[str] = Counter()
    for (_, warned), count in tally.items():
        for name in (warned or "").splitlines():
            names[name] += count
    return dict(sorted(names.items()))
