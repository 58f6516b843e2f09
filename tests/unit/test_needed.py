"""Rows that keys need: by what decides, by what joins tell of other scans, and all where nothing is known."""

import pyarrow as pa

from deltaworks.engine.needed import needed
from deltaworks.engine.snapshot import Snapshot, UnknownError
from deltaworks.engine.spark.planned import BYTES_MAX
from deltaworks.engine.spark.pushed_keys import Joined, PushedKeys, Scan
from deltaworks.engine.writers.computing import pieces

LINES = pa.table({"order": [1, 1, 2, 3], "item": ["a", "b", "b", "c"]})
ITEMS = pa.table({"item": ["a", "b", "c", None], "kind": ["x", "x", "y", "y"]})
KINDS = pa.table({"kind": ["x", "y", "z"]})


def _whole() -> dict[str, Snapshot]:
    tables = {"lines": LINES, "items": ITEMS, "kinds": KINDS}
    return {name: Snapshot(rows, version=0, told_by=rows.column_names[:1]) for name, rows in tables.items()}


def _needed(keys: pa.Table, *scans: Scan) -> dict[str, list[object]]:
    """The first column of the rows that are needed."""
    return {name: rows[0].to_pylist() for name, rows in needed(_whole(), [(keys, PushedKeys(scans=scans))]).items()}


ORDER = pa.table({"order_id": [1]})
BY_ORDER = Scan(input="lines", decides=({"order_id": "order"},))
ITEMS_OF_LINES = Scan(input="items", joined=(Joined(column="item", scan=0, its_column="item"),))
KINDS_OF_ITEMS = Scan(input="kinds", joined=(Joined(column="kind", scan=1, its_column="kind"),))


def test_joined_rows_are_told_by_those_of_another_scan_and_so_on() -> None:
    """Whichever place stands first."""
    first = Scan(input="kinds", joined=(Joined(column="kind", scan=2, its_column="kind"),))
    second = Scan(input="items", joined=(Joined(column="item", scan=0, its_column="item"),))

    assert _needed(ORDER, BY_ORDER, ITEMS_OF_LINES, KINDS_OF_ITEMS) == {
        "lines": [1, 1], "items": ["a", "b"], "kinds": ["x"]
    }  # fmt: skip
    assert _needed(ORDER, BY_ORDER, first, second) == {"lines": [1, 1], "items": ["a", "b"], "kinds": ["x"]}


def test_input_of_a_scan_that_nothing_is_known_of_is_whole() -> None:
    """As is one that is not read, and one whose joins lead to such a one only."""
    again = Scan(input="items")
    circle = Scan(input="kinds", joined=(Joined(column="kind", scan=2, its_column="kind"),))

    assert _needed(ORDER, BY_ORDER, ITEMS_OF_LINES, again) == {
        "lines": [1, 1], "items": ["a", "b", "c", None], "kinds": ["x", "y", "z"]
    }  # fmt: skip
    assert _needed(ORDER, BY_ORDER, circle, again)["kinds"] == ["x", "y", "z"]


def test_input_that_is_read_twice_has_the_rows_of_both_scans() -> None:
    """Lines of an item, and all lines of their orders; several keys at once."""
    of_item = Scan(input="lines", decides=({"item_id": "item"}, {"other": "item"}))
    with_them = Scan(input="lines", joined=(Joined(column="order", scan=0, its_column="order"),))

    assert _needed(pa.table({"item_id": ["a"], "other": ["a"]}), of_item, with_them)["lines"] == [1, 1]
    assert _needed(pa.table({"item_id": ["a"], "other": ["c"]}), of_item, with_them)["lines"] == [1, 1, 3]
    assert _needed(pa.table({"item_id": ["z"], "other": ["z"]}), of_item, with_them)["lines"] == []


def test_keys_that_hold_null_need_all_rows() -> None:
    """What was found out is about values."""
    assert _needed(pa.table({"order_id": [1, None]}), BY_ORDER)["lines"] == LINES["order"].to_pylist()


def test_what_cannot_be_computed_of_a_row_leaves_its_scan_and_those_that_hang_on_it_whole() -> None:
    """A row of another key may raise."""
    whole = _whole()

    def compute(rows: pa.Table) -> pa.Table:
        raise UnknownError(rows.num_rows)

    whole["lines"].compute(["computed"], compute, reader=("view",))
    scans = (Scan(input="lines", decides=({"order_id": "computed"},)), ITEMS_OF_LINES)

    found = needed(whole, [(ORDER, PushedKeys(scans=scans))])

    assert found["lines"].equals(LINES)
    assert found["items"].equals(ITEMS)


def test_rows_of_any_size_are_cut_to_what_a_plan_takes() -> None:
    """A few large ones among many small ones too; one that is too large alone stays so."""
    texts = ["" if number % 50 else "x" * 2**21 for number in range(500)]
    texts[123] = "y" * (BYTES_MAX + 1)
    rows = pa.table({"text": texts})

    cut = pieces(rows)

    assert pa.concat_tables(cut).equals(rows)
    assert len(cut) < 40
    assert [piece["text"].to_pylist() for piece in cut if piece.nbytes > BYTES_MAX] == [[texts[123]]]
    assert [len(piece) for piece in pieces(rows.slice(0, 0))] == [0]
