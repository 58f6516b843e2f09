"""Tables that read JSON: each value of the topic is one row.

In a table of one row per key a record without a value (a tombstone) is the deletion of the row that its key names;
events have no such thing.

Events that Connect has written with their schema (`schemas.enable`) are read like those without, unless the table
declares a field by one of the wrapper's names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.bronze import Chunk, unwrapped
from deltaworks.engine.parsing.document import WRAPPER
from deltaworks.engine.parsing.fields import Fields
from deltaworks.engine.parsing.keys import Keys
from deltaworks.engine.parsing.ordering import ordered
from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.engine.parsing.sheet import SYSTEM, Sheet, sequence
from deltaworks.engine.parsing.timely import Timely
from deltaworks.engine.parsing.values import Converter, Encoding, Years, converter
from deltaworks.words.reading import ARRIVAL, Json
from deltaworks.words.table import Column

BY_ARRIVAL = "by its arrival"
"""What the sequence of a state begins with, and of nothing else; `writers/states.py` adds its arrival."""
_TIME = SYSTEM.field("_at").type
ENCODING = Encoding(years=Years(first=1900))
"""Nothing beyond JSON's own types unless `wire=` says so; a date before 1900 as a number is taken for a wrong unit."""


def may_be_wrapped(columns: Sequence[Column]) -> bool:
    """Whether an event of a table with these columns may be the payload beside its schema."""
    return {name for column in columns for name in (column.name, column.previously)}.isdisjoint(WRAPPER)


@dataclass(frozen=True)
class JsonParser:
    """Parses the chunks of one table."""

    reads: Json
    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    """Of a table of one row per key: the columns that a record's key names."""
    by: str | None = None
    """Of such a table: the column that places states, the highest last."""
    timely: Timely | None = None
    timed: bool = False
    """Of such a table with `by`: whether each row says when it happened, a state in `by`, a deletion by its arrival."""
    leaves: ClassVar[tuple[str, ...]] = ()
    """A state does not say what its row was before."""

    @cached_property
    def converters(self) -> tuple[Converter, ...]:
        """One per declared column; a key column is never null."""
        return tuple(converter(column, ENCODING, key=column.name in self.keys) for column in self.columns)

    @cached_property
    def key(self) -> Keys:
        """What the key of a deleted row must have."""
        return Keys.of(self.keys, self.columns)

    @property
    def places(self) -> str:
        """How states are placed among those of their key."""
        if self.by is None:
            return BY_ARRIVAL
        return f"by {self.by}, its arrival" if self._arriving else f"by {self.by}"

    @cached_property
    def _arriving(self) -> bool:
        """Whether states of a history hold from their arrival on."""
        return self.timed and any(one.name == self.by and one.wire == ARRIVAL for one in self.columns)

    @cached_property
    def fields(self) -> Fields:
        """Which fields an event must and may have."""
        fields = tuple(column for column in self.columns if column.wire != ARRIVAL)
        return Fields(
            columns=fields,
            required=tuple(column.name for column in fields if not column.null or column.name in self.keys),
            unknown=self.reads.unknown_fields,
            folded=True,
            wrapped=may_be_wrapped(self.columns),
        )

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        """One row out for each row of the chunk."""
        sheet = Sheet.of(chunk)
        mine = pc.equal(chunk.rows.column("topic"), self.reads.topic)
        places = pc.indices_nonzero(mine).to_pylist()
        for place, came in zip(places, chunk.take(places).documents, strict=True):
            found = unwrapped(came) if self.fields.wrapped else came
            ends = isinstance(found, Refusal) and found.code == "no value" and bool(self.keys)
            if isinstance(found, Refusal) and not ends:
                sheet.refuse(place, found.code)
            elif (self._arriving or (ends and self.timed)) and chunk.rows.column("timestamp")[place].value < 0:
                sheet.refuse(place, "no time of arrival")  # Kafka's -1: it would be before all others
            elif isinstance(found, Refusal):
                self._delete(sheet, place, chunk)
            else:
                sheet.take(place, self.fields.take(found, partial(chunk.value, place)))
        rows = sheet.batch(self.converters, self.keys, self._source(chunk, mine), self.timely)
        return rows if self.by is None else self._placed(rows, self.by)

    def _delete(self, sheet: Sheet, place: int, chunk: Chunk) -> None:
        try:
            sheet.keep(place, "delete", self.key.read(chunk.rows.column("key")[place].as_py()))
        except Refusal as refusal:
            sheet.refuse(place, f"key: {refusal.code}")

    def _source(self, chunk: Chunk, mine: pa.Array) -> pa.Array:
        """Of events their coordinates."""
        rows = chunk.rows
        if self.keys:
            return pc.if_else(mine, BY_ARRIVAL, pa.scalar(None, pa.string()))
        order = sequence(self.reads.topic, (rows.column("partition"), 5), (rows.column("offset"), 20))
        return pc.if_else(mine, order, None)

    def _placed(self, rows: pa.RecordBatch, by: str) -> pa.RecordBatch:
        """The same with the value that places each state; a deletion has none, it is placed by its arrival."""
        values = pc.binary_join_element_wise(self.places, ordered(rows.column(by)), "/")
        is_row = pc.equal(rows.column("_kind"), "row")
        placed = {"_source": pc.if_else(is_row, values, rows.column("_source"))}
        if self.timed:
            placed["_at"] = pc.if_else(is_row, rows.column(by).cast(_TIME), self._ended(rows, by))
        for name, column in placed.items():
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
        return rows

    def _ended(self, rows: pa.RecordBatch, by: str) -> pa.Array:
        """When a deletion arrived, as exactly as states tell their time; null for all else."""
        arrived = rows.column("_timestamp").cast(_TIME)
        if pa.types.is_date(rows.schema.field(by).type):
            arrived = pc.floor_temporal(arrived, unit="day")
        return pc.if_else(pc.equal(rows.column("_kind"), "delete"), arrived, pa.scalar(None, _TIME))
