"""Tables that read Debezium's row changes: JsonConverter, all tables of a source in one topic.

Values and keys may come with their schema (`schemas.enable`, the converter's default) or without, also mixed.

Of a record another's are: tombstones, heartbeats, the BEGIN and END of transactions, logical messages, changes of other
tables. A value that is none of these and no change record either cannot be told to be another's, so every table over
that bronze refuses it.

Which row a change found is told by the record's key, if that has the declared ones: a row that gets another key comes
as a deletion and an insert. `before` counts where the source's replica identity is full, else it holds invented
defaults, and no record says which. So it counts in records without a key, since Postgres refuses updates and deletions
of a table that has neither a key nor this identity; and where the table is declared to have it. An update that finds
the row under other keys than it leaves it says so in `_left`.

An update does not carry large values that it left as they were (unchanged TOAST): the connector's placeholder stands
for them. Where `before` counts they are taken from it, for a row that has left its keys has no other change that sent
them; else `_sent` names them. Nothing else may leave a value out: an insert carries them all, but for one that changes
a row's key.

The source's life is counted at the end of the connector's `topic.prefix`, which each record repeats as `source.name`:
`shop`, then `shop-1`, and so on. Numbers of the log (LSN) are compared inside one life only.

A row of an incremental snapshot has no LSN of its own. `source.sequence` says how far the connector had read the log
when it sent the row: the row counts after all transactions that were committed by then, and before the next one. It
may show that one already, or later ones, which the log repeats; of a key that was changed while it was being read the
connector sends no row. Such a row ends nothing: keys that it does not show are only deleted by the log.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.bronze import Chunk, read, unwrapped
from deltaworks.engine.parsing.document import Document
from deltaworks.engine.parsing.fields import Fields
from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.engine.parsing.shape import Shapes
from deltaworks.engine.parsing.sheet import Sheet, sequence
from deltaworks.engine.parsing.values import Converter, Encoding, Placeholder, Years, converter
from deltaworks.words.reading import ARRIVAL, Debezium
from deltaworks.words.table import Column

UNSENT_TEXT = "__debezium_unavailable_value"
_UNSENT = Placeholder(UNSENT_TEXT)
ENCODING = Encoding(years=Years(first=1), days=True, micros=True, unsent=_UNSENT)
"""`adaptive_time_microseconds` and the connector's placeholder; the source's own types bound the years."""
BY_ITS_LOG = "by its log"
NOT_AN_ENVELOPE = "not a Debezium envelope"
LSN_MAX = 2**63 - 1
AT_MAX = 253_402_300_799_999_999  # the last microsecond of the year 9999

_SEQUENCE = re.compile(r'\[(?:null|"([0-9]{1,19})") ?, ?(?:"([0-9]{1,19})")?')
"""`source.sequence`: the LSN of the last commit, the LSN that was read last."""
_ROW_OPS = frozenset({"r", "c", "u"})
_STREAMED = (None, False, "false")
_LAST_OF_TABLE = ("last_in_data_collection", "last")
_LIFE = re.compile(r".*-([0-9]{1,6})", re.DOTALL)


@dataclass(frozen=True)
class DebeziumParser:
    """Parses the chunks of one table."""

    reads: Debezium
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    timed: bool = False
    """Whether a change must say when it happened."""
    partial: bool = False
    """Whether an update may leave values out."""
    places: ClassVar[str] = BY_ITS_LOG
    """How changes are placed among those of their key."""

    @cached_property
    def converters(self) -> tuple[Converter, ...]:
        """One per declared column; a key column is never null."""
        return tuple(converter(column, ENCODING, key=column.name in self.keys) for column in self.columns)

    @cached_property
    def fields(self) -> Fields:
        """What `after` must have; the source's table may have more columns."""
        columns = tuple(column for column in self.columns if column.wire != ARRIVAL)
        may_lack = {column.name for column in columns if column.absent == "kept"}
        required = (one.name for one in self.converters if not one.null and not one.arrival)
        return Fields(
            columns=columns,
            required=tuple(name for name in required if name not in may_lack),
            unknown=self.reads.unknown_fields,
            folded=False,
            inside="after",
            unsent=_UNSENT,
        )

    @property
    def leaves(self) -> tuple[str, ...]:
        """The keys that a row may leave for others."""
        return self.keys

    @cached_property
    def key_shapes(self) -> Shapes:
        """What must be told of the row that a change found."""
        older = {column.name: column.previously for column in self.columns if column.previously}
        previously = {key: older[key] for key in self.keys if key in older}
        return Shapes(names=self.keys, required=self.keys, folded=False, previously=previously)

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        """One row out for each row of the chunk."""
        sheet = Sheet.of(chunk)
        order = Order.of(chunk)
        for place, found in enumerate(chunk.payloads):
            change = _change(found, self.reads)
            if change is None:
                if _ends_a_snapshot(found):
                    sheet.keep(place, "snapshot", None)
                    order.floors[place], order.times[place] = _older_than(found), _at(found)
                continue
            if isinstance(change, str):
                sheet.refuse(place, change)
                continue
            order.see(place, change)
            op = change["op"]
            if order.lsns[place] is None:
                told = "sequence" if _is_incremental(change) else "lsn"
                sheet.refuse(place, f"source: no usable {told}")
            elif self.timed and order.times[place] is None:
                sheet.refuse(place, "source: no usable time")
            elif op in _ROW_OPS:
                self._row(sheet, place, change)
                if op == "u" and sheet.kinds[place] == "row":
                    self._came_from(sheet, place, change)
                self._see_end(order, place, change)
            elif op == "d":
                self._delete(sheet, place, change)
            elif op == "t":
                self._truncate(sheet, place, change)
            else:
                sheet.refuse(place, "op: not known")
        source = order.sequences()
        floor = order.floor(source, sheet.kinds)
        partial = _updates(chunk) if self.partial else None
        return sheet.batch(
            self.converters, self.keys, source, at=order.times, floor=floor, partial=partial, leaves=self.leaves
        )

    def _see_end(self, order: "Order", place: int, row: Document) -> None:
        """Take down where a snapshot's row ends the table: the last row of a partition ends that one only."""
        if not self.reads.is_partition(_named(row["source"])):
            if row["source"].get("snapshot") in _LAST_OF_TABLE:
                order.floors[place] = order.begin(place)
        elif _ends_a_snapshot(row):
            order.floors[place] = _older_than(row)

    def _truncate(self, sheet: Sheet, place: int, change: Document) -> None:
        if self.reads.is_partition(_named(change["source"])):  # which rows were in it, nothing says
            sheet.refuse(place, "op: a partition is truncated")
        else:
            sheet.keep(place, "truncate", None)

    def _row(self, sheet: Sheet, place: int, change: Document) -> None:
        after = change.get("after")
        if not isinstance(after, dict):
            sheet.refuse(place, "after: missing")
        elif change["op"] != "u":
            sheet.take(place, self.fields.take(after, lambda: sheet.chunk.value(place)))
        else:
            after = self._kept(after) | after
            was = self._was(change, sheet.chunk.keys[place], after)
            sheet.take(place, self.fields.take(after | was, lambda: sheet.chunk.value(place), of_before=was))

    def _kept(self, after: Document) -> Document:
        """What stands for the columns that an update does not have, and that stay as they were."""
        kept = (column for column in self.columns if column.absent == "kept")
        lacking = (one.name for one in kept if after.keys().isdisjoint({one.name, one.previously}))
        return dict.fromkeys(lacking, UNSENT_TEXT)

    def _was(self, change: Document, key: bytes | None, after: Document) -> Document:
        """What the row of before has of the values that an update does not send; nothing where it does not count."""
        before = change.get("before")
        if not isinstance(before, dict):
            return {}
        was = {name: before[name] for name, value in after.items() if name in before and _UNSENT.stands_for(value)}
        return was if was and (self.reads.replica_identity == "full" or _has_no_key(key)) else {}

    def _came_from(self, sheet: Sheet, place: int, change: Document) -> None:
        """Note under which keys an update found its row, if they may be others than it has now."""
        key = sheet.chunk.keys[place]
        if key is not None and all(mark in key for mark in self._marks):
            return
        named = unwrapped(read(key))
        if isinstance(named, Refusal) and (named.code != "no value" or change.get("before") is None):
            return  # nothing says that it was another row, and of Postgres's own records none is so
        told = self._found(change, named)
        row = sheet.records[place] or {}
        if isinstance(told, str):
            sheet.refuse(place, told)
        elif any(told[name] != row.get(name) for name in self.keys):
            sheet.left[place] = told

    @cached_property
    def _marks(self) -> tuple[bytes, ...]:
        """What a record's key contains, as the connector writes it, if it has the declared keys: no text does."""
        return tuple(f"{json.dumps(name, ensure_ascii=False)}:".encode() for name in self.keys)

    def _delete(self, sheet: Sheet, place: int, change: Document) -> None:
        told = self._found(change, unwrapped(read(sheet.chunk.keys[place])))
        if isinstance(told, str):
            sheet.refuse(place, told)
        else:
            sheet.keep(place, "delete", told)

    def _found(self, change: Document, named: Document | Refusal) -> Document | str:
        """The keys of the row that an update or a deletion found, by its record's key `named`; or why not."""
        if not isinstance(named, Refusal):
            told = self._keys_in(named, "key")
            if isinstance(told, dict) or self.reads.replica_identity != "full":
                return told
        elif named.code != "no value":
            return f"key: {named.code}"
        before = change.get("before")
        return self._keys_in(before, "before") if isinstance(before, dict) else "before: missing"

    def _keys_in(self, found: Document, place: str) -> Document | str:
        verdict = self.key_shapes.verdict(found)
        if verdict.reason is not None:
            return f"{place}: {verdict.reason}"
        return found | {name: found[old] for old, name in verdict.renamed}


@dataclass(kw_only=True)
class Order:
    """Where the changes of a chunk stand in the source, by place."""

    chunk: Chunk
    lives: list[int]
    lsns: list[int | None]
    streamed: list[int | None]
    commits: list[int | None]
    times: list[int | None]
    floors: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, chunk: Chunk) -> "Order":
        """Nothing known yet."""
        count = len(chunk)
        nothing: list[list[int | None]] = [[None] * count for _ in range(4)]
        lsns, streamed, commits, times = nothing
        return cls(chunk=chunk, lives=[0] * count, lsns=lsns, streamed=streamed, commits=commits, times=times)

    def see(self, place: int, change: Document) -> None:
        """Take down what a change of the table says."""
        self.lives[place], self.times[place] = _life(change), _at(change)
        self.streamed[place], (self.commits[place], read) = _streamed(change), _sequence(change)
        lsn = _lsn(change)
        self.lsns[place] = read if lsn is None and _is_incremental(change) else lsn

    def begin(self, place: int) -> str:
        """What comes before all rows of the snapshot that this one belongs to, and after all that is older."""
        return _begin(self.lives[place], self.lsns[place] or 0)

    def sequences(self) -> pa.Array:
        """One text per change that sorts as the changes happened."""
        lives, lsns = pa.array(self.lives, pa.int32()), pa.array(self.lsns, pa.int64())
        commits = pa.array([None if lsn is None else at or 0 for at, lsn in zip(self.commits, self.lsns, strict=True)])
        streamed, offsets = pa.array(self.streamed, pa.int8()), self.chunk.rows.column("offset")
        return sequence((lives, 6), (commits.cast(pa.int64()), 20), (streamed, 1), (lsns, 20), (offsets, 20))

    def floor(self, sources: pa.Array, kinds: list[str]) -> pa.Array | None:
        """What empties the table of all that is older: a truncation, the end of a snapshot."""
        if not self.floors and "truncate" not in kinds:
            return None
        told = pa.array([self.floors.get(place) for place in range(len(kinds))], pa.string())
        return pc.if_else(pc.equal(pa.array(kinds), "truncate"), sources, told)


def _change(found: Document | Refusal, reads: Debezium) -> Document | str | None:
    """The change record if it is the table's, None if it is another's, else why it is refused."""
    if isinstance(found, Refusal):
        return None if found.code == "no value" else NOT_AN_ENVELOPE
    source, op = found.get("source"), found.get("op")
    if op == "m":
        return None  # a logical message
    if isinstance(source, dict) and type(op) is str:
        schema, name = source.get("schema"), source.get("table")
        if type(schema) is str and type(name) is str:
            return found if reads.has(_named(source)) else None
    elif found.keys() == {"ts_ms"}:
        return None  # heartbeat
    elif op is None and found.get("status") in ("BEGIN", "END") and type(found.get("id")) is str:
        return None  # a source transaction's bounds
    return NOT_AN_ENVELOPE


def _has_no_key(key: bytes | None) -> bool:
    """Whether a record has none: one that came with its schema may say so by a null."""
    named = unwrapped(read(key))
    return isinstance(named, Refusal) and named.code == "no value"


def _named(source: Document) -> str:
    return f"{source['schema']}.{source['table']}"


def _lsn(change: Document) -> int | None:
    lsn = change["source"].get("lsn")
    return lsn if type(lsn) is int and 0 <= lsn <= LSN_MAX else None


def _is_incremental(change: Document) -> bool:
    """Whether an incremental snapshot has read the row, while the stream went on."""
    return bool(change["source"].get("snapshot") == "incremental")


def _sequence(change: Document) -> tuple[int | None, int | None]:
    """The LSN of the commit before the change's own transaction, and the LSN up to which the log was read.

    The commit is None in the first snapshot and right after it.

    Transactions count in the order of their commits. Their changes' own LSNs do not tell it: an insert that waits
    until another transaction has given its key free has a lower LSN than the deletion that it waits for.

    Where none is told it counts as 0, and a snapshot's rows before what is streamed: a transaction that was open while
    the snapshot began has changes with lower LSNs than the snapshot, and is not in it.
    """
    text = change["source"].get("sequence")
    found = _SEQUENCE.match(text) if type(text) is str else None
    if found is None:
        return None, None
    commit, lsn = (None if one is None else min(int(one), LSN_MAX) for one in found.groups())
    return commit, commit if lsn is None else lsn


def _at(change: Document) -> int | None:
    """When the source committed the change, or read the row for a snapshot, in microseconds since 1970."""
    source = change["source"]
    micros, millis = source.get("ts_us"), source.get("ts_ms")  # connectors before 2.6 send milliseconds only
    at = micros if type(micros) is int else millis * 1_000 if type(millis) is int else 0
    return at if 0 < at <= AT_MAX else None


def was_read(sequence: str) -> bool:
    """Whether a snapshot has read this change's row while changes were streamed already.

    Its time is when it was sent: changes that count after it may have been committed before.
    """
    _, commit, streamed, *_ = (*sequence.split("/"), "", "", "")
    return streamed == "0" and commit.strip("0") != ""


def _streamed(change: Document) -> int:
    """0 for a row of a snapshot: the first streamed change may have the snapshot's own lsn."""
    return 1 if change["source"].get("snapshot") in _STREAMED else 0


def _life(change: Document) -> int:
    """How often the source began anew."""
    name = change["source"].get("name")
    return _count(name) if type(name) is str else 0


@lru_cache(maxsize=100)
def _count(name: str) -> int:
    found = _LIFE.fullmatch(name)
    return int(found[1]) if found else 0


def _ends_a_snapshot(found: Document | Refusal) -> TypeGuard[Document]:
    """Whether another table's record says that the snapshot of all tables is over, with which a source begins.

    A table that is empty in the source has no record of its own that could say so. One that is taken later, while
    changes are streamed, may be of some tables only; in a later life it is of all.
    """
    if isinstance(found, Refusal) or found.get("op") != "r":
        return False
    source = found.get("source")
    if not isinstance(source, dict) or source.get("snapshot") != "last":
        return False
    return _life(found) > 0 or _is_first(found)


def _older_than(last: Document) -> str:
    """What comes before all rows of the snapshot that this record ends, and after all that is older."""
    return _begin(_life(last), _lsn(last) or 0) if _is_first(last) else f"{_life(last):06d}"


def _is_first(change: Document) -> bool:
    """Whether a snapshot's record was read before any change was streamed: then it names no commit, but the log."""
    commit, read = _sequence(change)
    return commit is None and read is not None and _lsn(change) is not None


def _begin(life: int, lsn: int) -> str:
    return f"{life:06d}/{0:020d}/0/{lsn:020d}"


def _updates(chunk: Chunk) -> Callable[[int], bool]:
    """Tells which of the chunk's changes are updates: only those leave values out."""

    def is_update(place: int) -> bool:
        found = chunk.payloads[place]
        return not isinstance(found, Refusal) and found["op"] == "u"

    return is_update
