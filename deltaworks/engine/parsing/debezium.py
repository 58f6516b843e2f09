"""Tables that read Debezium's row changes: JsonConverter without schemas, all tables of a source in one topic.

Of a record another's are: tombstones, heartbeats, the BEGIN and END of transactions, logical messages, changes of other
tables. A value that is none of these and no change record either cannot be told to be another's, so every table over
that bronze refuses it. For a delete only the Kafka key counts: `before` holds invented defaults unless the source's
replica identity is full.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from deltaworks.engine.parsing.bronze import Chunk, read
from deltaworks.engine.parsing.document import Document
from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.engine.parsing.shape import Shapes
from deltaworks.engine.parsing.sheet import Sheet, sequence
from deltaworks.engine.parsing.values import Converter, Encoding, Years, converter
from deltaworks.words.reading import Debezium
from deltaworks.words.table import Column

ENCODING = Encoding(years=Years(first=1), days=True, micros=True, unsent="__debezium_unavailable_value")
"""`adaptive_time_microseconds` and the connector's placeholder; the source's own types bound the years."""
NOT_AN_ENVELOPE = "not a Debezium envelope"
LSN_MAX = 2**63 - 1
AT_MAX = 253_402_300_799_999_999  # the last microsecond of the year 9999

_COMMIT = re.compile(r'\["([0-9]{1,19})",')  # of `source.sequence`: ["LSN of the last commit", "LSN"]
_ROW_OPS = frozenset({"r", "c", "u"})
_STREAMED = (None, False, "false")


@dataclass(frozen=True)
class DebeziumParser:
    """Parses the chunks of one table."""

    reads: Debezium
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    epoch: int
    timed: bool = False
    """Whether a change must say when it happened."""

    @cached_property
    def converters(self) -> tuple[Converter, ...]:
        """One per declared column; a key column is never null."""
        return tuple(converter(column, ENCODING, key=column.name in self.keys) for column in self.columns)

    @cached_property
    def row_shapes(self) -> Shapes:
        """What `after` must have; the source's table may have more columns."""
        required = tuple(one.name for one in self.converters if not one.null)
        return Shapes(names=tuple(one.name for one in self.converters), required=required, folded=False)

    @cached_property
    def key_shapes(self) -> Shapes:
        """What the key of a deleted row must have."""
        return Shapes(names=self.keys, required=self.keys, folded=False)

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        """One row out for each row of the chunk."""
        sheet = Sheet.of(chunk)
        lsns: list[int | None] = [None] * len(chunk)
        streamed: list[int | None] = [None] * len(chunk)
        commits: list[int | None] = [None] * len(chunk)
        times: list[int | None] = [None] * len(chunk)
        keys: list[bytes | None] | None = None
        for place, found in enumerate(chunk.documents):
            change = _change(found, self.reads.table)
            if change is None:
                continue
            if isinstance(change, str):
                sheet.refuse(place, change)
                continue
            lsns[place], streamed[place], commits[place] = _lsn(change), _streamed(change), _commit(change)
            times[place] = _at(change)
            op = change["op"]
            if lsns[place] is None:
                sheet.refuse(place, "source: no usable lsn")
            elif self.timed and times[place] is None:
                sheet.refuse(place, "source: no usable time")
            elif op in _ROW_OPS:
                self._row(sheet, place, change)
            elif op == "d":
                keys = chunk.column("key") if keys is None else keys
                self._delete(sheet, place, keys[place])
            elif op == "t":
                sheet.keep(place, "truncate", None)
            else:
                sheet.refuse(place, "op: not known")
        source = self._source(chunk, commits, lsns, streamed)
        return sheet.batch(self.converters, self.keys, source, at=times)

    def _row(self, sheet: Sheet, place: int, change: Document) -> None:
        after = change.get("after")
        if not isinstance(after, dict):
            sheet.refuse(place, "after: missing")
        elif why := self.row_shapes.reason(after):
            sheet.refuse(place, why)
        else:
            sheet.keep(place, "row", after)

    def _delete(self, sheet: Sheet, place: int, key: bytes | None) -> None:
        found = read(key)
        if isinstance(found, Refusal):
            sheet.refuse(place, f"key: {found.code}")
        elif why := self.key_shapes.reason(found):
            sheet.refuse(place, f"key: {why}")
        else:
            sheet.keep(place, "delete", found)

    def _source(
        self, chunk: Chunk, commits: list[int | None], lsns: list[int | None], streamed: list[int | None]
    ) -> pa.Array:
        offsets = chunk.rows.column("offset")
        commit, lsn, stream = pa.array(commits, pa.int64()), pa.array(lsns, pa.int64()), pa.array(streamed, pa.int8())
        return sequence(f"{self.epoch:06d}", (commit, 20), (lsn, 20), (stream, 1), (offsets, 20))


def _change(found: Document | Refusal, table: str) -> Document | str | None:
    """The change record if it is the table's, None if it is another's, else why it is refused."""
    if isinstance(found, Refusal):
        return None if found.code == "no value" else NOT_AN_ENVELOPE
    source, op = found.get("source"), found.get("op")
    if op == "m":
        return None  # a logical message
    if isinstance(source, dict) and type(op) is str:
        schema, name = source.get("schema"), source.get("table")
        if type(schema) is str and type(name) is str:
            return found if f"{schema}.{name}" == table else None
    elif found.keys() == {"ts_ms"}:
        return None  # heartbeat
    elif op is None and found.get("status") in ("BEGIN", "END") and type(found.get("id")) is str:
        return None  # a source transaction's bounds
    return NOT_AN_ENVELOPE


def _lsn(change: Document) -> int | None:
    lsn = change["source"].get("lsn")
    return lsn if type(lsn) is int and 0 <= lsn <= LSN_MAX else None


def _commit(change: Document) -> int:
    """The LSN of the commit before the change's own transaction, 0 in a snapshot and right after it.

    Transactions count in the order of their commits. Their changes' own LSNs do not tell it: an insert that waits
    until another transaction has given its key free has a lower LSN than the deletion that it waits for.
    """
    found = _COMMIT.match(text) if type(text := change["source"].get("sequence")) is str else None
    return min(int(found[1]), LSN_MAX) if found else 0


def _at(change: Document) -> int | None:
    """When the source committed the change, or read the row for a snapshot, in microseconds since 1970."""
    source = change["source"]
    micros, millis = source.get("ts_us"), source.get("ts_ms")  # connectors before 2.6 send milliseconds only
    at = micros if type(micros) is int else millis * 1_000 if type(millis) is int else 0
    return at if 0 < at <= AT_MAX else None


def _streamed(change: Document) -> int:
    """0 for a row of a snapshot: the first streamed change may have the snapshot's own lsn."""
    return 1 if change["source"].get("snapshot") in _STREAMED else 0
