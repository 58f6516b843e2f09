"""The second opinion on what a well-formed page view is."""

import json
from datetime import UTC, datetime

import pytest

from shop.wellformed import View, page_view

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
