"""Infinite doubles, and what is not a number, are found by whoever asks for them, and hide no row beside them."""

from pathlib import Path

import pytest

from deltaworks.engine import lake
from deltaworks.engine.datasets import ds
from deltaworks.engine.file_statistics import PROPERTY
from tests.doubles import MERGE, SETS, hidden, owned, put
from tests.flows import BY_ARROW


def test_doubles_that_were_added_are_found(tmp_path: Path) -> None:
    """In files that delta-rs wrote."""
    for name, values in SETS.items():
        put(owned(tmp_path, name), BY_ARROW, values)

    assert list(hidden(tmp_path)) == []


def test_doubles_that_were_merged_and_put_together_are_found(tmp_path: Path) -> None:
    """A merge writes files anew, and so do a compaction and a deletion."""
    for name, values in SETS.items():
        table = owned(tmp_path, name)
        put(table, BY_ARROW, [0.5] * (len(values) + 1))
        put(table, BY_ARROW, values, MERGE)
        BY_ARROW.delete(table, f"key = {len(values)}", table.entry.follow("expire"))
        BY_ARROW.rewrite(table, table.entry.follow("compact"), size_max=2**20)

    assert list(hidden(tmp_path)) == []


def test_doubles_of_an_older_table_are_found_once_its_owner_has_opened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files still tell of them, and nobody listens; of its other columns they are asked as before."""
    two = ds.field("value") == 2.0
    with monkeypatch.context() as older:
        older.setattr(lake, "told_by", lambda *_: {})
        older.setattr(lake, "written", lambda *_: {})
        table = owned(tmp_path, "both")
        put(table, BY_ARROW, SETS["both"])
        before = table.read(where=two).num_rows

    again = owned(tmp_path, "both")

    assert before == 0
    assert again.read(where=two).num_rows == 1
    assert again.entry.kind == "widen"
    assert again.delta.metadata().configuration[PROPERTY] == "key"
