"""The condition of `only=`: what is read, what is refused with the nearest name, what null means."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from deltaworks.errors import DeclarationError
from deltaworks.quality.judging import holds
from deltaworks.quality.predicate import read
from deltaworks.words.table import Column
from tests.rule_corpus import COLUMNS

_MANY = "Known are = <> < <= > >=, in, between, like, is null, and, or, not"
WRONG = {
    "prise > 1": ("there is no column prise", "The nearest is price"),
    "Price > 1": ("there is no column Price", "The nearest is price"),
    "price": ("price is decimal(12,2) and no condition", "Compare it with a value"),
    "(price) > 1": ("price is decimal(12,2) and no condition", "Compare it with a value"),
    "sum(price) > 1": ("sum(...) is a function", "Compare columns with values; a table above can compute"),
    "rand() < 0.5": ("rand(...) is a function", "Compare columns with values; a table above can compute"),
    "price > (select max(price) from x)": (
        "there is a query within the condition",
        "A row is judged alone: join in a table above",
    ),
    "price * 2 > 1": ("* computes", "Compare columns with values; a table above can compute"),
    "price > 100.005": (
        "price is decimal(12,2), and 100.005 is none",
        "Write a number that a decimal(12,2) can hold",
    ),
    "price > 10000000000": (
        "price is decimal(12,2), and 10000000000 is none",
        "Write a number that a decimal(12,2) can hold",
    ),
    "small > 0.5": ("small is int, and 0.5 is none", "Write a whole number"),
    "small > 2147483648": ("small is int, and 2147483648 is none", "Write a whole number"),
    "name > 3": ("name is string, and 3 is none", "Write text in single quotes"),
    'name = "a"': ("\" is no quote of Spark's SQL for names", "Write text in 'single quotes', columns bare"),
    "name = 'a": ("'a is no text: it does not end, or has a backslash", "Write 'text', and '' for a quote in it"),
    r"name = 'a\n'": (
        r"'a\n' is no text: it does not end, or has a backslash",
        "Write 'text', and '' for a quote in it",
    ),
    "day > '2026-02-30'": ("day is date, and 2026-02-30 is none", "Write date '2026-11-21'"),
    "day > timestamp '2026-02-20'": ("day is date, and 2026-02-20 is none", "Write date '2026-11-21'"),
    "flag > false": ("flag is boolean, which has no order", "Write = or <>"),
    "raw = 'a'": ("raw is binary, and a is none", "Compare it with null only"),
    "price > null": ("nothing is equal to null, not even null", "Write is null or is not null"),
    "price > small": ("price is decimal(12,2), small is int", "Compare columns of one type"),
    "small in (1, big)": ("big is a column where a value should be", "Write the comparisons out, with or"),
    "1 = 1": ("1 and 1 are the same in every row", "Name a column"),
    "true": ("true is a value and no condition", "Compare a column with it"),
    "price > 1;": ("; is no sign of a condition", _MANY),
    "price > 1 name": ("found name where the condition should go on or end", _MANY),
    "price > ": ("found the end where a column or a value should be", _MANY),
    "price > 1 and": ("found the end where a column or a value should be", _MANY),
    "(price > 1": ("found the end where ) should be", _MANY),
    "name rlike 'a'": ("found rlike where name should be compared", _MANY),
    "name not null": ("found null where in, between or like should be", _MANY),
    "name like name": ("found name where a pattern in single quotes should be", _MANY),
    " ": ("the condition is empty", 'Write one, as in only="amount > 100", or leave only out'),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_condition_is_refused_with_the_next_step(text: str) -> None:
    """One sentence that says what was found, and what to write."""
    with pytest.raises(DeclarationError) as raised:
        read(text, COLUMNS)

    assert (raised.value.finding, raised.value.next_step) == WRONG[text]


_AMOUNT = (Column("amount", "int", doc="For the test."), Column("paid", "boolean", doc="For the test."))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("amount > 100", [False, False, True, None]),
        ("not amount > 100", [True, True, False, None]),
        ("100 < amount", [False, False, True, None]),
        ("amount not in (100)", [True, False, True, None]),
        ("amount is null or amount >= 100", [False, True, True, True]),
        ("paid", [True, False, None, True]),
        ("paid or amount > 100", [True, False, True, True]),
        ("PAID = TRUE", None),
        ("`amount` BETWEEN 100 AND 101 AND NOT (paid)", [False, True, None, False]),
    ],
)
def test_null_is_neither_true_nor_false(text: str, told: list[bool | None] | None) -> None:
    """As in SQL; words of SQL have no case, names of columns do."""
    rows = pa.record_batch({"amount": pa.array([99, 100, 101, None], pa.int32()), "paid": [True, False, None, True]})

    if told is None:
        with pytest.raises(DeclarationError, match="no column PAID"):
            read(text, _AMOUNT)
    else:
        assert holds(read(text, _AMOUNT), rows).to_pylist() == told


def test_times_and_days_are_compared_as_such() -> None:
    """Without a zone a time is UTC; a day without a time is its midnight."""
    moment = datetime(2026, 11, 21, 10, tzinfo=UTC)
    columns = (Column("seen", "timestamp", doc="For the test."), Column("day", "date", doc="For the test."))
    rows = pa.record_batch({"seen": pa.array([moment], pa.timestamp("us", "UTC")), "day": [date(2026, 11, 21)]})

    for text in (
        "seen = '2026-11-21 10:00:00'", "seen = timestamp '2026-11-21T12:00:00+02:00'", "seen > date '2026-11-21'",
        "seen < timestamp '2026-11-21T10:00:00.000001Z'", "day = '2026-11-21'", "day > date '2026-11-20'",
    ):  # fmt: skip
        assert holds(read(text, columns), rows).to_pylist() == [True], text
