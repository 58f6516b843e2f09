"""The fields of a record as declared: by their present names, undeclared ones ignored, refused or kept.

What is kept is one JSON text: numbers as they were written, fields in the order they were sent.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from deltaworks.engine.parsing.document import Document, is_wrapped
from deltaworks.engine.parsing.shape import Shapes
from deltaworks.words.reading import UnknownFields
from deltaworks.words.table import Column


@dataclass(frozen=True)
class Taken:
    """A record that is taken, or why it is refused; `strays` is a JSON array of its undeclared fields, if any."""

    record: Document | None
    reason: str | None = None
    strays: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fields:
    """One table's view on records. `inside`: the field of the document that holds the record, None: it is the document.

    `folded`: as in `Shapes`. `wrapped`: whether a document may have come with its schema (see `document.is_wrapped`).
    """

    columns: tuple[Column, ...]
    required: tuple[str, ...]
    unknown: UnknownFields
    folded: bool
    inside: str | None = None
    wrapped: bool = True

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

    def take(self, record: Document, value: Callable[[], bytes]) -> Taken:
        """The record by declared names; `value` gives the bytes of its document."""
        verdict = self.shapes.verdict(record)
        if verdict.plain and verdict.reason is None:
            return Taken(record)
        strays = _listed(verdict.strays)
        if verdict.reason is not None:
            return Taken(None, verdict.reason, strays)
        if verdict.renamed:
            record = record | {name: record[old] for old, name in verdict.renamed}
        if self.unknown.column is not None and verdict.strays:
            record = record | {self.unknown.column: self._rest(value(), verdict.strays)}
        return Taken(record, None, strays)

    def _rest(self, value: bytes, strays: Sequence[str]) -> str:
        return rest_of(value, strays, inside=self.inside, wrapped=self.wrapped)


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
