"""Whose row a record without a value takes away, read from the record's key.

The key is a JSON object with the table's key columns, as our own changelogs write it. A table with one key column also
takes that value alone, as JSON or as plain text. What is neither is refused: a deletion that names no row of the
table, or more than a row, must not be guessed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deltaworks.engine.parsing import document
from deltaworks.engine.parsing.document import Document
from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.engine.parsing.shape import Shapes
from deltaworks.words.table import Column

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Such a character is no text that anybody wrote: the key is a number in bytes, or is framed for a schema registry."""

_NO_JSON = ("not JSON", "text after the document")


@dataclass(frozen=True)
class Keys:
    """Reads the keys of one table's records."""

    columns: tuple[Column, ...]
    """Those that make a row unique."""

    @classmethod
    def of(cls, names: Sequence[str], columns: Sequence[Column]) -> "Keys":
        """The columns with these names, in the order of the names."""
        by_name = {column.name: column for column in columns}
        return cls(tuple(by_name[name] for name in names))

    @cached_property
    def shapes(self) -> Shapes:
        """All of the key's columns, and nothing else: more fields would name less than a row of the table."""
        names = tuple(column.name for column in self.columns)
        older = {column.name: column.previously for column in self.columns if column.previously}
        return Shapes(names=names, required=names, strays=False, previously=older)

    def read(self, key: bytes | None) -> Document:
        """The values of the key's columns as they were sent; raises Refusal for a key that does not say them."""
        if key is not None and len(self.columns) == 1 and not key.lstrip().startswith(b"{"):
            return {self.columns[0].name: _alone(key, as_text=self.columns[0].type == "string")}
        found = self._payload(document.read(key))
        verdict = self.shapes.verdict(found)
        if verdict.reason is not None:
            raise Refusal(verdict.reason)
        return found | {name: found[old] for old, name in verdict.renamed}

    def _payload(self, found: Document) -> Document:
        """The key without the schema that it may have come with, unless a column has the name of one of its fields."""
        if not document.WRAPPER.isdisjoint(self.shapes.names):
            return found
        if document.is_wrapped(found) and found["payload"] is not None:
            return Document(found["payload"])
        if len(self.columns) == 1 and document.wraps_one_value(found):
            return {self.columns[0].name: found["payload"]}
        return found


def _alone(key: bytes, *, as_text: bool) -> Any:
    """One value: what a JSON scalar says, else the text itself. `as_text`: of scalars only a JSON string is one."""
    text = document.decoded(key)
    if not text:
        raise Refusal("empty value")
    if _CONTROL.search(text):
        raise Refusal("neither JSON nor text")
    if as_text and not text.startswith('"'):
        return text
    try:
        return document.scalar(text)
    except Refusal as refusal:
        if refusal.code not in _NO_JSON:
            raise
        return text  # as 2026-11-21; the column's type judges it
