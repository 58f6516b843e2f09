"""Stretches: which rows belong together is found from a few of them, whatever was read before."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable, TooMuchError
from deltaworks.engine.nearby import Nearby, newer_half
from deltaworks.engine.own_rows import OwnRows
from deltaworks.engine.stretches import Parts, Stretches
from deltaworks.engine.touched import by_gap, by_reach
from deltaworks.engine.values import tuples
from tests.chance import seeded

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
GAP, SECOND = 600, 1_000_000
SCHEMA = pa.schema(
    [
        ("user", pa.int64()),
        ("country", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("_seq", pa.int64()),
        ("_late_by", pa.int64()),
    ]
)
ORDER = [("user", "ascending"), ("at", "ascending")]
Point = tuple[int | None, str | None, int]
Span = tuple[int | None, str | None, int, int]
"""A user, a country, and seconds after noon; a stretch ends with those of its last row."""


def rows(points: list[Point], seq: int) -> pa.Table:
    """Rows of one ingest batch."""
    made = [
        {"user": user, "country": country, "at": NOON + timedelta(seconds=at), "_seq": seq, "_late_by": 0}
        for user, country, at in points
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def spans(found: Stretches) -> set[Span]:
    """The stretches in seconds after noon."""
    noon = int(NOON.timestamp())
    return {
        (row["user"], row["country"], row["_low"] // SECOND - noon, row["_high"] // SECOND - noon)
        for row in found.table().to_pylist()
    }


def whole(points: list[Point], length: int) -> list[list[Point]]:
    """All points as runs of a part, each no more than `length` from the next."""
    found: list[list[Point]] = []
    for point in sorted(points, key=lambda one: (str(one[:2]), one[2])):
        if found and found[-1][-1][:2] == point[:2] and point[2] - found[-1][-1][2] <= length:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def batches(chance: Random) -> Iterator[list[Point]]:
    """Batches of points of few users; times are often exactly a gap apart, and some are far behind."""
    for number in range(30):
        yield [
            (
                chance.choice((1, 2, 3, None)),
                chance.choice(("de", None)),
                chance.choice(
                    (number * GAP, number * GAP + 1, (number - 1) * GAP - 1, chance.randrange(30) * GAP // 2)
                ),
            )
            for _ in range(chance.randrange(1, 6))
        ]


@pytest.fixture
def events(tmp_path: Path) -> OwnedTable:
    """Give an empty table of events."""
    entry = Entry(kind="create", app="tests", epoch=1)
    return OwnedTable(name="silver.events", path=tmp_path / "silver" / "events", schema=SCHEMA, entry=entry)


def put(table: OwnedTable, new: pa.Table, seq: int) -> None:
    """Commit an ingest batch."""
    counts = Counts(read=new.num_rows, taken=new.num_rows)
    committer = Committer(spark=None, arrow_bytes_max=2**26, guard=lambda: None)
    committer.commit(table, new, table.entry.follow("batch", counts=counts, ingest_seq=seq))


def near(table: OwnedTable) -> Nearby:
    """Give what reads the table's rows."""
    return Nearby(table, time="at", columns=["user", "country", "at"], late_max=None, keep=GAP * SECOND)


@pytest.mark.parametrize("bytes_max", [2**26, 2_000])
def test_new_rows_touch_the_whole_run_that_they_join(events: OwnedTable, bytes_max: int) -> None:
    """Found from memory, from the table and from both: after restarts, after forgetting, after a batch done again."""
    chance = seeded()
    nearby, points = near(events), list[Point]()

    for seq, new in enumerate(batches(chance), start=1):
        put(events, rows(new, seq), seq)
        points += new
        if chance.random() < 0.2:
            nearby.forget()

        def read(stretches: Stretches, new: list[Point] = new, seq: int = seq) -> dict[str, pa.Table]:
            try:
                return {"e": nearby.rows(stretches, rows(new, seq), seq=seq, bytes_max=bytes_max)}
            except TooMuchError:
                nearby.forget()
                return {"e": nearby.rows(stretches, rows(new, seq), seq=seq, bytes_max=2**26)}

        def touched(new: list[Point] = new, seq: int = seq) -> tuple[Stretches, dict[str, pa.Table]]:
            return by_gap({"e": rows(new, seq)}, read, part=("user", "country"), times={"e": "at"}, length=GAP * SECOND)

        if chance.random() < 0.3:  # a batch that failed comes again
            touched()
        found, taken = touched()

        runs = [run for run in whole(points, GAP) if set(run) & set(new)]
        assert spans(found) == {(*run[0][:2], run[0][2], run[-1][2]) for run in runs}, f"batch {seq}"
        there = [
            (row["user"], row["country"], round((row["at"] - NOON).total_seconds())) for row in taken["e"].to_pylist()
        ]
        assert sorted(there, key=str) == sorted((point for run in runs for point in run), key=str), f"batch {seq}"


def test_rows_that_are_gone_touch_what_was_made_with_them(events: OwnedTable) -> None:
    """One that joined two runs, and one that was a run of its own."""
    put(events, rows([(1, None, 0), (1, None, 2 * GAP)], 1), 1)
    nearby = near(events)
    gone = rows([(1, None, GAP), (2, "de", 0)], 0)

    def read(stretches: Stretches) -> dict[str, pa.Table]:
        return {"e": nearby.rows(stretches, gone, seq=1, bytes_max=2**26)}

    found, taken = by_gap({"e": gone}, read, part=("user", "country"), times={"e": "at"}, length=GAP * SECOND)

    assert spans(found) == {(1, None, 0, 2 * GAP), (2, "de", 0, 0)}
    assert taken["e"]["user"].to_pylist() == [1, 1]


def test_no_rows_touch_nothing(events: OwnedTable) -> None:
    """As where all that is gone had been left out."""
    put(events, rows([(1, None, 0)], 1), 1)
    nearby, none = near(events), rows([], 0)

    def read(stretches: Stretches) -> dict[str, pa.Table]:
        return {"e": nearby.rows(stretches, none, seq=1, bytes_max=2**26)}

    for find in (by_gap, by_reach):
        found, taken = find({"e": none}, read, part=("user", "country"), times={"e": "at"}, length=GAP * SECOND)
        assert spans(found) == set()
        assert taken["e"].num_rows == 0


def test_rows_reach_twice_as_far_as_their_results(events: OwnedTable) -> None:
    """Results up to the reach around a new row are computed again, from rows up to the reach around those."""
    at = [0, 599, 600, 1199, 1200, 1201, 5_000]
    put(events, rows([(1, None, second) for second in at], 1), 1)
    new = rows([(1, None, 0)], 2)
    put(events, new, 2)
    nearby = near(events)

    def read(stretches: Stretches) -> dict[str, pa.Table]:
        return {"e": nearby.rows(stretches, new, seq=2, bytes_max=2**26)}

    found, taken = by_reach({"e": new}, read, part=("user", "country"), times={"e": "at"}, length=GAP * SECOND)

    assert spans(found) == {(1, None, -600, 600)}
    seconds = sorted(round((moment - NOON).total_seconds()) for moment in taken["e"]["at"].to_pylist())
    assert seconds == [0, 0, 599, 600, 1199, 1200]


def test_parts_are_known_by_all_their_columns() -> None:
    """Null is a value; a part that is not known has no place."""
    known = Parts([rows([(1, "de", 0), (1, None, 0), (None, "de", 0), (1, "de", 5)], 1)], ("user", "country"))

    asked = rows([(1, "de", 9), (None, "de", 9), (1, None, 9), (None, None, 9), (2, "de", 9)], 1)
    places = known.places(asked).tolist()

    assert known.rows.num_rows == 3
    assert [known.rows.to_pylist()[place] for place in places[:3]] == [
        {"user": 1, "country": "de"},
        {"user": None, "country": "de"},
        {"user": 1, "country": None},
    ]
    assert places[3:] == [-1, -1]


def test_more_than_memory_takes_is_refused(events: OwnedTable) -> None:
    """Where too much would have to be read, nothing is: Spark does the batch."""
    new = rows([(user, "de", user) for user in range(2_000)], 1)
    put(events, new, 1)
    part = Parts([new], ("user", "country"))
    asked = Stretches(parts=part, part=part.places(new)[:1], low=part.places(new)[:1], high=part.places(new)[:1])

    with pytest.raises(TooMuchError):
        near(events).rows(asked.widened(2**52), new, seq=1, bytes_max=1_000)


RESULTS = pa.schema([("user", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("rows", pa.int64())])
CHANGES = Merge(
    keys=("user", "at"),
    nullable_keys=frozenset({"user"}),
    clauses=(
        Clause(on="matched", act="delete", when="s.rows is null", set={}),
        Clause(on="matched", act="update", set={name: f"s.{name}" for name in RESULTS.names}),
        Clause(on="not matched", act="insert", set={name: f"s.{name}" for name in RESULTS.names}),
    ),
)


REPLACES = Merge(
    keys=CHANGES.keys,
    nullable_keys=CHANGES.nullable_keys,
    idempotent=True,
    gone=("_act", "gone"),
    clauses=(
        Clause(on="matched", act="delete", when="s._act = 'gone'", set={}),
        Clause(on="matched", act="update", set={name: f"s.{name}" for name in RESULTS.names}),
        Clause(
            on="not matched", act="insert", when="s._act = 'row'", brings=("_act", "row"),
            set={name: f"s.{name}" for name in RESULTS.names},
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize("bytes_max", [2**26, 300])
def test_own_rows_are_known_without_reading(tmp_path: Path, bytes_max: int) -> None:
    """What stretches have, as the table has it: far back, after restarts, after a command or another way put rows in.

    With few bytes memory holds the newer half only, and what is too much is read when more is allowed. No key is there
    twice, though a batch whose keys are all new by what is known is appended.
    """
    chance, entry, noon = seeded(), Entry(kind="create", app="tests", epoch=1), int(NOON.timestamp())
    table = OwnedTable(name="gold.results", path=tmp_path / "results", schema=RESULTS, entry=entry)
    committer = Committer(spark=None, arrow_bytes_max=2**26, guard=lambda: None)
    own = OwnRows(table, keys=("user", "at"), time="at", keep=GAP * SECOND)

    for number in range(80):
        low = chance.choice((number * 100, number * 100, chance.randrange(8_000)))
        users = chance.sample((1, 2, None), 2)
        parts = Parts([rows([(user, None, low) for user in users], 0)], ["user"])
        lows = np.full(len(users), (noon + low) * SECOND)
        near = Stretches(parts=parts, part=np.arange(len(users)), low=lows, high=lows + 100 * SECOND)
        try:
            had = own.within(near, bytes_max=bytes_max)
        except TooMuchError:
            had = own.within(near, bytes_max=2**26)
        there = table.read()
        inside = there.filter(near.hold(there, "at")).select(["user", "at"])
        assert had.sort_by(ORDER) == inside.sort_by(ORDER), f"batch {number}"

        keys = {(user, chance.randint(low, low + 100)) for user in users for _ in range(chance.randrange(4))}
        keys |= {(one["user"], int((one["at"] - NOON).total_seconds())) for one in inside.to_pylist()[:2]}
        come = [
            {"user": user, "at": NOON + timedelta(seconds=at), "rows": chance.randrange(2), "_act": "row"}
            for user, at in sorted(keys, key=str)
        ]
        kept = [(one["user"], one["at"]) for one in come]
        gone = [one | {"_act": "gone"} for one in inside.to_pylist() if (one["user"], one["at"]) not in kept]
        changes = pa.Table.from_pylist(come + gone, schema=RESULTS.append(pa.field("_act", pa.string())))
        existing = set(tuples(had, REPLACES.keys))
        committer.commit(table, changes, table.entry.follow("batch"), how=REPLACES, existing=existing)
        outside = there.filter(pc.invert(near.hold(there, "at"))).to_pylist()
        expected = [*outside, *({name: one[name] for name in RESULTS.names} for one in come)]
        assert sorted(table.read().to_pylist(), key=str) == sorted(expected, key=str), f"batch {number}"
        if chance.random() < 0.9:  # else another way of the writer put them in, which does not tell
            own.replaced(near, changes.slice(0, len(come)).select(RESULTS.names), bytes_max=bytes_max)
        if chance.random() < 0.1:
            committer.delete(table, f"user = {chance.choice((1, 2))}", table.entry.follow("expire"))
        if chance.random() < 0.1:
            own = OwnRows(table, keys=("user", "at"), time="at", keep=GAP * SECOND)


def test_memory_lets_go_what_nobody_asks_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each batch would look through all that came since the start; what is too much goes in any case."""
    known = rows([(1, None, at) for at in range(1_000)], 0)
    first, middle, last = (int((NOON + timedelta(seconds=at)).timestamp()) * SECOND for at in (0, 500, 999))

    assert newer_half(known, "at", asked=last, bytes_max=2**26) is None
    monkeypatch.setattr("deltaworks.engine.nearby.REMEMBERED_BYTES", 1_000)

    assert newer_half(known, "at", asked=first, bytes_max=2**26) is None
    for asked, bytes_max in ((last, 2**26), (first, 2_000)):
        halved = newer_half(known, "at", asked=asked, bytes_max=bytes_max)
        assert halved is not None
        newer, since = halved
        assert middle - SECOND < since <= middle
        assert newer.equals(known.slice(500))


def test_own_rows_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as commits tell what became of them."""
    entry, noon = Entry(kind="create", app="tests", epoch=1), int(NOON.timestamp())
    table = OwnedTable(name="gold.results", path=tmp_path / "results", schema=RESULTS, entry=entry)
    committer = Committer(spark=None, arrow_bytes_max=2**26, guard=lambda: None)
    own, read, versions = OwnRows(table, keys=("user", "at"), time="at", keep=GAP * SECOND), table.read, list[int]()

    def counted(*given: Any, **named: Any) -> pa.Table:
        versions.append(table.version)
        return read(*given, **named)

    monkeypatch.setattr(table, "read", counted)
    for at in range(5):
        come = pa.Table.from_pylist([{"user": 1, "at": NOON + timedelta(seconds=at), "rows": 1}], schema=RESULTS)
        time = np.array([(noon + at) * SECOND])
        near = Stretches(parts=Parts([come], ["user"]), part=np.zeros(1, np.int64), low=time - SECOND, high=time)
        assert own.within(near, bytes_max=2**26).num_rows == min(at, 1)
        gone = [{"user": 1, "at": NOON + timedelta(seconds=at - 1), "rows": None}] if at else []
        changes = pa.concat_tables([come, pa.Table.from_pylist(gone, schema=RESULTS)])
        committer.commit(table, changes, table.entry.follow("batch"), how=CHANGES)
        own.replaced(near, come, bytes_max=2**26)

    assert versions == [0]
    assert table.read().to_pylist() == [{"user": 1, "at": NOON + timedelta(seconds=4), "rows": 1}]
