"""The comparison that the demo's check is made of: it finds every sort of difference, and names no value."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from shop.comparison import Comparison, compare
from shop.evidence import open_database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a database with equal tables `expected` and `found`."""
    with open_database(tmp_path) as database:
        for table in ("expected", "found"):
            database.execute(f"create table {table} as select range as \"offset\", 'secret' as name from range(10)")
        yield database


def compared(database: duckdb.DuckDBPyConnection) -> Comparison:
    """Compare the two tables."""
    return compare(database, name="t", expected="expected", found="found", keys=("offset",))


def test_equal_tables_are_equal(database: duckdb.DuckDBPyConnection) -> None:
    """Nulls are equal to nulls, and the order of rows does not matter."""
    for table in ("expected", "found"):
        database.execute(f"insert into {table} values (10, null)")

    comparison = compared(database)

    assert comparison.ok
    assert comparison.expected == comparison.found == 11


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ('delete from found where "offset" = 3', "1 missing: offset=3"),
        ("insert into found values (77, 'secret')", "1 unexpected: offset=77"),
        ("insert into found values (null, 'secret')", "1 unexpected: offset=None"),
        ("insert into found values (4, 'secret')", "1 more than once: offset=4"),
        ("update found set name = 'other' where \"offset\" > 7", "2 different: offset=8 in name; offset=9 in name"),
        ('update found set name = null where "offset" = 0', "1 different: offset=0 in name"),
    ],
)
def test_each_sort_of_difference_is_found_and_named(
    database: duckdb.DuckDBPyConnection, change: str, finding: str
) -> None:
    """The finding has the key and the column, never the value: it may be personal."""
    database.execute(change)

    comparison = compared(database)

    assert not comparison.ok
    assert finding in comparison.differences
    assert "secret" not in " ".join(comparison.differences)


def test_a_row_that_took_the_place_of_another_is_found(database: duckdb.DuckDBPyConnection) -> None:
    """Equal numbers of rows prove nothing."""
    database.execute('update found set "offset" = 5 where "offset" = 6')

    comparison = compared(database)

    assert comparison.expected == comparison.found
    assert comparison.differences == ("1 missing: offset=6", "1 more than once: offset=5")
