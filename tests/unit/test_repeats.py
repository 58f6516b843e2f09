"""Rows that were merged before are left out of the next merge, and the table is what it would be with them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltaworks.engine import repeats
from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.log import read_log
from deltaworks.errors import LeaseLostError
from tests.chance import seeded

SCHEMA = pa.schema([
    ("key", pa.string()), ("value", pa.float64()), ("texts", pa.list_(pa.string())),
    ("place", pa.struct([("at", pa.timestamp("us", "UTC"))])),
])  # fmt: skip
GIVEN = SCHEMA.append(pa.field("_gone", pa.bool_()))
KEYS = ("a", "b", "c", "it's", "", "\N{GRINNING FACE}", None)
VALUES = (None, 0.0, -0.0, 1.0, math.nan, math.inf)
TEXTS: tuple[list[str | None] | None, ...] = (None, [], ["a"], ["a", None], ["a', 'b"], ["a", "b"])
TIMES = (None, 0, 0, 0, 0, 2**62)  # the last is beyond Python's years
OWN = {name: f"s.{name}" for name in SCHEMA.names}
CHANGED = " or ".join(f"(t.{name} is distinct from s.{name})" for name in SCHEMA.names[1:])
HOW = Merge(
    keys=("key",),
    nullable_keys=frozenset({"key"}),
    idempotent=True,
    gone=("_gone", True),
    clauses=(
        Clause(on="matched", act="delete", when="s._gone", set={}),
        Clause(on="matched", act="update", when=CHANGED, set=OWN),
        Clause(on="not matched", act="insert", when="not s._gone", brings=("_gone", False), set=OWN),
    ),
)
DOUBLED = Merge(
    keys=HOW.keys,
    nullable_keys=HOW.nullable_keys,
    clauses=(Clause(on="matched", act="update", set={"value": "t.value + s.value"}),),
)
EMPTIED = Clause(on="not matched by source", act="delete", set={})


def owned(folder: Path, *, change_feed: bool = False) -> OwnedTable:
    """Give an empty table."""
    entry = Entry(kind="create", app="a", epoch=1)
    return OwnedTable(name="gold.things", path=folder / "things", schema=SCHEMA, entry=entry, change_feed=change_feed)


def some_rows(chance: Random, keys: Sequence[str | None] = KEYS) -> pa.Table:
    """Draw rows of a few keys and few values: most come again."""
    drawn = chance.sample(keys, chance.randint(1, min(5, len(keys))))
    values, texts = ([chance.choice(of) for _ in drawn] for of in (VALUES, TEXTS))
    times = pa.array([chance.choice(TIMES) for _ in drawn], pa.timestamp("us", "UTC"))
    places = pa.StructArray.from_arrays([times], fields=[*SCHEMA.field("place").type])
    gone = [chance.random() < 0.2 for _ in drawn]
    return pa.table([pa.array(drawn, pa.string()), values, texts, places, gone], schema=GIVEN)


def stored(rows: pa.Table) -> dict[str | None, str]:
    """What is to be found of rows, by key, as texts: NaN equals itself, and zero has no sign."""
    zeros = pc.add(rows["value"], 0.0).to_pylist()
    times = pc.struct_field(rows["place"], "at").cast(pa.int64()).to_pylist()
    keys, texts = rows["key"].to_pylist(), rows["texts"].to_pylist()
    return {key: repr(one) for key, *one in zip(keys, zeros, texts, times, strict=True)}


@pytest.mark.parametrize("others", [False, True], ids=["alone", "between other commits"])
@pytest.mark.parametrize("change_feed", [False, True], ids=["unfollowed", "followed"])
def test_table_is_what_it_would_be_if_repeated_rows_were_merged(
    tmp_path: Path, *, change_feed: bool, others: bool
) -> None:
    """Whatever comes again, in whatever order, and whatever else is committed between or fails."""
    chance, table = seeded(of=f"{others} {change_feed}"), owned(tmp_path, change_feed=change_feed)
    committer, model, idle = (
        Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None),
        dict[str | None, str](),
        0,
    )
    ways = {"MERGE"} if others or change_feed else {"MERGE", "WRITE Overwrite"}
    # a null among the keys is merged only
    keys = KEYS if others else KEYS[:-1]
    rows = some_rows(chance, keys)

    for number in range(400):
        if number >= 40 and idle and _ways(table) >= ways:
            break  # each way was gone: by chance one may not come in forty
        again = chance.random() < 0.4
        rows = rows if again else some_rows(chance, keys)
        if others and chance.random() < 0.5:
            model, again = _other(chance, table, committer, rows, model), False
        committer.commit(table, rows, table.entry.follow("batch"), how=HOW)
        gone = dict(zip(rows["key"].to_pylist(), rows["_gone"].to_pylist(), strict=True))
        before, model = model, {k: v for k, v in {**model, **stored(rows)}.items() if not gone.get(k, False)}

        assert stored(table.read()) == model, f"batch {number}"
        assert table.rows() == len(model)
        assert table.version == table.delta.version() == table.data_version
        logged, both = read_log(table.path, table.version), before.keys() & model.keys()
        assert logged is not None
        assert (logged.rows_added, logged.rows_updated, logged.rows_deleted) == (
            len(model) - len(both), sum(before[key] != model[key] for key in both), len(before) - len(both),
        ), f"batch {number}"  # fmt: skip
        if again and number:
            idle += 1
            assert _written(table) == "WRITE Append 0"

    assert idle
    assert "MERGE" in _ways(table)
    assert others or ("WRITE Overwrite" in _ways(table)) == (not change_feed)


def _ways(table: OwnedTable) -> set[str]:
    """In which ways rows came to be changed."""
    done = {f"{one['operation']} {one['operationParameters'].get('mode', '')}".strip() for one in table.delta.history()}
    return done & {"MERGE", "WRITE Overwrite"}


def _written(table: OwnedTable, version: int | None = None) -> str:
    """What a version did, and to how many new files."""
    (one,) = [one for one in table.delta.history() if one["version"] == (table.version if version is None else version)]
    mode, files = one["operationParameters"].get("mode", ""), one["operationMetrics"].get("num_added_files", "?")
    return f"{one['operation']} {mode} {files}"


def _other(
    chance: Random, table: OwnedTable, committer: Committer, rows: pa.Table, model: dict[str | None, str]
) -> dict[str | None, str]:
    """Commit something else, or fail to; what the table has then."""
    match chance.choice(("delete", "reopen", "refused", "doubled", "replaced", "rewritten")):
        case "delete":
            committer.delete(table, "key = 'a'", table.entry.follow("expire"))
            return {key: value for key, value in model.items() if key != "a"}
        case "reopen":
            table.reopen()
        case "refused":

            def refuse() -> None:
                raise LeaseLostError("a", "is another's", "Start it again")

            with pytest.raises(LeaseLostError):
                Committer(spark=None, arrow_bytes_max=2**20, guard=refuse).commit(
                    table, rows, table.entry.follow("batch"), how=HOW
                )
        case "doubled":
            committer.commit(table, table.read().append_column("_gone", [[False] * table.rows()]),
                             table.entry.follow("batch"), how=DOUBLED)  # fmt: skip
        case "replaced":
            committer.commit(table, rows.slice(0, 1), table.entry.follow("batch"),
                             how=replace(HOW, clauses=(*HOW.clauses, EMPTIED)))  # fmt: skip
        case "rewritten":
            committer.rewrite(table, table.entry.follow("compact"), size_max=2**20)
    return stored(table.read())


def test_only_so_many_rows_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are merged again; of more at once none is looked at, and all before are forgotten."""
    monkeypatch.setattr(repeats, "KEPT_MAX", 2)
    monkeypatch.setattr(repeats, "ROWS_MAX", 2)
    memory = repeats.Repeats()

    def merged(keys: str) -> int:
        empty = [pa.nulls(len(keys), field.type) for field in SCHEMA][1:]
        rows = pa.table([list(keys), *empty, [False] * len(keys)], schema=GIVEN)
        left, done = memory.without(rows, HOW, version=1)
        if done is not None:
            memory.merged(done, HOW, version=1)
        return int(left.num_rows)

    assert [merged(keys) for keys in ("ab", "ab", "c", "b", "a", "a", "abc", "a")] == [2, 0, 1, 0, 1, 0, 3, 1]


def test_merge_that_adds_is_done_each_time(tmp_path: Path) -> None:
    """A sum is another one after the same row."""
    table, committer = owned(tmp_path), Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    adds = (Clause(on="matched", act="update", set={"value": "t.value + s.value"}), HOW.clauses[2])
    rows = pa.Table.from_pylist([{"key": "a", "value": 1.0, "_gone": False}], schema=GIVEN)

    for _ in range(3):
        committer.commit(table, rows, table.entry.follow("batch"), how=Merge(keys=("key",), clauses=adds))

    assert table.read(["value"]).to_pylist() == [{"value": 3.0}]


def test_keys_that_the_table_has_are_replaced_and_only_then(tmp_path: Path) -> None:
    """Who knows them saves the merge of new ones, whatever else is in the files."""
    table, committer = owned(tmp_path), Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)

    def operation(keys: str, value: float, existing: set[tuple[str]] | None) -> str:
        given = [{"key": key, "value": value, "_gone": False} for key in keys]
        rows = pa.Table.from_pylist(given, schema=GIVEN)
        committer.commit(table, rows, table.entry.follow("batch"), how=HOW, existing=existing)
        return _written(table)[:11]

    told = [
        operation(keys, at, existing)
        for at, (keys, existing) in enumerate([("az", set()), ("m", set()), ("mn", {("m",)}), ("o", None)])
    ]

    assert told == ["WRITE Appen", "WRITE Appen", "WRITE Overw", "MERGE  ?"]
    assert sorted(table.read()["key"].to_pylist()) == ["a", "m", "n", "o", "z"]
