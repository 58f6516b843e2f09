"""Rows that unpack to much more than their files are taken in slices that fit into memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine import slices
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry, Position
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.slices import PACKED
from deltaworks.engine.source import BRONZE
from deltaworks.engine.writers.late_rows import LATE_SYSTEM, LateRows
from deltaworks.engine.writers.quarantine import QUARANTINE, Quarantine
from deltaworks.engine.writers.writer import Input
from deltaworks.errors import LakeError

LONG, ROWS = 1_000_000, 10
"""Bytes of an ingest batch and its rows: all alike, so that its file is much smaller than an eighth of it."""
COMMITTER = Committer(spark=None, arrow_bytes_max=2**26, guard=lambda: None)
NO_SPARK: Any = None


def owned(folder: Path, schema: pa.Schema) -> OwnedTable:
    """Make an empty table."""
    entry = Entry(kind="create", app="a", epoch=1)
    return OwnedTable(name=f"any.{folder.name}", path=folder, schema=schema, entry=entry)


def append(table: OwnedTable, seq: int, rows: list[dict[str, object]]) -> None:
    """Commit the rows as an ingest batch; columns that are not named are null."""
    made = pa.Table.from_pylist([{"_seq": seq, **row} for row in rows], schema=table.schema)
    entry = table.entry.follow("batch", counts=Counts(read=len(rows), taken=len(rows)), ingest_seq=seq)
    COMMITTER.commit(table, made, entry)


def bronze(folder: Path, batches: int) -> Input:
    """Give ingest batches of long values."""
    table = owned(folder / "bronze", BRONZE)
    for seq in range(1, batches + 1):
        append(table, seq, [{"topic": "t", "partition": 0, "offset": seq, "value": b"x" * (LONG // ROWS)}] * ROWS)
    assert table.bytes() < LONG // PACKED
    return Input(table=table)


def test_ingest_batches_are_as_many_as_fit_into_memory(tmp_path: Path) -> None:
    """All come, in their order; none twice."""
    source = bronze(tmp_path, 9)

    found: list[int] = []
    taken = 0
    while (piece := slices.batches(None, source, after=taken, bytes_max=4 * LONG, last=9)) is not None:
        assert isinstance(piece.rows, pa.Table)
        assert piece.rows.nbytes <= 4 * LONG
        assert set(piece.rows["_seq"].to_pylist()) == set(range(taken + 1, piece.upto + 1))
        found += sorted(piece.rows["offset"].to_pylist())
        taken = piece.upto

    assert found == [seq for seq in range(1, 10) for _ in range(ROWS)]


def test_one_ingest_batch_beyond_the_bound_needs_spark(tmp_path: Path) -> None:
    """An owner without a session says so."""
    source = bronze(tmp_path, 2)

    with pytest.raises(LakeError, match="that were not taken yet. Start the app"):
        slices.batches(None, source, after=0, bytes_max=LONG - 1, last=2)


def test_versions_are_as_many_as_fit_into_memory(tmp_path: Path) -> None:
    """As above, of a table that brings its rows in versions."""
    source = bronze(tmp_path, 9)

    found: list[int] = []
    taken = 0
    while (
        piece := slices.versions(NO_SPARK, source, after=taken, bytes_max=4 * LONG, reader="gold.above")
    ) is not None:
        assert isinstance(piece.rows, pa.Table)
        assert piece.rows.nbytes <= 4 * LONG
        found += sorted(piece.rows["offset"].to_pylist())
        taken = piece.upto

    assert found == [seq for seq in range(1, 10) for _ in range(ROWS)]


def refused(folder: Path, values: Iterator[bytes]) -> Quarantine:
    """Give refused rows, each of an ingest batch of its own."""
    side = owned(folder / "things__quarantine", QUARANTINE)
    for seq, value in enumerate(values, start=1):
        append(side, seq, [{"topic": "t", "partition": 0, "offset": seq, "value": value, "state": "open"}])
    return Quarantine(side)


def test_pieces_of_a_quarantine_fit_into_memory(tmp_path: Path) -> None:
    """A row that is too long for any has one for itself."""
    aside = refused(tmp_path, (b"x" * (4 * LONG if seq == 3 else LONG) for seq in range(1, 9)))

    pieces = aside.pieces(cause=None, bytes_max=3 * LONG)

    assert pieces == [(0, 2, 2), (2, 3, 1), (3, 5, 2), (5, 7, 2), (7, 8, 1)]
    assert aside.pieces(cause=None, bytes_max=100 * LONG) == [(0, 8, 8)]


def test_late_rows_of_one_use_fit_into_memory(tmp_path: Path) -> None:
    """Each is claimed in one use, whatever the others take; a long one has a use for itself."""
    schema = pa.schema([("text", pa.string()), ("_seq", pa.int64()), *LATE_SYSTEM])
    side, main = owned(tmp_path / "things__late", schema), owned(tmp_path / "things", BRONZE)
    texts = ["x" * (4 * LONG if number == 3 else LONG) for number in range(8)]
    append(side, 1, [{"text": text, "_source": f"t/0/{number}"} for number, text in enumerate(texts)])

    uses = []
    while True:
        rows = LateRows(side, main).claim(COMMITTER, command=1, bytes_max=3 * LONG)
        if not rows.num_rows:
            break
        uses.append(sorted(rows["_source"].to_pylist()))
        position = Position(applied=(len(uses), 0))
        COMMITTER.mark(main, main.entry.follow("late", position=position))

    assert uses == [["t/0/0", "t/0/1"], ["t/0/2"], ["t/0/3"], ["t/0/4", "t/0/5"], ["t/0/6", "t/0/7"]]
