"""Marks: how late a row is follows from the ingest batches before its own."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from random import Random

import pyarrow as pa
import pytest

from deltaworks.engine.entry import Entry
from deltaworks.engine.marks import (
    Walk,
    ahead_in,
    highest_in,
    in_order,
    late_by,
    looked_up,
    walk,
    walk_as_recorded,
)
from deltaworks.engine.parsing.timely import Timely
from tests.chance import seeded

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MICROS = pa.timestamp("us", "UTC")


def test_a_mark_never_falls_and_is_noted_where_it_rises() -> None:
    """Batches are walked by number; one without a time moves nothing."""
    found = walk([(3, 5), (1, 10), (2, None), (4, 12)], None)

    assert found.before == {1: None, 2: 10, 3: 10, 4: 10}
    assert found.raised == ((1, 10), (4, 12))
    assert found.mark == 12


def test_a_walk_goes_on_where_the_last_one_ended() -> None:
    """Cut anywhere, the marks are the same."""
    batches = [(seq, (seq * 7) % 11) for seq in range(1, 20)]
    whole = walk(batches, None)

    for cut in range(1, 19):
        first = walk(batches[:cut], None)
        second = walk(batches[cut:], first.mark)
        assert {**first.before, **second.before} == whole.before
        assert (*first.raised, *second.raised) == whole.raised


def test_a_walk_of_long_ago_is_done_again_as_it_was() -> None:
    """Every cut of it; rows that would move the marks now do not."""
    batches = [(seq, (seq * 7) % 11) for seq in range(1, 20)]
    whole = walk(batches, None)

    for cut in range(20):
        first = walk_as_recorded((seq for seq, _ in batches[:cut]), None, whole.raised)
        second = walk_as_recorded((seq for seq, _ in batches[cut:]), first.mark, whole.raised)
        assert {**first.before, **second.before} == whole.before
        assert second.mark == whole.mark


def stamped_by(rows: pa.Table, event_time: str, mark: int | None) -> tuple[pa.Table, Walk]:
    """Stamp rows as a batch's are that arrived long after they happened."""
    rows = rows.append_column("_arrived", pa.array([NOON.replace(year=2030)] * rows.num_rows, MICROS))
    found = walk(highest_in(rows, event_time), mark)
    return late_by(rows, event_time, found.before), found


def test_rows_are_stamped_in_microseconds() -> None:
    """Of two batches in one slice, the second is judged by the first."""
    times = [NOON, NOON - timedelta(microseconds=1), NOON - timedelta(hours=1), NOON + timedelta(hours=1)]
    rows = pa.table({"at": pa.array(times, MICROS), "_seq": pa.array([1, 1, 2, 2], pa.int64())})

    stamped, found = stamped_by(rows, "at", None)

    assert stamped["_late_by"].to_pylist() == [0, 0, 3_600_000_000, 0]
    assert found.mark == int((NOON + timedelta(hours=1)).timestamp()) * 10**6


def test_dates_count_from_their_first_moment() -> None:
    """A day is late by whole days."""
    rows = pa.table({"day": pa.array([date(2026, 11, 19)], pa.date32()), "_seq": pa.array([2], pa.int64())})

    stamped, _ = stamped_by(rows, "day", int(datetime(2026, 11, 21, tzinfo=UTC).timestamp()) * 10**6)

    assert stamped["_late_by"].to_pylist() == [2 * 86_400 * 10**6]


def test_no_rows_have_no_mark() -> None:
    """An empty slice leaves the mark as it is."""
    rows = pa.table({"at": pa.array([], MICROS), "_seq": pa.array([], pa.int64())})

    stamped, found = stamped_by(rows, "at", 7)

    assert (stamped.num_rows, stamped.column_names[-1], found.mark) == (0, "_late_by", 7)


@pytest.mark.parametrize("kind", [MICROS, pa.date32()])
def test_an_event_comes_no_further_than_its_arrival(kind: pa.DataType) -> None:
    """Of each batch the one that comes furthest; where an event has no time its arrival says nothing."""
    day = timedelta(days=1)
    times = [NOON + day, NOON - day, NOON - day, None]
    rows = pa.table(
        {
            "at": pa.array([at and (at if kind == MICROS else at.date()) for at in times], kind),
            "_seq": pa.array([1, 1, 2, 2], pa.int64()),
            "_arrived": pa.array([NOON] * 4, MICROS),
        }
    )

    found = dict(highest_in(rows, "at"))

    before = NOON - day if kind == MICROS else (NOON - day).replace(hour=0)
    assert found == {1: int(NOON.timestamp()) * 10**6, 2: int(before.timestamp()) * 10**6}
    assert ahead_in(rows, "at") == 1


@pytest.mark.parametrize("kind", [MICROS, pa.date32()])
def test_a_time_is_believed_up_to_its_bound(kind: pa.DataType) -> None:
    """Exactly as far ahead as allowed is allowed; null never is."""
    arrived = pa.array([datetime(2026, 11, 20, tzinfo=UTC)] * 4, MICROS)
    days = [
        datetime(2026, 11, 21, tzinfo=UTC),
        datetime(2026, 11, 22, tzinfo=UTC),
        None,
        datetime(1970, 1, 1, tzinfo=UTC),
    ]
    times = pa.array([day and (day if kind == MICROS else day.date()) for day in days], kind)

    refused = dict(Timely(column="at", future_max=timedelta(days=1)).refused(times, arrived))

    assert refused == {1: "future", 2: "null"}


@pytest.mark.parametrize("run", range(300))
def test_marks_are_found_again_whatever_was_rewound_rebuilt_or_revised(run: int) -> None:
    """By whoever walks them, cut anywhere, and for single batches: also where a rewind was undone by another one."""
    del run
    chance = seeded()
    log, judged = [Entry(kind="create", app="a", epoch=1)], [dict[int, int | None]()]  # by version; by ingest batch
    for number in range(chance.randrange(3, 14)):
        entry, before = following(chance, log, judged, number)
        log.append(entry)
        judged.append(before)

        told = [*reversed([*enumerate(log)])]
        assert looked_up(told, before) == before
        marks, batches = in_order(told), sorted(before)
        cut = chance.randint(0, len(batches))
        first = walk_as_recorded(batches[:cut], None, marks)
        assert {**first.before, **walk_as_recorded(batches[cut:], first.mark, marks).before} == before


def following(
    chance: Random, log: list[Entry], judged: list[dict[int, int | None]], number: int
) -> tuple[Entry, dict[int, int | None]]:
    """What may be committed next, and the mark before each ingest batch that its rows were judged by."""
    last, before = log[-1], judged[-1]
    done = chance.choice(["batch"] * 5 + ["revise"] * 2 + ["rewind"] * 2 + ["rebuild"])
    if done == "rewind":
        version = chance.randrange(len(log))
        there = log[version]
        entry = last.follow("publish", position=there.position, ingest_seq=there.ingest_seq, back_to=version)
        return entry, judged[version]
    if done == "revise" and last.position.mark and last.position.mark > 1:
        to = chance.randrange(1, last.position.mark)
        position = replace(last.position, mark=to, closed=last.passed)
        return last.follow("revise", position=position, marks=((last.ingest_seq, to),), command=number), before
    if done == "rebuild":
        return last.follow("publish", position=last.position, ingest_seq=last.ingest_seq), before
    came = [last.ingest_seq + 1 + more for more in range(chance.randint(1, 3))]
    highest = [(seq, chance.choice([None, chance.randint(1, 99)])) for seq in came]
    walked = walk([one for one in highest if chance.random() < 0.8], last.position.mark)
    position = replace(last.position, mark=walked.mark)
    entry = last.follow("batch", position=position, ingest_seq=came[-1], marks=walked.raised)
    return entry, {**before, **walked.before}
