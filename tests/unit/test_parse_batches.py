"""Parsing does not depend on how rows are cut into batches, nor on where it runs."""

import json as js
import pickle
import string
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.parse import SYSTEM, Parser, parser
from deltaworks.engine.parsing import bronze as chunked
from deltaworks.words import Column, debezium, json
from tests.bronze_rows import bronze
from tests.chance import seeded

COLUMNS = (
    Column("id", "bigint", null=False, doc="The key."),
    Column("flag", "boolean", doc="Yes or no."),
    Column("small", "int", doc="A count."),
    Column("ratio", "double", doc="A measure."),
    Column("amount", "decimal(12,2)", doc="Money."),
    Column("name", "string", doc="A name."),
    Column("at", "timestamp", null=False, doc="When."),
    Column("since", "timestamp", wire="millis", doc="Since when."),
    Column("day", "date", wire="days", doc="On which day."),
)
JSON = parser(json("bronze.events", topic="events"), COLUMNS)
CHANGES = parser(debezium("bronze.shop_changes", table="public.things"), COLUMNS, ("id",))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LETTERS = string.printable + "äß日本\U0001f600\0\u2028"


def thing(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give a random record as the table holds it, and as the wire carries it."""
    at = datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(315_537_897_600_000_000))
    millis = chance.randrange(-2_208_988_800_000, 253_402_300_800_000)
    days = chance.randrange(-25_567, 2_932_896)
    amount = Decimal(chance.randrange(-(10**12) + 1, 10**12)).scaleb(-2)
    held: dict[str, Any] = {
        "id": chance.randrange(-(2**63), 2**63),
        "flag": chance.random() < 0.5,
        "small": chance.randrange(-(2**31), 2**31),
        "ratio": chance.uniform(-1e6, 1e6) * 10 ** chance.randint(-300, 300) + 0.0,
        "amount": amount,
        "name": "".join(chance.choices(LETTERS, k=chance.randint(0, 20))),
        "at": at,
        "since": EPOCH + timedelta(milliseconds=millis),
        "day": (EPOCH + timedelta(days=days)).date(),
    }
    wire = held | {"amount": str(amount), "at": at.isoformat(), "since": millis, "day": days}
    for name in ("flag", "small", "ratio", "amount", "name", "since", "day"):
        if chance.random() < 0.2:
            held[name] = wire[name] = None
            if chance.random() < 0.5:
                del wire[name]
    return held, wire


def garbled(wire: dict[str, Any], chance: Random) -> str | bytes | None:
    """Give something that a producer should not have sent."""
    text = js.dumps(wire)
    cut = chance.randrange(len(text))
    stray: Any = chance.choice([None, True, 1, 1.5, 2**70, "x", [], {}, "NAN"])
    return chance.choice(
        [None, b"", b"\xff", text[:cut], text + text, js.dumps(wire | {chance.choice(COLUMNS).name: stray})]
    )


def mixed_events(chance: Random, count: int) -> pa.Table:
    """Give good and garbled events of two topics."""
    values = [js.dumps(wire) if chance.random() < 0.7 else garbled(wire, chance) for _, wire in _things(chance, count)]
    parts = [bronze([value], topic=chance.choice(["events", "events", "clicks"])) for value in values]
    return pa.concat_tables(parts) if parts else bronze([])


def mixed_changes(chance: Random, count: int) -> pa.Table:
    """Give good and garbled changes of two tables."""
    values: list[str | bytes | None] = []
    for _, wire in _things(chance, count):
        source = {"schema": "public", "table": chance.choice(["things", "things", "others"]), "lsn": 7}
        change = {"after": wire, "source": source, "op": chance.choice("rcudtmx")}
        values.append(js.dumps(change) if chance.random() < 0.7 else garbled(change, chance))
    keys = [chance.choice(['{"id":1}', "{}", None]) for _ in values]
    return bronze(values, keys=keys)


def _things(chance: Random, count: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [thing(chance) for _ in range(count)]


@pytest.mark.parametrize("made", [JSON, CHANGES], ids=["json", "debezium"])
def test_random_records_come_back_as_they_were(made: Parser) -> None:
    """Whatever fits the declared types survives the wire exactly, in any mixture of nulls and left-out fields."""
    chance = seeded()
    things = _things(chance, 2_000)
    source = {"schema": "public", "table": "things", "lsn": 7}
    wires = [wire if made is JSON else {"after": wire, "source": source, "op": "c"} for _, wire in things]

    rows = made.parse(bronze([js.dumps(wire, ensure_ascii=chance.random() < 0.5) for wire in wires]))

    assert set(rows["_kind"].to_pylist()) == {"row"}
    assert rows.select([column.name for column in COLUMNS]).to_pylist() == [held for held, _ in things]


@pytest.mark.parametrize(("made", "mix"), [(JSON, mixed_events), (CHANGES, mixed_changes)], ids=["json", "debezium"])
@pytest.mark.parametrize("rows_max", [1, 7, 8_192])
def test_batches_give_the_same_rows_as_the_whole(
    made: Parser, mix: Any, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table, a row at a time, or cut at random: the same rows in the same order."""
    chance = seeded()
    table = mix(chance, 400)
    whole = made.parse(table)
    cuts = sorted(chance.sample(range(table.num_rows), 20))
    pieces = [table.slice(low, high - low) for low, high in zip([0, *cuts], [*cuts, table.num_rows], strict=True)]

    monkeypatch.setattr(chunked, "ROWS_MAX", rows_max)
    in_pieces = pa.concat_tables([made.parse(piece) for piece in pieces])
    in_chunks = made.parse(table)
    as_workers_do = pa.Table.from_batches(made.batches(table.to_batches()), schema=made.schema)

    assert len(set(whole["_kind"].to_pylist())) >= 3
    assert in_pieces.equals(whole)
    assert in_chunks.equals(whole)
    assert as_workers_do.equals(whole)


@pytest.mark.parametrize(("made", "mix"), [(JSON, mixed_events), (CHANGES, mixed_changes)], ids=["json", "debezium"])
def test_every_bronze_row_is_one_row_out(made: Parser, mix: Any) -> None:
    """Nothing is lost, doubled or moved: coordinates and ingest batch are bronze's own, and kinds add up."""
    table = mix(seeded(), 500)

    rows = made.parse(table)

    copied = {
        "_topic": "topic",
        "_partition": "partition",
        "_offset": "offset",
        "_timestamp": "timestamp",
        "_seq": "_seq",
    }
    for name, of in copied.items():
        assert rows[name].to_pylist() == table[of].to_pylist()
    for row, value in zip(rows.to_pylist(), table["value"].to_pylist(), strict=True):
        assert row["_kind"] in {"row", "delete", "truncate", "refused", "other"}
        assert (row["_reason"] is not None) == (row["_kind"] == "refused")
        assert row["_value"] == (value if row["_kind"] == "refused" else None)


def test_values_too_large_for_one_chunk_are_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of large values is parsed in bounded pieces, one value at least."""
    table = bronze([js.dumps({"id": number, "at": "2026-11-21T10:00:00Z", "x": "y" * 100}) for number in range(50)])
    monkeypatch.setattr(chunked, "BYTES_MAX", 300)

    sizes = [len(chunk) for chunk in chunked.chunks(table)]

    assert sum(sizes) == 50
    assert max(sizes) < 3
    assert JSON.parse(table)["id"].to_pylist() == list(range(50))


def test_a_parser_travels_as_its_declaration() -> None:
    """What reaches a worker parses the same, though nothing compiled was sent."""
    table = mixed_changes(seeded(), 200)

    copy = pickle.loads(pickle.dumps(CHANGES))  # noqa: S301  # our own bytes

    assert copy == CHANGES
    assert copy.parse(table).equals(CHANGES.parse(table))
    assert len(pickle.dumps(CHANGES)) < 10_000


def test_bronze_may_come_in_other_arrow_shapes() -> None:
    """Large strings, other names of UTC, another order and more columns are the same bronze."""
    plain = bronze([js.dumps({"id": 1, "at": "2026-11-21T10:00:00Z"}), "x"])
    other = plain.set_column(5, "value", plain["value"].cast(pa.large_binary()))
    other = other.set_column(3, "timestamp", plain["timestamp"].cast(pa.timestamp("us", "Etc/UTC")))
    other = other.append_column("headers", pa.nulls(2)).select(["headers", *reversed(plain.column_names)])

    assert JSON.parse(other).equals(JSON.parse(plain))


def test_system_columns_follow_the_declared_ones() -> None:
    """The result's schema is the declaration plus the system's columns, whatever the rows are."""
    assert JSON.schema.names == [*(column.name for column in COLUMNS), *SYSTEM.names, "_warned"]
    assert JSON.parse(bronze(["x"])).schema == JSON.parse(bronze([])).schema == JSON.schema
