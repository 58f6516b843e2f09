"""The fields of a record as declared: by their present names, undeclared ones ignored, refused or kept.

What is kept is one JSON text: numbers as they were written, fields in the order they were sent. For a field whose value
was not sent its placeholder is in it, until a value of before takes its place (`with_parts`).
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from deltaworks.engine.parsing.document import Document, is_wrapped
from deltaworks.engine.parsing.shape import Shapes
from deltaworks.engine.parsing.values import Placeholder
from deltaworks.words.reading import UnknownFields
from deltaworks.words.table import Column


@dataclass(frozen=True)
class Taken:
    """A record that is taken, or why it is refused; `strays` is a JSON array of its undeclared fields, if any.

    `unsent`: of the undeclared fields that are kept those without a value, as `part` names them.
    """

    record: Document | None
    reason: str | None = None
    strays: str | None = None
    unsent: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fields:
    """One table's view on records. `inside`: the field of the document that holds the record, None: it is the document.

    `folded`: as in `Shapes`. `wrapped`: whether a document may have come with its schema (see `document.is_wrapped`).
    `unsent`: what stands for a value that was not sent.
    """

    columns: tuple[Column, ...]
    required: tuple[str, ...]
    unknown: UnknownFields
    folded: bool
    inside: str | None = None
    wrapped: bool = True
    unsent: Placeholder | None = None

    @cached_property
    def shapes(self) -> Shapes:
        """The declared names; the column of the kept ones is no field."""
        named = [column for column in self.columns if column.name != self.unknown.column]
        return Shapes(
            names=tuple(column.name for column in named),
            required=tuple(name for name in self.required if name != self.unknown.column),
            strays=self.unknown.policy != "refuse",
            folded=self.folded,
            previously={column.name: column.previously for column in named if column.previously},
        )

    def take(self, record: Document, value: Callable[[], bytes], *, of_before: Collection[str] = ()) -> Taken:
        """The record by declared names; `value` gives the bytes of its document.

        `of_before`: fields that the record has from the document's row of before, for their values were not sent.
        """
        verdict = self.shapes.verdict(record)
        if verdict.plain and verdict.reason is None:
            return Taken(record)
        strays = _listed(verdict.strays)
        if verdict.reason is not None:
            return Taken(None, verdict.reason, strays)
        if verdict.renamed:
            record = record | {name: record[old] for old, name in verdict.renamed}
        column, unsent = self.unknown.column, self.unsent
        if column is None or not verdict.strays:
            return Taken(record, None, strays)
        left = [] if unsent is None else [name for name in verdict.strays if unsent.stands_for(record[name])]
        rest: str | None = self._rest(value(), verdict.strays)
        if older := [name for name in verdict.strays if name in of_before]:
            there = rest_of(value(), older, inside="before", wrapped=self.wrapped)
            rest = with_parts(rest, dict.fromkeys(older, there))
        kept = record | {column: rest}
        return Taken(kept, None, strays, tuple(part(column, name) for name in left))

    def _rest(self, value: bytes, strays: Sequence[str]) -> str:
        return rest_of(value, strays, inside=self.inside, wrapped=self.wrapped)


def part(column: str, field: str) -> str:
    """Name an undeclared field that is kept in a column; no column has such a name."""
    return f"{column}:{field}"


def column_of(name: str) -> str:
    """The column that a name is of: of itself, or of a part of it."""
    return name.partition(":")[0]


def field_of(name: str) -> str | None:
    """The undeclared field that a name is of, None for a column."""
    _, colon, field = name.partition(":")
    return field if colon else None


def with_parts(text: str | None, others: Mapping[str, str | None]) -> str | None:
    """The kept fields with the values that some of them have in other texts; without those that are not there."""
    found = _fields(text)
    for field, other in others.items():
        there = _fields(other)
        if field in there:
            found[field] = there[field]
        else:
            found.pop(field, None)
    return _text(found) if found else None


def _fields(text: str | None) -> Document:
    found: Document = {} if text is None else _READ(text)
    return found


class _Written(str):
    """A number as it stands in the document."""

    __slots__ = ()


_READ = json.JSONDecoder(parse_float=_Written, parse_int=_Written).decode


def rest_of(value: bytes, strays: Sequence[str], *, inside: str | None = None, wrapped: bool = False) -> str:
    """These fields of a document that `document.read` has accepted; with `inside`, of the object in that field."""
    found: Document = _READ(value.decode("utf-8"))
    if wrapped and is_wrapped(found):
        found = found["payload"]
    if inside is not None:
        found = found[inside]
    return _text({name: found[name] for name in strays})


def _text(value: Any) -> str:
    """JSON without blanks; a document is only so deep, hence the recursion ends."""
    if isinstance(value, _Written):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(name)}:{_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=1_000)
def _listed(strays: tuple[str, ...]) -> str | None:
    return json.dumps(strays) if strays else None
