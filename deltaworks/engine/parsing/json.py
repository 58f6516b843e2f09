"""Tables that read JSON events: each value of the topic is one row.

Events that Connect has written with their schema (`schemas.enable`) are read like those without, unless the table
declares a field by one of the wrapper's names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.bronze import Chunk, unwrapped
from deltaworks.engine.parsing.fields import Fields
from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.engine.parsing.sheet import Sheet, sequence
from deltaworks.engine.parsing.timely import Timely
from deltaworks.engine.parsing.values import Converter, Encoding, Years, converter
from deltaworks.words.reading import ARRIVAL, Json
from deltaworks.words.table import Column

ENCODING = Encoding(years=Years(first=1900))
"""Nothing beyond JSON's own types unless `wire=` says so; a date before 1900 as a number is taken for a wrong unit."""


def may_be_wrapped(columns: Sequence[Column]) -> bool:
    """Whether an event of a table with these columns may be the payload beside its schema."""
    return {name for column in columns for name in (column.name, column.previously)}.isdisjoint(("schema", "payload"))


@dataclass(frozen=True)
class JsonParser:
    """Parses the chunks of one table."""

    reads: Json
    columns: tuple[Column, ...]
    timely: Timely | None = None

    @cached_property
    def converters(self) -> tuple[Converter, ...]:
        """One per declared column."""
        return tuple(converter(column, ENCODING) for column in self.columns)

    @cached_property
    def fields(self) -> Fields:
        """Which fields an event must and may have."""
        fields = tuple(column for column in self.columns if column.wire != ARRIVAL)
        return Fields(
            columns=fields,
            required=tuple(column.name for column in fields if not column.null),
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
            if isinstance(found, Refusal):
                sheet.refuse(place, found.code)
            else:
                sheet.take(place, self.fields.take(found, partial(chunk.value, place)))
        return sheet.batch(self.converters, (), self._source(chunk, mine), self.timely)

    def _source(self, chunk: Chunk, mine: pa.Array) -> pa.Array:
        rows = chunk.rows
        order = sequence(self.reads.topic, (rows.column("partition"), 5), (rows.column("offset"), 20))
        return pc.if_else(mine, order, None)
