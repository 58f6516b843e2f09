"""What a well-formed event is, said a second time and independently of the engine, for the demo's check."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn

Kind = Literal["varchar", "integer", "bigint", "timestamptz", "decimal(12, 2)"]
"""DuckDB's name of a type."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)  # as JSON writes one
_INTEGER, _BIGINT = range(-(2**31), 2**31), range(-(2**63), 2**63)
_CENT, _TWELVE_DIGITS = Decimal("0.01"), Context(prec=12, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of an event; only one that may be null may be absent."""

    kind: Kind
    null: bool = False


_TEXT, _WHOLE, _NUMBERED = Field(kind="varchar"), Field(kind="integer"), Field(kind="bigint")
_TIME, _EUROS = Field(kind="timestamptz"), Field(kind="decimal(12, 2)")

FIELDS: Mapping[str, Mapping[str, Field]] = MappingProxyType(
    {
        "page_views": {
            "event_id": _TEXT,
            "event_time": _TIME,
            "user_id": _NUMBERED,
            "session_id": _TEXT,
            "page": _TEXT,
            "referrer": Field(kind="varchar", null=True),
        },
        "searches": {
            "search_id": _TEXT,
            "searched_at": _TIME,
            "session_id": _TEXT,
            "user_id": _NUMBERED,
            "term": _TEXT,
        },
        "search_clicks": {
            "click_id": _TEXT,
            "clicked_at": _TIME,
            "search_id": _TEXT,
            "session_id": _TEXT,
            "user_id": _NUMBERED,
            "url": _TEXT,
        },
        "ad_impressions": {"impression_id": _TEXT, "shown_at": _TIME, "ad_id": _TEXT, "user_id": _NUMBERED},
        "ad_clicks": {
            "click_id": _TEXT,
            "clicked_at": _TIME,
            "impression_id": _TEXT,
            "ad_id": _TEXT,
            "user_id": _NUMBERED,
        },
        "purchases": {"purchase_id": _TEXT, "bought_at": _TIME, "user_id": _NUMBERED, "amount": _EUROS},
        "published_purchases": {"purchase_id": _TEXT, "bought_at": _TIME, "user_id": _NUMBERED, "amount": _EUROS},
        "api_requests": {
            "request_id": _TEXT,
            "requested_at": _TIME,
            "client_id": _TEXT,
            "endpoint": _TEXT,
            "status": _WHOLE,
            "milliseconds": _WHOLE,
        },
        "cart_commands": {
            "command_id": _TEXT,
            "given_at": _TIME,
            "cart_id": _TEXT,
            "user_id": _NUMBERED,
            "command": _TEXT,
            "product_id": Field(kind="bigint", null=True),
            "quantity": Field(kind="integer", null=True),
        },
        "product_clicks": {"click_id": _TEXT, "clicked_at": _TIME, "user_id": _NUMBERED, "url": _TEXT},
    }
)
"""Fields by the silver table that they are for. The first is the id, which copies share."""


class View(NamedTuple):
    """A page view as its sender meant it; event_time in UTC."""

    event_id: str
    event_time: datetime
    user_id: int
    session_id: str
    page: str
    referrer: str | None


def page_view(value: bytes) -> View | None:
    """Read a page view; None if it is not well-formed."""
    found = event(value, FIELDS["page_views"])
    return None if found is None else View(*found)


def event(value: bytes, fields: Mapping[str, Field]) -> tuple[Any, ...] | None:
    """Read one JSON object in UTF-8 with all fields in their types, and give their values; None if it is not one.

    Fields that nobody declared are passed over. A moment is ISO 8601 with Z and at most microseconds. An amount is a
    number, or a text of one, that twelve digits with two decimals hold exactly.
    """
    try:
        found = json.loads(value.decode("utf-8"), parse_constant=_refuse, parse_float=Decimal)
    # ValueError: not UTF-8, not JSON, a whole number of over 4,300 digits; DecimalException: an exponent beyond all
    except (ValueError, DecimalException, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    values = []
    for name, field in fields.items():
        given = found.get(name)
        read = None if given is None else _READERS[field.kind](given)
        if read is None and (given is not None or not field.null):
            return None
        values.append(read)
    return tuple(values)


def _text(value: Any) -> str | None:
    """A string that UTF-8 can hold: JSON's escapes can spell half a surrogate pair, which is no character."""
    if not isinstance(value, str):
        return None
    return value if value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value) else None


def _integer(value: Any) -> int | None:
    return value if type(value) is int and value in _INTEGER else None  # bool is an int to isinstance


def _bigint(value: Any) -> int | None:
    return value if type(value) is int and value in _BIGINT else None


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:  # the 31st of February, hour 25
        return None


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    if type(value) not in {str, int, Decimal}:
        return None
    try:
        return Decimal(value).quantize(_CENT, context=_TWELVE_DIGITS)
    except (Inexact, InvalidOperation):
        return None


_READERS: Mapping[Kind, Callable[[Any], Any]] = MappingProxyType(
    {
        "varchar": _text,
        "integer": _integer,
        "bigint": _bigint,
        "timestamptz": _moment,
        "decimal(12, 2)": _amount,
    }
)
"""Each gives the value in Python's type, or None for one that is wrong."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
