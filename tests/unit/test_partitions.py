"""Tables in parts: a hidden column says which part a row lies in, whatever the declared column holds."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.engine.commit import Clause, Merge
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.maintenance import compact
from deltaworks.engine.partition import PARTS_LISTED_MAX, Partition
from deltaworks.errors import LakeError
from tests.flows import BY_ARROW

DAY = Partition(name="_day_of_at", column="at", kind=pa.date32())
CITY = Partition(name="_part_of_city", column="city", kind=pa.string())
SCHEMA = pa.schema([("city", pa.string()), ("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])
OWN = {name: f"s.{name}" for name in SCHEMA.names}
UPSERT = (Clause(on="matched", act="update", set=OWN), Clause(on="not matched", act="insert", set=OWN))
Row = tuple[str | None, datetime | None, int]


def owned(folder: Path, partition: Partition | None) -> OwnedTable:
    """Give the table of cities, with a change feed."""
    entry = Entry(kind="create", app="a", epoch=1)
    return OwnedTable(
        name="gold.cities", path=folder / "cities", schema=SCHEMA, entry=entry, change_feed=True, partition=partition
    )


def put(table: OwnedTable, rows: Sequence[Row], *, keys: tuple[str, ...] = (), nullable: bool = False) -> None:
    """Append rows, or merge them by keys."""
    made = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    entry = table.entry.follow("batch", counts=Counts(read=len(rows), taken=len(rows)))
    how = Merge(keys=keys, nullable_keys=frozenset(keys if nullable else ()), clauses=UPSERT) if keys else None
    BY_ARROW.commit(table, made, entry, how=how)


def found(table: OwnedTable) -> list[Row]:
    """Give the rows, sorted by value."""
    rows = [(row["city"], row["at"], row["value"]) for row in table.read().to_pylist()]
    return sorted(rows, key=lambda row: row[2])


def parts(table: OwnedTable) -> set[object]:
    """Give the values of the hidden column that have files."""
    assert table.partition is not None
    return set(pa.table(table.delta.get_add_actions(flatten=True))[f"partition.{table.partition.name}"].to_pylist())


MOMENTS = {
    datetime(1, 1, 1, tzinfo=UTC): date(1, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC): date(1969, 12, 31),
    datetime(2024, 2, 29, tzinfo=UTC): date(2024, 2, 29),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC): date(9999, 12, 31),
    None: None,
}
TEXTS = ["", " ", "a/b", "a%2Fb", "..", "=", "ä", "\N{GRINNING FACE}", "x\x00y", "it's", "A", "a", "long" * 100, None]


def test_every_moment_has_its_day(tmp_path: Path) -> None:
    """From year 1 to 9999, also before 1970, and none: rows come back as they were, and are found again by key."""
    table = owned(tmp_path, DAY)
    rows = [("x", at, number) for number, at in enumerate(MOMENTS)]

    put(table, rows)
    put(table, [(city, at, value + 100) for city, at, value in rows], keys=("at",), nullable=True)

    assert parts(table) == set(MOMENTS.values())
    assert found(table) == [(city, at, value + 100) for city, at, value in rows]


def test_every_text_has_a_folder(tmp_path: Path) -> None:
    """What no folder can be called, or Delta takes for null, is a value like others; read from its file too."""
    table = owned(tmp_path, CITY)
    rows: list[Row] = [(city, None, number) for number, city in enumerate(TEXTS)]

    put(table, rows)
    put(table, [(city, at, value + 100) for city, at, value in rows], keys=("city",), nullable=True)

    assert found(table) == [(city, at, value + 100) for city, at, value in rows]
    assert table.read_added(0, 1).sort_by("value")["city"].to_pylist() == TEXTS


def test_merge_opens_the_parts_of_its_keys_alone(tmp_path: Path) -> None:
    """Two days far apart name two parts, not all between them."""
    table = owned(tmp_path, DAY)
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 31)]
    put(table, [("x", at, number) for number, at in enumerate(days)])
    before = set(table.delta.file_uris())

    put(table, [("x", days[0], 100), ("x", days[-1], 101)], keys=("at",))

    assert len(before - set(table.delta.file_uris())) == 2
    operation = table.delta.history(1)[0]["operationMetrics"]
    assert operation["num_target_files_scanned"] == 2


def test_merge_into_very_many_parts_names_none(tmp_path: Path) -> None:
    """And finds its rows all the same."""
    table = owned(tmp_path, CITY)
    rows: list[Row] = [(f"c{number}", None, number) for number in range(PARTS_LISTED_MAX + 1)]
    put(table, rows)

    put(table, [(city, at, value + 1_000) for city, at, value in rows], keys=("city",))

    assert found(table) == [(city, at, value + 1_000) for city, at, value in rows]


def test_row_moves_to_another_part(tmp_path: Path) -> None:
    """A key does not say where its row lies: it is looked for everywhere, and the change feed has both images."""
    table = owned(tmp_path, DAY)
    monday, friday = datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 11, 20, tzinfo=UTC)
    put(table, [("a", monday, 1), ("b", monday, 2)])

    put(table, [("a", friday, 3), ("c", None, 4)], keys=("city",))

    assert found(table) == [("b", monday, 2), ("a", friday, 3), ("c", None, 4)]
    assert parts(table) == {monday.date(), friday.date(), None}
    feed = pa.table(table.delta.load_cdf(starting_version=2, ending_version=2)).to_pylist()
    assert sorted((row["_change_type"], row["city"], row["at"]) for row in feed if row["city"] == "a") == [
        ("update_postimage", "a", friday),
        ("update_preimage", "a", monday),
    ]


def test_compaction_keeps_the_parts(tmp_path: Path) -> None:
    """The files of a part become one; rows stay where they are."""
    table = owned(tmp_path, DAY)
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2)]
    for number in range(3):
        put(table, [("x", at, number) for at in days])

    before = len(table.files())
    assert compact(table, command=1, committer=BY_ARROW)

    assert (before, len(table.files())) == (6, 2)
    assert parts(table) == {at.date() for at in days}
    assert [value for _, _, value in found(table)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("was", "now"), [(None, DAY), (DAY, None), (DAY, CITY)])
def test_other_parts_than_those_on_disk_are_refused(
    tmp_path: Path, was: Partition | None, now: Partition | None
) -> None:
    """A table's layout is decided when it is made."""
    owned(tmp_path, was)

    with pytest.raises(LakeError, match="gold.cities: declared with partitions by .* Declare partition_by as it was"):
        owned(tmp_path, now)


def test_a_row_in_the_last_of_very_many_parts_is_found(tmp_path: Path) -> None:
    """More parts than a condition can list: the others are new, it is there, and is there once afterwards."""
    table = owned(tmp_path, CITY)
    put(table, [("c9999", None, 0)])
    cities = [*(f"c{number:04}" for number in range(2 * PARTS_LISTED_MAX)), "c9999"]

    put(table, [(city, None, number) for number, city in enumerate(cities, start=1)], keys=("city",))

    assert found(table) == [(city, None, number) for number, city in enumerate(cities, start=1)]
