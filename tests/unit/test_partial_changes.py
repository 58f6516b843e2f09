"""Changes that leave large values out: whatever order and cut they arrive in, the table is the same."""

from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.parse import parser
from deltaworks.engine.schemas import arrow_schema, own_schema
from deltaworks.engine.source import BRONZE
from deltaworks.engine.writers import latest
from deltaworks.engine.writers.latest import LatestWriter
from deltaworks.engine.writers.over_bronze import _tally
from deltaworks.engine.writers.partial import carried, folded
from deltaworks.engine.writers.patches import PATCHES, Patches
from deltaworks.engine.writers.quarantine import QUARANTINE
from deltaworks.engine.writers.writer import Input
from deltaworks.words import Column, Table, debezium
from deltaworks.words import latest as kept_latest
from deltaworks.words.keeping import Latest
from tests.bronze_rows import bronze
from tests.chance import seeded
from tests.source_table import LARGE, PLACEHOLDER, SourceTable, lived

COLUMNS = (
    Column("id", "bigint", null=False, doc="The key."),
    Column("city", "string", doc="Small."),
    Column("bio", "string", doc="Large."),
    Column("cv", "string", doc="Large."),
)
READS = debezium("bronze.shop_changes", table="public.members")
Row = tuple[Any, ...]


class Lake:
    """One `latest` table over change records, without a flow: every take is a batch of its own."""

    columns: tuple[Column, ...] = COLUMNS
    reads = READS

    def __init__(self, folder: Path) -> None:
        """Begin with an empty table."""
        self.folder, self.seq, self.offset = folder, 0, 0
        self.open()

    def open(self) -> None:
        """Begin anew, as a restarted driver does."""
        table = Table(app="a", reads=self.reads, kept_as=kept_latest(keys=("id",)), columns=self.columns, owner="tests")
        declared = Declared(
            name="silver.members", layer="silver", table=table, doc="", folder=self.folder,
            inputs=("bronze.shop_changes",), topics=(), transform=None, suite=None, cases=(), keys=("id",),
        )  # fmt: skip
        self.main = self._owned("members", arrow_schema(self.columns, system=own_schema(Latest)))
        self.quarantine = self._owned("members__quarantine", QUARANTINE)
        self.writer = LatestWriter(
            declared,
            own=Input(table=self.main),
            source=Input(table=self._owned("shop_changes", BRONZE)),
            quarantine=self.quarantine,
            patches=Patches(lambda: self._owned("members__patches", PATCHES), there=False),
            deleted=self._owned("members__deleted", latest.deleted_schema(declared)),
            waiting=lambda: self._waiting,
        )
        self._waiting = self._owned("members__waiting", self.main.schema)

    def take(self, records: Sequence[Any]) -> None:
        """One batch."""
        self.seq += 1
        rows = bronze(
            [record.value for record in records], topic="shop.changes", keys=[record.key for record in records],
            first_offset=self.offset, seq=self.seq,
        )  # fmt: skip
        self.offset += len(records)
        parsed = self.writer.parser.parse(rows)
        committer = Committer(spark=None, arrow_bytes_max=2**30, guard=lambda: None)
        counts = self.writer._take(committer, parsed, self.seq, _tally(parsed))
        assert counts.balanced
        assert min(counts.taken, counts.superseded, counts.refused) >= 0

    def rows(self) -> list[Row]:
        """What the table says."""
        found = self.main.read(["id", "city", *LARGE]).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def aside(self) -> list[str]:
        """Why rows were set aside."""
        reasons: list[str] = self.quarantine.read(["reason"])["reason"].to_pylist()
        return reasons

    def _owned(self, name: str, schema: pa.Schema) -> OwnedTable:
        entry = Entry(kind="create", app="a", epoch=1)
        return OwnedTable(name=f"silver.{name}", path=self.folder / name, schema=schema, entry=entry)


def there(source: SourceTable) -> list[Row]:
    """What the source's table says."""
    return sorted(tuple(row.values()) for row in source.rows.values())


def known(records: Iterable[Any]) -> list[Row]:
    """What a set of changes says: of each column the last value that was sent since the last deletion."""
    values = [record.value for record in records if record.value is not None]
    keys = [record.key for record in records if record.value is not None]
    parsed = (
        parser(READS, COLUMNS, ("id",), partial=True).parse(bronze(values, topic="shop.changes", keys=keys)).to_pylist()
    )
    floor = max((row["_floor"] for row in parsed if row["_floor"]), default="")
    found = []
    for key in {row["id"] for row in parsed if row["_kind"] in ("row", "delete")}:
        mine = sorted((row for row in parsed if row["id"] == key), key=lambda row: str(row["_source"]))
        cut = max([floor, *(row["_source"] for row in mine if row["_kind"] == "delete")])
        mine = [row for row in mine if row["_kind"] == "row" and row["_source"] > cut]
        sent = {name: [row[name] for row in mine if f'"{name}"' not in (row["_sent"] or "")] for name in LARGE}
        if mine and all(sent.values()):
            found.append((key, mine[-1]["city"], *(sent[name][-1] for name in LARGE)))
    return sorted(found)


def in_batches(lake: Lake, records: Sequence[Any], chance: Random) -> None:
    """Hand the records over in batches of random size, with restarts between them."""
    at = 0
    while at < len(records):
        size = chance.randint(1, 12)
        lake.take(records[at : at + size])
        at += size
        if chance.random() < 0.2:
            lake.open()


def test_what_an_update_leaves_out_stays_as_it_was(tmp_path: Path) -> None:
    """The placeholder is never stored; what is small, and what is null, is always sent."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz", bio="long", cv="longer")
    source.update(1, city="Linz")
    source.update(1, cv=None)
    assert sum(PLACEHOLDER.encode() in (record.value or b"") for record in source.log) == 2

    for record in source.log:
        lake.take([record])

    assert lake.rows() == there(source) == [(1, "Linz", "long", None)]
    assert lake.aside() == []


def test_an_older_change_still_supplies_what_a_newer_one_left_out(tmp_path: Path) -> None:
    """The full change comes last of all, and only its value is taken from it."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz", bio="long", cv="longer")
    source.update(1, city="Linz", bio="other")
    source.update(1, city="Wien")

    for record in reversed(source.log):
        lake.take([record])

    assert lake.rows() == there(source) == [(1, "Wien", "other", "longer")]


def test_nothing_to_take_a_value_from_is_refused(tmp_path: Path) -> None:
    """The insert never came: the change is set aside with the column's name, no half row is shown."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz", bio="long", cv="longer")
    source.update(1, city="Linz")

    lake.take(source.log[1:])

    assert lake.rows() == []
    assert lake.aside() == ["bio: value not sent, and no earlier change has it"]
    assert lake.main.entry.totals.refused == 1


def test_a_deletion_between_cuts_the_carrying(tmp_path: Path) -> None:
    """A value of the key's earlier life is not the new row's, even if the deletion is the last to arrive."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz", bio="first", cv="first")
    source.delete(1)
    source.insert(1, city="Linz", bio="second", cv="second")
    source.update(1, city="Wien")
    first, gone, tombstone, second, last = source.log

    lake.take([first])
    lake.take([last])
    lake.take([gone, tombstone])
    cut = lake.rows()
    lake.take([second])

    assert cut == []
    assert lake.rows() == there(source) == [(1, "Wien", "second", "second")]


def test_keys_that_are_swapped_are_swapped(tmp_path: Path) -> None:
    """Each change of a key is a deletion and an insert; a swap goes by a third key, in one transaction or not."""
    for order in range(12):
        source, lake, chance = SourceTable(), Lake(tmp_path / str(order)), seeded()
        source.insert(1, city="Graz", bio="one", cv="one")
        source.insert(2, city="Linz", bio="two", cv="two")
        source.rekey(1, 3, bio="one", cv="one")
        source.rekey(2, 1, bio="two", cv="two")
        source.rekey(3, 2, bio="one", cv="one")

        in_batches(lake, chance.sample(source.log, len(source.log)) if order else source.log, chance)

        assert lake.rows() == there(source) == [(1, "Linz", "two", "two"), (2, "Graz", "one", "one")]


def test_a_changed_key_without_its_large_values_is_refused(tmp_path: Path) -> None:
    """The new row's insert is the only one that may leave a value out: it stands under another key."""
    source, lake = SourceTable(), Lake(tmp_path)
    source.insert(1, city="Graz", bio="one", cv="one")
    source.rekey(1, 2)

    lake.take(source.log)

    assert lake.rows() == []
    assert lake.aside() == ["bio: value not sent"]


@pytest.mark.parametrize("number", range(12))
def test_any_order_and_any_cut_end_in_the_source(tmp_path: Path, number: int) -> None:
    """Every change once or more, in any order, in batches of any size, with restarts."""
    chance = seeded()
    source, lake = lived(chance, 30), Lake(tmp_path)
    records = source.log + chance.sample(source.log, 5)
    assert known(source.log) == there(source)

    in_batches(lake, chance.sample(records, len(records)) if number else records, chance)

    assert lake.rows() == there(source)


@pytest.mark.parametrize("_number", range(12))
def test_what_never_came_makes_no_difference_between_orders(tmp_path: Path, _number: int) -> None:
    """With changes missing the table still says what the others say, and no row that is not whole."""
    chance = seeded()
    source, lake = lived(chance, 30), Lake(tmp_path)
    records = chance.sample(source.log, len(source.log) * 2 // 3)

    in_batches(lake, records, chance)

    assert lake.rows() == known(records)


def test_a_chain_of_changes_is_filled_in_one_by_one() -> None:
    """As a history needs it: each change with what its predecessors sent, none across a deletion."""
    rows = pa.table(
        {
            "id": [1, 1, 1, 1, 1],
            "bio": ["a", None, "c", None, None],
            "_kind": ["row", "row", "row", "delete", "row"],
            "_source": ["1", "2", "3", "4", "5"],
            "_sent": [None, '{"bio": ""}', None, None, '{"bio": ""}'],
        }
    )

    found = carried(rows, ("id",))

    assert found["bio"].to_pylist() == ["a", "a", "c", None, None]
    assert found["_sent"].to_pylist() == [None, '{"bio": "1"}', None, None, '{"bio": ""}']


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_of_one_change_the_batch_tells_before_the_table_and_what_waits(order: tuple[int, ...]) -> None:
    """In whatever order they are handed over: Spark's groups have none."""
    known = {"id": 1, "_kind": "row", "_source": "1"}
    rows = [
        {**known, "city": "Linz", "bio": "X", "cv": None, "_sent": '{"cv": ""}', "_from": "waiting"},
        {**known, "city": "Linz", "bio": "X", "cv": "v", "_sent": '{"cv": "0"}', "_from": "table"},
        {**known, "city": "Wien", "bio": "B", "cv": "V", "_sent": None, "_from": "batch"},
    ]
    fields = [(name, pa.int64() if name == "id" else pa.string()) for name in rows[0]]

    made = folded(pa.Table.from_pylist([rows[at] for at in order], schema=pa.schema(fields)), ("id",)).to_pylist()

    assert [(row["_act"], row["city"], row["bio"], row["cv"], row["_sent"]) for row in made] == [
        ("put", "Wien", "B", "V", None)
    ]
