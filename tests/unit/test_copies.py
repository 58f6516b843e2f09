"""Of the copies of an event the first one counts: found by looking at few rows, as by looking at all of them."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers import append
from deltaworks.engine.writers.append import Key, Seen
from tests.chance import seeded
from tests.flows import BY_ARROW

NOON, WITHIN = datetime(2026, 11, 22, 12, tzinfo=UTC), timedelta(minutes=10)
SCHEMA = pa.schema(
    [("id", pa.string()), ("kind", pa.int64()), ("number", pa.int64()), ("_arrived", pa.timestamp("us", "UTC"))]
)


def events(chance: Random, count: int, *, first: int = 0) -> pa.Table:
    """Events of keys that often come once, parts of which may be null; they often arrive exactly the horizon apart."""
    made, minutes = [], 0
    for number in range(first, first + count):
        minutes += chance.choice((0, 0, 0, 0, 1, 10))
        made.append(
            {"id": chance.choice((None, *map(str, range(20)))), "kind": chance.choice((1, 2, None)), "number": number,
             "_arrived": NOON + timedelta(minutes=minutes, microseconds=chance.choice((0, 1)))}
        )  # fmt: skip
    return pa.Table.from_pylist(made, schema=SCHEMA)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("known", [0, 30, 400])
def test_few_rows_are_looked_at_and_no_copy_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int, alone: bool
) -> None:
    """Whether the table has no key, few or more than come now."""
    chance = seeded()
    entry = Entry(kind="create", app="tests", epoch=1)
    table = OwnedTable(name="silver.events", path=tmp_path / "events", schema=SCHEMA, entry=entry)
    there, new = events(chance, known, first=1_000), events(chance, 40)
    if known:
        counts = Counts(read=known, taken=known)
        BY_ARROW.commit(table, there, table.entry.follow("batch", counts=counts, ingest_seq=1))

    looked, suspects = list[int](), Seen._suspects

    def counted(seen: Seen, rows: pa.Table) -> npt.NDArray[np.int64]:
        places = suspects(seen, rows)
        looked.append(len(places))
        return places

    monkeypatch.setattr(Seen, "_suspects", counted)
    found = Seen(table, by=("id", "kind"), within=WITHIN).first_ones(new, alone=alone)

    accepted = [(row["id"], row["kind"], row["_arrived"]) for row in there.to_pylist()]
    expected = []
    for row in new.to_pylist():
        same = [at for one, kind, at in accepted if (one, kind) == (row["id"], row["kind"])]
        if all(abs(row["_arrived"] - at) > WITHIN for at in same):
            accepted.append((row["id"], row["kind"], row["_arrived"]))
            expected.append(row["number"])
    assert found["number"].to_pylist() == expected
    assert expected
    keys = Counter((row["id"], row["kind"]) for row in new.to_pylist())
    lone = sum(many == 1 and one not in {*there["id"].to_pylist()} for (one, _), many in keys.items())
    assert alone or looked == [new.num_rows - (0 if known == 400 else lone)]


@pytest.mark.parametrize(
    ("bytes_max", "keys_max", "held_max"),
    [(0, 10**6, 40), (1_000, 10**6, 63), (2**24, 10, 30)],  # those of two batches, all there are, few and a batch's
)
def test_keys_that_memory_cannot_hold_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int, keys_max: int, held_max: int
) -> None:
    """Batch by batch the same rows count; what is known at a time stays small, and is known again once it is little."""
    chance = seeded()
    batches = [events(chance, 20, first=1_000 * number) for number in range(30)]
    for number, one in enumerate(batches):  # each begins where the one before ends, sometimes long after
        shift = timedelta(minutes=7 * number + (200 if number > 15 else 0))
        at = [moment + shift for moment in one["_arrived"].to_pylist()]
        batches[number] = one.set_column(3, SCHEMA.field("_arrived"), pa.array(at, SCHEMA.field("_arrived").type))
    held, modes, kept = list[int](), set[bool](), set[bool]()

    def taken(folder: str, seen_of: Callable[[OwnedTable], Seen]) -> list[int]:
        entry = Entry(kind="create", app="tests", epoch=1)
        table = OwnedTable(name="silver.events", path=tmp_path / folder, schema=SCHEMA, entry=entry)
        seen, numbers = seen_of(table), list[int]()
        for seq, rows in enumerate(batches, start=1):
            found = seen.first_ones(rows)
            held.append(len(seen._times))
            modes.add(seen._since is None)
            counts = Counts(read=rows.num_rows, taken=found.num_rows)
            BY_ARROW.commit(table, found, table.entry.follow("batch", counts=counts, ingest_seq=seq))
            seen.accept(found)
            kept.add(seen._since is not None)
            numbers += found["number"].to_pylist()
        return numbers

    whole = taken("whole", lambda table: Seen(table, by=("id", "kind"), within=WITHIN))
    known = modes == {False}
    for one in (held, modes, kept):
        one.clear()
    monkeypatch.setattr(append, "BYTES_MAX", bytes_max)
    monkeypatch.setattr(append, "KEYS_MAX", keys_max)
    bounded = taken("bounded", lambda table: Seen(table, by=("id", "kind"), within=WITHIN))

    assert known
    assert len(whole) < sum(one.num_rows for one in batches)
    assert bounded == whole
    assert modes == kept == {True, False}
    assert max(held) <= held_max


def test_keys_that_have_become_too_many_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next that are accepted; they are read again for the batch after."""
    monkeypatch.setattr(append, "KEYS_MAX", 10)
    entry = Entry(kind="create", app="tests", epoch=1)
    table = OwnedTable(name="silver.events", path=tmp_path / "events", schema=SCHEMA, entry=entry)
    made = [{"id": str(number), "kind": 1, "number": number, "_arrived": NOON} for number in range(12)]
    batches = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in (made[:10], made[10:11], made[11:])]
    seen, known = Seen(table, by=("id", "kind"), within=WITHIN), list[tuple[bool, int]]()

    for rows in batches:
        seen.accept(seen.first_ones(rows))
        known.append((seen._since is not None, len(seen._times)))

    assert known == [(True, 10), (True, 11), (False, 0)]


def test_rows_that_are_too_many_to_be_remembered_are_not_read_whole_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few bytes they take; until a time comes of which there are few."""
    monkeypatch.setattr(append, "KEYS_MAX", 10)
    entry = Entry(kind="create", app="tests", epoch=1)
    table = OwnedTable(name="silver.events", path=tmp_path / "events", schema=SCHEMA, entry=entry)
    there = [{"id": str(number), "kind": 1, "number": number, "_arrived": NOON} for number in range(11)]
    counts = Counts(read=11, taken=11)
    rows = pa.Table.from_pylist(there, schema=SCHEMA)
    BY_ARROW.commit(table, rows, table.entry.follow("batch", counts=counts, ingest_seq=1))
    known, know = list[int](), Seen._know

    def counted(seen: Seen, pairs: Iterable[tuple[Key, datetime]]) -> None:
        know(seen, pairs)
        known.append(len(seen._times))

    monkeypatch.setattr(Seen, "_know", counted)
    seen = Seen(table, by=("id", "kind"), within=WITHIN)
    for minutes in (0, 5, 10, 21):
        copy = {**there[3], "_arrived": NOON + timedelta(minutes=minutes)}
        found = seen.first_ones(pa.Table.from_pylist([copy], schema=SCHEMA))
        seen.accept(found)

        assert found.num_rows == (minutes > 10)
    assert known == [1, 1, 1, 0]


@pytest.mark.parametrize("alone", [False, True])
def test_a_copy_is_found_in_a_file_whose_statistics_miss_its_decimal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """Those of a long decimal are a double, below the only value of its file or above it."""
    monkeypatch.setattr(append, "BYTES_MAX", 0)
    schema = pa.schema([("k", pa.string()), ("d", pa.decimal128(20, 2)), ("_arrived", pa.timestamp("us", "UTC"))])
    entry = Entry(kind="create", app="tests", epoch=1)
    table = OwnedTable(name="silver.events", path=tmp_path / "events", schema=schema, entry=entry)
    event = {"k": "a", "d": Decimal("123456789012345678.91"), "_arrived": NOON}
    rows = pa.Table.from_pylist([event], schema=schema)
    counts = Counts(read=1, taken=1)
    BY_ARROW.commit(table, rows, table.entry.follow("batch", counts=counts, ingest_seq=1))

    again = Seen(table, by=("k", "d"), within=WITHIN).first_ones(rows, alone=alone)

    assert again.num_rows == 0
