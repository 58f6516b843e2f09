"""A source is read anew: what its snapshot does not show is gone, whatever order its records arrive in."""

from pathlib import Path

import pytest

from tests.chance import seeded
from tests.source_table import SourceTable, lived
from tests.unit.test_partial_changes import Lake, in_batches, there


def test_rows_deleted_meanwhile_go_with_the_end_of_the_snapshot(tmp_path: Path) -> None:
    """The log had a hole: two deletions never came. Until the snapshot of the next life has ended nothing goes."""
    source, lake = SourceTable(), Lake(tmp_path)
    for key in range(5):
        source.insert(key, city="Graz")
    sent = [*source.log]
    source.delete(1)
    source.delete(3)
    source.log.clear()
    source.prefix = "shop-1"
    source.snapshot()
    *most, last = source.log

    lake.take(sent)
    lake.take(most)
    before = lake.rows()
    lake.take([last])

    assert [row[0] for row in before] == [0, 1, 2, 3, 4]
    assert lake.rows() == there(source)


def test_a_snapshot_that_was_broken_off_leaves_no_ghost(tmp_path: Path) -> None:
    """The connector died in mid snapshot and began again; a row that it had read was deleted between."""
    source, lake = SourceTable(), Lake(tmp_path)
    for key in range(5):
        source.rows[key] = {"id": key, "city": "Graz", "bio": None, "cv": None}
    source.snapshot(upto=3)
    del source.rows[1]
    source.snapshot()

    for record in source.log:
        lake.take([record])

    assert lake.rows() == there(source)


def test_a_table_that_was_emptied_between_two_snapshots_leaves_no_ghost(tmp_path: Path) -> None:
    """The connector died in the first, and the second shows no row of it that could end it: another table's does."""
    source, lake = SourceTable(), Lake(tmp_path)
    for key in range(5):
        source.rows[key] = {"id": key, "city": "Graz", "bio": None, "cv": None}
    source.snapshot(upto=3)
    source.rows.clear()
    other = SourceTable(lsn=source.lsn)
    other.rows = {7: {"id": 7, "city": None, "bio": None, "cv": None}}
    other.snapshot()
    for record in other.log:
        record.value = (record.value or b"").replace(b'"members"', b'"others"')
    source.lsn = other.lsn
    source.insert(8, city="Linz", bio=None, cv=None)

    for records in (source.log[:3], other.log, source.log[3:]):
        lake.take(records)

    assert lake.rows() == there(source) == [(8, "Linz", None, None)]


def test_a_restored_source_counts_as_newer(tmp_path: Path) -> None:
    """Its log begins again at lower numbers, under a prefix that counts its lives."""
    source, lake = SourceTable(lsn=10**9), Lake(tmp_path)
    source.insert(1, city="Graz", bio="lost", cv="lost")
    source.insert(2, city="Graz", bio="lost", cv="lost")
    lake.take(source.log)
    source.log.clear()
    source.lsn, source.prefix = 500, "shop-1"
    source.rows = {1: {"id": 1, "city": "Linz", "bio": "back", "cv": "back"}}
    source.snapshot()
    source.update(1, city="Wien")

    lake.take(source.log)

    assert lake.rows() == there(source) == [(1, "Wien", "back", "back")]


def test_a_table_that_is_empty_in_a_new_life_is_emptied(tmp_path: Path) -> None:
    """It has no record of its own that could say so: the last one of the whole snapshot does, whose ever it is."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz")
    lake.take(source.log)
    before = []
    for prefix in ("shop", "shop-1"):
        before = lake.rows()
        other = SourceTable(prefix=prefix)
        other.rows = {7: {"id": 7, "city": None, "bio": None, "cv": None}}
        other.snapshot()
        for record in other.log:
            record.value = (record.value or b"").replace(b'"members"', b'"others"')
        lake.take(other.log)

    assert [row[0] for row in before] == [1]
    assert lake.rows() == []
    assert lake.main.entry.totals.not_mine == 2


def test_a_value_from_an_earlier_life_is_not_carried_over(tmp_path: Path) -> None:
    """The snapshot's row was lost on the way; what an update left out is not taken from before the snapshot."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz", bio="early", cv="early")
    source.insert(2, city="Graz", bio="b", cv="c")
    early = [*source.log]
    source.log.clear()
    source.prefix = "shop-1"
    source.snapshot()
    source.update(1, city="Wien")
    _, last, update = source.log

    for record in (*early, update, last):
        lake.take([record])

    assert [row[0] for row in lake.rows()] == [2]


@pytest.mark.parametrize("number", range(12))
def test_any_order_over_two_lives_ends_in_the_source(tmp_path: Path, number: int) -> None:
    """Changes, a broken and a whole snapshot, changes again, all of it shuffled, cut and in part copied."""
    chance = seeded()
    source, lake = lived(chance, 20), Lake(tmp_path)
    source.insert(8, city="x", bio="b", cv="c")
    source.insert(9, city="x", bio="b", cv="c")
    source.lsn, source.prefix = 50, "shop-1"
    source.snapshot(upto=1)
    del source.rows[8]
    source.snapshot()
    source.update(9, city="y")
    records = source.log + chance.sample(source.log, 5)

    in_batches(lake, chance.sample(records, len(records)) if number else records, chance)

    assert lake.rows() == there(source)
