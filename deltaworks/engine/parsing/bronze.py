"""Bronze rows on their way in: bounded chunks, whose documents are read once for all tables that parse them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing import document
from deltaworks.engine.parsing.document import Document
from deltaworks.engine.parsing.refusal import Refusal

ROWS_MAX = 8_192  # documents of a chunk live as Python objects: some 5 kB each for a change record
BYTES_MAX = 256 * 1024 * 1024  # of values; keeps every column of the result below Arrow's 2 GiB per array

NEEDED = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("_seq", pa.int64()),
    ]
)
"""The columns of bronze that parsing looks at."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of bronze, in order, with the columns of `NEEDED`."""

    rows: pa.RecordBatch

    def __len__(self) -> int:
        """How many rows."""
        return int(self.rows.num_rows)

    @cached_property
    def documents(self) -> list[Document | Refusal]:
        """Per row the JSON object in its value, or why there is none."""
        schemas: dict[Any, Any] = {}
        return [_sharing(schemas, read(value)) for value in self.column("value")]

    @cached_property
    def payloads(self) -> list[Document | Refusal]:
        """The documents, of those that came with their schema only the record."""
        return [unwrapped(found) for found in self.documents]

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The records' keys."""
        return self.column("key")

    def column(self, name: str) -> list[Any]:
        """A column as Python values."""
        values: list[Any] = self.rows.column(name).to_pylist()
        return values

    def value(self, place: int) -> bytes:
        """The bytes of one row's value, which is not null."""
        found: bytes = self.rows.column("value")[place].as_py()
        return found

    def take(self, places: list[int]) -> "Chunk":
        """Only the rows at these places."""
        return self if len(places) == len(self) else Chunk(self.rows.take(pa.array(places, pa.int64())))


def read(value: bytes | None) -> Document | Refusal:
    """As `document.read`, with the refusal as a result."""
    try:
        return document.read(value)
    except Refusal as refusal:
        return refusal.with_traceback(None)


def unwrapped(found: Document | Refusal) -> Document | Refusal:
    """The record without the schema that it may have come with; one that is null is no value."""
    if isinstance(found, Refusal) or not document.is_wrapped(found):
        return found
    payload: Document | None = found["payload"]
    return Refusal("no value") if payload is None else payload


def _sharing(schemas: dict[Any, Any], found: Document | Refusal) -> Document | Refusal:
    """The document; one schema object serves all that have come with an equal one, for it outweighs the record."""
    if not isinstance(found, Refusal) and document.is_wrapped(found) and found["schema"] is not None:
        name = str(found["schema"].get("name"))
        if schemas.get(name) == found["schema"]:
            found["schema"] = schemas[name]
        else:
            schemas[name] = found["schema"]
    return found


def chunks(bronze: pa.Table | pa.RecordBatch) -> Iterator[Chunk]:
    """Cut a Table or RecordBatch of bronze into chunks."""
    rows = pa.Table.from_batches([bronze]) if isinstance(bronze, pa.RecordBatch) else bronze
    rows = rows.select(NEEDED.names).cast(NEEDED).combine_chunks()  # many small files would make many small chunks
    for batch in rows.to_batches(max_chunksize=ROWS_MAX):
        yield from _bounded(batch)


def _bounded(batch: pa.RecordBatch) -> Iterator[Chunk]:
    size = pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
    if size <= BYTES_MAX or batch.num_rows == 1:
        yield Chunk(batch)
        return
    half = batch.num_rows // 2
    yield from _bounded(batch.slice(0, half))
    yield from _bounded(batch.slice(half))
