"""Which rows of a slice a table leaves out, and how often they are looked for; the transform is a stand-in."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry, Unfit
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.slices import versions
from deltaworks.engine.writers.fitting import Fitting, keys_as_places, places_as_keys
from deltaworks.engine.writers.writer import Input, Progress
from deltaworks.errors import LakeError, UnfitError
from tests.flows import BY_ARROW
from tests.unit.test_culprits import Divided

SOURCE = pa.schema([("_source", pa.string()), ("_seq", pa.int64()), ("_late_by", pa.int64())])
NAME = "silver.things"
NOBODY: Any = None
"""A session is for what does not fit into memory."""


def place(number: int) -> str:
    """Coordinates that sort as their numbers do."""
    return f"things/00000/{number:020d}"


def left_out(numbers: Collection[int]) -> tuple[Unfit, ...]:
    """These rows, as a position names them."""
    return tuple(Unfit(of=NAME, place=place(number), error="DIVIDE_BY_ZERO") for number in numbers)


class Table:
    """A table over another, whose transform cannot compute some rows, nor, where given, some rows together."""

    def __init__(self, folder: Path, *, bad: Collection[int], together: Collection[int] = ()) -> None:
        """Make both, empty."""
        entry = Entry(kind="create", app="a", epoch=1)
        kinds = pa.schema([("key", pa.int64())])
        own = OwnedTable(name="gold.things", path=folder / "own", schema=kinds, entry=entry, replaceable=True)
        self.own = Input(table=own)
        self.source = Input(table=OwnedTable(name=NAME, path=folder / "source", schema=SOURCE, entry=entry))
        self.bad, self.together = {place(n) for n in bad}, {place(n) for n in together}
        self.tries: list[set[str]] = []
        self.start()

    def start(self, *, code: str = "one", late_max: int | None = None) -> Fitting:
        """Begin anew, as after a failure."""
        self.own.table.reopen()
        self.progress = Progress(self.own.table, code=code)
        self.fitting = Fitting(self.progress, self.own, late_max=late_max)
        return self.fitting

    def send(self, numbers: Collection[int], *, late: Collection[int] = ()) -> None:
        """Bring rows to the input, as one version of it; some come twenty microseconds late."""
        seq = self.source.table.entry.ingest_seq + 1
        rows = [{"_source": place(n), "_seq": seq, "_late_by": 20 * (n in late)} for n in numbers]
        entry = self.source.table.entry.follow("batch", ingest_seq=seq, counts=Counts(read=len(rows), taken=len(rows)))
        BY_ARROW.commit(self.source.table, pa.Table.from_pylist(rows, schema=SOURCE), entry)

    def take(self) -> Counts:
        """Take the next slice."""
        after = self.progress.position.versions.get(NAME, 0)
        one = self.fitting.one_version
        piece = versions(NOBODY, self.source, after=after, bytes_max=2**26, reader="gold.above", one=one)
        assert piece is not None
        whole = piece.upto == self.source.table.data_version
        seq = self.source.table.entry.ingest_seq if whole else None
        self.progress.over_tables({NAME: piece.upto}, ingest_seq=seq)
        assert isinstance(piece.rows, pa.Table)
        many = piece.rows.num_rows
        return self.fitting.take(
            {NAME: piece.rows}, Counts(read=many, taken=many), commit=self.commit, attempt=self.attempt,
            sources=[self.source.table], committer=BY_ARROW,
        )  # fmt: skip

    def attempt(self, given: Mapping[str, Any]) -> None:
        """Compute rows."""
        places = set(given[NAME]["_source"].to_pylist())
        self.tries.append(places)
        if places & self.bad or (self.together and self.together <= places):
            raise Divided

    def commit(self, given: Mapping[str, Any], counts: Counts) -> None:
        """Compute rows, and commit them."""
        self.attempt(given)
        self.mark(self.progress.entry(counts))
        self.progress.committed()

    def mark(self, entry: Entry) -> None:
        """Commit an entry alone."""
        Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None).mark(self.own.table, entry)

    @property
    def unfit(self) -> tuple[Unfit, ...]:
        """What it leaves out."""
        return self.own.table.entry.position.unfit


BAD = range(0, 300, 10)
"""More rows than are looked for in one slice."""
FIRST_OF_BAD = rf"{place(0)} of {NAME} and \d+ more rows that were tried: DIVIDE_BY_ZERO"


def test_rows_that_were_left_out_one_by_one_are_so_in_a_rebuild(tmp_path: Path) -> None:
    """They are tried first, alone, and new ones come beside them. What can be computed now is not left out."""
    table = Table(tmp_path, bad=BAD)
    table.send(range(300))
    table.fitting.known = left_out([*BAD[5:], 7])

    counts = table.take()

    assert counts == Counts(read=300, taken=270, refused=30)
    assert table.unfit == left_out(BAD)


def test_rows_that_were_left_out_before_a_rewind_are_so_again(tmp_path: Path) -> None:
    """The commits before it name them."""
    table = Table(tmp_path, bad=BAD)
    table.send(range(300))
    position = replace(table.own.table.entry.position, unfit=left_out(BAD))
    then = table.own.table.entry.position
    table.mark(table.own.table.entry.follow("batch", position=position))
    at = table.own.table.version + 1
    table.mark(table.own.table.entry.follow("publish", position=then, replaced=(at, "back")))
    table.mark(table.own.table.entry.follow("fence"))
    table.start()

    table.take()

    assert table.unfit == left_out(BAD)


def test_table_that_catches_up_leaves_out_what_it_would_have_in_the_stream(tmp_path: Path) -> None:
    """After a long stop: a slice with too many is taken version by version, and then as before."""
    table = Table(tmp_path, bad=BAD)
    table.send(range(-5, 0))
    table.take()
    for first in range(0, 300, 100):
        table.send(range(first, first + 100))
    with pytest.raises(UnfitError, match=FIRST_OF_BAD):
        table.take()
    table.start()

    taken = [table.take().taken for _ in range(3)]
    wide = not table.fitting.one_version

    assert taken == [90, 90, 90]
    assert table.unfit == left_out(BAD)
    assert wide


@pytest.mark.parametrize(
    ("together", "error", "why"), [((), UnfitError, FIRST_OF_BAD), ((101, 102), Divided, "DIVIDE_BY_ZERO")]
)
def test_slice_that_was_looked_through_in_vain_is_not_once_more(
    tmp_path: Path, together: Collection[int], error: type[Exception], why: str
) -> None:
    """Every retry would hold the app's other tables up; other code, or other rows, are looked through."""
    table = Table(tmp_path, bad=[3] if together else BAD, together=together)
    table.send(range(300))
    with pytest.raises(error, match=why):
        table.take()
    searched = len(table.tries)
    tries = []
    for code in ("one", "one", "two"):
        table.start(code=code)
        table.tries.clear()
        with pytest.raises(error, match=why):
            table.take()
        tries.append(len(table.tries))

    assert searched > 10
    assert tries == [1, 1, searched]


def test_table_that_leaves_too_many_out_says_so_again_without_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not just what the first of the rows raises."""
    monkeypatch.setattr("deltaworks.engine.writers.fitting.UNFIT_MAX", 2)
    table = Table(tmp_path, bad=range(3))
    table.send(range(300))
    with pytest.raises(LakeError, match="cannot compute more than 2 rows"):
        table.take()
    table.start()
    table.tries.clear()

    with pytest.raises(LakeError, match="cannot compute more than 2 rows"):
        table.take()

    assert len(table.tries) == 1


def test_rows_that_the_table_does_not_use_bear_no_witness(tmp_path: Path) -> None:
    """A row that came too late was never computed, and need not be."""
    table = Table(tmp_path, bad=[1, 5])
    table.start(late_max=10)
    table.send([1, 2], late=[1])
    table.progress.over_tables({NAME: 1}, ingest_seq=1)
    table.progress.remember(Counts())
    table.send([5])

    table.take()

    assert table.unfit == left_out([5])


def test_what_still_raises_is_found_in_few_tries_and_what_there_is_no_time_for_stays_out(tmp_path: Path) -> None:
    """An order, or a view computed whole, tries up to a thousand under the app's lock."""
    table = Table(tmp_path, bad=range(1_000))
    table.send(range(1_000))
    table.progress.leave_out(left_out(range(1_000)))
    table.progress.remember(Counts())

    rows, counts = table.fitting.tried_again({NAME: table.source.table.read()}, attempt=table.attempt)

    assert not rows[NAME].num_rows
    assert counts == Counts()
    assert table.progress.unfit == left_out(range(1_000))
    assert len(table.tries) <= 400


def test_keys_of_bytes_are_named_and_read_back() -> None:
    """They need be no text."""
    schema = pa.schema([("key", pa.binary()), ("day", pa.date32())])
    keys = pa.table({"key": [b"\xff\x00", None], "day": pa.array([20_000, 0], pa.date32())}, schema=schema)

    assert places_as_keys(keys_as_places(keys), schema) == keys


@pytest.mark.parametrize(
    "other", ["things/00000/00000000000000000001", "[]", '["ff"]', '["ff", "2024-10-04", "1"]', '["zz", "2024-10-04"]',
              '["ff", "soon"]', '["FF", "2024-10-04"]']
)  # fmt: skip
def test_places_that_are_no_keys_of_this_kind_are_left_out(other: str) -> None:
    """What tells rows apart was declared otherwise when they were written."""
    schema = pa.schema([("key", pa.binary()), ("day", pa.date32())])
    keys = pa.table({"key": [b"\xff\x00", None], "day": pa.array([20_000, 0], pa.date32())}, schema=schema)
    first, second = keys_as_places(keys)

    assert places_as_keys([first, other, second], schema) == keys
    assert places_as_keys([other], schema) == schema.empty_table()


def test_keys_are_not_written_as_text_where_nothing_is_left_out(tmp_path: Path) -> None:
    """Each batch would pay for it; these cannot be."""
    fitting = Table(tmp_path, bad=()).fitting
    keys = pa.table({"key": pa.array([[1]], pa.list_(pa.int64()))})
    with pytest.raises(pa.ArrowNotImplementedError):
        keys_as_places(keys)

    assert fitting.again(keys) == []
