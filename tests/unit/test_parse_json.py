"""A table over JSON events: each value of its topic is a row, or is refused with the reason."""

import json as js
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.parse import Parser, parser
from deltaworks.errors import DeclarationError
from deltaworks.words import Column, ignore, json, keep, refuse
from deltaworks.words.reading import UnknownFields
from tests.bronze_rows import bronze

COLUMNS = (
    Column("event_id", "string", null=False, doc="Given by the page."),
    Column("event_time", "timestamp", null=False, doc="When the page was opened."),
    Column("user_id", "bigint", null=False, doc="Who looked."),
    Column("referrer", "string", doc="Where the visitor came from."),
)
EVENT = {"event_id": "e1", "event_time": "2026-11-21T10:00:00.123456Z", "user_id": 17, "referrer": None}


def events(unknown_fields: UnknownFields | None = None) -> Parser:
    """Parse the topic `events`."""
    return parser(json("bronze.web_events", topic="events", unknown_fields=unknown_fields), COLUMNS)


def event(**changes: Any) -> str:
    """Give an event with some fields other than usual."""
    return js.dumps(EVENT | changes)


def without(name: str) -> str:
    """Give an event that lacks a field."""
    return js.dumps({field: value for field, value in EVENT.items() if field != name})


def only_row(rows: pa.Table) -> dict[str, Any]:
    """Give the one row there is."""
    (row,) = rows.to_pylist()
    return dict(row)


def test_an_event_becomes_a_row_with_its_place_in_kafka() -> None:
    """Declared columns, the sequence and the coordinates are set; no bytes are kept beside a good row."""
    rows = events().parse(bronze([event()], partition=3, first_offset=41, seq=7))

    row = only_row(rows)
    assert rows.schema == events().schema
    assert (row["event_id"], row["user_id"], row["referrer"]) == ("e1", 17, None)
    assert row["event_time"].isoformat() == "2026-11-21T10:00:00.123456+00:00"
    assert (row["_kind"], row["_reason"], row["_seq"]) == ("row", None, 7)
    assert row["_source"] == "events/00003/00000000000000000041"
    assert (row["_topic"], row["_partition"], row["_offset"]) == ("events", 3, 41)
    assert (row["_key"], row["_value"]) == (None, None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "empty value"),
        (event() + event(), "text after the document"),
        ("[" + event() + "]", "not an object"),
        (without("event_id"), "event_id: missing"),
        (without("event_time"), "event_time: missing"),
        ("{}", "event_id: missing"),
        (event(user_id=None), "user_id: null"),
        (event(user_id="17"), "user_id: not an integer"),
        (event(user_id=17.0), "user_id: not an integer"),
        (event(user_id=2**63), "user_id: out of range"),
        (event(referrer=1), "referrer: not text"),
        (event(event_time="2026-11-21"), "event_time: not a timestamp"),
        (event(event_id=1, user_id="x"), "event_id: not text"),
        (event(EVENT_ID="e2"), "event_id: differs only by case"),
        (event(Referrer="x"), "referrer: differs only by case"),
        (event(referrer=None, Referrer=None), "referrer: differs only by case"),
        ('{"event_id":"e1",' + event()[1:], "a field twice"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_bytes_and_reason(value: str | bytes | None, reason: str) -> None:
    """A refused row names field and code, keeps the raw bytes and the coordinates, and sets no column."""
    rows = events().parse(bronze([event(), value, event()], keys=["a", "k", "b"], first_offset=5, seq=7))

    good, row, other_good = rows.to_pylist()
    assert (good["_kind"], other_good["_kind"]) == ("row", "row")
    assert (good["user_id"], other_good["user_id"]) == (17, 17)
    assert (row["_kind"], row["_reason"]) == ("refused", reason)
    assert [row[column.name] for column in COLUMNS] == [None] * len(COLUMNS)
    raw = value.encode() if isinstance(value, str) else value
    assert (row["_topic"], row["_partition"], row["_offset"], row["_seq"]) == ("events", 0, 6, 7)
    assert (row["_key"], row["_value"]) == (b"k", raw)
    assert row["_source"] == "events/00000/00000000000000000006"


def test_a_reason_never_quotes_data() -> None:
    """Whatever the producer sends, values and undeclared names stay out of the reason."""
    secret = "ann@example.org"
    values = [
        secret,
        event(**{secret: 1}),
        event(user_id=secret),
        event(event_time=secret),
        event(event_id=[secret]),
        f'{{"{secret}":1,"{secret}":2}}',
        event() + secret,
    ]

    rows = events(refuse()).parse(bronze(values))

    assert set(rows["_kind"].to_pylist()) == {"refused"}
    assert not any(secret in reason for reason in rows["_reason"].to_pylist())


def test_a_missing_field_that_may_be_null_is_null() -> None:
    """Producers that leave out empty fields are understood."""
    rows = events().parse(bronze([without("referrer")]))

    assert (only_row(rows)["_kind"], only_row(rows)["referrer"]) == ("row", None)


@pytest.mark.parametrize(("policy", "kind"), [(ignore(), "row"), (refuse(), "refused"), (None, "row")])
def test_an_undeclared_field_is_ignored_or_refused_as_declared(policy: UnknownFields | None, kind: str) -> None:
    """Nested and repeated shapes of undeclared fields included."""
    value = event(colour={"a": [1, {"b": 2}]})

    rows = events(policy).parse(bronze([value, value]))

    assert rows["_kind"].to_pylist() == [kind, kind]
    assert set(rows["_reason"].to_pylist()) == ({None} if kind == "row" else {"undeclared field"})


def test_another_topic_of_the_same_bronze_is_not_mine() -> None:
    """Rows of other topics are there, in their place, and say nothing."""
    mixed = pa.concat_tables(
        [bronze(["x"], topic="clicks"), bronze([event()]), bronze([None, event()], topic="clicks"), bronze(["y"])]
    )

    rows = events().parse(mixed)

    assert rows["_kind"].to_pylist() == ["other", "row", "other", "other", "refused"]
    assert rows["user_id"].to_pylist() == [None, 17, None, None, None]
    assert [source is None for source in rows["_source"].to_pylist()] == [True, False, True, True, False]
    assert rows["_value"].to_pylist() == [None, None, None, None, b"y"]


def test_the_time_of_arrival_is_that_of_the_record() -> None:
    """It is no field: an event that sends one of its name sends an undeclared one; refused rows do not have it."""
    arrived = Column("arrived_at", "timestamp", null=False, wire="arrival", doc="When the broker took it.")
    reads = json("bronze.web_events", topic="events", unknown_fields=keep("_rest"))
    rest = Column("_rest", "string", doc="What is not declared.")
    stated = event(arrived_at="2001-01-01T00:00:00Z")

    rows = parser(reads, (*COLUMNS, arrived, rest)).parse(bronze([event(), "no event", stated])).to_pylist()

    assert [row["_kind"] for row in rows] == ["row", "refused", "row"]
    assert [row["arrived_at"] for row in rows] == [rows[0]["_timestamp"], None, rows[2]["_timestamp"]]
    assert rows[0]["arrived_at"] is not None
    assert [row["_rest"] for row in rows] == [None, None, '{"arrived_at":"2001-01-01T00:00:00Z"}']


def test_sequences_sort_in_the_order_of_their_offsets() -> None:
    """As texts, within a partition."""
    rows = events().parse(bronze([event()] * 12, first_offset=95))

    sources = rows["_source"].to_pylist()
    assert sources == sorted(sources)
    assert len(set(sources)) == 12


def test_no_rows_give_no_rows() -> None:
    """An empty batch keeps its columns."""
    rows = events().parse(bronze([]))

    assert (rows.num_rows, rows.schema) == (0, events().schema)


def test_a_producer_without_end_of_new_fields_fills_no_memory() -> None:
    """Shapes are remembered up to a bound."""
    made = events()

    rows = made.parse(bronze([event(**{f"field_{number}": 1}) for number in range(3_000)]))

    assert set(rows["_kind"].to_pylist()) == {"row"}
    assert len(made._way.fields.shapes._judged) <= 1_000  # it reads JSON


def test_a_key_that_is_no_column_is_found_before_anything_runs() -> None:
    """A parser of a wrong declaration is never made."""
    with pytest.raises(DeclarationError, match="order_id: is a key and no column"):
        parser(json("bronze.web_events", topic="events"), COLUMNS, ("order_id",))
