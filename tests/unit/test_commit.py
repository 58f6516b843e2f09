"""Commits by Arrow: what a merge must find, and what counts as a change."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake.exceptions import DeltaError
from deltalake.table import TableMerger

from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Counts, Entry, Position
from deltaworks.engine.lake import TXN_APP, OwnedTable, read_commit
from deltaworks.engine.suspended import is_tables_own
from deltaworks.engine.values import tuples
from deltaworks.engine.writers.aggregate import combined
from deltaworks.errors import CommitLostError, LakeError
from tests.chance import seeded
from tests.handed import Written

UPSERT = (
    Clause(on="matched", act="update", set={"value": "s.value"}),
    Clause(on="not matched", act="insert", set={"key": "s.key", "value": "s.value"}),
)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EMPTY = Clause(on="not matched by source", act="delete", set={})


def owned(folder: Path, key: pa.DataType) -> OwnedTable:
    """Give a table of one key and one value."""
    schema = pa.schema([("key", key), ("value", pa.string())])
    return OwnedTable(
        name="silver.things", path=folder / "things", schema=schema, entry=Entry(kind="create", app="a", epoch=1)
    )


def commit(table: OwnedTable, rows: list[dict[str, object]], *clauses: Clause) -> None:
    """Merge rows by key."""
    made = pa.Table.from_pylist(rows, schema=table.schema)
    entry = table.entry.follow("batch", counts=Counts(read=len(rows), taken=len(rows)))
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    committer.commit(table, made, entry, how=Merge(keys=("key",), clauses=clauses))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (pa.decimal128(20, 0), Decimal(12345678901234567890)),
        (pa.decimal128(18, 2), Decimal("1234567890123456.78")),
        (pa.decimal128(18, 2), Decimal("0.05")),
        (pa.decimal128(18, 2), Decimal("0.00")),
        (pa.int64(), 2**63 - 1),
        (pa.int64(), -(2**63)),
        (pa.string(), "it's\N{GRINNING FACE}" * 40),
    ],
)
def test_second_change_of_a_key_finds_the_first(tmp_path: Path, kind: pa.DataType, key: object) -> None:
    """Whatever a file's statistics say of the key, its row is updated and not inserted again."""
    table = owned(tmp_path, kind)

    for value in ("old", "new"):
        commit(table, [{"key": key, "value": value}], *UPSERT)

    assert table.read().to_pylist() == [{"key": key, "value": "new"}]


@pytest.mark.parametrize(
    ("kind", "most", "more"),
    [
        (pa.int32(), 2**31 - 1, 1),
        (pa.int64(), 2**63 - 1, 1),
        (pa.int64(), -(2**63), -1),
        (pa.decimal128(5, 2), Decimal("999.99"), Decimal("0.01")),
        (pa.decimal128(5, 2), Decimal("-999.99"), Decimal("-0.01")),
        (pa.decimal128(37, 0), Decimal("9" * 37), Decimal(1)),
    ],
)
def test_sum_that_does_not_fit_is_refused(tmp_path: Path, kind: pa.DataType, most: object, more: object) -> None:
    """Integers must not start again from below: nothing is committed, and the sum that is there stays.

    That is the table's own fault: it is suspended, and its app goes on.
    """
    schema = pa.schema([("key", pa.int64()), ("value", kind)])
    entry = Entry(kind="create", app="a", epoch=1)
    table = OwnedTable(name="gold.sums", path=tmp_path / "sums", schema=schema, entry=entry)
    add = Clause(on="matched", act="update", set={"value": combined("value", "add", kind)})
    commit(table, [{"key": 1, "value": most}], UPSERT[1])

    with pytest.raises((DeltaError, LakeError), match=r"value of -?\d+ is out of range|does not fit") as refused:
        commit(table, [{"key": 1, "value": more}], add)

    table.reopen()
    assert is_tables_own(refused.value, None)
    assert (table.version, table.read().to_pylist()) == (1, [{"key": 1, "value": most}])


@pytest.mark.parametrize("told", ["the predicate has no column", "a text is too large to store in a page"])
def test_what_a_merge_raises_otherwise_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """delta-rs raises ValueError for more than numbers that are too long."""

    def execute(merger: TableMerger) -> None:
        del merger
        raise ValueError(told)

    table = owned(tmp_path, pa.int64())
    commit(table, [{"key": 1, "value": "old"}], UPSERT[1])
    monkeypatch.setattr(TableMerger, "execute", execute)

    with pytest.raises(ValueError, match=told) as raised:
        commit(table, [{"key": 1, "value": "new"}], *UPSERT)

    assert type(raised.value) is ValueError


KEYS: dict[str, tuple[pa.DataType, Callable[[int], object]]] = {
    "numbers": (pa.int64(), lambda at: at),
    "times": (pa.timestamp("us", "UTC"), lambda at: NOON + timedelta(microseconds=300 * at)),  # the log has thousandths
    "days": (pa.date32(), lambda at: NOON.date() + timedelta(days=at)),
    "long texts": (pa.string(), lambda at: "\N{GRINNING FACE}" * 40 + f"{at:04}"),  # the log has their begin: the same
    "exact numbers": (pa.decimal128(20, 0), lambda at: Decimal(10**19 + at)),  # of which the log has a double
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("nulls", [False, True], ids=["keys", "keys and null"])
def test_keys_that_no_file_can_have_are_appended_and_all_others_merged(tmp_path: Path, kind: str, nulls: bool) -> None:
    """Whatever comes, before, between, behind or on the edge of what is there: each key has one row, its newest."""
    chance, (key_type, key_of) = seeded(of=kind), KEYS[kind]
    table, model = owned(tmp_path, key_type), {key_of(0): "stays"}  # one that is never drawn: no batch meets no file
    own = {"key": "s.key", "value": "s.value"}
    clauses = (
        Clause(on="matched", act="delete", when="s._gone", set={}),
        Clause(on="matched", act="update", set=own),
        Clause(on="not matched", act="insert", when="not s._gone", brings=("_gone", False), set=own),
    )
    how = Merge(keys=("key",), nullable_keys=frozenset({"key"} if nulls else ()), clauses=clauses)
    committer, newest = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None), 500
    commit(table, [{"key": key_of(0), "value": "stays"}], *UPSERT)

    for number in range(30):
        near = [newest + step for step in range(1, 5)] if chance.random() < 0.5 else range(480, newest + 5)
        drawn: list[object] = [key_of(at) for at in chance.sample(near, chance.randint(1, 3))]
        drawn += [None] if nulls and chance.random() < 0.2 else []
        newest = max(newest, *near) if near[0] > newest else newest
        gone = [chance.random() < 0.2 for _ in drawn]
        model |= dict.fromkeys(drawn, f"{number}")
        model = {key: value for key, value in model.items() if key not in drawn or not gone[drawn.index(key)]}
        schema = table.schema.append(pa.field("_gone", pa.bool_()))
        rows = pa.table([pa.array(drawn, key_type), [f"{number}"] * len(drawn), gone], schema=schema)
        committer.commit(table, rows, table.entry.follow("batch"), how=how)

        found = table.read().to_pylist()
        assert {row["key"]: row["value"] for row in found} == model, f"batch {number}"
        assert len(found) == len(model)

    later = [one for one in table.delta.history() if one["version"] > 1]  # the first meets no file
    appended = [one for one in later if one["operation"] == "WRITE" and int(one["operationMetrics"]["num_added_rows"])]
    assert any(one["operation"] == "MERGE" for one in later)
    assert bool(appended) == (kind not in {"exact numbers", "long texts"})


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0c", "\r"])
def test_text_with_what_unicode_takes_for_the_end_of_a_line_is_in_the_log(tmp_path: Path, sign: str) -> None:
    """The library writes it as it is, as the least and the greatest of a file: the commit is one text all the same."""
    table = owned(tmp_path, pa.string())
    commit(table, [{"key": f"x{sign}y", "value": sign}], *UPSERT)

    table.reopen()

    assert read_commit(table.path, table.version).added
    assert [one.version for one in table.commits_backwards()] == [1, 0]


def test_emptied_table_is_a_change(tmp_path: Path) -> None:
    """A truncation brings no row, but the tables below must look again."""
    table = owned(tmp_path, pa.int64())
    commit(table, [{"key": 1, "value": "a"}], *UPSERT)

    commit(table, [], *UPSERT, EMPTY)

    assert table.read().num_rows == 0
    assert table.data_version == table.version


def test_batch_without_rows_is_no_change(tmp_path: Path) -> None:
    """Only the position moved."""
    table = owned(tmp_path, pa.int64())
    commit(table, [{"key": 1, "value": "a"}], *UPSERT)
    before = table.version

    commit(table, [], *UPSERT)

    assert (table.version, table.data_version) == (before + 1, before)


def test_row_of_a_merged_file_is_found_by_its_text(tmp_path: Path) -> None:
    """delta-rs writes such a file with another type of string; a filter still finds what it should."""
    table = owned(tmp_path, pa.string())
    for value in ("old", "new"):
        commit(table, [{"key": "a", "value": value}, {"key": "b", "value": value}], *UPSERT)

    assert table.read(["value"], where=ds.field("key").isin(["b"])).to_pylist() == [{"value": "new"}]


def test_merge_of_no_rows_leaves_its_entry_whatever_columns_they_have(tmp_path: Path) -> None:
    """Nothing came too late, and a backfill numbers what did anew."""
    table = owned(tmp_path, pa.int64())
    nothing = pa.schema([("key", pa.int64())]).empty_table()
    how = Merge(keys=("key",), clauses=(Clause(on="matched", act="update", set={"value": "'new'"}),))

    Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None).commit(
        table, nothing, table.entry.follow("redo"), how=how
    )

    assert (table.version, table.entry.kind, table.rows()) == (1, "redo", 0)


@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_taken_out_and_put_in_whatever_they_are(tmp_path: Path, kind: str) -> None:
    """Of a key of any type, alone and with another whose name is a word of SQL; nobody else's row is touched."""
    key_type, key_of = KEYS[kind]
    schema = pa.schema([("key", key_type), ("order", pa.int64()), ("value", pa.string())])
    entry = Entry(kind="create", app="a", epoch=1)
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    own = {name: f"s.{name}" for name in schema.names}
    clauses = (
        Clause(on="matched", act="delete", when="s._gone", set={}),
        Clause(on="matched", act="update", set=own),
        Clause(on="not matched", act="insert", when="not s._gone", brings=("_gone", False), set=own),
    )

    for keys in (("key",), ("key", "order")):
        how = Merge(keys=keys, idempotent=True, gone=("_gone", True), clauses=clauses)
        table = OwnedTable(name="gold.things", path=tmp_path / "-".join(keys), schema=schema, entry=entry)

        def put(
            value: str, *places: int, gone: Collection[int] = (), table: OwnedTable = table, how: Merge = how
        ) -> str:
            columns = [[key_of(at) for at in places], [at % 2 for at in places], [value] * len(places)]
            made = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            rows = pa.table([*made, [at in gone for at in places]], schema=schema.append(pa.field("_gone", pa.bool_())))
            existing = set(tuples(table.read(), how.keys))
            committer.commit(table, rows, table.entry.follow("batch"), how=how, existing=existing)
            (last,) = table.delta.history(1)
            return f"{last['operation']} {last['operationParameters'].get('mode', '')}"

        put("first", *range(10))
        operations = [put("second", 3, 4, 11), put("third", 4, 5, 9, gone=[5]), put("fourth", 20, 5, gone=[20, 5])]

        values = dict.fromkeys(map(key_of, range(10)), "first") | dict.fromkeys(map(key_of, (3, 11)), "second")
        values |= dict.fromkeys(map(key_of, (4, 9)), "third")
        del values[key_of(5)]
        assert {row["key"]: row["value"] for row in table.read().to_pylist()} == values
        assert table.rows() == len(values)
        assert table.version == table.delta.version() == 4

        exact = "WRITE Overwrite" if kind != "exact numbers" else "MERGE "
        assert operations == [exact, exact, "WRITE Append"]

        many = put("many", *range(1, 30))  # of so many the bounds are named too
        assert {row["key"]: row["value"] for row in table.read().to_pylist()} == {
            key_of(0): "first", **dict.fromkeys(map(key_of, range(1, 30)), "many")
        }  # fmt: skip
        assert table.rows() == 30
        assert many == (exact if len(keys) == 1 else "MERGE ")


def batch(table: OwnedTable, seq: int, *values: str, fails: Exception | None = None) -> tuple[Any, Entry]:
    """Give rows as Spark has them, and the entry of the ingest batches up to one."""
    made = pa.table({"key": pa.array(range(len(values)), pa.int64()), "value": pa.array(values, pa.string())})
    position = Position(batches={"bronze.things": seq})
    counts = Counts(read=len(values), taken=len(values))
    return Written(made, fails=fails), table.entry.follow("batch", ingest_seq=seq, position=position, counts=counts)


@pytest.mark.parametrize("anew", [False, True], ids=["the next turn", "opened anew"])
def test_rows_of_an_attempt_that_failed_after_its_commit_have_no_later_place(tmp_path: Path, anew: bool) -> None:
    """Spark committed to the stage, and raised: the next attempt has come further, and what is in the table is its own.

    Spark leaves out a version whose txn it finds: rows of the first attempt would stand for those of the second.
    """
    table = owned(tmp_path, pa.int64())
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    rows, entry = batch(table, 1, "first", fails=OSError("the listing after the commit"))
    with pytest.raises(OSError, match="after the commit"):
        committer.commit(table, rows, entry)
    if anew:
        table.reopen()

    rows, entry = batch(table, 2, "first", "second")
    committer.commit(table, rows, entry)

    table.reopen()
    assert table.entry == entry
    assert sorted(table.read()["value"].to_pylist()) == ["first", "second"]
    assert (table.version, table.entry.position.batches) == (1, {"bronze.things": 2})


def test_what_another_attempt_has_left_on_a_stage_is_not_published(tmp_path: Path) -> None:
    """However it came there: the table stays as it is, the driver ends, and the next attempt is its own."""
    table = owned(tmp_path, pa.int64())
    committer = Committer(spark=None, arrow_bytes_max=2**20, guard=lambda: None)
    (left, other), (rows, entry) = batch(table, 1, "first"), batch(table, 2, "first", "second")
    table.stage.follow(0)
    left.option("userMetadata", other.to_json()).option("txnAppId", TXN_APP).option("txnVersion", 1)
    left.save(str(table.stage.path))

    with pytest.raises(CommitLostError, match="another attempt's"):
        committer.commit(table, rows, entry)

    table.reopen()
    assert (table.version, table.rows()) == (0, 0)
    committer.commit(table, *batch(table, 2, "first", "second"))
    assert sorted(table.read()["value"].to_pylist()) == ["first", "second"]
