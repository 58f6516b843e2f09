"""Run a case through the engine's own flow over a lake of its own: as a stream, as a batch, in small parts.

Only the broker is left out. Rows of bronze come as a micro-batch; rows of other inputs are committed to the input's own
table with an entry, by merge where it has keys, so that versions and change feed are those that the engine makes.
"""

import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks.case_differences import differences
from deltaworks.cases import Batch, Case, Delete, Refused, Row, Wire
from deltaworks.catalog import Catalog, Declared
from deltaworks.engine.broker import Edge
from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Counts, Unfit
from deltaworks.engine.flow import Flow
from deltaworks.engine.marks import walk
from deltaworks.engine.source import BRONZE
from deltaworks.engine.writers.result import nullable_keys
from deltaworks.settings import Settings
from deltaworks.words.keeping import Aggregate, Append, Stateful
from deltaworks.words.reading import Json

Way = Literal["stream", "batch", "in parts"]
PARTS = 16
"""A case of so many rows comes row by row; of more rows several come together, for each part takes time."""
Step = Batch | Literal["restart"]
WAYS: tuple[Way, ...] = get_args(Way)

_FIRST_ARRIVAL = datetime(2026, 11, 21, tzinfo=UTC)  # by the broker's clock; says nothing about event times
_BETWEEN_ARRIVALS = timedelta(milliseconds=1)
_OFFSET_MAX = 2**62
_GONE = pa.field("_gone", pa.bool_())
_KAFKA = pa.schema([field for field in BRONZE if field.name != "_seq"])


def ways(declared: Declared) -> tuple[Way, ...]:
    """The ways that must all end alike: aggregates and stateful tables take whatever parts their input comes in."""
    return WAYS if isinstance(declared.table.kept_as, Aggregate | Stateful) else ("stream", "batch")


class Beginnings:
    """Lakes as a table's cases find them: made once for each table, and copied. Used by several threads."""

    def __init__(self, folder: Path) -> None:
        """Keep them in this folder."""
        self._folder = folder
        self._locks = defaultdict[str, threading.Lock](threading.Lock)

    def copy(self, name: str, lake: Path, make: Callable[[Path], object]) -> None:
        """Copy a beginning to where there is no lake yet; `make` fills a data folder the first time."""
        made = self._folder / name
        with self._locks[name]:
            if not made.exists():
                draft = Path(tempfile.mkdtemp(dir=self._folder))
                make(draft)
                draft.rename(made)
        shutil.copytree(made / "lake", lake, dirs_exist_ok=True)


def run_case(
    case: Case,
    way: Way,
    *,
    catalog: Catalog,
    settings: Settings,
    spark: SparkSession,
    beginnings: Beginnings | None = None,
) -> tuple[str, ...]:
    """What the table holds otherwise than the case says, a line each; the lake of `settings` must be empty."""

    def begin(data: Path) -> _Run:
        run = _Run(case, catalog=catalog, settings=settings.changed(data=data), spark=spark)
        if way != "batch":
            run.turn()  # a stream starts before its rows come: a view must find what they touch
        return run

    if beginnings is not None:
        beginnings.copy(f"{case.table}{'' if way == 'batch' else ' started'}", settings.lake, begin)
    run = begin(settings.data)
    for step in _steps(case, way):
        if step == "restart":
            run.restart()
        else:
            run.take(step)
    return differences(
        case, keys=run.declared.row_keys, rows=run.rows(), refused=run.refused(), late=run.late(),
        left_out=run.left_out(),
    )  # fmt: skip


def _steps(case: Case, way: Way) -> Iterator[Step]:
    """The case's rows as they come: as given, all together, or in parts of few rows of one input."""
    if way == "batch":
        batches = [step for step in case.steps if step != "restart"]
        names = batches[0].rows
        yield Batch(rows={name: tuple(row for batch in batches for row in batch.rows[name]) for name in names})
        return
    given = sum(len(rows) for step in case.steps if step != "restart" for rows in step.rows.values())
    size = -(-given // PARTS)
    for step in case.steps:
        if step == "restart" or way == "stream":
            yield step
        else:
            for name, rows in step.rows.items():
                yield from (Batch(rows={name: rows[at : at + size]}) for at in range(0, len(rows), size))


class _Run:
    """The flow of the table's app without its other tables, and a lake that outlives it."""

    def __init__(self, case: Case, *, catalog: Catalog, settings: Settings, spark: SparkSession) -> None:
        """Open the first flow."""
        self.declared, self.settings, self.spark = catalog[case.table], settings, spark
        self.catalog = _below(catalog, case.table)
        self.late_by = dict(_lateness(case, catalog))
        self.arrivals = dict(_arrivals(case))
        self.epoch = self.sent = 0
        self.restart()

    def restart(self) -> None:
        """Go on as another process would: what is not in the lake is forgotten."""
        self.epoch += 1
        # its inputs hold what the case gives, not what their own writers would make of it
        self.flow = Flow(
            app=self.declared.table.app, epoch=self.epoch, catalog=self.catalog, settings=self.settings, guard=_always,
            suspends=False, only=self.declared.name,
        )  # fmt: skip
        self.flow.fence()
        self.flow.begin({topic: {"0": Edge(0, _OFFSET_MAX)} for topic in self.flow.topics}, broker=None)

    def take(self, batch: Batch) -> None:
        """Give the inputs these rows, and let the table take them."""
        for name, rows in batch.rows.items():
            records = [row for row in rows if isinstance(row, Wire)]
            if records:
                arrived = self._arrived(name, records)
                for bronze in self.flow.bronze:  # as the flow does with a micro-batch, once Spark has handed it over
                    bronze.take_arrow(arrived, self._committer())
            elif rows:
                self._put(self.catalog[name], [row for row in rows if not isinstance(row, Wire)])
        self.turn()

    def turn(self) -> None:
        """Let the table take what its inputs have."""
        while self.flow.behind():
            self.flow.turn(self.spark)

    def rows(self) -> list[Row]:
        """The table's rows as the lake has them."""
        table = self.flow.inputs[self.declared.name].table
        table.reopen()
        found: list[Row] = table.read([column.name for column in self.declared.columns]).to_pylist()
        return found

    def refused(self) -> list[Refused]:
        """The records that were set aside; none where a table parses nothing."""
        side = self.flow.sides.get(self.declared.name, {}).get("quarantine")
        if side is None:
            return []
        side.reopen()
        found = side.read(["key", "value", "reason"]).to_pylist()
        return [Refused(row=Wire(key=row["key"], value=row["value"]), reason=row["reason"]) for row in found]

    def left_out(self) -> dict[str, str]:
        """What the transform could not compute, as a case names it, and told with where in the transform."""
        table = self.flow.inputs[self.declared.name].table
        table.reopen()
        unfit = table.entry.position.unfit
        return {f"{self._named(one)}: {one.error}": f"{self._named(one)}: {one.told}" for one in unfit}

    def _named(self, one: Unfit) -> str:
        if one.of == self.declared.name:
            return one.place
        if one.place.isdecimal():  # coordinates are the row's number in the case
            return f"row {int(one.place) + 1} given"
        return f"{one.place} of {one.of}"

    def late(self) -> list[Row]:
        """The rows that were set aside as too late; none where a table uses all or drops them."""
        side = self.flow.sides.get(self.declared.name, {}).get("late")
        if side is None:
            return []
        side.reopen()
        found: list[Row] = side.read([name for name in side.schema.names if not name.startswith("_")]).to_pylist()
        return found

    def _arrived(self, bronze: str, records: Sequence[Wire]) -> pa.Table:
        """Kafka's rows: one partition, in the order given."""
        reads = self.declared.table.reads
        topic = reads.topic if isinstance(reads, Json) else self.catalog[bronze].topics[0]
        rows = []
        for record in records:
            number, at = self._arrive(record)
            coordinates = {"topic": topic, "partition": 0, "offset": number, "timestamp": at}
            rows.append({**coordinates, "key": record.key, "value": record.value})
        return pa.Table.from_pylist(rows, schema=_KAFKA)

    def _put(self, declared: Declared, rows: Sequence[Row | Delete]) -> None:
        """Commit rows to an input as its writer would: of a key's rows in one batch the last one counts."""
        table = self.flow.inputs[declared.name].table
        seq = table.entry.ingest_seq + 1
        made = [self._stored(row, seq) for row in rows]
        counts = Counts(read=len(made), taken=len(made))
        position = replace(table.entry.position, mark=self._mark(declared, table.entry.position.mark, rows))
        entry = table.entry.follow("batch", counts=counts, ingest_seq=seq, position=position)
        committer = self._committer()
        if not declared.keys:
            committer.commit(table, pa.Table.from_pylist(made, schema=table.schema), entry)
            return
        newest = {tuple(row[key] for key in declared.row_keys): row for row in made}
        changes = pa.Table.from_pylist(list(newest.values()), schema=table.schema.append(_GONE))
        committer.commit(table, changes, entry, how=_merge(declared, table.schema.names))

    def _committer(self) -> Committer:
        return Committer(spark=None, arrow_bytes_max=self.settings.arrow_bytes_max, guard=_always)

    def _mark(self, declared: Declared, mark: int | None, rows: Sequence[Row | Delete]) -> int | None:
        """How far event time has come with these rows."""
        event_time = declared.table.event_time
        if event_time is None or not isinstance(declared.table.kept_as, Append):
            return mark
        timed = [row for row in rows if not isinstance(row, Delete) and row[event_time] is not None]
        times = [_come(row[event_time], self.arrivals.get(id(row))) for row in timed]
        return max([*times, *([] if mark is None else [mark])], default=None)

    def _stored(self, row: Row | Delete, seq: int) -> dict[str, object]:
        """A row with the engine's own columns; those that its table does not have are left out later."""
        number, at = self._arrive(row)
        values = row.keys if isinstance(row, Delete) else row
        late_by = self.late_by.get(id(row), 0)
        own = {"_seq": seq, "_arrived": at, "_source": f"{number:020d}", "_late_by": late_by}
        own["_gone"] = isinstance(row, Delete)
        return {**values, **own}

    def _arrive(self, row: Wire | Row | Delete) -> tuple[int, datetime]:
        """A row's number in the case and its time of arrival."""
        number, self.sent = self.sent, self.sent + 1
        return number, self.arrivals.get(id(row), _FIRST_ARRIVAL + number * _BETWEEN_ARRIVALS)


def _arrivals(case: Case) -> Iterator[tuple[int, datetime]]:
    """Each given row, by identity, of which the case says when it arrives."""
    for step in case.steps:
        if step != "restart" and step.at is not None:
            for rows in step.rows.values():
                yield from ((id(row), step.at) for row in rows)


def _lateness(case: Case, catalog: Catalog) -> Iterator[tuple[int, int]]:
    """Each given row of an append table, by identity, and how late it is as the batches are given, in microseconds."""
    for name in catalog[case.table].inputs:
        event_time = catalog[name].table.event_time
        if event_time is None or not isinstance(catalog[name].table.kept_as, Append):
            continue
        steps = [step for step in case.steps if step != "restart"]
        plain = [[row for row in step.rows[name] if not isinstance(row, Wire | Delete)] for step in steps]
        times = [[(row, _micros(at)) for row in rows if (at := row[event_time]) is not None] for rows in plain]
        come = [[_come(row[event_time], step.at) for row, _ in rows] for rows, step in zip(times, steps, strict=True)]
        found = walk(((seq, max(reached, default=None)) for seq, reached in enumerate(come)), None)
        for seq, rows in enumerate(times):
            mark = found.before[seq]
            yield from ((id(row), 0 if mark is None else max(0, mark - at)) for row, at in rows)


def _come(event_time: object, arrived: datetime | None) -> int:
    """How far an event has come, as `marks.py` says; one of which it is not said when it arrived is not ahead."""
    return _micros(event_time) if arrived is None else min(_micros(event_time), _micros(arrived))


def _micros(value: object) -> int:
    """An event time as microseconds since 1970."""
    assert isinstance(value, date), "event times are timestamps or dates"
    moment = value if isinstance(value, datetime) else datetime.combine(value, time(), UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _merge(declared: Declared, names: Sequence[str]) -> Merge:
    own = {name: f"s.{name}" for name in names}
    clauses = (
        Clause(on="matched", act="delete", when="s._gone", set={}),
        Clause(on="matched", act="update", set=own),
        Clause(on="not matched", act="insert", when="not s._gone", brings=("_gone", False), set=own),
    )
    return Merge(keys=declared.row_keys, nullable_keys=nullable_keys(declared), clauses=clauses)


def _below(catalog: Catalog, name: str) -> Catalog:
    """The table and what it is made from."""
    wanted = {name}
    for declared in reversed(tuple(catalog.tables.values())):
        if declared.name in wanted:
            wanted |= set(declared.inputs)
    return Catalog(project=catalog.project, tables={each: catalog[each] for each in catalog.tables if each in wanted})


def _always() -> None:
    """Nobody else owns a case's lake."""
