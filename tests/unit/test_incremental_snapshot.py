"""Rows that are read while the stream goes on: each counts as of the last commit that the connector had read."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from deltaworks.settings import ROOT, Settings
from tests.bronze_rows import bronze
from tests.chance import Share, seeded
from tests.customers import TABLE, alone, in_batches, moved, read, states
from tests.handed import Hand
from tests.source_table import SourceTable, lived
from tests.unit.test_parse_debezium import AFTER, change, people
from tests.unit.test_partial_changes import Lake, there
from tests.unit.test_partial_changes import in_batches as all_batches


def row_read(sequence: Any, **more: Any) -> str:
    """Give a row of an incremental snapshot as the connector writes it."""
    text = change("r", AFTER, lsn=None, snapshot="incremental", **more)
    return text.replace('"sequence":"[null,\\"None\\"]"', f'"sequence":{sequence}')


def test_a_row_counts_after_the_last_commit_and_before_the_next_change(share: Share) -> None:
    """In whatever order the records arrive, so whatever their offsets are."""
    in_order = [
        change("r", AFTER, lsn=1000, snapshot="last"),
        change("u", AFTER, lsn=900),  # of a transaction that was open when the first snapshot began
        change("u", AFTER, lsn=1100, committed=1050),
        row_read(r'"[\"1250\",\"1250\"]"'),
        change("d", lsn=1240, committed=1250),  # waited for the transaction before it
        row_read(r'"[\"1400\",\"1420\"]"'),  # sent amidst the transaction that the next change is of
        change("u", AFTER, lsn=1410, committed=1400),
    ]

    every = [*permutations(range(len(in_order)))]
    for order in (every[number] for number in share(range(len(every)))):
        rows = people().parse(bronze([in_order[at] for at in order], keys=['{"id":1}'] * len(order)))

        sequences = rows["_source"].to_pylist()
        assert [order[at] for at in sorted(range(len(order)), key=lambda at: sequences[at])] == [*range(len(order))]


@pytest.mark.parametrize(
    ("sequence", "place"),
    [
        (r'"[\"1250\",\"1300\"]"', "00000000000000001250/0/00000000000000001300"),
        (r'"[\"1250\",null]"', "00000000000000001250/0/00000000000000001250"),
        (r'"[null,\"1300\"]"', "00000000000000000000/0/00000000000000001300"),
    ],
)
def test_its_place_is_what_the_connector_had_read(sequence: str, place: str) -> None:
    """Before the first commit it counts among the rows of the first snapshot. It ends nothing."""
    (row,) = people().parse(bronze([row_read(sequence)], keys=['{"id":1}'], first_offset=9)).to_pylist()

    assert (row["_kind"], row["_reason"], row["_floor"]) == ("row", None, None)
    assert row["_source"] == f"000000/{place}/00000000000000000009"


def test_a_connector_that_still_sends_the_lsn_is_believed() -> None:
    """Those of before gave such rows the LSN that they had read last, and the oldest no sequence."""
    text = change("r", AFTER, lsn=1300, snapshot="incremental").replace('"sequence"', '"other"')

    (row,) = people().parse(bronze([text], keys=['{"id":1}'])).to_pylist()

    assert (row["_kind"], row["_source"][7:50]) == ("row", "00000000000000000000/0/00000000000000001300")


@pytest.mark.parametrize("sequence", ["null", "7", '"[null,null]"', '"1250"', '"[]"', r'"[\"a\",\"b\"]"'])
def test_a_row_that_names_no_place_is_refused(sequence: str) -> None:
    """It could be older than anything that is known of its key. A streamed change must have its own LSN."""
    (row,) = people().parse(bronze([row_read(sequence)], keys=['{"id":1}'])).to_pylist()
    (streamed,) = people().parse(bronze([change("u", AFTER, lsn=None, committed=7)], keys=['{"id":1}'])).to_pylist()

    assert (row["_kind"], row["_reason"]) == ("refused", "source: no usable sequence")
    assert (streamed["_kind"], streamed["_reason"]) == ("refused", "source: no usable lsn")


def test_rows_that_were_never_captured_appear_and_nothing_else_goes(tmp_path: Path) -> None:
    """The slot was lost for a while. The rows end no snapshot: what they do not show stays, and waits for no mark."""
    source, lake = SourceTable(), Lake(tmp_path)
    for key in (1, 2):
        source.insert(key, city="Graz", bio="b", cv="c")
    lake.take(source.log)
    source.log.clear()
    source.insert(3, city="Linz", bio="long", cv="longer")
    source.update(1, city="Wien")
    source.log.clear()

    source.send({key: row for key, row in source.read().items() if key != 2})
    lake.take(source.log)

    assert lake.rows() == there(source)
    assert lake.aside() == []
    assert lake.writer.progress.position.truncated is None


def test_a_value_that_no_change_has_sent_comes_with_the_row_that_was_read(tmp_path: Path) -> None:
    """An update leaves it out; the row has them all."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz", bio="long", cv="longer")
    source.log.clear()
    source.update(1, city="Linz")
    source.send(source.read())
    source.update(1, city="Wien")

    for record in source.log:
        lake.take([record])

    assert lake.rows() == there(source) == [(1, "Wien", "long", "longer")]


@pytest.mark.parametrize("ahead", [False, True], ids=["as it was sent", "ahead of the log"])
def test_what_is_streamed_afterwards_wins_in_any_order(tmp_path: Path, ahead: bool) -> None:
    """A row deleted later stays gone, one changed later is as changed; also if the chunk was read ahead of the log."""
    source = SourceTable()
    for key in (1, 2):
        source.insert(key, city="Graz", bio="b", cv="c")
    place, chunk = source.place(), source.read()
    source.delete(1)
    source.update(2, city="Linz", bio="new", cv="new")
    if ahead:
        chunk = source.read()
    sent = len(source.log)
    source.send(chunk, at=place)
    tombstone = next(record for record in source.log if record.value is None)
    records = [record for record in (*source.log[2:sent], *source.log[sent:]) if record is not tombstone]

    for number, order in enumerate(permutations(records)):
        lake = Lake(tmp_path / str(number))
        for record in order:
            lake.take([record])
        assert lake.rows() == there(source)
        assert lake.aside() == []


@pytest.mark.parametrize("number", range(12))
def test_any_order_with_rows_read_in_between_ends_in_the_source(tmp_path: Path, number: int) -> None:
    """Chunks are sent when their window closes, without the rows that were changed in it; or ahead of the log.

    Before the first one some changes were lost.
    """
    chance = seeded()
    source, lake = lived(chance, 12), Lake(tmp_path)
    known = [*source.log]
    source.insert(9, city="lost", bio="b", cv="c")
    for key in source.rows:
        source.update(key, city="lost")
    source.log = known
    source.send(source.read())
    for _ in range(3):
        place, chunk = source.place(), source.read()
        for step in range(chance.randrange(4)):
            key = chance.randrange(5)
            if key not in source.rows:
                source.insert(key, city=f"i{step}", bio="b", cv=None)
            elif chance.random() < 0.4:
                source.delete(key)
            else:
                source.update(key, city=f"u{step}")
        source.send(source.read() if chance.random() < 0.3 else chunk, at=chance.choice((None, place)))
    records = source.log + chance.sample(source.log, 5)

    all_batches(lake, chance.sample(records, len(records)) if number else records, chance)

    assert lake.rows() == there(source)


def history(folder: Path) -> Any:
    """Own the shop's history of customers, without Spark."""
    hand: Any = Hand()
    return alone(hand, Settings.load(ROOT, environment={}, data=folder))


def test_a_row_that_was_read_is_a_state_until_the_next_change(tmp_path: Path) -> None:
    """It was sent later than that was committed, so it began no later; a customer who was never captured appears."""
    records = [
        moved("c", 1, 10, second=1, after=5),
        read(1, 10, second=9),
        read(2, 10, second=9),
        moved("u", 1, 20, second=4, after=10),
        moved("d", 2, 30, second=5, after=20),
        read(3, 30, second=11),
    ]

    chance = seeded()
    for number, order in enumerate([records, *(chance.sample(records, len(records)) for _ in range(6))]):
        owner = history(tmp_path / str(number))
        in_batches(owner, [[record] for record in order])
        assert states(owner) == [
            (1, "n10", 1, 4, False),
            (1, "n10", 4, 4, False),
            (1, "n20", 4, None, True),
            (2, "n10", 5, 5, False),
            (3, "n30", 11, None, True),
        ]
        assert owner.verdicts() == {"ok"}
        assert owner.flow.sides[TABLE]["quarantine"].rows() == 0


def test_a_truncation_ends_a_row_that_was_read_before_it(tmp_path: Path) -> None:
    """Also one that was sent later than the truncation was committed; the clock of what follows is its own."""
    owner = history(tmp_path)

    cut, after = moved("t", 0, 20, second=3, after=10), moved("c", 1, 30, second=4, after=20)

    in_batches(owner, [[read(1, 10, second=9), cut], [after]])

    assert states(owner) == [(1, "n10", 3, 3, False), (1, "n30", 4, None, True)]
    assert pc.max(owner.flow.sides[TABLE]["deleted"].read(["_source"])["_source"]).as_py().endswith("20")
