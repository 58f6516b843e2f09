"""Byte strings that a topic may hold, each with what must become of it: a row, or the reason of its refusal.

Made from one well-formed page view by rules whose outcome is known without a parser: a JSON object that is cut short
anywhere is no JSON, a byte above 0x7F alone is no UTF-8, and so on.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.flows import START

DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A value of the topic; `row` is None where it must be refused with `reason`."""

    value: bytes | None
    row: dict[str, object] | None = None
    reason: str | None = None


def samples() -> list[Sample]:
    """Every sample; event ids are unique, so that none is taken for a copy of another."""
    return [*_well_formed(), *_cut_short(), *_bytes(), *_around(), *_fields(), *_rules()]


def _document(name: str, **changed: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "event_id": name, "event_time": "2026-11-20T10:00:00Z", "user_id": 17, "session_id": "s", "page": "/a",
        "referrer": None,
    }  # fmt: skip
    return {**plain, **changed}


def _row(name: str, **changed: object) -> dict[str, object]:
    return {**_document(name), "event_time": START, **changed}


def _text(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False)


def _well_formed() -> Iterator[Sample]:
    """Odd, but what they say is not in doubt."""
    texts = ["", " ", "/ä", "/日本", "/\N{GRINNING FACE}", 'q"q', "b\\b", "n\nn", "t\tt", "/", "a" * 100_000, "\x00",
             "\u2028", "\ufeff", "\ufffe", "e\u0301", "null", "NaN", "{}", "%00", "'; drop table x; --"]  # fmt: skip
    for number, text in enumerate(texts):
        for escaped in (False, True):
            name = f"text{number}{escaped}"
            value = json.dumps(_document(name, session_id=text), ensure_ascii=escaped).encode()
            yield Sample(value=value, row=_row(name, session_id=text))
    for number, user in enumerate((0, -1, 2**63 - 1, -(2**63), 2**53 + 1)):
        name = f"user{number}"
        yield Sample(value=_text(_document(name, user_id=user)).encode(), row=_row(name, user_id=user))
    times = {
        "2026-11-20T10:00:00+00:00": START,
        "2026-11-20T12:30:00+02:30": START,
        "2026-11-20T10:00:00.000001Z": START + timedelta(microseconds=1),
        "1970-01-01T00:00:00Z": datetime(1970, 1, 1, tzinfo=UTC),
        "1969-12-31T23:59:59.999999Z": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "2024-02-29T00:00:00Z": datetime(2024, 2, 29, tzinfo=UTC),
        "2026-11-21T10:00:00Z": START + DAY,
    }
    for number, (written, moment) in enumerate(times.items()):
        name = f"time{number}"
        yield Sample(value=_text(_document(name, event_time=written)).encode(), row=_row(name, event_time=moment))
    for number, blank in enumerate((" ", "\n\n", "\t", "\r\n")):
        text = _text(_document(f"blank{number}"))
        yield Sample(value=f"{blank}{text}{blank}".encode(), row=_row(f"blank{number}"))
    backwards = dict(reversed(_document("backwards").items()))
    yield Sample(value=_text(backwards).encode(), row=_row("backwards"))
    unset = {name: value for name, value in _document("unset").items() if name != "referrer"}
    yield Sample(value=_text(unset).encode(), row=_row("unset"))


def _cut_short() -> Iterator[Sample]:
    """An object is whole only with its last brace."""
    whole = _text(_document("cut")).encode()
    yield from (Sample(value=whole[:end], reason="not JSON") for end in range(1, len(whole)))


def _bytes() -> Iterator[Sample]:
    """Single bytes inside a text: none of these may stand there."""
    before, after = _text(_document("byte", page="AB")).encode().split(b"AB")
    for byte in range(0x80, 0x100):
        yield Sample(value=before + bytes([byte]) + after, reason="not UTF-8")
    for byte in range(0x20):
        yield Sample(value=before + bytes([byte]) + after, reason="not JSON")
    for overlong in (b"\xc0\x80", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xf4\x90\x80\x80"):
        yield Sample(value=before + overlong + after, reason="not UTF-8")
    for half in (rb"\ud800", rb"\udc00", rb"\udc00\ud800", rb"x\uDBFFx"):
        yield Sample(value=before + half + after, reason="half a surrogate pair")
    for escape in (rb"\x41", rb"\u12", rb"\'", rb"\8"):
        yield Sample(value=before + escape + after, reason="not JSON")


def _around() -> Iterator[Sample]:
    """What stands before, after or instead of the object."""
    whole = _text(_document("around")).encode()
    for rest in (b"{}", b" {}", b"x", b",", b"]", b"}", b"\x00", b"null", b"\n" + whole, b"//", b"\xc2\xa0"):
        yield Sample(value=whole + rest, reason="text after the document")
    yield Sample(value=None, reason="no value")
    for empty in (b"", b" ", b"\r\n\t "):
        yield Sample(value=empty, reason="empty value")
    yield Sample(value=b"\xef\xbb\xbf" + whole, reason="byte order mark")
    for other in (b"[]", b"17", b'"text"', b"null", b"true", b"[" + whole + b"]"):
        yield Sample(value=other, reason="not an object")
    for broken in (b"{'a': 1}", b"{a: 1}", b'{"a": 1,}', b'{"a" 1}', b'{"a": 01}', b'{"a": +1}', b'{"a": .5}',
                   b'{"a": 1.}', b'{"a": 0x1}', b'{"a": undefined}', b'{"a": True}', b"\x00" * 20, b"PK\x03\x04",
                   b"<html></html>", "{“a”: 1}".encode()):  # fmt: skip
        yield Sample(value=broken, reason="not JSON")
    for special in (b"NaN", b"Infinity", b"-Infinity"):
        yield Sample(value=whole.replace(b"17", special), reason="NaN or Infinity")
    yield Sample(value=b'{"a":' * 101 + b"1" + b"}" * 101, reason="deeper than 100")
    yield Sample(value=b'{"a":' * 100_000 + b"1" + b"}" * 100_000, reason="deeper than 100")
    yield Sample(value=b'{"a": "' + b"a" * (10 * 2**20) + b'"}', reason="larger than 10 MiB")
    yield Sample(value=whole.replace(b"17", b"9" * 5_000), reason="number out of bounds")
    yield Sample(value=b'{"event_id": "x", ' + whole[1:], reason="a field twice")
    yield Sample(value=b'{"Event_Id": "x", ' + whole[1:], reason="event_id: differs only by case")
    yield Sample(value=b"{}", reason="event_id: missing")


def _fields() -> Iterator[Sample]:
    """A value of the wrong kind in each field; a required one missing or null."""
    wrong: dict[str, tuple[object, ...]] = {"text": (1, 1.5, True, [], {}), "integer": ("1", 1.5, 1.0, True, [], {})}
    days = ["", "now", "2026-11-20", "20261120", "2026-11-20T10:00:00", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z"]
    clocks = ["2026-11-20T24:00:01Z", "2026-11-20T10:00:61Z"]
    moments: list[object] = [*days, *clocks, 1_764_000_000, 1_764_000_000_000, True, [], {}]
    for name in ("event_id", "session_id", "page", "referrer"):
        yield from (_refused(f"{name}: not text", **{name: value}) for value in wrong["text"])
    yield from (_refused("user_id: not an integer", user_id=value) for value in wrong["integer"])
    huge: tuple[int, ...] = (2**63, -(2**63) - 1, 10**30)
    yield from (_refused("user_id: out of range", user_id=number) for number in huge)
    yield from (_refused("event_time: not a timestamp", event_time=moment) for moment in moments)
    yield _refused("event_time: future", event_time="2026-11-21T10:00:00.000001Z")
    yield _refused("event_time: future", event_time="2099-01-01T00:00:00Z")
    for name in ("event_id", "event_time", "user_id", "session_id", "page"):
        yield _refused(f"{name}: null", **{name: None})
        without = {key: value for key, value in _document("without").items() if key != name}
        yield Sample(value=_text(without).encode(), reason=f"{name}: missing")


def _rules() -> Iterator[Sample]:
    """Well-formed, and yet no page: the table's suite says that a page begins with a slash."""
    for page in ("", " /", "a/", "\n/", "\u2215", "\ufeff/", "a" * 100_000):
        yield _refused("rule: expect_column_values_to_match_regex(page)", page=page)


def _refused(reason: str, **changed: object) -> Sample:
    return Sample(value=_text(_document("wrong", **changed)).encode(), reason=reason)
