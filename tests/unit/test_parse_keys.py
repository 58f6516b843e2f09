"""Whose row a record without a value takes away: the record's key says it, or the record is refused."""

import json as js
from typing import Any

import pytest

from deltaworks.engine.parse import Parser, parser
from deltaworks.words import Column, json
from tests.bronze_rows import bronze

STATES = json("bronze.states", topic="states")
CITY = Column("city", "string", doc="Where it is.")


def keyed(*types: str) -> Parser:
    """Give the parser of a table whose keys are `a`, `b` and so on, of these types."""
    columns = [Column(name, kind, null=False, doc="A key.") for name, kind in zip("abc", types, strict=False)]
    return parser(STATES, (*columns, CITY), tuple(column.name for column in columns))


def judged(made: Parser, key: bytes | str | None) -> dict[str, Any]:
    """What becomes of a record without a value."""
    (row,) = made.parse(bronze([None], topic="states", keys=[key])).to_pylist()
    return dict(row)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("bigint", '{"a": 17}', "17"),
        ("bigint", ' {"a":17}\n', "17"),
        ("bigint", "17", "17"),
        ("string", '{"a": "x"}', "x"),
        ("string", '"x"', "x"),
        ("string", '"\\u00e4"', "ä"),
        ("string", "x", "x"),
        ("string", " x ", " x "),
        ("string", "ä/17", "ä/17"),
        ("string", "17", "17"),
        ("string", "true", "true"),
        ("string", "[1]", "[1]"),
        ("string", '"x', '"x'),
        ("boolean", "true", "True"),
        ("date", "2026-11-20", "2026-11-20"),
        ("date", '"2026-11-20"', "2026-11-20"),
        ("timestamp", "2026-11-20T10:00:00Z", "2026-11-20 10:00:00+00:00"),
        ("decimal(6,2)", "1.5", "1.50"),
        ("decimal(6,2)", '{"a": "1.50"}', "1.50"),
        ("bigint", '{"schema": {"type": "struct", "fields": [], "optional": false}, "payload": {"a": 17}}', "17"),
        ("string", '{"schema": {"type": "string", "optional": false}, "payload": "x"}', "x"),
        ("bigint", '{"schema": null, "payload": 17}', "17"),
        ("bigint", '{"schema": null, "payload": {"a": 17}}', "17"),
    ],
)
def test_a_key_names_the_row_that_goes(kind: str, key: str, value: str) -> None:
    """A JSON object with the key's column; where that is one also its value alone, as JSON or as text."""
    row = judged(keyed(kind), key)

    assert (row["_kind"], row["_reason"]) == ("delete", None)
    assert str(row["a"]) == value
    assert row["city"] is None
    assert row["_source"] is not None


@pytest.mark.parametrize(
    ("types", "key", "reason"),
    [
        ("bigint", None, "key: no value"),
        ("bigint", b"", "key: empty value"),
        ("string", b"", "key: empty value"),
        ("string", b"\xff", "key: not UTF-8"),
        ("string", b"\xef\xbb\xbfx", "key: byte order mark"),
        ("string", b"\x00\x00\x00\x00\x07{}", "key: neither JSON nor text"),
        ("bigint", b"\x00\x00\x00\x00\x00\x00\x00\x11", "key: neither JSON nor text"),
        ("string", "{x", "key: not JSON"),
        ("string", '"\\ud800"', "key: half a surrogate pair"),
        ("bigint", "{}", "key: a: missing"),
        ("bigint", '{"A": 1}', "key: a: differs only by case"),
        ("bigint", '{"a": 1, "region": 2}', "key: undeclared field"),
        ("bigint", '{"a": 1, "a": 2}', "key: a field twice"),
        ("bigint", '{"a": null}', "a: null"),
        ("bigint", "null", "a: null"),
        ("bigint", '"17"', "a: not an integer"),
        ("bigint", "x17", "a: not an integer"),
        ("bigint", "017", "a: not an integer"),
        ("bigint", "[17]", "key: not JSON of one value"),
        ("date", "2026-11-31", "a: not a date"),
        ("bigint string", "17", "key: not an object"),
        ("bigint string", "x", "key: not JSON"),
        ("bigint string", '{"a": 17}', "key: b: missing"),
    ],
)
def test_a_key_that_names_no_row_is_refused_with_its_bytes(types: str, key: str | bytes | None, reason: str) -> None:
    """Nothing is guessed: a row that should go and stays is seen in quarantine, one that goes by mistake nowhere."""
    row = judged(keyed(*types.split()), key)

    assert (row["_kind"], row["_reason"]) == ("refused", reason)
    assert row["_key"] == (key.encode() if isinstance(key, str) else key)
    assert (row["a"], row["_value"]) == (None, None)


def test_several_columns_are_an_object_in_any_order() -> None:
    """As our own changelogs write them."""
    row = judged(keyed("bigint", "string"), '{"b": "x", "a": 17}')

    assert (row["_kind"], row["a"], row["b"]) == ("delete", 17, "x")


def test_a_key_may_go_by_its_older_name() -> None:
    """As the values do."""
    columns = (Column("a", "bigint", null=False, previously="id", doc="A key."), CITY)

    rows = [judged(parser(STATES, columns, ("a",)), js.dumps({name: 17})) for name in ("id", "a")]

    assert [(row["_kind"], row["a"]) for row in rows] == [("delete", 17)] * 2


def test_an_event_without_a_value_is_refused_whatever_its_key() -> None:
    """What has happened is not taken back."""
    columns = (Column("a", "bigint", null=False, doc="A number."), CITY)

    assert judged(parser(STATES, columns), '{"a": 17}')["_reason"] == "no value"


def test_an_empty_value_is_no_deletion() -> None:
    """Only the record that has none is: bytes that say nothing are a broken state."""
    (row,) = keyed("bigint").parse(bronze([b""], topic="states", keys=["17"])).to_pylist()

    assert (row["_kind"], row["_reason"]) == ("refused", "empty value")
