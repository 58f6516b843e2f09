"""Patches: what refused rows should have said, by whom and why; what came stays in bronze and in quarantine."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.parse import Parser
from deltaworks.engine.parsing.document import is_wrapped
from deltaworks.engine.writers.quarantine import PLACE, Place

PATCHES = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("patched_by", pa.string()),
        ("reason", pa.string()),
        ("command", pa.int64()),
        ("patched_at", pa.timestamp("us", "UTC")),
        ("_seq", pa.int64()),
    ]
)
"""One row for each patched one: where that came from, its new value, who patched it, why, by which command, when that
was given. `_seq`: no ingest batch after this one has brought the row to bronze."""
SUFFIX = "patches"
VALUE = "value"
"""The file in which a new value comes to the owner of the table."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A new value for the record at a place, and the order that gave it."""

    place: Place
    value: bytes
    by: str
    reason: str
    command: int
    at: datetime

    def beside(self, row: pa.Table) -> pa.Table:
        """The bronze row with this value."""
        value = pa.array([self.value], row.schema.field("value").type)
        return row.set_column(row.schema.get_field_index("value"), "value", value)

    def as_deletion(self) -> "Patch":
        """Of a change of a database: as if the row had been deleted by it."""
        change, gone = json.loads(self.value), {"op": "d"}
        deletion = change | ({"payload": change["payload"] | gone} if is_wrapped(change) else gone)
        return replace(self, value=json.dumps(deletion).encode())


@dataclass(frozen=True)
class Patched:
    """A parser that knows patches: a row that has one is judged by it and, if that does not pass, as it came.

    `values`: None for a row that is left out.
    """

    parser: Parser
    values: Mapping[Place, bytes | None]

    def parse(self, bronze: pa.Table) -> pa.Table:
        """As `Parser.parse`. Of a row whose patch counts only what the bytes say is another's."""
        parsed = self.parser.parse(bronze)
        patched = self._patched(bronze)
        if not patched:
            return parsed
        changed = bronze.take(pa.array(list(patched), pa.int64()))
        values = pa.array(list(patched.values()), bronze.schema.field("value").type)
        changed = changed.set_column(changed.schema.get_field_index("value"), "value", values)
        judged = self.parser.parse(changed)
        pieces, after = [], 0
        for nth, ((at, value), passes) in enumerate(zip(patched.items(), whole(judged), strict=True)):
            if passes or value is None:
                pieces += [parsed.slice(after, at - after), judged.slice(nth, 0 if value is None else 1)]
                after = at + 1
        return pa.concat_tables([*pieces, parsed.slice(after)])

    def batches(self, bronze: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same for `mapInArrow`."""
        for batch in bronze:
            yield from self.parse(pa.Table.from_batches([batch])).to_batches()

    def _patched(self, bronze: pa.Table) -> dict[int, bytes | None]:
        """The new values by the places of their rows, in order."""
        offsets = pa.array(sorted({offset for _, _, offset in self.values}), pa.int64())
        near = pc.indices_nonzero(pc.is_in(bronze["offset"], offsets))
        found = zip(near.to_pylist(), _places(bronze.select(PLACE).take(near)), strict=True)
        return {at: self.values[place] for at, place in found if place in self.values}


def whole(judged: pa.Table) -> list[bool]:
    """Per parsed row whether a patch may be so: a row or a deletion, and no value is left out.

    A row that the table has come to filter since is one.
    """
    kinds = pa.array(["row", "delete", "filtered"])
    sound = pc.and_(pc.is_in(judged["_kind"], kinds), pc.is_null(judged["_sent"]))
    found: list[bool] = sound.to_pylist()
    return found


def told(place: Place) -> str:
    """As it is shown and given: topic, partition and offset."""
    return "/".join(map(str, place))


class Patches:
    """The patches beside one table."""

    def __init__(self, table: Callable[[], OwnedTable], *, there: bool) -> None:
        """Own the table beside; it is made when first needed, unless it is there."""
        self._make, self._table = table, table() if there else None
        self._read: tuple[int, pa.Table] | None = None

    def standing(self, *, after: int) -> dict[Place, bytes]:
        """The new value of each patched row that an ingest batch beyond `after` may have brought."""
        if self._table is None:
            return {}
        if self._read is None or self._read[0] != self._table.version:
            self._read = (self._table.version, self._table.read([*PLACE, "value", "_seq"]))
        rows = self._read[1]
        return _by_place(rows.filter(pc.greater(rows["_seq"], after)))

    def put(self, committer: Committer, patch: Patch, *, seq: int) -> None:
        """Give a refused row a patch, or another one."""
        self._table = table = self._table or self._make()
        facts = {"patched_by": patch.by, "patched_at": patch.at, "reason": patch.reason, "command": patch.command}
        row = dict(zip(PLACE, patch.place, strict=True)) | {"value": patch.value, "_seq": seq} | facts
        own = {name: f"s.{name}" for name in PATCHES.names}
        clauses = (Clause(on="matched", act="update", set=own), Clause(on="not matched", act="insert", set=own))
        entry = table.entry.follow("patch", command=patch.command)
        committer.commit(table, pa.Table.from_pylist([row], schema=PATCHES), entry, how=_merge(*clauses))

    def withdraw(self, committer: Committer, rows: pa.Table, *, command: int) -> int:
        """Take back the patches of rows that are told by their places; how many there were."""
        table = self._table
        if table is None or not rows.num_rows:
            return 0
        gone = set(_places(table.read([*PLACE]))) & set(_places(rows))
        if not gone:  # a commit would say that something has changed
            return 0
        entry = table.entry.follow("patch", command=command)
        places = [dict(zip(PLACE, place, strict=True)) for place in sorted(gone)]
        named = pa.schema([PATCHES.field(name) for name in PLACE])
        clause = Clause(on="matched", act="delete", set={})
        committer.commit(table, pa.Table.from_pylist(places, schema=named), entry, how=_merge(clause))
        return len(gone)

    def has(self, place: Place, *, command: int) -> bool:
        """Whether the patch that this order gave stands."""
        if self._table is None:
            return False
        rows = self._table.read([*PLACE, "command"])
        return place in _places(rows.filter(pc.equal(rows["command"], command)))


def standing_in(lake: Path, table: str) -> dict[Place, bytes]:
    """The patches that stand beside a table of a lake: those that a recomputation by the rules of now uses."""
    rows = _read(lake, table)
    return {} if rows is None else _by_place(rows)


def used_by(
    lake: Path, table: str, quarantine: deltalake.DeltaTable, *, upto: int, events: deltalake.DeltaTable | None = None
) -> dict[Place, bytes | None]:
    """Those that the table had used when it had come to an ingest batch, and its quarantine was like this.

    Of a table of events, which is given: None for a row that was a copy when it was judged with its patch. The event
    may have come after the row, and would be met later than it where bronze is read from the beginning.
    """
    found = standing_in(lake, table)
    if not found:
        return {}
    data = dataset_of(quarantine)
    aside = data.to_table(columns=[name for name in (*PLACE, "_seq", "_claimed") if name in data.schema.names])
    there = pc.less_equal(aside["_seq"], upto)
    if "_claimed" in aside.column_names:
        there = pc.and_(there, pc.fill_null(pc.greater(aside["_claimed"], upto), True))
    offsets = pa.array(sorted({offset for _, _, offset in found}), pa.int64())
    aside = aside.filter(pc.and_(there, pc.is_in(aside["offset"], offsets)))
    refused = set(_places(aside))
    used = {place: value for place, value in found.items() if place not in refused}
    copies = set() if events is None else used.keys() - _there(events, used)
    return {place: None if place in copies else value for place, value in used.items()}


def versions_in(lake: Path, tables: Iterable[str]) -> dict[str, int]:
    """By name the version of what stands beside these tables, -1 where nothing does."""
    found = {f"{table}__{SUFFIX}": lake / f"{table.replace('.', '/', 1)}__{SUFFIX}" for table in tables}
    there = deltalake.DeltaTable.is_deltatable
    return {name: deltalake.DeltaTable(str(path)).version() if there(str(path)) else -1 for name, path in found.items()}


def _read(lake: Path, table: str) -> pa.Table | None:
    path = lake / f"{table.replace('.', '/', 1)}__{SUFFIX}"
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return None
    return dataset_of(deltalake.DeltaTable(str(path))).to_table(columns=[*PLACE, "value"])


def _there(events: deltalake.DeltaTable, places: Iterable[Place]) -> set[Place]:
    """From which of these places a table of events has a row."""
    named = {
        f"{topic}/{partition:05d}/{offset:020d}": (topic, partition, offset) for topic, partition, offset in places
    }
    of_these = ds.field("_source").isin(pa.array(named, pa.string()))
    found = dataset_of(events).to_table(columns=["_source"], filter=of_these)
    return {named[source] for source in found["_source"].to_pylist()}


def _merge(*clauses: Clause) -> Merge:
    return Merge(keys=PLACE, clauses=clauses)


def _by_place(rows: pa.Table) -> dict[Place, bytes]:
    return dict(zip(_places(rows), rows["value"].to_pylist(), strict=True))


def _places(rows: pa.Table) -> Iterator[Any]:
    return zip(*(rows[name].to_pylist() for name in PLACE), strict=True)
