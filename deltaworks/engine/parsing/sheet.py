"""Parsed rows on their way out: one row out for each row of bronze, in its order."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.bronze import Chunk
from deltaworks.engine.parsing.document import Document
from deltaworks.engine.parsing.fields import Taken, column_of
from deltaworks.engine.parsing.timely import Timely
from deltaworks.engine.parsing.values import UNSENT, Converter

SYSTEM = pa.schema(
    [
        ("_kind", pa.string()),
        ("_reason", pa.string()),
        ("_source", pa.string()),
        ("_at", pa.timestamp("us", "UTC")),
        ("_sent", pa.string()),
        ("_floor", pa.string()),
        ("_strays", pa.string()),
        ("_seq", pa.int64()),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_key", pa.binary()),
        ("_value", pa.binary()),
    ]
)
"""The columns that follow the declared ones.

`_kind`: row, delete, truncate, refused, filtered (the table's `only=` leaves it out), snapshot (the end of the source's
snapshot, told by another table's row) or other (not this table's). `_reason`: of refused rows. `_source`: sorts in the
source's order; null where that is unknown; of states by JSON what comes before their arrival (`writers/states.py`).
`_at`: when the source says it happened, null where it does not. `_sent`: of a row that does not carry all columns, a
JSON object of those that it leaves out (see `writers/partial.py`); of the column of undeclared fields, of the fields
that it leaves out; else null.
`_left`, of a database's changes only: the keys under which an update found its row, if it has others now; else null.
`_floor`: all of the table that is older than this sequence is gone in the source. `_strays`: a JSON array of the row's
undeclared fields, null if it has none. `_seq`, `_topic`, `_partition`, `_offset`, `_timestamp`: as in bronze. `_key`,
`_value`: the bytes of refused rows and of those with `_sent`, only.
"""

LEFT = "_left"
_BRONZE = {"_seq": "_seq", "_topic": "topic", "_partition": "partition", "_offset": "offset", "_timestamp": "timestamp"}
_BYTES = {"_key": "key", "_value": "value"}
Picked = tuple[int, Document]
"""A row's place in the chunk and its fields."""


@dataclass(kw_only=True)
class Sheet:
    """What was found out about the rows of a chunk, by place."""

    chunk: Chunk
    kinds: list[str]
    records: list[Document | None]
    reasons: dict[int, str] = field(default_factory=dict)
    strays: dict[int, str] = field(default_factory=dict)
    """Per row with undeclared fields their names, as JSON."""
    unsent: dict[int, list[str]] = field(default_factory=dict)
    """Per row that does not carry all columns the ones that it leaves out."""
    left: dict[int, Document] = field(default_factory=dict)
    """Per row that was found under other keys, as far as their values are written otherwise, what it had there."""
    parts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Per row that does not carry all undeclared fields that are kept the ones that it leaves out."""

    @classmethod
    def of(cls, chunk: Chunk) -> "Sheet":
        """Nothing found out yet: all rows are another's."""
        return cls(chunk=chunk, kinds=["other"] * len(chunk), records=[None] * len(chunk))

    def keep(self, place: int, kind: str, record: Document | None) -> None:
        """This row is ours; `record` has the fields of a row, or the key of a deleted one."""
        self.kinds[place] = kind
        self.records[place] = record

    def take(self, place: int, taken: Taken) -> None:
        """This row is ours: a row, or refused for its fields."""
        if taken.record is None:
            self.refuse(place, taken.reason or "")
        else:
            self.keep(place, "row", taken.record)
            if taken.unsent:
                self.parts[place] = taken.unsent
        if taken.strays is not None:
            self.strays[place] = taken.strays

    def refuse(self, place: int, reason: str) -> None:
        """Set this row aside."""
        self.kinds[place] = "refused"
        self.records[place] = None
        self.reasons[place] = reason

    def batch(
        self,
        converters: Sequence[Converter],
        keys: Sequence[str],
        source: pa.Array,
        timely: Timely | None = None,
        at: Sequence[int | None] | None = None,
        *,
        floor: pa.Array | None = None,
        partial: Callable[[int], bool] | None = None,
        leaves: Sequence[str] = (),
    ) -> pa.RecordBatch:
        """The parsed rows; values that do not fit are refused here, and events whose time is not believed.

        `partial` says whether the row at a place may leave out columns that are no keys. `leaves`: the keys that a row
        may leave for others; without any there is no `_left`.
        """
        schema = schema_of(converters, leaves)
        arrays = self._columns(converters, keys, timely, partial or _never)
        kinds = pa.array(self.kinds, pa.string())
        reasons = pa.array([self.reasons.get(place) for place in range(len(self.kinds))], pa.string())
        bronze = self.chunk.rows
        times = pa.array([None] * len(self.kinds) if at is None else at, SYSTEM.field("_at").type)
        by_name = {"_kind": kinds, "_reason": reasons, "_source": source, "_at": times}
        by_name |= {"_sent": self._texts({at: _note(names) for at, names in self.unsent.items()})}
        by_name |= {"_strays": self._texts(self.strays)}
        by_name |= {"_floor": pa.nulls(len(kinds), pa.string()) if floor is None else floor}
        by_name |= {name: bronze.column(of) for name, of in _BRONZE.items()}
        by_name |= {name: self._kept_only(bronze.column(of), kinds) for name, of in _BYTES.items()}
        if leaves:
            left = [self.left.get(place) for place in range(len(kinds))] if self.left else pa.nulls(len(kinds))
            by_name |= {LEFT: pa.array(left, schema.field(LEFT).type)}
        return pa.RecordBatch.from_arrays(
            [*arrays, *(by_name[name] for name in schema.names[len(arrays) :])], schema=schema
        )

    def _columns(
        self,
        converters: Sequence[Converter],
        keys: Sequence[str],
        timely: Timely | None,
        partial: Callable[[int], bool],
    ) -> list[pa.Array]:
        """Convert column by column: keys of rows and deletes, everything else of rows."""
        rows = self._picked("row")
        keyed = rows + self._picked("delete")
        converted = []
        for one in converters:
            picked = keyed if one.name in keys else rows
            if one.arrival:
                converted.append((self._arrived(picked), picked))
                continue
            array, refused = one.column([record.get(one.name) for _, record in picked])
            for at, code in refused.items():
                place = picked[at][0]
                if code == UNSENT and one.name not in keys and partial(place):
                    self.unsent.setdefault(place, []).append(one.name)
                else:
                    self.reasons.setdefault(place, f"{one.name}: {code}")
            if timely is not None and one.name == timely.column:
                for at, code in timely.refused(array, self._arrived(picked)):
                    self.reasons.setdefault(picked[at][0], f"{one.name}: {code}")
            converted.append((array, picked))
        self._note_parts(partial)
        if self.left:
            self._leave(
                {one.name: one for one in converters if one.name in keys},
                dict(zip((one.name for one in converters), (array for array, _ in converted), strict=True)),
                {place: at for at, (place, _) in enumerate(keyed)},
            )
        for place in self.reasons:
            self.kinds[place] = "refused"
            self.unsent.pop(place, None)
            self.left.pop(place, None)
        if not self.reasons and len(rows) == len(self.kinds):
            return [array for array, _ in converted]
        at_rows, at_keyed = self._back(rows), self._back(keyed)
        return [array.take(at_keyed if picked is keyed else at_rows) for array, picked in converted]

    def _note_parts(self, partial: Callable[[int], bool]) -> None:
        """Of the undeclared fields that are kept: note those that a row leaves out, or refuse it."""
        for place, names in self.parts.items():
            if partial(place):
                self.unsent.setdefault(place, []).extend(names)
            else:
                self.reasons.setdefault(place, f"{column_of(names[0])}: {UNSENT}")

    def _leave(self, keys: Mapping[str, Converter], now: Mapping[str, pa.Array], at: Mapping[int, int]) -> None:
        """Read the keys that rows have left; forget those that are the same in another form. `at`: index by place."""
        places = list(self.left)
        was: dict[str, list[Any]] = {}
        for name, one in keys.items():
            array, refused = one.column([self.left[place][name] for place in places])
            was[name] = array.to_pylist()
            for nth, code in refused.items():
                self.reasons.setdefault(places[nth], f"before: {name}: {code}")
        self.left = {
            place: {name: values[nth] for name, values in was.items()}
            for nth, place in enumerate(places)
            if any(values[nth] != now[name][at[place]].as_py() for name, values in was.items())
        }

    def _picked(self, kind: str) -> list[Picked]:
        found = zip(self.kinds, self.records, strict=True)
        return [(at, record) for at, (own, record) in enumerate(found) if own == kind and record is not None]

    def _arrived(self, picked: list[Picked]) -> pa.Array:
        """The broker's time of these rows."""
        return self.chunk.rows.column("timestamp").take(pa.array([at for at, _ in picked], pa.int64()))

    def _back(self, picked: list[Picked]) -> pa.Array:
        """Per row of the chunk the index of its value among the picked ones, null if it has none."""
        indices: list[int | None] = [None] * len(self.kinds)
        for at, (place, _) in enumerate(picked):
            if place not in self.reasons:
                indices[place] = at
        return pa.array(indices, pa.int64())

    def _kept_only(self, array: pa.Array, kinds: pa.Array) -> pa.Array:
        if not self.reasons and not self.unsent:
            return pa.nulls(len(array), array.type)
        kept = pc.equal(kinds, "refused")
        if self.unsent:
            kept = pc.or_(kept, pa.array([place in self.unsent for place in range(len(kinds))], pa.bool_()))
        return pc.if_else(kept, array, pa.scalar(None, array.type))

    def _texts(self, texts: dict[int, str]) -> pa.Array:
        if not texts:
            return pa.nulls(len(self.kinds), pa.string())
        return pa.array([texts.get(place) for place in range(len(self.kinds))], pa.string())


def schema_of(converters: Sequence[Converter], leaves: Sequence[str] = ()) -> pa.Schema:
    """The declared columns, then the system's; all may be null, for refused rows are."""
    left = [pa.field(LEFT, pa.struct([(one.name, one.type) for one in converters if one.name in leaves]))]
    return pa.schema([*((one.name, one.type) for one in converters), *SYSTEM, *(left if leaves else [])])


def _note(names: Sequence[str]) -> str:
    return json.dumps(dict.fromkeys(names, ""))


def _never(_place: int) -> bool:
    return False


def sequence(*parts: str | tuple[pa.Array, int]) -> pa.Array:
    """Join texts and arrays of whole numbers (array, digits) into one text per row that sorts; null if a part is."""
    texts = [part if isinstance(part, str) else _digits(*part) for part in parts]
    return pc.binary_join_element_wise(*texts, "/")


def _digits(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")
