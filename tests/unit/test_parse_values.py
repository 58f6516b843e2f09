"""A JSON value becomes a value of the declared type exactly, or its row is refused."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from deltaworks.engine.parsing import debezium, json
from deltaworks.engine.parsing.document import read
from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.engine.parsing.values import Converter, Encoding, arrow_type, converter
from deltaworks.errors import DeclarationError
from deltaworks.words import Column
from tests.chance import seeded

TOAST = "value not sent"
Case = tuple[str, str | None, str, Any]


def made(kind: str, wire: str | None, encoding: Encoding = json.ENCODING, *, null: bool = True) -> Converter:
    """Compile a column of this type."""
    return converter(Column("c", kind, null=null, wire=wire, doc="A column."), encoding)


def value_of(text: str) -> Any:
    """Give the value as the decoder reads it."""
    return read(b'{"c":%s}' % text.encode())["c"]


def at(year: int, month: int, day: int, *parts: int) -> datetime:
    """Give a time in UTC."""
    hour, minute, second, micros = (*parts, 0, 0, 0, 0)[:4]
    return datetime(year, month, day, hour, minute, second, micros, UTC)


KEPT: list[Case] = [
    ("boolean", None, "true", True),
    ("boolean", None, "false", False),
    ("int", None, "2147483647", 2**31 - 1),
    ("int", None, "-2147483648", -(2**31)),
    ("int", None, "-0", 0),
    ("bigint", None, "9223372036854775807", 2**63 - 1),
    ("bigint", None, "-9223372036854775808", -(2**63)),
    ("double", None, "1", 1.0),
    ("double", None, "0.1", 0.1),
    ("double", None, "-0.0", 0.0),
    ("double", None, "1e308", 1e308),
    ("double", None, "12345678901234567890", 12345678901234567890.0),
    ("double", None, "5e-324", 5e-324),
    ("double", None, "0e-400", 0.0),
    ("double", None, '"Infinity"', float("inf")),
    ("double", None, '"-Infinity"', float("-inf")),
    ("string", None, '""', ""),
    ("string", None, '"a\\u0000b"', "a\0b"),
    ("string", None, '"\\ud83d\\ude00"', "\U0001f600"),
    ("string", None, '"__debezium_unavailable_value"', "__debezium_unavailable_value"),
    ("binary", None, '"AAEC/w=="', b"\0\1\2\xff"),
    ("binary", None, '""', b""),
    ("decimal(12,2)", None, "1", Decimal("1.00")),
    ("decimal(12,2)", None, "1.5", Decimal("1.50")),
    ("decimal(12,2)", None, "1.500", Decimal("1.50")),
    ("decimal(12,2)", None, "1e3", Decimal("1000.00")),
    ("decimal(12,2)", None, "150e-2", Decimal("1.50")),
    ("decimal(12,2)", None, '"1.50"', Decimal("1.50")),
    ("decimal(12,2)", None, '"-0.01"', Decimal("-0.01")),
    ("decimal(12,2)", None, '"9999999999.99"', Decimal("9999999999.99")),
    ("decimal(12,2)", None, "-0.00", Decimal("0.00")),
    ("decimal(38,0)", None, "9" * 38, Decimal("9" * 38)),
    ("decimal(38,38)", None, "0." + "9" * 38, Decimal("0." + "9" * 38)),
    ("timestamp", None, '"2026-11-21T10:00:00Z"', at(2026, 11, 21, 10)),
    ("timestamp", None, '"2026-11-21T10:00:00.1Z"', at(2026, 11, 21, 10, 0, 0, 100_000)),
    ("timestamp", None, '"2026-11-21T10:00:00.123456+02:00"', at(2026, 11, 21, 8, 0, 0, 123_456)),
    ("timestamp", None, '"2026-11-21T10:00:00-05:30"', at(2026, 11, 21, 15, 30)),
    ("timestamp", None, '"2026-11-21T10:00:00.1234560Z"', at(2026, 11, 21, 10, 0, 0, 123_456)),
    ("timestamp", None, '"2026-11-21T10:00:00.123456789Z"', at(2026, 11, 21, 10, 0, 0, 123_456)),
    ("timestamp", None, '"1969-12-31T23:59:59.9999999999+00:00"', at(1969, 12, 31, 23, 59, 59, 999_999)),
    ("timestamp", None, '"0001-01-01T00:00:00Z"', at(1, 1, 1)),
    ("timestamp", None, '"9999-12-31T23:59:59.999999Z"', at(9999, 12, 31, 23, 59, 59, 999_999)),
    ("timestamp", None, '"2024-02-29T00:00:00Z"', at(2024, 2, 29)),
    ("timestamp", "micros", "1763719200123456", at(2025, 11, 21, 10, 0, 0, 123_456)),
    ("timestamp", "millis", "1763719200123", at(2025, 11, 21, 10, 0, 0, 123_000)),
    ("timestamp", "seconds", "1763719200", at(2025, 11, 21, 10)),
    ("timestamp", "seconds", "-2208988800", at(1900, 1, 1)),
    ("timestamp", "seconds", "253402300799", at(9999, 12, 31, 23, 59, 59)),
    ("date", None, '"2026-11-21"', date(2026, 11, 21)),
    ("date", None, '"0001-01-01"', date(1, 1, 1)),
    ("date", None, '"9999-12-31"', date(9999, 12, 31)),
    ("date", "days", "0", date(1970, 1, 1)),
    ("date", "days", "20778", date(2026, 11, 21)),
]

REFUSED: list[Case] = [
    ("boolean", None, "1", "not a boolean"),
    ("boolean", None, '"true"', "not a boolean"),
    ("int", None, "2147483648", "out of range"),
    ("int", None, "-2147483649", "out of range"),
    ("int", None, "1.0", "not an integer"),
    ("int", None, "1e3", "not an integer"),
    ("int", None, '"1"', "not an integer"),
    ("int", None, "true", "not an integer"),
    ("int", None, "[1]", "not an integer"),
    ("bigint", None, "9223372036854775808", "out of range"),
    ("bigint", None, "-9223372036854775809", "out of range"),
    ("bigint", None, "1.5", "not an integer"),
    ("bigint", None, '"17"', "not an integer"),
    ("bigint", None, "false", "not an integer"),
    ("bigint", None, "{}", "not an integer"),
    ("double", None, "1e400", "out of range"),
    ("double", None, "-1e400", "out of range"),
    ("double", None, "9" * 400, "out of range"),
    ("double", None, '"1.5"', "not a number"),
    ("double", None, '"nan"', "not a number"),
    ("double", None, '"inf"', "not a number"),
    ("double", None, '"+Infinity"', "not a number"),
    ("double", None, '"POSITIVE_INFINITY"', "not a number"),
    ("double", None, "1e-400", "out of range"),
    ("double", None, "-1e-999", "out of range"),
    ("double", None, "true", "not a number"),
    ("string", None, "1", "not text"),
    ("string", None, "1.5", "not text"),
    ("string", None, "true", "not text"),
    ("string", None, "{}", "not text"),
    ("string", None, '["a"]', "not text"),
    ("binary", None, '"AAEC/w"', "not base64"),
    ("binary", None, '"AAEC_w=="', "not base64"),
    ("binary", None, '"AAEC/x=="', "not base64"),
    ("binary", None, '"AAEC\\n"', "not base64"),
    ("binary", None, '"é"', "not base64"),
    ("binary", None, "1", "not text"),
    ("decimal(12,2)", None, "1.555", "more digits than declared"),
    ("decimal(12,2)", None, '"0.001"', "more digits than declared"),
    ("decimal(12,2)", None, "10000000000", "more digits than declared"),
    ("decimal(12,2)", None, '"10000000000.00"', "more digits than declared"),
    ("decimal(12,2)", None, "1e400", "more digits than declared"),
    ("decimal(12,2)", None, "1e-400", "more digits than declared"),
    ("decimal(12,2)", None, "7" * 4_000, "more digits than declared"),
    ("decimal(12,2)", None, '"1,50"', "not a number"),
    ("decimal(12,2)", None, '"1_0"', "not a number"),
    ("decimal(12,2)", None, '" 1.50"', "not a number"),
    ("decimal(12,2)", None, '"1.50\\n"', "not a number"),
    ("decimal(12,2)", None, '"+1.50"', "not a number"),
    ("decimal(12,2)", None, '"01.50"', "not a number"),
    ("decimal(12,2)", None, '"\u0661"', "not a number"),
    ("decimal(12,2)", None, '""', "not a number"),
    ("decimal(12,2)", None, '"' + "0" * 1_000 + '"', "not a number"),
    ("decimal(12,2)", None, '"NAN"', "NaN"),
    ("decimal(12,2)", None, '"NaN"', "NaN"),
    ("decimal(12,2)", None, '"-Infinity"', "infinite"),
    ("decimal(12,2)", None, '"POSITIVE_INFINITY"', "infinite"),
    ("decimal(12,2)", None, '"NEGATIVE_INFINITY"', "infinite"),
    ("decimal(12,2)", None, "true", "not a number"),
    ("decimal(12,2)", None, "[1]", "not a number"),
    *[
        ("timestamp", None, f'"{text}"', "not a timestamp")
        for text in (
            "",
            "x",
            "2026-11-21",
            "2026-11-21T10:00:00",
            "2026-11-21 10:00:00Z",
            "2026-11-21T10:00Z",
            "2026-11-21T10Z",
            "20261121T100000Z",
            "2026-W47-6T10:00:00Z",
            "2026-325T10:00:00Z",
            "2026-11-21t10:00:00z",
            "2026-11-21T10:00:00,5Z",
            "2026-11-21T10:00:00.Z",
            "2026-11-21T10:00:00.1234567",
            "2026-11-21T10:00:00+02",
            "2026-11-21T10:00:00+0200",
            "2026-11-21T10:00:00+24:00",
            "2026-11-21T10:00:00+02:60",
            "2026-11-21T10:00:00+02:00:00",
            "2026-11-21T10:00:00 Z",
            "2026-11-21T10:00:00Z ",
            "2026-11-21T10:00:00Z\\n",
            "2026-13-21T10:00:00Z",
            "2026-00-21T10:00:00Z",
            "2026-02-30T10:00:00Z",
            "2025-02-29T10:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T10:60:00Z",
            "2026-12-31T23:59:60Z",
            "\u0662026-11-21T10:00:00Z",
        )
    ],
    *[
        ("timestamp", None, f'"{text}"', "out of range")
        for text in (
            "0000-01-01T00:00:00Z",  # ISO's year 0 is 1 BC
            "-0001-01-01T00:00:00Z",
            "-0043-03-15T12:00:00.5Z",
            "10000-01-01T00:00:00Z",
            "+10000-01-01T00:00:00Z",
            "0000-12-31T23:59:00-23:59",  # 0001-01-01 in UTC
        )
    ],
    ("timestamp", None, '"0001-01-01T00:00:00+00:01"', "out of range"),
    ("timestamp", None, '"9999-12-31T23:59:59-00:01"', "out of range"),
    ("timestamp", None, '"infinity"', "infinite"),
    ("timestamp", None, "1763719200", "not a timestamp"),
    ("timestamp", None, "true", "not a timestamp"),
    ("timestamp", "seconds", "1763719200123", "out of range"),
    ("timestamp", "seconds", "-2208988801", "out of range"),
    ("timestamp", "seconds", "253402300800", "out of range"),
    ("timestamp", "millis", "1763719200123456", "out of range"),
    ("timestamp", "micros", "9223372036825200000", "out of range"),
    ("timestamp", "micros", "7" * 4_000, "out of range"),
    ("timestamp", "seconds", "1763719200.5", "not an integer"),
    ("timestamp", "seconds", '"1763719200"', "not an integer"),
    ("timestamp", "millis", '"2026-11-21T10:00:00Z"', "not an integer"),
    ("timestamp", "seconds", "true", "not an integer"),
    *[
        ("date", None, f'"{text}"', "not a date")
        for text in ("", "2026-11-21T00:00:00Z", "20261121", "2026-W47-6", "2026-02-30", "0000-01-01", "10000-01-01")
    ],
    ("date", None, '"2026-11-21\\n"', "not a date"),
    ("date", None, "20778", "not a date"),
    ("date", "days", '"2026-11-21"', "not an integer"),
    ("date", "days", "1763719200", "out of range"),
    ("date", "days", "-2147472692", "out of range"),
    ("date", "days", "-25568", "out of range"),
    ("date", "days", "1.0", "not an integer"),
]

FROM_A_DATABASE: list[Case] = [
    ("date", None, "20778", date(2026, 11, 21)),
    ("date", None, "-43830", date(1849, 12, 31)),
    ("date", None, "-719162", date(1, 1, 1)),
    ("timestamp", None, '"2026-11-21T10:00:00.123456Z"', at(2026, 11, 21, 10, 0, 0, 123_456)),
    ("timestamp", None, "1763719200123456", at(2025, 11, 21, 10, 0, 0, 123_456)),
    ("timestamp", None, "-3786912000000000", at(1849, 12, 31)),
    ("decimal(38,9)", None, '"12345678901234567890.123456789"', Decimal("12345678901234567890.123456789")),
    ("string", None, '"{\\"a\\": 1}"', '{"a": 1}'),
]

REFUSED_FROM_A_DATABASE: list[Case] = [
    ("date", None, "-2147472692", "out of range"),
    ("date", None, "-719163", "out of range"),
    ("date", None, '"2026-11-21"', "not an integer"),
    ("timestamp", None, "9223372036825200000", "out of range"),
    ("timestamp", None, '"infinity"', "infinite"),
    ("decimal(38,9)", None, '"NAN"', "NaN"),
    ("string", None, '["a"]', "not text"),
    ("string", None, '"__debezium_unavailable_value"', TOAST),
    ("string", None, '["__debezium_unavailable_value"]', TOAST),
    ("decimal(38,9)", None, '"__debezium_unavailable_value"', TOAST),
    ("binary", None, '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="', TOAST),
]


@pytest.mark.parametrize(
    ("encoding", "case"),
    [(json.ENCODING, case) for case in KEPT] + [(debezium.ENCODING, case) for case in FROM_A_DATABASE],
)
def test_a_value_that_fits_is_kept_exactly(encoding: Encoding, case: Case) -> None:
    """The stored value equals the value sent; nulls beside it stay null."""
    kind, wire, text, wanted = case

    array, refused = made(kind, wire, encoding).column([None, value_of(text), None])

    assert refused == {}
    assert array.type == arrow_type(kind)
    assert array.to_pylist() == [None, wanted, None]
    assert str(array[1].as_py()) == str(wanted)  # 0.0 is not -0.0, 1.5 is not 1.50


@pytest.mark.parametrize(
    ("encoding", "case"),
    [(json.ENCODING, case) for case in REFUSED] + [(debezium.ENCODING, case) for case in REFUSED_FROM_A_DATABASE],
)
def test_a_value_that_does_not_fit_is_refused(encoding: Encoding, case: Case) -> None:
    """A value of another type, out of bounds or in a form of its own is named by a code and stored as null."""
    kind, wire, text, code = case

    array, refused = made(kind, wire, encoding).column([None, value_of(text)])

    assert refused == {1: code}
    assert array.to_pylist() == [None, None]


def test_what_is_not_a_number_is_a_double() -> None:
    """JSON has no number for it; a row that has it is there all the same."""
    array, refused = made("double", None, debezium.ENCODING).column([value_of('"NaN"'), None])

    assert refused == {}
    assert str(array.to_pylist()) == "[nan, None]"


def test_null_is_refused_where_a_value_must_be() -> None:
    """A column that is never null refuses null, whatever stands beside it."""
    array, refused = made("bigint", None, null=False).column([1, None, 3])

    assert refused == {1: "null"}
    assert array.to_pylist() == [1, None, 3]


@pytest.mark.parametrize(
    ("kind", "wire"),
    [("timestamp", "days"), ("date", "micros"), ("bigint", "seconds"), ("string", "base64"), ("timestamp", "nanos")],
)
def test_a_wire_that_does_not_fit_the_type_is_found_before_anything_runs(kind: str, wire: str) -> None:
    """A column that could never be read is an error of the declaration, not of its rows."""
    with pytest.raises(DeclarationError, match="does not fit"):
        made(kind, wire)


def one_by_one(column: Converter, values: list[Any]) -> list[Any]:
    """Convert each value by itself: the result, or the code of its refusal."""
    found: list[Any] = []
    for value in values:
        try:
            found.append(None if value is None else pa.array([column.one(value)], column.type)[0].as_py())
        except Refusal as refusal:
            found.append(refusal.code)
    return found


@pytest.mark.parametrize("encoding", [json.ENCODING, debezium.ENCODING], ids=["json", "debezium"])
@pytest.mark.parametrize(("kind", "wire"), sorted({(kind, wire or "") for kind, wire, *_ in [*KEPT, *REFUSED]}))
def test_a_clean_column_at_once_equals_its_values_one_by_one(kind: str, wire: str, encoding: Encoding) -> None:
    """The fast way takes nothing that the careful way refuses, and gives the same values."""
    column = made(kind, wire or None, encoding)
    texts = {text for _, _, text, _ in [*KEPT, *REFUSED, *FROM_A_DATABASE, *REFUSED_FROM_A_DATABASE]}
    taken = 0

    for value in [value_of(text) for text in sorted(texts)]:
        array = column.many([None, value])
        if array is not None:
            taken += 1
            assert array.to_pylist() == [None, *one_by_one(column, [value])]

    assert taken > 0 or kind in {"double", "binary"}  # these have no fast way


def mutated(text: str, chance: Random) -> str:
    """Change, drop or double a character or two."""
    letters = list(text)
    for _ in range(chance.randint(0, 2)):
        place = chance.randrange(len(letters)) if letters else 0
        letters[place : place + 1] = chance.choice(
            [[], [chance.choice("0123456789-+:.TZ e\n")], letters[place : place + 1] * 2]
        )
    return "".join(letters)


def test_random_times_read_the_same_both_ways() -> None:
    """However a time is written or garbled, the column at once and its values one by one agree."""
    chance = seeded()
    column = made("timestamp", None)
    accepted = 0

    for _ in range(3_000):
        moment = at(1, 1, 2) + timedelta(microseconds=chance.randrange(315_537_724_800_000_000))
        zone = chance.choice(
            ["Z", "+00:00", "-00:00", f"{chance.choice('+-')}{chance.randint(0, 24):02d}:{chance.randint(0, 60):02d}"]
        )
        fraction = f".{moment.microsecond:06d}{chance.randrange(10_000):04d}"[: chance.randint(0, 11)]
        text = mutated(f"{moment:%Y-%m-%dT%H:%M:%S}".zfill(19) + fraction + zone, chance)
        array = column.many([text])
        wanted = one_by_one(column, [text])
        if array is None:
            assert isinstance(wanted[0], str), text  # refused by a code
        else:
            accepted += 1
            assert array.to_pylist() == wanted, text

    assert accepted > 100
