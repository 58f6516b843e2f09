"""Rows of an input that a view leaves out are looked up by what its position says of them."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.entry import Counts, Entry, Unfit
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.fitting import keys_as_places
from deltaworks.engine.writers.input_rows import InputRows
from deltaworks.engine.writers.writer import Input
from tests.flows import BY_ARROW

NAME, LONG = "silver.things", pa.decimal128(20, 2)
SCHEMA = pa.schema([("amount", LONG), ("kind", pa.string()), ("_source", pa.string())])
THING = {"amount": Decimal("123456789012345678.91"), "kind": "a", "_source": "things/00000/00000000000000000000"}
NOBODY: Any = None
"""What computes a view, and its position: a look-up asks neither."""


def looked_up(folder: Path, keys: tuple[str, ...], *places: str) -> list[str]:
    """The kinds of the rows that are found where one thing is there, named by these keys."""
    entry = Entry(kind="create", app="tests", epoch=1)
    table = OwnedTable(name=NAME, path=folder / "things", schema=SCHEMA, entry=entry)
    rows = pa.Table.from_pylist([THING], schema=SCHEMA)
    BY_ARROW.commit(table, rows, table.entry.follow("batch", counts=Counts(read=1, taken=1), ingest_seq=1))
    input_rows = InputRows("gold.above", [Input(table=table, placed_by=keys)], NOBODY, NOBODY)
    there = input_rows.there([Unfit(of=NAME, place=place, error="DIVIDE_BY_ZERO") for place in places])
    return [kind for rows in there.values() for kind in rows["kind"].to_pylist()]


@pytest.mark.parametrize("keys", [("amount",), ("amount", "kind")])
def test_row_is_found_in_a_file_whose_statistics_miss_its_decimal(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """Those of a long decimal are a double, below the only value of its file or above it."""
    (place,) = keys_as_places(pa.Table.from_pylist([THING], schema=SCHEMA).select(list(keys)))

    found = looked_up(tmp_path, keys, place)

    assert found == ["a"]


def test_rows_that_were_named_by_other_keys_are_not_there(tmp_path: Path) -> None:
    """By coordinates, by one key fewer or more, by values of another type: the input was declared otherwise then."""
    others = ["things/00000/00000000000000000000", '["a"]', '["123456789012345678.91", "a", "b"]', '["a", "a"]']
    others += ['["123456789012345678.9", "a"]', '["123456789012345678.915", "a"]']

    found = looked_up(tmp_path, ("amount", "kind"), *others, '["123456789012345678.91", "a"]')

    assert found == ["a"]
    assert looked_up(tmp_path / "none", ("amount", "kind"), *others) == []
