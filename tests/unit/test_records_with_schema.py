"""Records that Connect wrote with their schema beside them, its default, say what those without say."""

import json as js
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from deltaworks.cli.patching import _is_wrapped, _with
from deltaworks.engine.parse import Parser, parser
from deltaworks.engine.parsing.bronze import chunks
from deltaworks.engine.writers.patches import Patch
from deltaworks.words import Column, debezium, json, keep
from tests.bronze_rows import bronze
from tests.flows import START

SCHEMA = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "name": "shop.Envelope"}
ID, NOTE = Column("id", "bigint", null=False, doc="The key."), Column("note", "string", doc="A text.")
REST = Column("rest", "string", doc="What else comes.")


def record(op: str, after: Any = None, *, table: str = "people", **source: Any) -> dict[str, Any]:
    """A change record without its schema."""
    told = {"name": "shop", "schema": "public", "table": table, "lsn": 7, "snapshot": "false", "ts_ms": 1, **source}
    return {"before": None, "after": after, "source": told, "op": op, "ts_ms": 1, "transaction": None}


def wrapped(payload: Any, schema: Any = SCHEMA) -> dict[str, Any]:
    """As the converter writes it with `schemas.enable`."""
    return {"schema": schema, "payload": payload}


def parsed(made: Parser, values: Sequence[Any], keys: Sequence[Any] | None = None) -> list[dict[str, Any]]:
    """Parse documents; without the bytes that are kept of refused ones."""
    texts = [None if one is None else js.dumps(one) for one in values]
    named = None if keys is None else [None if one is None else js.dumps(one) for one in keys]
    rows: list[dict[str, Any]] = made.parse(bronze(texts, keys=named)).to_pylist()
    return [{name: value for name, value in row.items() if name not in ("_key", "_value")} for row in rows]


def people(*columns: Column, partial: bool = False, keys: tuple[str, ...] = ("id",)) -> Parser:
    """Parse the changes of public.people."""
    reads = debezium("bronze.changes", table="public.people", unknown_fields=keep("rest"))
    return parser(reads, (*(columns or (ID, NOTE)), REST), keys, partial=partial)


CHANGES = [
    record("r", {"id": 1, "note": "a", "price": 1.50}, snapshot="last"),
    record("c", {"id": 2, "note": "b"}),
    record("u", {"id": 2, "note": "__debezium_unavailable_value"}),
    record("d"),
    record("t"),
    record("c", {"id": "two"}),
    record("c", {"id": 3}, table="others"),
    record("r", {"id": 3}, table="others", snapshot="last", name="shop-1"),
    record("m", table=""),
    {"ts_ms": 1763719200000},
    {"status": "BEGIN", "id": "770:1", "event_count": None, "data_collections": None, "ts_ms": 1},
    {"status": "END", "id": "770:1", "event_count": 1, "data_collections": [], "ts_ms": 1},
    {"hello": "world"},
]


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["a struct", "none"])
def test_every_record_says_the_same_with_its_schema(schema: Any) -> None:
    """Changes, heartbeats, bounds of transactions, messages, other tables' records and what is none of them."""
    keys = [{"id": number} for number in range(len(CHANGES))]

    bare = parsed(people(partial=True), CHANGES, keys)
    clothed = parsed(
        people(partial=True), [wrapped(one, schema) for one in CHANGES], [wrapped(one, schema) for one in keys]
    )

    assert clothed == bare
    assert [row["_kind"] for row in bare[:8]] == [
        "row", "row", "row", "delete", "truncate", "refused", "other", "snapshot"
    ]  # fmt: skip
    assert (bare[0]["rest"], bare[2]["_sent"], bare[3]["id"]) == ('{"price":1.5}', '{"note": ""}', 3)
    assert {row["_kind"] for row in bare[8:12]} == {"other"}


def test_one_topic_may_hold_both_forms() -> None:
    """The converter was told otherwise at some time; a key may have its schema where the value has none."""
    mixed = [wrapped(record("c", {"id": 1, "note": "a"})), record("u", {"id": 1, "note": "b"}), record("d")]

    rows = parsed(people(), mixed, [{"id": 1}, wrapped({"id": 1}), wrapped({"id": 1})])

    assert [(row["_kind"], row["id"], row["note"]) for row in rows] == [
        ("row", 1, "a"), ("row", 1, "b"), ("delete", 1, None)
    ]  # fmt: skip


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["a struct", "none"])
def test_a_payload_of_null_is_a_tombstone(schema: Any) -> None:
    """As a record without a value; the key of a deletion that is null is none, and then the row of before counts."""
    nothing = wrapped(None, schema)

    tombstone, gone = parsed(people(), [nothing, record("d")], [wrapped({"id": 1}), nothing])

    assert (tombstone["_kind"], tombstone["_reason"]) == ("other", None)
    assert (gone["_kind"], gone["_reason"]) == ("refused", "before: missing")


def test_columns_of_these_names_are_columns() -> None:
    """In the row they are never looked at; a key of both is told by what is in it."""
    both = Column("schema", "string", null=False, doc="A."), Column("payload", "string", null=False, doc="B.")
    row, key = {"schema": "a", "payload": "b"}, {"schema": "x", "payload": "y"}

    for given in (lambda one: one, wrapped):
        taken, gone = parsed(people(*both, keys=("schema", "payload")), [given(record("c", row)), given(record("d"))],
                             [given(row), given(key)])  # fmt: skip

        assert (taken["_kind"], taken["schema"], taken["payload"]) == ("row", "a", "b")
        assert (gone["_kind"], gone["schema"], gone["payload"]) == ("delete", "x", "y")


@pytest.mark.parametrize(
    "value",
    [
        {"schema": {}, "payload": record("c", {"id": 1})},
        {"schema": {"type": "string"}, "payload": record("c", {"id": 1})},
        {"schema": {"type": "struct", "fields": {}}, "payload": record("c", {"id": 1})},
        {"schema": SCHEMA, "payload": [record("c", {"id": 1})]},
        {"schema": SCHEMA, "payload": wrapped(record("c", {"id": 1}))},
        {"schema": SCHEMA, "payload": record("c", {"id": 1}), "more": 1},
        {"payload": record("c", {"id": 1})},
    ],
)
def test_what_only_resembles_the_form_is_refused(value: Any) -> None:
    """No converter writes it, so nobody knows what it means."""
    (row,) = parsed(people(), [value])

    assert (row["_kind"], row["_reason"]) == ("refused", "not a Debezium envelope")


def test_events_with_their_schema_are_events() -> None:
    """Also what the table does not declare is of the event; one that is null is no event."""
    made = parser(json("bronze.events", topic="events", unknown_fields=keep("rest")), (ID, NOTE, REST))
    event = {"id": 1, "note": "a", "price": 2.5}

    bare, clothed, null = parsed(made, [event, wrapped(event), wrapped(None)])

    assert {**clothed, "_offset": 0, "_source": bare["_source"], "_timestamp": bare["_timestamp"]} == bare
    assert (bare["_kind"], bare["rest"]) == ("row", '{"price":2.5}')
    assert (null["_kind"], null["_reason"]) == ("refused", "no value")


def test_events_that_have_such_a_field_themselves_stay_whole() -> None:
    """A table that declares one of the names reads the document as it is."""
    payload = Column("payload", "string", doc="Its own.")
    made = parser(json("bronze.events", topic="events", unknown_fields=keep("rest")), (payload, REST))

    own, strange = parsed(made, [{"schema": 3, "payload": "mine"}, wrapped({"payload": "b"})])

    assert (own["_kind"], own["payload"], own["rest"]) == ("row", "mine", '{"schema":3}')
    assert (strange["_kind"], strange["_reason"]) == ("refused", "payload: not text")


def test_equal_schemas_are_held_once() -> None:
    """A schema is larger than its record: some thousand of them would fill the memory."""
    values = [js.dumps(wrapped({"id": number})) for number in range(3)]
    other = js.dumps(wrapped({"id": 4}, {**SCHEMA, "version": 2}))

    (chunk,) = chunks(bronze([*values, other, "x", other]))

    held = [found["schema"] for found in chunk.documents if isinstance(found, dict)]
    assert held[0] is held[1] is held[2]
    assert held[3] is held[4]
    assert held == [SCHEMA, SCHEMA, SCHEMA, {**SCHEMA, "version": 2}, {**SCHEMA, "version": 2}]


@pytest.mark.parametrize("given", [lambda one: one, wrapped], ids=["bare", "with its schema"])
def test_a_patch_is_put_into_the_record(given: Any) -> None:
    """By its fields, and as the deletion that tells whose row it is."""
    value = js.dumps(given(record("u", {"id": 1, "note": "a"})))
    fields = {"note": msgspec.Raw(b'"b"')}
    patch = Patch(place=("t", 0, 0), value=value.encode(), by="ann", reason="a test", command=1, at=START)

    beside = ("payload",) if _is_wrapped(value.encode()) else ()
    changed = js.loads(_with(value.encode(), fields, inside=(*beside, "after")))
    (gone,) = people().parse(bronze([patch.as_deletion().value], keys=['{"id":1}'])).to_pylist()

    assert changed == given(record("u", {"id": 1, "note": "b"}))
    assert (gone["_kind"], gone["id"]) == ("delete", 1)
