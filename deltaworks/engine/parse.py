"""The door of parsing: bronze rows in, typed rows out, one for one and in order.

PyArrow and the standard library only: the same function runs in the driver on small batches and inside `mapInArrow` on
large ones, so both give the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from deltaworks.engine.parsing.bronze import Chunk, chunks
from deltaworks.engine.parsing.debezium import DebeziumParser
from deltaworks.engine.parsing.filtered import filtered
from deltaworks.engine.parsing.json import JsonParser
from deltaworks.engine.parsing.poison import isolated
from deltaworks.engine.parsing.ruled import WARNED, ruled
from deltaworks.engine.parsing.sheet import SYSTEM, Sheet, schema_of
from deltaworks.engine.parsing.timely import Timely
from deltaworks.engine.parsing.values import arrow_type
from deltaworks.engine.phases import phase
from deltaworks.errors import DeclarationError
from deltaworks.quality import predicate
from deltaworks.quality.judging import proven
from deltaworks.quality.predicate import Predicate
from deltaworks.quality.rule import Rule
from deltaworks.words.reading import Debezium, Json
from deltaworks.words.table import Column

__all__ = ["SYSTEM", "Parser", "Timely", "arrow_type", "parser"]


@dataclass(frozen=True, kw_only=True)
class Parser:
    """A table's declaration, compiled. Pickles as the declaration alone; equal declarations are equal parsers."""

    reads: Json | Debezium
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    timely: Timely | None = None
    timed: bool = False
    partial: bool = False
    rules: tuple[Rule, ...] = ()
    only: str | None = None
    by: str | None = None

    @cached_property
    def _only(self) -> Predicate | None:
        return None if self.only is None else predicate.read(self.only, self.columns)

    @cached_property
    def _way(self) -> JsonParser | DebeziumParser:
        if isinstance(self.reads, Json):
            return JsonParser(self.reads, self.columns, self.keys, self.by, self.timely, self.timed)
        return DebeziumParser(self.reads, self.columns, self.keys, self.timed, self.partial)

    @property
    def places(self) -> str:
        """How changes and states are placed among those of their key."""
        return self._way.places

    @cached_property
    def schema(self) -> pa.Schema:
        """The declared columns, then the system's (see `SYSTEM`), then `WARNED`."""
        return schema_of(self._way.converters, self._way.leaves).append(WARNED)

    @phase("parse")
    def parse(self, bronze: pa.Table | pa.RecordBatch) -> pa.Table:
        """One row for each row of bronze, in its order; what does not fit is a row of kind `refused`.

        However bronze is cut into batches, the rows are the same. Raises nothing about the data, unless many rows of a
        chunk crash it.
        """
        return pa.Table.from_batches([self._batch(chunk) for chunk in chunks(bronze)], schema=self.schema)

    def batches(self, bronze: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same for `mapInArrow`."""
        for batch in bronze:
            for chunk in chunks(batch):
                yield self._batch(chunk)

    def _batch(self, chunk: Chunk) -> pa.RecordBatch:
        try:
            return self._judged(chunk)
        except (MemoryError, OSError):  # the machine's fault
            raise
        except Exception:  # noqa: BLE001  # nothing is known that raises: whatever it is, it is the rows'
            return isolated(chunk, self._judged, self._refused)

    def _judged(self, chunk: Chunk) -> pa.RecordBatch:
        judged = ruled(self._way.batch(chunk), chunk, self.rules)
        return judged if self._only is None else filtered(judged, self._only)

    def _refused(self, chunk: Chunk, reason: str) -> pa.RecordBatch:
        sheet = Sheet.of(chunk)
        for place in range(len(chunk)):
            sheet.refuse(place, reason)
        nowhere = pa.nulls(len(chunk), pa.string())
        return ruled(sheet.batch(self._way.converters, (), nowhere, leaves=self._way.leaves), chunk, ())

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the declaration, not what was compiled from it."""
        return parser, (
            *(self.reads, self.columns, self.keys, self.timely, self.timed, self.partial, self.rules),
            *(self.only, self.by),
        )


def parser(
    reads: Json | Debezium,
    columns: tuple[Column, ...],
    keys: tuple[str, ...] = (),
    timely: Timely | None = None,
    timed: bool = False,
    partial: bool = False,
    rules: tuple[Rule, ...] = (),
    only: str | None = None,
    by: str | None = None,
) -> Parser:
    """Compile a declaration.

    `timely` judges the time of JSON events and states, `timed` refuses changes that do not say when they happened,
    `partial` takes updates that leave values out.

    `rules` judge the rows that fit the declaration, `only` says which of those that pass are the table's. `by` is the
    column that places the states of a key.

    Raises DeclarationError if a column cannot be read that way, a key is no column, changes come without keys, or
    `only` is no condition on the columns.
    """
    names = [column.name for column in columns]
    missing = [key for key in keys if key not in names]
    if missing:
        raise DeclarationError(missing[0], "is a key and no column", "Declare the column")
    if isinstance(reads, Debezium) and not keys:
        raise DeclarationError(f"reads={reads!r}", "deletes are told by key, and there are no keys", "Declare keys")
    made = Parser(
        reads=reads,
        columns=tuple(columns),
        keys=tuple(keys),
        timely=timely,
        timed=timed,
        partial=partial,
        rules=proven(rules),
        only=only,
        by=by,
    )
    assert made.schema is not None  # compiles now, so that a wrong declaration fails here
    if only is not None:
        predicate.read(only, columns)
    return made
