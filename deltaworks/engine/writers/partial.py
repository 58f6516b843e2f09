"""Partial changes: what a change leaves out keeps the value that was sent last.

Every value has the sequence of the change that sent it. Of two values of one column the later sent one counts, and a
deletion (or truncation) forgets all that was sent before it. Both are maxima, so any order and any cut of arrival, and
copies, lead to the same row; a full change that arrives late still supplies what a newer one left out.

A row's note, `_sent`, is a JSON object: the columns whose value was not sent by the change that the row's `_source`
names, each with the sequence at which it was sent, "" where no such change is known. No note: all was sent then. The
fields in a column of undeclared ones are told one by one, as parts of it.
Changes, stored rows and rows that wait for a value have the same form, so one function folds them.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.fields import column_of, field_of, with_parts
from deltaworks.engine.writers.left import ENDS

CHANGE = pa.schema([("_kind", pa.string()), ("_source", pa.string()), ("_sent", pa.string())])
"""What a change is known by: row, delete or left (see `left.py`), its place in the source's order, its note."""
REASON = "value not sent, and no earlier change has it"


@dataclass
class _Life:
    """A key since its last deletion: per column when its value was sent, how far that counts, which change has it."""

    cut: str
    sent: dict[str, tuple[str, int, int]] = field(default_factory=dict)


def carried(changes: pa.Table, keys: Sequence[str], *, floor: str = "") -> pa.Table:
    """The changes in the order of their sequences, each with what its predecessors of the same key sent filled in.

    `changes` has the keys, other columns and those of `CHANGE`; what is not newer than `floor` is taken for deleted.
    The notes of the result say what was filled in, and what is still not known.
    """
    return _carry(changes.sort_by("_source").combine_chunks(), keys, floor, [0] * changes.num_rows)[0]


def _carry(
    changes: pa.Table, keys: Sequence[str], floor: str, ranks: Sequence[int]
) -> tuple[pa.Table, dict[str, list[int | None]]]:
    """As `carried`, and by column from which place each value was taken.

    `changes` are in order. Of two values that the same change sent the one of the higher rank counts.
    """
    notes = _notes(changes["_sent"])
    columns = sorted({name for note in notes.values() for name in note})
    if not columns:
        return changes, {}
    lives: dict[tuple[Any, ...], _Life] = {}
    takes: dict[str, list[int | None]] = {column: [*range(changes.num_rows)] for column in columns}
    written: list[str | None] = []
    each = zip(keyed(changes, keys), *(changes[name].to_pylist() for name in CHANGE.names), strict=True)
    for place, (key, kind, source, text) in enumerate(each):
        life = lives.setdefault(key, _Life(floor))
        if kind in ENDS:
            lives[key] = _Life(max(source, life.cut))
            written.append(None)
            continue
        note = {}
        for column in columns:
            mine = notes[text].get(column, source) if text is not None else source
            own = (mine if mine > life.cut else "", ranks[place], place)
            sent, _, at = life.sent[column] = max(own, life.sent.get(column, ("", 0, place)))
            takes[column][place] = at if sent else None
            if sent != source:
                note[column] = sent
        written.append(json.dumps(note) if note else None)
    parts: dict[str, dict[str, list[int | None]]] = {}
    for name, places in takes.items():
        field = field_of(name)
        if field is None:
            changes = _with(changes, name, changes[name].take(pa.array(places, pa.int64())))
        else:
            parts.setdefault(column_of(name), {})[field] = places
    for column, fields in parts.items():
        changes = _with(changes, column, _filled(changes[column], fields))
    return _with(changes, "_sent", pa.array(written, pa.string())), takes


def _with(changes: pa.Table, column: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return changes.set_column(changes.schema.get_field_index(column), column, values)


def _filled(texts: pa.ChunkedArray, parts: dict[str, list[int | None]]) -> pa.Array:
    """A column of undeclared fields, each taken from the text at its place; it stays where that is None."""
    given: list[str | None] = texts.to_pylist()
    made = [*given]
    for place, text in enumerate(given):
        there = {field: places[place] for field, places in parts.items()}
        others = {field: given[at] for field, at in there.items() if at is not None and at != place}
        if others:
            made[place] = with_parts(text, others)
    return pa.array(made, texts.type)


def unknown(notes: pa.ChunkedArray | pa.Array) -> list[str | None]:
    """Per note the first column whose value is not known, None where all are."""
    first = {
        text: next((column_of(name) for name, sent in note.items() if not sent), None)
        for text, note in _notes(notes).items()
    }
    return [None if text is None else first[text] for text in notes.to_pylist()]


def keyed(rows: pa.Table, keys: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Each row's key."""
    return zip(*(rows[key].to_pylist() for key in keys), strict=True)


def is_partial(rows: pa.Table) -> bool:
    """Whether a change among these leaves something out."""
    return bool(rows["_sent"].null_count < rows.num_rows)


def _notes(texts: pa.ChunkedArray | pa.Array) -> dict[str, dict[str, str]]:
    return {text: json.loads(text) for text in pc.unique(texts).to_pylist() if text is not None}


# -- a table of the newest state of each key ------------------------------------------------------------------------

ORIGIN = pa.field("_from", pa.string())
"""Where a row that is folded comes from: batch, table, waiting (for a value) or deleted (a remembered delete)."""
_RANKS = {"waiting": 0, "deleted": 1, "table": 1, "batch": 2}
"""What is told of one change counts in this order: of one that was patched since it came, the patch."""
ACT = pa.field("_act", pa.string())
"""What becomes of a row of `folded`.

put: this is the key's row now. remove: the key has no row now. hold: the key's row waits for a value. forget: remember
this deletion. refuse: set this change of the batch aside.
"""
WHY = pa.field("_why", pa.string())
"""Of refuse: the reason."""
COUNTED = pa.field("_taken", pa.bool_())
"""Of put and remove: whether the batch has a change of the key that is not refused."""


def folded(rows: pa.Table, keys: Sequence[str], *, floor: str = "") -> pa.Table:
    """What a batch does to a table of one row per key: rows with `ACT`, at most one put or remove per key.

    `rows` has the table's columns, those of `CHANGE` and `ORIGIN`; of every key in it all that the batch, the table,
    the waiting rows and the remembered deletes have.
    """
    rows = rows.append_column("_was", rows["_sent"])
    rows = rows.append_column("_rank", pa.array([_RANKS[origin] for origin in rows["_from"].to_pylist()], pa.int8()))
    rows = rows.sort_by([("_source", "ascending"), ("_rank", "ascending")]).combine_chunks()
    ranks = rows["_rank"].to_pylist()
    lived, takes = _carry(rows, keys, floor, ranks)
    found: dict[tuple[Any, ...], list[_Seen]] = {}
    columns = ("_kind", "_source", "_sent", "_was", "_from")
    fresh = [False] * lived.num_rows
    for places in takes.values():
        for place, at in enumerate(places):
            fresh[place] |= at is not None and at != place and ranks[at] == _RANKS["batch"]
    values = (*(lived[name].to_pylist() for name in columns), unknown(lived["_sent"]), fresh)
    for place, (key, *one) in enumerate(zip(keyed(lived, keys), *values, strict=True)):
        found.setdefault(key, []).append(_Seen(place, *one))
    verdicts = [verdict for seen in found.values() for verdict in _verdicts(seen, floor)]
    made = lived.take(pa.array([one.place for one in verdicts], pa.int64())).drop_columns(["_was", "_rank"])
    made = made.append_column(ACT, pa.array([one.act for one in verdicts], ACT.type))
    made = made.append_column(COUNTED, pa.array([one.counted for one in verdicts], COUNTED.type))
    reasons = [f"{one.open}: {REASON}" if one.act == "refuse" else None for one in verdicts]
    return made.append_column(WHY, pa.array(reasons, WHY.type))


class _Seen(NamedTuple):
    """One row of a key, in the order of sequences; `note` after, `was` before what its predecessors sent.

    `fresh`: whether one of its values is another change's of the batch.
    """

    place: int
    kind: str
    source: str
    note: str | None
    was: str | None
    origin: str
    open: str | None
    fresh: bool


class _Verdict(NamedTuple):
    place: int
    act: str
    counted: bool = False
    open: str | None = None


def _verdicts(seen: Sequence[_Seen], floor: str) -> Iterator[_Verdict]:
    """What becomes of one key."""
    cut = max((one.source for one in seen if one.kind in ENDS), default="")
    cut = max(cut, floor)
    batch = [one for one in seen if one.origin == "batch"]
    stored = next((one for one in seen if one.origin == "table"), None)
    alive = next((one for one in reversed(seen) if one.kind == "row" and one.source > cut), None)
    waits = alive is not None and alive.open is not None
    refused = [one for one in batch if waits and one.kind == "row" and one.source > cut]
    counted = any(one.source > floor and one not in refused and one.kind != "left" for one in batch)
    yield from (_Verdict(one.place, "refuse", open=one.open) for one in refused)
    if alive is not None and not waits:
        if stored is None or alive.fresh or (stored.source, stored.was) != (alive.source, alive.note):
            yield _Verdict(alive.place, "put", counted)
        return
    known = max((one.source for one in seen if one.origin == "deleted"), default="")
    news = max((one for one in batch if one.kind in ENDS and one.source > max(known, floor)), default=None)
    if news is not None:
        yield _Verdict(news.place, "forget")
    if stored is not None or news is not None:
        yield _Verdict((stored or seen[0]).place, "remove", counted)
    if alive is not None and not any(
        one.origin == "waiting" and (one.source, one.was) == (alive.source, alive.note) for one in seen
    ):
        yield _Verdict(alive.place, "hold")
