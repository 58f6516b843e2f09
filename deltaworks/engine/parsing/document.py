"""One JSON document per Kafka value, read strictly: RFC 8259, and what it leaves open is refused.

Fractions arrive as Decimal, never through binary floating point, so that 0.10 stays 0.10.
"""

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

from deltaworks.engine.parsing.refusal import Refusal

BYTES_MAX = 10 * 1024 * 1024
DEPTH_MAX = 100  # far below the interpreter's recursion limit, far above any sane event

Document = dict[str, Any]

WRAPPER = frozenset({"schema", "payload"})
"""Fields of what Connect's JSON converter writes unless told: the record in one, beside its schema."""
_BLANK = " \t\n\r"
_BYTE_ORDER_MARK = "\ufeff"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TEXT_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', re.DOTALL)  # possessive: nothing to remember


def read(value: bytes | None) -> Document:
    """The object that `value` holds; raises Refusal with the first thing that is wrong with the whole document."""
    found = _whole(_text(value))
    if type(found) is not dict:
        raise Refusal("not an object")
    return found


def scalar(text: str) -> Any:
    """The text, number or boolean that is all of a JSON text, None for null; raises Refusal for anything else."""
    found = _whole(text)
    if isinstance(found, dict | list):
        raise Refusal("not JSON of one value")
    return found


def decoded(value: bytes) -> str:
    """The bytes as text; raises Refusal for what is none."""
    if len(value) > BYTES_MAX:
        raise Refusal("larger than 10 MiB")
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal("not UTF-8") from None
    if text.startswith(_BYTE_ORDER_MARK):
        raise Refusal("byte order mark")
    return text


def _whole(text: str) -> Any:
    """What a text that starts with a JSON value holds, and nothing after it."""
    if text.count("{") + text.count("[") > DEPTH_MAX:
        _refuse_deep(text)
    try:
        found, end = _READ(text)
    except json.JSONDecodeError:
        raise Refusal("not JSON") from None
    except (ValueError, ArithmeticError):  # an integer of more than 4,300 digits, an exponent beyond Decimal's
        raise Refusal("number out of bounds") from None
    if end != len(text) and text[end:].strip(_BLANK):
        raise Refusal("text after the document")
    if "\\u" in text and _SURROGATE.search(text):
        _refuse_half_characters(found)
    return found


def is_wrapped(found: Document) -> bool:
    """Whether the record is in the field `payload`, beside its schema: so Connect's JSON converter writes unless told.

    The schema is a struct with a list of fields, or null where the converter was given none. A change record has other
    fields. A key with columns of these names looks otherwise: none is null, none is an object with a list in it.
    """
    if found.keys() != WRAPPER:
        return False
    schema, payload = found["schema"], found["payload"]
    struct = type(schema) is dict and schema.get("type") == "struct" and type(schema.get("fields")) is list
    return (schema is None or struct) and (payload is None or type(payload) is dict)


def wraps_one_value(found: Document) -> bool:
    """Whether it is one value beside its schema, as a key of one column may be."""
    if found.keys() != WRAPPER or found["payload"] is None or isinstance(found["payload"], dict | list):
        return False
    schema = found["schema"]
    return schema is None or (type(schema) is dict and type(schema.get("type")) is str)


def _text(value: bytes | None) -> str:
    """The value as text that starts with the document."""
    if value is None:
        raise Refusal("no value")
    text = decoded(value)
    return text if text.startswith("{") else _without_blank_start(text)


def _without_blank_start(text: str) -> str:
    text = text.lstrip(_BLANK)
    if not text:
        raise Refusal("empty value")
    return text


def _refuse_deep(text: str) -> None:
    """Walk the brackets before the decoder does: it recurses."""
    depth = 0
    for token in _TEXT_OR_BRACKET.finditer(text):
        first = token.group()[0]
        if first in "{[":
            depth += 1
            if depth > DEPTH_MAX:
                raise Refusal(f"deeper than {DEPTH_MAX}")
        elif first in "}]":
            depth -= 1


def _refuse_half_characters(found: Any) -> None:
    """A lone surrogate cannot be written as UTF-8; pairs were joined by the decoder."""
    try:
        json.dumps(found, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError:
        raise Refusal("half a surrogate pair") from None


def _refuse_constant(_name: str) -> NoReturn:
    raise Refusal("NaN or Infinity")


def _fields_once(pairs: list[tuple[str, Any]]) -> Document:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Refusal("a field twice")
    return fields


_READ = json.JSONDecoder(
    parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_fields_once, strict=True
).raw_decode
