"""What the commits say, put together: is every row accounted for, and how far is each table. No Spark here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.catalog import Catalog, Declared
from deltaworks.engine.behind import Behind, behind
from deltaworks.engine.broker import Edge
from deltaworks.engine.entry import Entry
from deltaworks.engine.folders import folder_of
from deltaworks.engine.gaps import Gap, Witness, explain, rows_of
from deltaworks.engine.lake import read_commit
from deltaworks.engine.log import Logged
from deltaworks.engine.same_input import other
from deltaworks.engine.through import Lineage, Through
from deltaworks.words.keeping import Aggregate, Append, History, Raw, Stateful, View

SIDES = ("quarantine", "patches", "deleted", "waiting", "late")
"""Beside a table: rows that were refused, new values for some of them, remembered deletions, rows that wait for a
value, rows that came too late."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One topic-partition, as one table of bronze reads it: what the broker has, what was read, where it went.

    read_up_to - first = rows + gaps + lost; gaps = markers + aborted + compacted + missing + gone + not_asked.
    """

    topic: str
    partition: int
    table: str
    first: int
    end: int | None
    read_up_to: int
    rows: int
    gaps: int
    lost: int
    markers: int
    aborted: int
    compacted: int
    missing: int
    gone: int
    not_asked: int
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table: where the rows that it read went, and whether the numbers meet."""

    table: str
    version: int
    read: int
    taken: int
    superseded: int
    refused: int
    duplicate: int
    late: int
    not_mine: int
    filtered: int
    expired: int
    warned: int
    ahead: int
    rows: int
    verdict: str


@dataclass(frozen=True, kw_only=True)
class _Standing:
    name: str
    path: Path
    made: str
    version: int
    entry: Entry
    rows: int


class Ledger:
    """The lake's books, as of the newest commits."""

    def __init__(self, catalog: Catalog, lake: Path) -> None:
        """Read the last entry of every table that exists."""
        self.catalog, self.lake, self._lineage = catalog, lake, Lineage(lake)
        self._standing = {
            name: standing for name in self._names() if (standing := _standing(name, self._path(name))) is not None
        }

    def lines(self, edges: Mapping[str, Mapping[str, Edge]] | None = None) -> list[Line]:
        """Every topic-partition, for each table that reads it.

        `edges` of the broker, if it can be asked, tell whether reading is complete.
        """
        return [line for declared in self.catalog.tables.values() for line in self._lines(declared, edges or {})]

    def offsets(self) -> dict[str, dict[str, int]]:
        """Next offset per topic and partition, of the table that has read the most."""
        found: dict[str, dict[str, int]] = {}
        for line in self.lines():
            parts, partition = found.setdefault(line.topic, {}), str(line.partition)
            parts[partition] = max(line.read_up_to, parts.get(partition, 0))
        return found

    def sheets(self) -> list[Sheet]:
        """Every table that has been committed to."""
        return [self._sheet(d) for d in self.catalog.tables.values() if d.name in self._standing]

    def commits(self, name: str) -> Iterator[Logged]:
        """A table's commits, newest first, those too that only `ops.ledger` still tells."""
        return self._lineage.commits(name) if name in self._standing else iter(())

    def behind(self, name: str) -> list[Behind]:
        """The numbers of a table and the commands that list what is behind them; none of a table beside a table."""
        if name not in self.catalog.tables or name not in self._standing:
            return []
        return behind(self.catalog[name], self._standing[name].entry, rows=self._standing[name].rows)

    def processed_through(self, name: str) -> Through | None:
        """Which offsets the newest version of a table contains; None while it has none."""
        return self._lineage.processed_through(name) if name in self._standing else None

    def gaps(self, topic: str, witness: Witness) -> Iterator[Gap]:
        """Every gap of a topic that is not a marker: as the commits say, and as the witness says of the rest."""
        for declared in self.catalog.tables.values():
            if topic in declared.topics and declared.name in self._standing:
                for entry in self._lineage.entries(declared.name):
                    yield from (gap for gap in map(Gap.read, entry.gaps) if gap.topic == topic)
                yield from self._gaps_not_asked(declared.name, topic, witness)

    def _gaps_not_asked(self, bronze: str, topic: str, witness: Witness) -> Iterator[Gap]:
        position, rows = self._standing[bronze].entry.position, rows_of(self._path(bronze))
        for partition, upto in position.offsets.get(topic, {}).items():
            begun = position.first.get(topic, {}).get(partition, 0)
            first = position.asked.get(topic, {}).get(partition, begun)
            while first < upto:
                found = explain(witness, rows, topic=topic, partition=partition, first=first, upto=upto)
                yield from found.listed
                first = found.upto

    def _names(self) -> Iterator[str]:
        for name in self.catalog.tables:
            yield name
            yield from (f"{name}__{side}" for side in SIDES)

    def _path(self, name: str) -> Path:
        return folder_of(name, self.lake)

    def _lines(self, declared: Declared, edges: Mapping[str, Mapping[str, Edge]]) -> Iterator[Line]:
        standing = self._standing.get(declared.name)
        for topic in declared.topics:
            if standing is None:
                continue
            position = standing.entry.position
            for partition, upto in sorted(position.offsets.get(topic, {}).items(), key=lambda pair: int(pair[0])):
                first = position.first.get(topic, {}).get(partition, 0)
                rows = position.rows.get(topic, {}).get(partition, 0)
                lost = position.lost.get(topic, {}).get(partition, 0)
                none = Edge(0, upto if upto == first else 0) if topic in edges else None  # never read: it may go
                edge = edges.get(topic, {}).get(partition, none)
                known = position.explained.get(topic, {}).get(partition, {})
                gaps = upto - first - rows - lost
                # what was lost lies in gaps that are gone, but it is known to be lost before anybody asks
                gone = max(0, known.get("gone", 0) - lost)
                explained = [known.get(kind, 0) for kind in ("marker", "aborted", "compacted", "missing")]
                line = Line(
                    topic=topic,
                    partition=int(partition),
                    table=declared.name,
                    first=first,
                    end=None if edge is None else edge.high,
                    read_up_to=upto,
                    rows=rows,
                    gaps=gaps,
                    lost=lost,
                    markers=explained[0],
                    aborted=explained[1],
                    compacted=explained[2],
                    missing=explained[3],
                    gone=gone,
                    not_asked=gaps - sum(explained) - gone,
                    verdict="",
                )
                yield replace(line, verdict=_line_verdict(line))

    def _sheet(self, declared: Declared) -> Sheet:
        standing = self._standing[declared.name]
        totals = standing.entry.totals
        return Sheet(
            table=declared.name,
            version=standing.version,
            read=totals.read,
            taken=totals.taken,
            superseded=totals.superseded,
            refused=totals.refused,
            duplicate=totals.duplicate,
            late=totals.late,
            not_mine=totals.not_mine,
            filtered=totals.filtered,
            expired=totals.expired,
            warned=totals.warned,
            ahead=totals.ahead,
            rows=standing.rows,
            verdict=self._verdict(declared, standing),
        )

    def _verdict(self, declared: Declared, standing: _Standing) -> str:
        red = next(chain(self._other_inputs(declared, standing), self._reds(declared, standing)), None)
        return f"RED: {red}" if red else next(self._lags(declared, standing), "ok")

    def _other_inputs(self, declared: Declared, standing: _Standing) -> Iterator[str]:
        for name in declared.inputs:
            if name not in self._standing or other(declared.name, standing.entry, self._standing[name]) is None:
                continue
            now = _standing(name, self._path(name))  # it was read first, and may have gone on until its reader was
            if now is not None and (error := other(declared.name, standing.entry, now)) is not None:
                yield error.finding

    def _reds(self, declared: Declared, standing: _Standing) -> Iterator[str]:
        totals = standing.entry.totals
        if not totals.balanced:
            yield "read is not the sum of where rows went"
        if isinstance(declared.table.kept_as, Raw | Append) and standing.rows != totals.taken:
            yield f"{totals.taken} rows taken, {standing.rows} present"
        ends = self._standing.get(f"{declared.name}__deleted") if isinstance(declared.table.kept_as, History) else None
        # more ends than changes: those of a batch whose table is not committed yet, and begins of snapshots
        if ends is not None and not standing.rows <= totals.taken <= standing.rows + ends.rows:
            yield f"{totals.taken} changes taken, {standing.rows} states and {ends.rows} ends present"
        side = self._standing.get(f"{declared.name}__quarantine")
        if side is not None and side.entry.ingest_seq <= standing.entry.ingest_seq:
            seq, claimed = side.entry.claimed or (0, 0)
            rows = side.rows - (claimed if seq <= standing.entry.ingest_seq else 0)  # taken, soon released
            if rows != totals.refused:
                yield f"{totals.refused} rows refused, {rows} set aside"
        unfit = len(standing.entry.position.unfit)
        if isinstance(declared.table.kept_as, Aggregate | Stateful | View) and unfit != totals.refused:
            yield f"{totals.refused} rows refused, {unfit} left out"
        late = self._standing.get(f"{declared.name}__late")
        used = (standing.entry.position.applied or (0, 0))[1]
        if late is not None and _version(late) <= _version(standing) and late.rows - used > totals.late:
            yield f"{totals.late} rows late, {late.rows - used} set aside"
        for name, batch in standing.entry.position.batches.items():
            source = self._standing.get(name)
            if source is None:
                yield f"{name} is gone"
            elif batch == source.entry.ingest_seq and totals.read != source.entry.totals.taken:
                yield f"{name} has {source.entry.totals.taken} rows, {totals.read} were read"

    def _lags(self, declared: Declared, standing: _Standing) -> Iterator[str]:
        position = standing.entry.position
        for name in declared.inputs:
            source = self._standing.get(name)
            if source is None:  # it has nothing yet
                continue
            if isinstance(self.catalog[name].table.kept_as, Raw):
                behind = source.entry.ingest_seq - position.batches.get(name, 0)
                said = f"behind {behind} batch{'' if behind == 1 else 'es'}"
            else:
                behind = source.version - self._lineage.as_good_as(name, position.versions.get(name, 0))
                said = f"behind {behind} version{'' if behind == 1 else 's'} of {name}"
            if behind > 0:
                yield said


def _version(standing: _Standing) -> int:
    """The latest version of an input that was taken."""
    return max(standing.entry.position.versions.values(), default=0)


def _standing(name: str, path: Path) -> _Standing | None:
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return None
    table = deltalake.DeltaTable(str(path))
    commit = read_commit(path, table.version())
    entry = commit.entry or Entry(kind="create", app="", epoch=0)
    counts = pa.table(table.get_add_actions())["num_records"]
    rows, made = int(pc.sum(counts).as_py() or 0), str(table.metadata().id)
    return _Standing(name=name, path=path, made=made, version=table.version(), entry=entry, rows=rows)


def _line_verdict(line: Line) -> str:
    if line.end is not None and line.end < line.read_up_to:
        return "RED: the topic ends before what was read: it was made anew, or lost its end"
    if line.lost:
        return f"RED: {line.lost} offsets were gone before they were read"
    if line.missing:
        return f"RED: {line.missing} committed records are not in bronze"
    if line.gone:
        return f"RED: {line.gone} offsets without a row were gone before they were asked about"
    if line.gaps < 0:
        return "RED: more rows than offsets"
    if line.not_asked < 0:
        return f"RED: {-line.not_asked} rows are counted that bronze does not have"
    if line.end is not None and line.read_up_to < line.end:
        behind = line.end - line.read_up_to
        return f"behind {behind} offset{'' if behind == 1 else 's'}"
    return "ok"
