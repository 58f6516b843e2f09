"""Rows and expectations at random, with what breaks naive comparisons.

Line ends, letters outside ASCII, huge numbers, decimals between two doubles, moments in other zones, nulls.
"""

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from deltaworks.engine.parsing.values import arrow_type
from deltaworks.words.table import Column

_TYPES = {
    "id": "bigint",
    "flag": "boolean",
    "small": "int",
    "big": "bigint",
    "other": "bigint",
    "ratio": "double",
    "rate": "double",
    "price": "decimal(12,2)",
    "cost": "decimal(12,2)",
    "mid": "decimal(18,4)",
    "long": "decimal(38,18)",
    "name": "string",
    "alias": "string",
    "raw": "binary",
    "day": "date",
    "due": "date",
    "seen": "timestamp",
    "left": "timestamp",
}
COLUMNS = tuple(Column(name, kind, doc="For the tests.") for name, kind in _TYPES.items())
SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in _TYPES.items()])
_NUMBERS = ("small", "big", "ratio", "price", "mid", "long")
_TEXT = ["a", "b", "z", "A", "Z", "0", "9", "_", "-", "@", ".", "/", " ", "\t", "\n", "\r", "\x0b", "\x85", "\u2028"]
_TEXT += [
    "\u2029",
    "é",
    "\u017f",
    "\u212a",
    "I",
    "İ",
    "ß",
    "\U0001d4b3",
    "😀",
    "[",
    "]",
    "\\",
    "^",
    "$",
    "&",
    "٣",
    "\u00a0",
]
_WHOLE = [0, 1, -1, 2, 5, 41, 100, 2**31 - 1, -(2**31)]
_BIG = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**63), 10**17 + 1]
_RATIOS = [0.0, 0.1, 0.3, 1.5, -2.25, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 2.0**53]
_CENTS = ["0.00", "0.10", "0.30", "12.30", "-1.00", "9999999999.99", "-9999999999.99", "100000.00", "100000.01"]
_MIDS = ["0.1000", "90071992547409.9300", "90071992547409.9301", "99999999999999.9999", "-0.0001"]
_LONGS = ["0.100000000000000000", "0.100000000000000005", "0.100000000000000006", "9007199254740993.5", "1", "-1"]
_DAYS = [
    date(1, 1, 1),
    date(1582, 10, 14),
    date(1969, 12, 31),
    date(2026, 11, 20),
    date(2026, 11, 21),
    date(9999, 12, 31),
]
_MOMENTS = [
    datetime(1900, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 11, 20, 23, 30, tzinfo=UTC),
    datetime(2026, 11, 21, tzinfo=UTC),
    datetime(2026, 11, 21, 0, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
_WORDS = [
    "",
    "a",
    "b",
    "ab",
    "/",
    "/a",
    "AB",
    "ab\n",
    "ab\r\n",
    "ab\r",
    "ab\n\n",
    "a\nb",
    "k",
    "K",
    "\u017f",
    "s",
    "S",
    "é",
    "2026-11-21",
]
_WORDS += [
    "ab\u2028",
    "ab\x85",
    "\n",
    "\r\n",
    "\r",
    "a@b.c",
    "a b@c",
    "{}",
    "[1, 2]",
    '{"a": 1}',
    "NaN",
    "nul",
    "1",
    "31/12/2026",
    "😀",
    "😀😀",
]
PATTERNS = (
    r"^/", r"^[^@\s]+@[^@\s]+$", r"^[A-Z]{2}$", r"^a$", r"^ab$", r"b$", r"^.$", r"^..$", r"^\w+$", r"^\d+$",
    r"\s", r"^\S*$", r"\D", r"\W$", r"a|b$", r"^(?:a|b)+$", r"(a|^b$)", r"^$", r"", r"^.*$", r"(?i)^k$",
    r"(?i)^s+$", r"(?i)[a-k]$", r"(?s)^.+$", r"(?i)[^a-z]", r"^\x41", r"^\u00e9$", r"\\", r"^[\w.-]+$",
    r"[\]\[]", r"^a?b*?$", r"^[^a]$", r"^[^\n]*$", r"\A[a-z]+\z", r"^ab\r$", r"\r$", r"^\n?$", r"[^\S\n]$",
    r"^a$|b\z", r"(?:a\z|b$)",
    r"^😀{2}$", r"^[😀-😂]+$", r"^(\r|\n)+$", r"^[\d-]+$", r"\.$", r"^\{\}$", r"[&$]",
)  # fmt: skip
_ATOMS = (
    "a",
    "b",
    ".",
    r"\d",
    r"\w",
    r"\s",
    r"\S",
    r"\W",
    "[ab]",
    "[^a]",
    "[a-z]",
    r"[^\s]",
    r"\n",
    r"\r",
    "é",
    "(?:a|b)",
    "(ab|)",
)
_REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?")


def rows(chance: random.Random, count: int) -> pa.Table:
    """That many rows; every special value is there at least once."""
    pools: dict[str, list[Any]] = {
        "flag": [True, False],
        "small": _WHOLE,
        "big": _WHOLE + _BIG,
        "other": _WHOLE + _BIG,
        "ratio": _RATIOS,
        "rate": _RATIOS,
        "price": [Decimal(one) for one in _CENTS],
        "cost": [Decimal(one) for one in _CENTS],
        "mid": [Decimal(one) for one in _MIDS],
        "long": [Decimal(one) for one in _LONGS],
        "name": _WORDS,
        "alias": _WORDS,
        "raw": [b"", b"a", b"\x00\xff", "é".encode()],
        "day": _DAYS,
        "due": _DAYS,
        "seen": _MOMENTS,
        "left": _MOMENTS,
    }
    made: dict[str, list[Any]] = {"id": list(range(count))}
    for name, pool in pools.items():
        first = list(pool)
        chance.shuffle(first)
        more = [chance.choice([*pool, None]) for _ in range(count)]
        made[name] = [None, *first, *more][:count]
    for at in range(0, count, 2):
        made["name"][at] = "".join(chance.choices(_TEXT, k=chance.randint(0, 4)))
    return pa.table({name: pa.array(made[name], SCHEMA.field(name).type) for name in SCHEMA.names})


def pattern(chance: random.Random) -> str:
    """A pattern from the part of the grammar that Java and RE2 share."""
    branches = []
    for _ in range(chance.choice([1, 1, 1, 2])):
        atoms = [chance.choice(_ATOMS) + chance.choice(_REPEATS) for _ in range(chance.randint(1, 3))]
        branches.append(chance.choice(["", "^"]) + "".join(atoms) + chance.choice(["", "$"]))
    flags = chance.choice(["", "", "", "(?i)", "(?s)"])
    return flags + "|".join(branches)


def expectations(chance: random.Random, each: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Type and kwargs: so many of each kind, and the patterns."""
    for name in SCHEMA.names:
        yield "expect_column_values_to_be_null", {"column": name}
        yield "expect_column_values_to_not_be_null", {"column": name}
    for _ in range(each):
        yield from _numbers(chance)
        yield from _times(chance)
        yield from _sets(chance)
        yield from _lengths(chance)
        yield from _together(chance)
    yield from _patterns(chance, each)
    for column in ("name", "alias"):
        yield "expect_column_values_to_be_json_parseable", {"column": column}
        for form in ("%Y-%m-%d", "%d/%m/%Y", "%H"):
            yield "expect_column_values_to_match_strftime_format", {"column": column, "strftime_format": form}


def _numbers(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    ends = [
        0,
        1,
        -1,
        0.1,
        0.3,
        5,
        41.5,
        100000,
        1e17,
        2**53,
        2**53 + 1,
        2**62,
        -(2**63),
        90071992547409.93,
        1e300,
        0.1 + 0.2,
    ]
    for column in _NUMBERS:
        low, high = sorted(chance.sample(ends, 2))
        kwargs: dict[str, Any] = {"column": column}
        if chance.random() < 0.7:
            kwargs["min_value"] = low
        if chance.random() < 0.7 or "min_value" not in kwargs:
            kwargs["max_value"] = high
        for key in ("strict_min", "strict_max"):
            if chance.random() < 0.5:
                kwargs[key] = True
        yield "expect_column_values_to_be_between", kwargs


def _times(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    low, high = sorted(chance.sample(_MOMENTS[:-1], 2))
    zone = chance.choice(["+00:00", "Z"])
    texts = [moment.isoformat().replace("+00:00", zone) for moment in (low, high)]
    if chance.random() < 0.5:
        texts[0] = (low + timedelta(hours=2)).isoformat().replace("+00:00", "+02:00")
    flags = {key: True for key in ("strict_min", "strict_max") if chance.random() < 0.5}
    yield (
        "expect_column_values_to_be_between",
        {"column": "seen", "min_value": texts[0], "max_value": texts[1], **flags},
    )
    first, last = sorted(chance.sample(_DAYS[2:], 2))
    days = {"min_value": first.isoformat(), "max_value": last.isoformat()}
    days.pop(chance.choice(["min_value", "max_value", "neither"]), None)
    yield "expect_column_values_to_be_between", {"column": "day", **days, **flags}


def _sets(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    kinds = ["expect_column_values_to_be_in_set", "expect_column_values_to_not_be_in_set"]
    chance.shuffle(kinds)  # by turns: each kind is there in any draw
    pools: tuple[tuple[str, list[Any]], ...] = (
        ("flag", [True]),
        ("small", [*_WHOLE, 2**40]),
        ("big", [*_WHOLE, *_BIG]),
        ("ratio", [0, 0.1, 0.3, 1.5, 1, 1e300]),
        ("price", [0, 1, -1, 12, 100000]),
        ("name", [*_WORDS, "none"]),
        ("day", [day.isoformat() for day in _DAYS[2:]]),
        ("seen", [moment.isoformat() for moment in _MOMENTS[1:5]]),
    )
    for place, (column, pool) in enumerate(pools):
        yield (
            kinds[place % 2],
            {"column": column, "value_set": chance.sample(pool, min(len(pool), chance.randint(1, 14)))},
        )
    for column, fractions in (
        ("price", [0.1, 12.3, 100000.01, 5]),
        ("mid", [0.1, 90071992547409.93]),
        ("long", [0.1, 1]),
    ):
        yield "expect_column_values_to_be_in_set", {"column": column, "value_set": fractions}


def _lengths(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    for column in ("name", "raw"):
        yield "expect_column_value_lengths_to_equal", {"column": column, "value": chance.randint(0, 3)}
        kwargs: dict[str, Any] = {
            "column": column,
            "min_value": chance.randint(0, 2),
            "max_value": chance.randint(2, 4),
        }
        kwargs |= {key: True for key in ("strict_min", "strict_max") if chance.random() < 0.5}
        yield "expect_column_value_lengths_to_be_between", kwargs


def _together(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    pairs = [
        ("big", "other"),
        ("small", "big"),
        ("ratio", "rate"),
        ("price", "cost"),
        ("name", "alias"),
        ("day", "due"),
    ]
    pairs += [("seen", "left")]
    for one, other in chance.sample(pairs, 3):
        pair = {"column_A": one, "column_B": other}
        ignored = chance.choice([{}, *({"ignore_row_if": f"{how}"} for how in ("either_value_is_missing", "neither"))])
        yield "expect_column_pair_values_to_be_equal", {**pair, **ignored}
        equal = {"or_equal": chance.choice([True, False])}
        yield "expect_column_pair_values_a_to_be_greater_than_b", {**pair, **ignored, **equal}
        lists: dict[str, Any] = {"column_list": [one, other]}
        lists |= chance.choice([{}, {"ignore_row_if": "any_value_is_missing"}, {"ignore_row_if": "never"}])
        yield "expect_multicolumn_values_to_be_equal", lists
        yield "expect_select_column_values_to_be_unique_within_record", lists
    wanted = [[chance.choice([*_WHOLE, None]), chance.choice([*_WORDS, None])] for _ in range(6)]
    yield "expect_column_pair_values_to_be_in_set", {"column_A": "small", "column_B": "name", "value_pairs_set": wanted}
    total = chance.choice([0, 2, 42, 2**53 + 1, 2**53, 2**53 + 2])
    yield "expect_multicolumn_sum_to_equal", {"column_list": ["small", "big", "other"], "sum_total": total}


def _patterns(chance: random.Random, each: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for text in (*PATTERNS, *(pattern(chance) for _ in range(10 * each))):
        kind = chance.choice(["expect_column_values_to_match_regex", "expect_column_values_to_not_match_regex"])
        yield kind, {"column": "name", "regex": text}
    plain = [text for text in PATTERNS if not text.startswith("(?i") and not text.startswith("(?s")]
    for _ in range(2 * each):
        texts = chance.sample(plain, 2)
        match_on = chance.choice(["any", "all"])
        yield "expect_column_values_to_match_regex_list", {"column": "name", "regex_list": texts, "match_on": match_on}
        yield "expect_column_values_to_not_match_regex_list", {"column": "name", "regex_list": texts}
