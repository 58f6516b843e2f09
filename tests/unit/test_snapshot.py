"""Rows of a table's version in memory: they follow its change feed, and are asked for by values."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine import snapshot
from deltaworks.engine.feed import SNAPSHOTS_TIMES, let_go
from deltaworks.engine.flow import Flow
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.snapshot import AGAIN_SECONDS, CHUNKS_MAX, REMOVED, Condition, LostError, Snapshot, UnknownError
from deltaworks.engine.writers.writer import Input, Writer
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.chance import seeded
from tests.differential import contents

SCHEMA = pa.schema([
    ("key", pa.int64()), ("text", pa.string()), ("ratio", pa.float64()), ("price", pa.decimal128(12, 2)),
    ("at", pa.timestamp("us", "UTC")), ("bytes", pa.binary()), ("flag", pa.bool_()),
])  # fmt: skip
NAN = float("nan")
Row = tuple[Any, ...]


def _row(chance: Random) -> Row:
    def maybe(*values: Any) -> Any:
        return None if chance.random() < 0.2 else chance.choice(values)

    at = datetime(2024, 3, 31, chance.randrange(3), tzinfo=UTC)
    return (
        maybe(*range(6)), maybe("a", "b", ""), maybe(NAN, 0.5, 0.0, -0.0), maybe(Decimal("1.00"), Decimal("-2.50")),
        maybe(at),
        maybe(b"", b"\x00\xff"), maybe(True, False),
    )  # fmt: skip


def _table(rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _feed(*changes: tuple[str, Sequence[Row]]) -> pa.Table:
    parts = [
        _table(rows).append_column("_change_type", pa.array([kind] * len(rows), pa.string())) for kind, rows in changes
    ]
    return pa.concat_tables(parts)


def _snapshot(rows: Sequence[Row], told_by: str = "key") -> Snapshot:
    return Snapshot(_table(rows), version=0, told_by=[told_by])


@pytest.mark.parametrize("told_by", SCHEMA.names)
def test_snapshot_that_follows_has_the_rows_of_the_version(told_by: str) -> None:
    """After inserts, updates, deletes of rows that are there twice and hold NaN and null too; whatever tells them."""
    chance = seeded()
    rows = [_row(chance) for _ in range(40)]
    rows += rows[:10]
    kept = _snapshot(rows, told_by)

    for version in range(1, 120):
        gone = sorted(chance.sample(range(len(rows)), min(len(rows), chance.randrange(4))), reverse=True)
        removed = [rows.pop(at) for at in gone]
        come = [chance.choice((_row(chance), *rows[:1])) for _ in range(chance.randrange(4))]
        updated = min(len(removed), len(come))
        rows += come
        kept.follow(
            _feed(
                ("update_preimage", removed[:updated]),
                ("update_postimage", come[:updated]),
                ("delete", removed[updated:]),
                ("insert", come[updated:]),
            ),
            version=version,
        )

        assert kept.version == version
        assert contents(kept.rows()) == contents(_table(rows))


def test_row_that_was_never_there_cannot_go() -> None:
    """The table is read again; so it is where a row is to go twice and is there once."""
    row, other = (1, "a", NAN, None, None, b"", True), (1, "a", 0.5, None, None, b"", True)

    with pytest.raises(LostError):
        _snapshot([row]).follow(_feed(("delete", [other])), version=1)
    with pytest.raises(LostError):
        _snapshot([row, other]).follow(_feed(("delete", [row, row])), version=1)
    with pytest.raises(LostError):
        _snapshot([]).follow(_feed(("update_preimage", [row])), version=1)


def test_zero_that_changes_its_sign_is_another_row() -> None:
    """Python takes both for equal; Delta and Spark tell the rows apart."""
    plus, minus = ((1, "a", zero, None, None, b"", True) for zero in (0.0, -0.0))
    kept = _snapshot([plus])

    kept.follow(_feed(("update_preimage", [plus]), ("update_postimage", [minus])), version=1)

    assert contents(kept.rows()) == contents(_table([minus]))


def test_one_of_two_equal_rows_goes() -> None:
    """A table may have a row twice; what is deleted is one of them."""
    row = (None, None, NAN, None, None, None, None)
    kept = _snapshot([row, row, row])

    kept.follow(_feed(("delete", [row])), version=1)

    assert kept.rows().num_rows == 2


def test_row_that_changes_twice_between_two_turns_is_what_it_is_last() -> None:
    """A feed of several versions tells what it was in between, which no snapshot has seen."""
    first, between, last = ((7, text, NAN, None, None, b"", True) for text in ("first", "between", "last"))
    kept = _snapshot([first])

    kept.follow(
        _feed(
            ("update_preimage", [first]),
            ("update_postimage", [between]),
            ("update_preimage", [between]),
            ("update_postimage", [last]),
        ),
        version=2,
    )

    assert contents(kept.rows()) == contents(_table([last]))
    assert kept.those([{"text": pa.array(["between"])}]).num_rows == 0


def test_many_small_changes_do_not_pile_up() -> None:
    """Chunks, of which a question costs each a little, become one; and rows that went are not kept for ever."""
    chance = seeded()
    rows = [_row(chance) for _ in range(200)]
    kept = _snapshot(rows)
    most = 0

    for version in range(1, 3 * CHUNKS_MAX):
        rows.append(_row(chance))
        kept.follow(_feed(("insert", rows[-1:])), version=version)
        most = max(most, len(kept._chunks))
    before = kept.nbytes
    kept.follow(_feed(("delete", rows[:-3])), version=1_000)

    assert CHUNKS_MAX // 2 < most <= CHUNKS_MAX
    assert kept.nbytes < before / 4
    assert contents(kept.rows()) == contents(_table(rows[-3:]))


def test_rows_are_asked_for_as_a_filter_would() -> None:
    """By columns and by what is computed from them, by several conditions, each row once however many hold."""
    chance = seeded()
    rows = [_row(chance) for _ in range(60)]
    kept = _snapshot(rows)
    kept.compute(["key % 2"], lambda table: pa.table({"key % 2": pc.bit_wise_and(table["key"], 1)}), reader=("view",))
    asked = 0

    for version in range(1, 60):
        gone = [rows.pop(chance.randrange(len(rows))) for _ in range(chance.randrange(2))]
        rows.append(_row(chance))
        kept.follow(_feed(("insert", rows[-1:]), ("delete", gone)), version=version)
        conditions = [_condition(chance) for _ in range(chance.randint(1, 3))]
        found = kept.those(conditions)
        wanted = [row for row in rows if any(_holds(one, row) for one in conditions)]
        asked += bool(wanted)

        assert contents(found) == contents(_table(wanted))
        assert found.schema == SCHEMA
    assert asked


def _condition(chance: Random) -> Condition:
    possible = {
        "key": pa.array([chance.randrange(7), chance.randrange(7)], pa.int64()),
        "text": pa.chunked_array([["a"], ["never"]]),
        "price": pa.array([Decimal("1.00")], pa.decimal128(12, 2)),
        "key % 2": pa.array([1], pa.int64()),
        "flag": pa.array([True]),
        "bytes": pa.array([b"\x00\xff"], pa.binary()),
    }
    return {name: possible[name] for name in chance.sample(sorted(possible), chance.randint(1, 2))}


def _holds(condition: Condition, row: Row) -> bool:
    there = dict(zip(SCHEMA.names, row, strict=True))
    there["key % 2"] = None if there["key"] is None else there["key"] % 2
    return all(there[name] in values.to_pylist() for name, values in condition.items())


def test_what_is_computed_from_a_row_is_computed_once() -> None:
    """A turn asks for what is new only."""
    chance = seeded()
    computed = Counter[int]()

    def compute(table: pa.Table) -> pa.Table:
        computed.update(table["key"].to_pylist())
        return pa.table({"same": table["key"], "as text": table["key"].cast(pa.string())})

    kept = _snapshot([(at, None, None, None, None, None, None) for at in range(10)])
    kept.compute(["same", "as text"], compute, reader=("view",))
    versions, gone = range(1, 4 * CHUNKS_MAX), list[Row]()
    for version in versions:
        row = (version + 10, *_row(chance)[1:])
        kept.follow(_feed(("insert", [row]), ("delete", gone)), version=version)
        found = kept.those([{"same": pa.array([3, version + 10], pa.int64())}, {"as text": pa.array(["4"])}])
        assert found["key"].to_pylist() == [3, 4, version + 10]
        gone = [row] if version % 3 else []

    assert set(computed) == {*range(10), *(version + 10 for version in versions)}
    assert set(computed.values()) == {1}


def test_what_cannot_be_computed_for_a_row_is_not_asked_by() -> None:
    """The caller takes all rows then; the snapshot is as it was."""

    def compute(table: pa.Table) -> pa.Table:
        raise UnknownError(table.num_rows)

    kept = _snapshot([(1, None, None, None, None, None, None)])
    kept.compute(["raises"], compute, reader=("view",))

    with pytest.raises(UnknownError):
        kept.those([{"raises": pa.array([1])}])
    assert kept.rows().num_rows == 1


def test_what_could_not_be_computed_is_tried_again_once_rows_have_gone() -> None:
    """The one that raised may have been among them."""

    def compute(table: pa.Table) -> pa.Table:
        if 1 in table["key"].to_pylist():
            raise UnknownError(1)
        return pa.table({"same": table["key"]})

    rows: list[Row] = [(at, None, None, None, None, None, None) for at in range(10)]
    kept = _snapshot(rows)
    kept.compute(["same"], compute, reader=("view",))
    with pytest.raises(UnknownError):
        kept.those([{"same": pa.array([9], pa.int64())}])

    kept.follow(_feed(("delete", rows[:8])), version=1)

    assert kept.those([{"same": pa.array([9], pa.int64())}])["key"].to_pylist() == [9]


def test_what_could_not_be_computed_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the rows that are there: the one that raised has gone, though few have, or there is memory again."""
    now, asked = [0.0], list[list[int]]()
    monkeypatch.setattr(snapshot, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def compute(table: pa.Table) -> pa.Table:
        asked.append(table["key"].to_pylist())
        if 1 in asked[-1]:
            raise UnknownError(1)
        return pa.table({"same": table["key"]})

    def found() -> list[int]:
        return [int(one) for one in kept.those([{"same": pa.array([0, 2, 9], pa.int64())}])["key"].to_pylist()]

    rows: list[Row] = [(at, None, None, None, None, None, None) for at in range(10)]
    kept = _snapshot(rows)
    kept.compute(["same"], compute, reader=("view",))
    for _ in range(2):
        with pytest.raises(UnknownError):
            found()
    kept.follow(_feed(("delete", rows[1:3])), version=1)
    with pytest.raises(UnknownError):
        found()
    now[0] = AGAIN_SECONDS

    assert found() == [0, 9]
    assert asked == [list(range(10)), [0, *range(3, 10)]]
    kept.follow(_feed(("delete", rows[9:])), version=2)
    assert found() == [0]


def test_nothing_is_there_is_asked_for_and_follows() -> None:
    """An empty table is one too."""
    kept = _snapshot([])

    assert kept.those([{"key": pa.array([1], pa.int64())}]).num_rows == 0
    assert kept.rows().schema == SCHEMA

    kept.follow(_feed(("insert", [])), version=1)

    assert kept.rows().num_rows == 0
    assert set(REMOVED) == {"delete", "update_preimage"}


def test_what_a_reader_had_computed_goes_when_it_asks_for_something_else() -> None:
    """What others have stays; rows that raise are tried once."""
    kept, asked = _snapshot([(at, None, None, None, None, None, None) for at in range(10)]), Counter[str]()

    def compute(name: str, table: pa.Table) -> pa.Table:
        asked[name] += 1
        if name == "raises":
            raise UnknownError(name)
        return pa.table({name: table["key"]})

    for reader, name in (("one", "before"), ("two", "others"), ("one", "after"), ("three", "raises")):
        kept.compute([name], partial(compute, name), reader=(reader, "key"))
        for _ in range(2):
            with suppress(UnknownError):
                assert kept.those([{name: pa.array([3])}])["key"].to_pylist() == [3]

    assert [kept.knows(name) for name in ("before", "others", "after")] == [False, True, True]
    assert set(asked.values()) == {1}
    assert kept.nbytes == kept.rows_nbytes + 2 * 80

    kept.forget("one")

    assert [kept.knows(name) for name in ("others", "after")] == [True, False]
    assert kept.nbytes == kept.rows_nbytes + 80


def test_inputs_that_are_too_much_together_are_not_kept() -> None:
    """The largest go, and are not read again while they have not become smaller."""
    sizes = (5, 20, 10, 40)
    kept = [_snapshot([_row(seeded(at)) for _ in range(many)]) for at, many in enumerate(sizes)]
    inputs = [
        Input(table=cast("OwnedTable", _Table(many)), snapshot=one) for many, one in zip(sizes, kept, strict=True)
    ]
    inputs.append(Input(table=cast("OwnedTable", _Table(1))))
    three = sum(one.nbytes for one in kept[:3])

    let_go(inputs, three // SNAPSHOTS_TIMES + 1)

    assert [one.snapshot for one in inputs] == [*kept[:3], None, None]
    assert [one.too_large for one in inputs] == [None, None, None, 40, None]


@dataclass
class _Table:
    size: int
    name: str = "silver.orders"

    def bytes(self) -> int:
        return self.size


class _Reading:
    """A table's writer that reads one input whole, and notes how much is in memory then."""

    def __init__(self, source: Input, flow: Flow, seen: list[int]) -> None:
        self.declared, self._source, self._flow, self._seen = flow.catalog[source.table.name], source, flow, seen

    def behind(self) -> bool:
        """It is asked once."""
        return False

    def take(self, *_: object) -> None:
        """Read it."""
        self._source.snapshot = _snapshot([(at, None, None, None, None, None, None) for at in range(100)])
        kept = [one.snapshot for one in self._flow.inputs.values()]
        self._seen.append(sum(one.nbytes for one in kept if one is not None))


def test_inputs_of_a_turn_are_never_much_more_than_may_be_kept(tmp_path: Path) -> None:
    """At a start each view reads its inputs in the first turn: after each table the bound holds."""
    owner = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "shop")
    one = _snapshot([(at, None, None, None, None, None, None) for at in range(100)]).nbytes
    flow, seen, spark = owner.flow, list[int](), cast("SparkSession", None)
    flow.settings = flow.settings.changed(arrow_bytes_max=one)
    flow.writers = [cast("Writer", _Reading(source, flow, seen)) for source in 3 * list(flow.inputs.values())]
    assert len(flow.inputs) > SNAPSHOTS_TIMES + 1

    flow.turn(spark)

    assert len(seen) == len(flow.writers)
    assert max(seen) == (SNAPSHOTS_TIMES + 1) * one
