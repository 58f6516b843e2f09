"""A value is one JSON object and nothing else."""

import json
from decimal import Decimal

import pytest

from deltaworks.engine.parsing.document import BYTES_MAX, DEPTH_MAX, read
from deltaworks.engine.parsing.refusal import Refusal

REFUSED: dict[str, list[bytes | None]] = {
    "no value": [None],
    "empty value": [b"", b" ", b"\n\t\r "],
    "byte order mark": [b'\xef\xbb\xbf{"a":1}'],
    "not UTF-8": [
        b'{"a":"\xff"}',
        b'{"a":"\xc3"}',
        b'{"a":"\xc0\xaf"}',  # overlong
        b'{"a":"\xed\xa0\x80"}',  # a surrogate as bytes
        b'{"a":"\xf4\xbf\xbf\xbf"}',  # beyond Unicode
        '{"a":1}'.encode("utf-16"),
        b"\xff\xfe",
    ],
    "not an object": [b"1", b'"a"', b"null", b"true", b"[]", b'[{"a":1}]', b" 7 "],
    "text after the document": [
        b'{"a":1}{"a":2}',
        b'{"a":1} {"a":2}',
        b'{"a":1},',
        b'{"a":1}]',
        b'{"a":1}x',
        b'{"a":1}//c',
        b'{"a":1}\x00',
        b'{"a":1}\xc2\xa0',  # a blank for Unicode, not for JSON
        b"[] []",
    ],
    "a field twice": [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":2,"a":3}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":1 , "a" : 2}',
        b'{"x":{"a":1,"a":2}}',
        b'{"x":[{"a":1},{"a":1,"a":2}]}',
        b'{"x":{"a":1,"a":2},"x":3}',
    ],
    "NaN or Infinity": [b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":[1,NaN]}', b"NaN"],
    "number out of bounds": [b'{"a":' + b"7" * 5_000 + b"}", b'{"a":1e9999999999999999999999}'],
    "half a surrogate pair": [
        b'{"a":"\\ud800"}',
        b'{"a":"\\udfaa"}',
        b'{"a":"\\ud800x\\udc00"}',
        b'{"\\ud800":1}',
        b'{"a":{"b":["\\uDADA"]},"c":0.5}',
    ],
    f"deeper than {DEPTH_MAX}": [
        b'{"a":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}",
        b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
        b'{"a":' + b"[" * 100_000,
        b"[" * 100_000,
    ],
    "larger than 10 MiB": [b'{"a":"' + b"x" * BYTES_MAX + b'"}'],
    "not JSON": [
        b"x",
        b"{",
        b"}",
        b"{'a':1}",
        b"{a:1}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{,"a":1}',
        b'{"a":1 "b":2}',
        b'{"a":01}',
        b'{"a":+1}',
        b'{"a":.5}',
        b'{"a":1.}',
        b'{"a":1e}',
        b'{"a":0x10}',
        b'{"a":1_000}',
        b'{"a":True}',
        b'{"a":nan}',
        b'{"a":"x}',
        b'{"a":"\n"}',
        b'{"a":"\x00"}',
        b'{"a":"\\x41"}',
        b'{"a":"\\u00"}',
        b'{"a":"\\u 041"}',
        b'{/**/"a":1}',
        b'{"a":\xc2\xa01}',
        '{"a":\u0661}'.encode(),  # a digit, but not JSON's
        b'\x0b{"a":1}',
    ],
}


@pytest.mark.parametrize(("code", "value"), [(code, value) for code, values in REFUSED.items() for value in values])
def test_what_is_not_one_object_is_refused(code: str, value: bytes | None) -> None:
    """Each malformed document is refused as a whole, with a code that says what is wrong."""
    with pytest.raises(Refusal) as refusal:
        read(value)

    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"{}", {}),
        (b' \r\n\t{"a" : 1 }\n', {"a": 1}),
        (b'{"a":"\\u0000b"}', {"a": "\0b"}),
        (b'{"a":"\\ud83d\\ude00 \\\\ud800"}', {"a": "\U0001f600 \\ud800"}),
        ('{"ä":"日本"}'.encode(), {"ä": "日本"}),
        (b'{"a":"\\":{[\\"","b":[]}', {"a": '":{["', "b": []}),
        (b'{"a":{"a":{"a":1}}}', {"a": {"a": {"a": 1}}}),
        (b'{"a":-0}', {"a": 0}),
        (b'{"a":"' + b"[{" * 500 + b'\\""}', {"a": "[{" * 500 + '"'}),
        (b'{"a":' + b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1) + b"}", None),
        (b'{"b":[],"a":' + b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1) + b"}", None),
        (b'{"a":[' + b"[],{}," * 500 + b"1]}", None),
    ],
)
def test_well_formed_documents_are_read(value: bytes, found: object) -> None:
    """What RFC 8259 allows is read, brackets and escapes inside texts included."""
    document = read(value)

    assert document == (json.loads(value) if found is None else found)


def test_fractions_keep_their_digits() -> None:
    """A fraction never passes through binary floating point."""
    document = read(b'{"a":0.1,"b":12345678901234567890.123456789,"c":1e400,"d":1.50}')

    assert document == {
        "a": Decimal("0.1"),
        "b": Decimal("12345678901234567890.123456789"),
        "c": Decimal("1e400"),
        "d": Decimal("1.50"),
    }
    assert str(document["d"]) == "1.50"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b'{"a":' + b"7" * 4_000_000 + b"}", "number out of bounds"),
        (b'{"a":0.' + b"7" * 4_000_000 + b"}", None),
        (b'{"a":"' + b"\\n" * 2_000_000 + b"[" * 200 + b'"}', None),
        (b'{"a":"' + b"[" * 4_000_000, f"deeper than {DEPTH_MAX}"),
        (b'{"' + b"\\\\" * 2_000_000, "not JSON"),
    ],
    ids=["integer", "fraction", "escapes", "open text", "backslashes"],
)
def test_a_hostile_document_comes_to_an_end(value: bytes, code: str | None) -> None:
    """Work grows with a document's length, not with its square: each of these would take minutes."""
    try:
        read(value)
    except Refusal as refusal:
        found: str | None = refusal.code
    else:
        found = None

    assert found == code
