"""The second opinion on what a well-formed event is."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from deltaworks import catalog
from deltaworks.settings import ROOT
from deltaworks.words.reading import ARRIVAL, Json
from shop.wellformed import FIELDS, View, event, page_view

GOOD = {
    "event_id": "r-1",
    "event_time": "2026-11-21T10:00:00.123456Z",
    "user_id": 17,
    "session_id": "r-17-3",
    "page": "/products/12",
    "referrer": None,
}


def encoded(**changed: object) -> bytes:
    """A well-formed view with some fields changed."""
    return json.dumps(GOOD | changed).encode()


def test_a_wellformed_view_is_read_with_its_values() -> None:
    """All fields arrive in their types, the time in UTC to the microsecond."""
    moment = datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC)

    assert page_view(encoded()) == View("r-1", moment, 17, "r-17-3", "/products/12", None)


@pytest.mark.parametrize(
    "changed",
    [
        {"referrer": "https://search.example/"},
        {"page": "/søk/漢字/😀"},
        {"user_id": -(2**63)},
        {"user_id": 2**63 - 1},
        {"event_time": "2026-11-21T10:00:00Z"},
        {"event_time": "2026-11-21T10:00:00.5Z"},
        {"event_time": "2024-02-29T23:59:59.999999Z"},
        {"undeclared": [1, 2]},
        {"event_id": ""},
    ],
)
def test_what_the_declaration_allows_is_wellformed(changed: dict[str, object]) -> None:
    """Bounds of bigint, fractions of any length up to microseconds, fields that nobody declared."""
    assert page_view(encoded(**changed)) is not None
    assert page_view(json.dumps(GOOD | changed, ensure_ascii=False).encode()) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"user_id": "17"},
        {"user_id": 17.0},
        {"user_id": True},
        {"user_id": None},
        {"user_id": 2**63},
        {"user_id": [17]},
        {"event_id": 1},
        {"event_id": None},
        {"session_id": None},
        {"page": {"path": "/"}},
        {"page": "\ud800"},
        {"referrer": 7},
        {"event_time": None},
        {"event_time": 1_795_000_000},
        {"event_time": "yesterday"},
        {"event_time": "2026-11-21"},
        {"event_time": "2026-11-21T10:00:00"},
        {"event_time": "2026-11-21T10:00:00+00:00"},
        {"event_time": "2026-11-21 10:00:00Z"},
        {"event_time": "2026-02-30T10:00:00Z"},
        {"event_time": "2026-11-21T25:00:00Z"},
        {"event_time": "2026-11-21T10:00:00.1234567Z"},
        {"event_time": "2026-11-21T10:00:00Z\n"},
        {"event_time": "\uff12026-11-21T10:00:00Z"},
    ],
)
def test_a_wrong_type_or_time_is_malformed(changed: dict[str, object]) -> None:
    """Nothing is converted: a number in a string is a string, a boolean is no number."""
    assert page_view(encoded()) is not None
    assert page_view(encoded(**changed)) is None


@pytest.mark.parametrize("field", sorted(set(GOOD) - {"referrer"}))
def test_a_missing_field_is_malformed(field: str) -> None:
    """Every field but the referrer has to be there."""
    assert page_view(json.dumps({name: value for name, value in GOOD.items() if name != field}).encode()) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b"[" + encoded() + b"]",
        encoded() + b"x",
        encoded() + encoded(),
        encoded()[:-1],
        encoded().replace(b"17", b"NaN", 1),
        encoded().replace(b"/products", b"/\xff\xfe"),
        encoded().decode().encode("utf-16"),
        b"\xef\xbb\xbf" + encoded(),
        b"[" * 100_000,
    ],
)
def test_what_is_not_one_json_object_in_utf8_is_malformed(value: bytes) -> None:
    """Truncated, doubled, wrapped, in another encoding, with a byte order mark, or nested without end."""
    assert page_view(value) is None


def told(table: str, **fields: object) -> bytes:
    """An event with a good value in each of the table's fields, of which some are changed."""
    good = {
        "varchar": "x",
        "integer": 7,
        "bigint": 7,
        "timestamptz": "2026-11-21T10:00:00.123456Z",
        "decimal(12, 2)": "9.95",
    }
    return json.dumps({name: good[field.kind] for name, field in FIELDS[table].items()} | fields).encode()


def test_fields_are_the_columns_that_the_tables_declare() -> None:
    """Of every table of JSON events, by name, type and whether they may be null; what the broker adds is no field.

    A table that filters events has those of the table that has them all.
    """
    spelled = {"string": "varchar", "int": "integer", "timestamp": "timestamptz", "decimal(12,2)": "decimal(12, 2)"}
    declared = {
        table.name.removeprefix("silver."): {
            column.name: (spelled.get(column.type, column.type), column.null)
            for column in table.columns
            if column.wire != ARRIVAL
        }
        for table in catalog.load(ROOT).tables.values()
        if isinstance(table.table.reads, Json) and table.table.only is None
    }

    said = {name: {field: (one.kind, one.null) for field, one in fields.items()} for name, fields in FIELDS.items()}

    assert len(said) == 10
    assert said == declared


@pytest.mark.parametrize("table", FIELDS)
def test_each_event_is_read_with_its_values(table: str) -> None:
    """In the order of the fields, each in Python's type."""
    values = {
        "varchar": "x",
        "integer": 7,
        "bigint": 7,
        "timestamptz": datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC),
        "decimal(12, 2)": Decimal("9.95"),
    }

    assert event(told(table), FIELDS[table]) == tuple(values[field.kind] for field in FIELDS[table].values())


@pytest.mark.parametrize("table", FIELDS)
def test_each_field_may_be_null_or_absent_only_if_declared_so(table: str) -> None:
    """A field of another type is malformed, nullable or not."""
    for name, field in FIELDS[table].items():
        whole = json.loads(told(table))
        absent = json.dumps({other: value for other, value in whole.items() if other != name}).encode()

        assert (event(absent, FIELDS[table]) is not None) is field.null, name
        assert (event(told(table, **{name: None}), FIELDS[table]) is not None) is field.null, name
        assert event(told(table, **{name: {"a": 1}}), FIELDS[table]) is None, name
        assert event(told(table, **{name: True}), FIELDS[table]) is None, name


@pytest.mark.parametrize(
    ("status", "wellformed"), [(2**31 - 1, True), (2**31, False), (-(2**31), True), (200.0, False)]
)
def test_a_whole_number_fits_its_column(status: float, *, wellformed: bool) -> None:
    """An int has 32 bits."""
    assert (event(told("api_requests", status=status), FIELDS["api_requests"]) is not None) is wellformed


@pytest.mark.parametrize(
    ("amount", "value"),
    [
        ('"1.00"', "1.00"),
        ("1.5", "1.50"),
        ("0.10", "0.10"),
        ("7", "7.00"),
        ('"-1.500"', "-1.50"),
        ("1e3", "1000.00"),
        ("9999999999.99", "9999999999.99"),
        ("10000000000", None),
        ('"1.005"', None),
        ("1e400", None),
        ("1e99999999999999999999", None),
        ('"NaN"', None),
        ("Infinity", None),
        ('"1_000"', None),
        ('" 1"', None),
        ('"01"', None),
        ('""', None),
        ('"\u0661"', None),
    ],
)
def test_an_amount_is_what_twelve_digits_with_two_decimals_hold(amount: str, value: str | None) -> None:
    """A number or a text of one, exactly: nothing is rounded."""
    spoilt = told("purchases").replace(b'"9.95"', amount.encode())

    found = event(spoilt, FIELDS["purchases"])

    assert spoilt != told("purchases")
    assert (None if found is None else str(found[-1])) == value
