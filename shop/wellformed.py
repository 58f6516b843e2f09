"""What a well-formed page view is, said a second time and independently of the engine, for the demo's check."""

import json
import re
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_BIGINT = range(-(2**63), 2**63)
_TEXTS = ("event_id", "session_id", "page")


class View(NamedTuple):
    """A page view as its sender meant it; event_time in UTC. A named tuple: the check makes millions."""

    event_id: str
    event_time: datetime
    user_id: int
    session_id: str
    page: str
    referrer: str | None


def page_view(value: bytes) -> View | None:
    """Read one JSON object in UTF-8 with all fields in their types, `referrer` alone nullable; None if it is not one.

    Fields that nobody declared are passed over. An event time is ISO 8601 with Z and at most microseconds.
    """
    try:
        found = json.loads(value.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):  # ValueError: not UTF-8, not JSON, a number of over 4,300 digits
        return None
    if not isinstance(found, dict):
        return None
    user, moment = found.get("user_id"), _moment(found.get("event_time"))
    if type(user) is not int or user not in _BIGINT or moment is None:  # bool is an int to isinstance
        return None
    texts = [found.get(name) for name in _TEXTS]
    referrer = found.get("referrer")
    if not all(_is_text(text) for text in texts) or not (referrer is None or _is_text(referrer)):
        return None
    event_id, session_id, page = texts
    return View(event_id, moment, user, session_id, page, referrer)  # type: ignore[arg-type]  # _is_text said so


def _is_text(value: Any) -> bool:
    """A string that UTF-8 can hold: JSON's escapes can spell half a surrogate pair, which is no character."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:  # the 31st of February, hour 25
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
