"""Folding changes into intervals: held against a simulation that takes one change after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.writers.intervals import TIME, Truncation, by_sequence, events_schema, fold
from tests.chance import seeded

TABLE = pa.schema(
    [
        ("shop", pa.string()),
        ("number", pa.int64()),
        ("name", pa.string()),
        ("valid_from", TIME),
        ("valid_to", TIME),
        ("is_current", pa.bool_()),
        ("_at", TIME),
        ("_offset", pa.int64()),
        ("_seq", pa.int64()),
        ("_source", pa.string()),
    ]
)
KEYS = ("shop", "number")


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A change on its way: `op` is c, u, d or t."""

    op: str
    key: tuple[str, int] | None
    lsn: int
    at: int
    offset: int
    name: str | None = None


class Table:
    """What the writer does around the fold: remembers ends, reads what is stored of the touched keys, merges."""

    def __init__(self) -> None:
        """Nothing is stored."""
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.ends: set[tuple[tuple[str, int], int, int]] = set()
        self.cuts: set[Truncation] = set()
        self.written = 0

    def take(self, batch: Sequence[Sent]) -> None:
        """Fold one batch."""
        cuts = {Truncation(f"{one.lsn:04d}", one.at) for one in batch if one.op == "t"} - self.cuts
        self.cuts |= cuts
        self.ends |= {(one.key, one.lsn, one.at) for one in batch if one.op == "d" and one.key}
        touched = {one.key for one in batch} | ({row[:2] for row in self.rows} if cuts else set())
        events = [{**row, "_kind": "row"} for key, row in self.rows.items() if key[:2] in touched]
        events += [_event(one, "row") for one in batch if one.op in "cu"]
        events += [
            _event(Sent(op="d", key=key, lsn=lsn, at=at, offset=0), "delete")
            for key, lsn, at in self.ends
            if key in touched
        ]
        made = fold(
            pa.Table.from_pylist(events, schema=events_schema(TABLE)),
            keys=KEYS,
            table=TABLE,
            of_key=partial(by_sequence, cuts=sorted(self.cuts)),
        )
        for row in made.to_pylist():
            key = (row["shop"], row["number"], row["_source"])
            assert row.pop("_new") == (key not in self.rows)
            assert self.rows.get(key) != row, "a row that is as it was is not written"
            self.rows[key] = row
            self.written += 1

    def shown(self) -> list[tuple[Any, ...]]:
        """The rows without what depends on how they came."""
        names = [name for name in TABLE.names if name != "_seq"]
        return sorted((tuple(row[name] for name in names) for row in self.rows.values()), key=str)


def _event(one: Sent, kind: str) -> dict[str, Any]:
    assert one.key is not None
    shop, number = one.key
    return {
        "shop": shop, "number": number, "name": one.name, "_at": one.at, "_offset": one.offset, "_seq": 1,
        "_source": f"{one.lsn:04d}", "_kind": kind,
    }  # fmt: skip


def a_source(chance: Random, count: int) -> list[Sent]:
    """What a database sends: keys come, change, go and come back; now and then all go. Its clock runs as it likes."""
    sent: list[Sent] = []
    alive: set[tuple[str, int]] = set()
    for lsn in range(1, count + 1):
        key, at = (chance.choice("ab"), chance.randrange(3)), 1_000 + chance.randrange(count)
        if chance.random() < 0.06:
            sent.append(Sent(op="t", key=None, lsn=lsn, at=at, offset=lsn))
            alive.clear()
        elif key in alive and chance.random() < 0.3:
            sent.append(Sent(op="d", key=key, lsn=lsn, at=at, offset=lsn))
            alive.discard(key)
        else:
            sent.append(Sent(op="u" if key in alive else "c", key=key, lsn=lsn, at=at, offset=lsn, name=f"n{lsn}"))
            alive.add(key)
    return sent


def simulated(sent: Sequence[Sent]) -> list[tuple[Any, ...]]:
    """One change after the other, with what a reader may know only: key, name, begin, end, in microseconds."""
    done: list[tuple[Any, ...]] = []
    held: dict[tuple[str, int], tuple[str | None, int]] = {}
    clocks: dict[tuple[str, int], int] = {}

    def end(key: tuple[str, int], at: int) -> None:
        if key in held:
            name, start = held.pop(key)
            clocks[key] = max(at, clocks[key])
            done.append((*key, name, start, clocks[key]))

    for one in sorted(sent, key=lambda one: one.lsn):
        if one.key is None:
            for key in list(held):
                end(key, one.at)
            continue
        end(one.key, one.at)
        if one.op != "d":
            clocks[one.key] = max(one.at, clocks.get(one.key, 0))
            held[one.key] = (one.name, clocks[one.key])
    return sorted([*done, *((*key, name, start, None) for key, (name, start) in held.items())], key=_by_time)


def told(table: Table) -> list[tuple[Any, ...]]:
    """The same of the folded table."""
    rows = pa.Table.from_pylist(list(table.rows.values()), schema=TABLE)
    micros = [rows[name].cast(pa.int64()).to_pylist() for name in ("valid_from", "valid_to")]
    found = zip(*(rows[name].to_pylist() for name in ("shop", "number", "name")), *micros, strict=True)
    return sorted(found, key=_by_time)


def _by_time(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:2], row[3], row[4] is None, row[4] or 0, row[2])


def in_batches(chance: Random, sent: Sequence[Sent]) -> Table:
    """Any order, any cut, copies among them, which come with an offset of their own."""
    copies = [Sent(**{**vars(one), "offset": one.offset + 1_000}) for one in chance.sample(list(sent), len(sent) // 4)]
    shuffled = chance.sample([*sent, *copies], len(sent) + len(copies))
    table = Table()
    while shuffled:
        size = chance.randrange(1, 12)
        table.take(shuffled[:size])
        del shuffled[:size]
    return table


@pytest.mark.parametrize("run", range(40))
def test_any_order_and_any_cut_give_what_one_after_the_other_gives(run: int) -> None:
    """Copies, deletions before their rows and a clock that runs backwards among them."""
    chance = seeded()
    sent = a_source(chance, 20 + 4 * run)
    once = Table()
    once.take(sent)

    wild = in_batches(chance, sent)

    assert told(once) == simulated(sent)
    assert wild.shown() == once.shown()


def test_a_key_has_one_row_at_a_time_and_no_gap_while_it_is_there() -> None:
    """The look-up `valid_from <= t and (valid_to > t or valid_to is null)` finds one row, or none after a deletion."""
    sent = a_source(seeded(), 200)
    table = Table()
    table.take(sent)
    by_key: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row in told(table):
        by_key.setdefault(row[:2], []).append(row)

    looked_up = 0
    for rows in by_key.values():
        for moment in range(990, 1_250):
            found = [row for row in rows if row[3] <= moment and (row[4] is None or row[4] > moment)]
            assert len(found) <= 1
            looked_up += len(found)
        assert sum(row[4] is None for row in rows) <= 1
    ends = {one.key: one.op for one in sorted(sent, key=lambda one: one.lsn)}
    cut = max((one.lsn for one in sent if one.op == "t"), default=0)
    last = {one.key: one.lsn for one in sorted(sent, key=lambda one: one.lsn)}
    there = {key for key, op in ends.items() if key and op != "d" and last[key] > cut}
    assert {key for key, rows in by_key.items() if any(row[4] is None for row in rows)} == there
    assert looked_up


def test_changes_of_one_transaction_have_intervals_of_no_length() -> None:
    """They share one time: only the last one can be found by time, and all are there."""
    table = Table()
    table.take([Sent(op="c", key=("a", 1), lsn=n, at=1_000, offset=n, name=f"n{n}") for n in (1, 2, 3)])

    assert told(table) == [("a", 1, "n1", 1_000, 1_000), ("a", 1, "n2", 1_000, 1_000), ("a", 1, "n3", 1_000, None)]


def test_a_change_that_comes_late_writes_itself_and_its_neighbour_only() -> None:
    """The other states of the key are as they were, and are not written again."""
    table = Table()
    table.take([Sent(op="c", key=("a", 1), lsn=n, at=n, offset=n, name=f"n{n}") for n in range(1, 100) if n != 50])
    before = table.written

    table.take([Sent(op="u", key=("a", 1), lsn=50, at=50, offset=200, name="late")])

    assert table.written - before == 2
    assert told(table)[48:51] == [("a", 1, "n49", 49, 50), ("a", 1, "late", 50, 51), ("a", 1, "n51", 51, 52)]
