"""A table over Debezium's changes: its own rows, deletes and truncations; everything else is another's."""

import json as js
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.parse import Parser, parser
from deltaworks.errors import DeclarationError
from deltaworks.words import Column, debezium
from tests.bronze_rows import bronze

COLUMNS = (
    Column("id", "bigint", doc="The key."),
    Column("name", "string", null=False, doc="A name."),
    Column("email", "string", doc="An address."),
    Column("amount", "decimal(12,2)", doc="Money."),
    Column("updated_at", "timestamp", null=False, doc="With a zone in the source."),
    Column("born", "date", doc="A day."),
    Column("seen", "timestamp", doc="Without a zone in the source."),
)
AFTER = {
    "id": 1,
    "name": "ann",
    "email": None,
    "amount": "12.50",
    "updated_at": "2026-11-21T10:00:00.123456Z",
    "born": 20778,
    "seen": 1763719200123456,
}
UNSENT = "value not sent"


def people() -> Parser:
    """Parse the changes of public.people, keyed by id."""
    return parser(debezium("bronze.shop_changes", table="public.people"), COLUMNS, ("id",))


def change(
    op: str,
    after: Any = None,
    *,
    before: Any = None,
    table: str | None = "people",
    lsn: Any = 34114808,
    snapshot: Any = "false",
    name: str = "shop",
    committed: int | None = None,
    **more: Any,
) -> str:
    """Give a change record as the connector writes it."""
    source = {
        "version": "3.6.3.Final",
        "connector": "postgresql",
        "name": name,
        "ts_ms": 1763719200000,
        "snapshot": snapshot,
        "db": "shop",
        "sequence": js.dumps([committed and str(committed), str(lsn)], separators=(",", ":")),
        "ts_us": 1763719200000000,
        "ts_ns": 1763719200000000000,
        "schema": "public",
        "table": table,
        "txId": 770,
        "lsn": lsn,
        "xmin": None,
    }
    order = {"id": "770:34114808", "total_order": 1, "data_collection_order": 1}
    envelope = {"before": before, "after": after, "source": source, "transaction": order, "op": op, "ts_ms": 1, **more}
    return js.dumps(envelope, separators=(",", ":"))


def row_of(value: str | bytes | None, key: str | bytes | None = '{"id":1}') -> dict[str, Any]:
    """Parse one record."""
    (row,) = people().parse(bronze([value], topic="shop.changes", keys=[key], first_offset=9)).to_pylist()
    return dict(row)


@pytest.mark.parametrize("op", ["r", "c", "u"])
def test_a_read_insert_or_update_is_a_row_as_it_is_after(op: str) -> None:
    """Timestamps with a zone come as text, those without as microseconds, dates as days, decimals as text."""
    row = row_of(change(op, AFTER, before={"id": 1, "name": "old"}))

    assert row["_kind"] == "row"
    assert (row["id"], row["name"], row["email"]) == (1, "ann", None)
    assert (str(row["amount"]), str(row["born"])) == ("12.50", "2026-11-21")
    assert row["updated_at"].isoformat() == "2026-11-21T10:00:00.123456+00:00"
    assert row["seen"].isoformat() == "2025-11-21T10:00:00.123456+00:00"


def test_a_delete_counts_by_its_key_alone() -> None:
    """`before` holds invented defaults for columns that are never null: nothing of it is taken."""
    invented = {"id": 101, "name": "", "email": None, "updated_at": "1970-01-01T00:00:00.000000Z"}

    row = row_of(change("d", before=invented), key='{"id":7}')

    assert (row["_kind"], row["_reason"], row["id"]) == ("delete", None, 7)
    assert [row[column.name] for column in COLUMNS[1:]] == [None] * (len(COLUMNS) - 1)


@pytest.mark.parametrize(
    ("told", "micros"),
    [
        ({"ts_us": 1763719200000123, "ts_ms": 1763719200000}, 1763719200000123),
        ({"ts_us": None, "ts_ms": 1763719200001}, 1763719200001000),
        ({"ts_us": True, "ts_ms": "1763719200001"}, None),
        ({"ts_us": 0, "ts_ms": 0}, None),
        ({"ts_us": 253402300800000000}, None),
        ({"ts_us": 1763719200000123.0, "ts_ms": None}, None),
    ],
)
def test_a_change_has_the_time_of_its_commit(told: dict[str, Any], micros: int | None) -> None:
    """To the microsecond where the connector sends it. Only tables that live by it refuse a change without."""
    document = js.loads(change("u", AFTER))
    document["source"] |= told
    given = bronze([js.dumps(document)], topic="shop.changes", keys=['{"id":1}'])
    timed = parser(debezium("bronze.shop_changes", table="public.people"), COLUMNS, ("id",), timed=True)

    (row,), (strict,) = people().parse(given).to_pylist(), timed.parse(given).to_pylist()

    assert row["_kind"] == "row"
    assert row["_at"] == (None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros))
    assert strict["_at"] == row["_at"]
    assert (strict["_kind"], strict["_reason"]) == (
        ("refused", "source: no usable time") if micros is None else ("row", None)
    )


def test_a_truncation_sets_no_column() -> None:
    """It has no key; its sequence says what it came after."""
    row = row_of(change("t"), key=None)

    assert row["_kind"] == "truncate"
    assert [row[column.name] for column in COLUMNS] == [None] * len(COLUMNS)
    assert row["_source"] == "000000/00000000000000000000/1/00000000000034114808/00000000000000000009"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ('{"id":101}', None),
        (None, None),
        ('{"serverName":"shop"}', '{"ts_ms":1763719200000}'),
        (
            '{"id":"770:34114808"}',
            '{"status":"BEGIN","id":"770:34114808","event_count":null,"data_collections":null,"ts_ms":1}',
        ),
        (
            '{"id":"770:34114999"}',
            (
                '{"status":"END","id":"770:34114999","event_count":2,"data_collections":'
                '[{"data_collection":"public.people","event_count":2}],"ts_ms":1}'
            ),
        ),
        ('{"id":1}', change("u", {"id": 1, "ts": "2026-11-21T10:00:00Z"}, table="heartbeat")),
        ('{"id":1}', change("c", AFTER, table="People")),
        ('{"id":1}', change("d", table="orders", lsn=None)),
        ('{"prefix":"x"}', change("m", table="", message={"prefix": "x", "content": "eA=="})),
        ('{"prefix":"x"}', change("m", table=None, message={"prefix": "x", "content": "eA=="})),
    ],
    ids=[
        "tombstone",
        "no key",
        "heartbeat",
        "begin",
        "end",
        "heartbeat row",
        "case",
        "delete",
        "message",
        "bare message",
    ],
)
def test_what_is_anothers_says_nothing(key: str | None, value: str | None) -> None:
    """Tombstones, heartbeats, bounds of transactions and other tables' changes are counted, not refused."""
    row = row_of(value, key)

    assert row["_kind"] == "other"
    assert [row[name] for name in (*(column.name for column in COLUMNS), "_reason", "_source", "_value")] == [None] * 10


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        "x",
        "[]",
        "{}",
        '{"id":1}',
        change("c", AFTER)[:-1],
        change("c", AFTER) + change("c", AFTER),
        '{"schema":{},"payload":' + change("c", AFTER) + "}",
        '{"before":null,"after":null,"op":"c"}',
        '{"source":{"table":"people"},"op":"c"}',
        '{"source":{"schema":"public","table":7},"op":"c"}',
        '{"source":{"schema":"public","table":"people"}}',
        '{"ts_ms":1,"x":2}',
        '{"status":"BEGIN"}',
    ],
)
def test_what_cannot_be_told_to_be_anothers_is_refused(value: str | bytes) -> None:
    """A value in the change topic that no table could own is set aside, by each table over that bronze."""
    row = row_of(value)

    assert (row["_kind"], row["_reason"]) == ("refused", "not a Debezium envelope")
    assert (row["_key"], row["_value"]) == (b'{"id":1}', value.encode() if isinstance(value, str) else value)
    assert row["_source"] is None


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (change("x", AFTER), '{"id":1}', "op: not known"),
        (change("u"), '{"id":1}', "after: missing"),
        (change("u", [1]), '{"id":1}', "after: missing"),
        (change("u", AFTER, lsn=None), '{"id":1}', "source: no usable lsn"),
        (change("u", AFTER, lsn="34114808"), '{"id":1}', "source: no usable lsn"),
        (change("u", AFTER, lsn=-1), '{"id":1}', "source: no usable lsn"),
        (change("u", AFTER, lsn=2**63), '{"id":1}', "source: no usable lsn"),
        (change("u", AFTER | {"email": "__debezium_unavailable_value"}), '{"id":1}', f"email: {UNSENT}"),
        (change("c", AFTER | {"email": "__debezium_unavailable_value"}), '{"id":1}', f"email: {UNSENT}"),
        (change("r", AFTER | {"email": "__debezium_unavailable_value"}), '{"id":1}', f"email: {UNSENT}"),
        (change("u", AFTER | {"id": "__debezium_unavailable_value"}), '{"id":1}', f"id: {UNSENT}"),
        (change("u", AFTER | {"born": -2147472692}), '{"id":1}', "born: out of range"),
        (change("u", AFTER | {"seen": 9223372036825200000}), '{"id":1}', "seen: out of range"),
        (change("u", AFTER | {"amount": "NAN"}), '{"id":1}', "amount: NaN"),
        (change("u", AFTER | {"amount": "1.234"}), '{"id":1}', "amount: more digits than declared"),
        (change("u", AFTER | {"name": None}), '{"id":1}', "name: null"),
        (change("u", AFTER | {"id": None}), '{"id":1}', "id: null"),
        (change("u", {"id": 1, "name": "ann"}), '{"id":1}', "updated_at: missing"),
        (change("u", {"name": "ann", "updated_at": "2026-11-21T10:00:00Z"}), '{"id":1}', "id: missing"),
        (
            change("u", {"id": 1, "Email": "x", "name": "ann", "updated_at": "2026-11-21T10:00:00Z"}),
            '{"id":1}',
            "email: differs only by case",
        ),
        (change("d"), None, "before: missing"),
        (change("d", before=AFTER), "", "key: empty value"),
        (change("d", before=AFTER), "1", "key: not an object"),
        (change("d", before=AFTER), "{}", "key: id: missing"),
        (change("d", before=AFTER), '{"ID":1}', "key: id: differs only by case"),
        (change("d", before=AFTER), '{"id":null}', "id: null"),
        (change("d", before=AFTER), '{"id":"1"}', "id: not an integer"),
        (change("d", before=AFTER), '{"id":1,"id":2}', "key: a field twice"),
    ],
)
def test_a_change_of_mine_that_does_not_fit_is_refused(value: str, key: str | None, reason: str) -> None:
    """It is known to be this table's, so its bytes are kept with the reason; its order is kept where it is known."""
    row = row_of(value, key)

    assert (row["_kind"], row["_reason"]) == ("refused", reason)
    assert [row[column.name] for column in COLUMNS] == [None] * len(COLUMNS)
    assert row["_value"] == value.encode()
    assert row["_key"] == (None if key is None else key.encode())
    assert (row["_source"] is None) == ("lsn" in reason)


def test_partitions_under_their_own_names_are_their_table() -> None:
    """Their rows are the table's, also beside it; the end of one partition ends no other, and no truncation of one."""
    reads = debezium("bronze.shop_changes", table="public.people", partitions="public.people_2*")
    made = parser(reads, COLUMNS, ("id",))

    def kinds(*values: str) -> list[tuple[str, str | None, bool]]:
        rows = made.parse(bronze(list(values), topic="shop.changes", keys=['{"id":1}'] * len(values))).to_pylist()
        return [(row["_kind"], row["_reason"], row["_floor"] is not None) for row in rows]

    assert kinds(change("u", AFTER), change("u", AFTER, table="people_2026")) == [("row", None, False)] * 2
    assert (
        kinds(change("u", AFTER, table="people_x"), change("u", AFTER, table="2people_2"))
        == [("other", None, False)] * 2
    )
    assert kinds(
        change("r", AFTER, snapshot="last_in_data_collection"),
        change("r", AFTER, table="people_2026", snapshot="last_in_data_collection"),
        change("r", AFTER, table="people_2026", snapshot="last"),
        change("t", table="people_2026"),
        change("t"),
    ) == [
        ("row", None, True),
        ("row", None, False),
        ("row", None, True),
        ("refused", "op: a partition is truncated", False),
        ("truncate", None, True),
    ]


def test_columns_come_and_go_in_the_source() -> None:
    """A column dropped there is null here if it may be, a new one there is not taken."""
    after = {name: value for name, value in AFTER.items() if name != "email"} | {"added": "new", "NAME": "another"}

    row = row_of(change("u", after))

    assert (row["_kind"], row["name"], row["email"]) == ("row", "ann", None)


def test_an_update_may_leave_out_a_column_that_is_kept() -> None:
    """It says nothing of it, under neither of its names; a new row without it has null, which may not be there."""
    kept = Column("age", "int", null=False, absent="kept", previously="years", doc="Generated in the source.")
    columns = (Column("id", "bigint", doc="The key."), kept)
    made = parser(debezium("bronze.shop_changes", table="public.people"), columns, ("id",), partial=True)
    values = [
        change("u", {"id": 1}), change("u", {"id": 1, "years": 3}), change("u", {"id": 1, "age": None}),
        change("c", {"id": 1}), change("r", {"id": 1, "age": 4}),
    ]  # fmt: skip

    rows = made.parse(bronze(values, topic="shop.changes", keys=['{"id":1}'] * len(values))).to_pylist()

    assert [(row["_kind"], row["_reason"], row["age"], row["_sent"]) for row in rows] == [
        ("row", None, None, '{"age": ""}'),
        ("row", None, 3, None),
        ("refused", "age: null", None, None),
        ("refused", "age: null", None, None),
        ("row", None, 4, None),
    ]


def test_a_changed_key_is_a_delete_and_a_row() -> None:
    """The connector sends delete, tombstone and insert with one lsn; the offset orders them."""
    values = [change("d"), None, change("c", AFTER | {"id": 101})]

    rows = people().parse(bronze(values, topic="shop.changes", keys=['{"id":100}', '{"id":100}', '{"id":101}']))

    assert rows["_kind"].to_pylist() == ["delete", "other", "row"]
    assert rows["id"].to_pylist() == [100, None, 101]
    first, _, last = rows["_source"].to_pylist()
    assert first < last


def test_a_batch_of_everything_keeps_each_row_at_its_place() -> None:
    """Deletes among rows take their own key, refused ones leave a hole, nothing slips by one."""
    values: list[str | None] = []
    keys: list[str | None] = []
    for number in range(40):
        after = AFTER | {"id": number, "name": f"n{number}"}
        bad = after | {"amount": "NAN"}
        records = [change("c", after), change("d"), change("u", bad), None, change("t"), change("c", after, table="x")]
        values.append(records[number % 6])
        keys.append(f'{{"id":{number}}}')

    rows = people().parse(bronze(values, topic="shop.changes", keys=keys))

    kinds = ["row", "delete", "refused", "other", "truncate", "other"]
    assert rows["_kind"].to_pylist() == [kinds[number % 6] for number in range(40)]
    assert rows["id"].to_pylist() == [number if number % 6 < 2 else None for number in range(40)]
    assert rows["name"].to_pylist() == [f"n{number}" if number % 6 == 0 else None for number in range(40)]
    assert rows["_offset"].to_pylist() == list(range(40))


@pytest.mark.parametrize("snapshot", ["true", "first", "first_in_data_collection", "last", "incremental", True])
def test_a_snapshot_row_comes_before_the_change_with_its_lsn(snapshot: Any) -> None:
    """The first streamed change may carry the lsn of the snapshot; it may even be read first."""
    values = [change("u", AFTER), change("r", AFTER, snapshot=snapshot)]

    rows = people().parse(bronze(values, topic="shop.changes", keys=['{"id":1}'] * 2))

    streamed, read = rows["_source"].to_pylist()
    assert read < streamed


def test_sequences_order_by_epoch_then_lsn_then_offset() -> None:
    """A source that began anew (restored, slot recreated) counts its lsn from anywhere; its epoch is higher."""
    low = bronze([change("c", AFTER, lsn=9), change("u", AFTER, lsn=9), change("u", AFTER, lsn=10)], keys=["{}"] * 3)
    high = bronze([change("c", AFTER, lsn=2**63 - 1)], keys=["{}"])
    restored = bronze([change("c", AFTER, lsn=9, name="shop-1"), change("u", AFTER, lsn=10, name="shop-1")])

    first = people().parse(pa.concat_tables([low, high]))["_source"].to_pylist()
    second = people().parse(restored)["_source"].to_pylist()

    assert first == sorted(first)
    assert first[-1] < second[0]
    assert second == sorted(second)


def test_transactions_count_in_the_order_of_their_commits() -> None:
    """An insert that waited for another transaction to delete its key has the lower lsn, and is the later change."""
    values = [
        change("c", AFTER, lsn=28_136_488, committed=28_136_000),
        change("d", None, before=AFTER, lsn=28_136_792, committed=28_136_000),
        change("c", AFTER, lsn=28_136_720, committed=28_136_856),
    ]

    rows = people().parse(bronze(values, topic="shop.changes", keys=['{"id":1}'] * 3))

    sequences = rows["_source"].to_pylist()
    assert sequences == sorted(sequences)


def test_a_transaction_that_was_open_during_the_snapshot_comes_after_it() -> None:
    """Its changes have lower lsns than the snapshot, which does not show them; no commit is known before it."""
    values = [
        change("r", AFTER, lsn=34_114_808, snapshot="last"),
        change("u", AFTER, lsn=34_110_000),
        change("u", AFTER, lsn=34_112_000, committed=34_115_000),
    ]

    rows = people().parse(bronze(values, topic="shop.changes", keys=['{"id":1}'] * 3))

    sequences = rows["_source"].to_pylist()
    assert sequences == sorted(sequences)
    assert rows["_floor"].to_pylist()[0] < sequences[0]


def test_changes_without_keys_are_found_before_anything_runs() -> None:
    """Deletes are told by key: a table without keys cannot read changes."""
    with pytest.raises(DeclarationError, match="there are no keys"):
        parser(debezium("bronze.shop_changes", table="public.people"), COLUMNS)


def test_a_change_has_the_time_of_arrival_of_its_record() -> None:
    """It is asked of no row, also where it is required; a column of that name in the source is another."""
    arrived = Column("arrived_at", "timestamp", null=False, wire="arrival", doc="When it came.")
    named = {**AFTER, "arrived_at": "2001-01-01T00:00:00Z"}
    values = [change("c", AFTER), change("u", named), change("d", None, before=AFTER), change("c", {"id": 2})]
    reads = debezium("bronze.shop_changes", table="public.people")
    taken = parser(reads, (*COLUMNS, arrived), ("id",))

    rows = taken.parse(bronze(values, topic="shop.changes", keys=['{"id":1}'] * 4)).to_pylist()

    assert [row["_kind"] for row in rows] == ["row", "row", "delete", "refused"]
    assert [row["arrived_at"] for row in rows] == [rows[0]["_timestamp"], rows[1]["_timestamp"], None, None]
    assert rows[0]["arrived_at"] is not None
