"""Differences between what a case says and what a table holds: each is told in a line that can be acted on."""

from datetime import UTC, date, datetime
from decimal import Decimal

from deltaworks.case_differences import differences, written
from deltaworks.cases import Case, Refused, Row, Wire

A: Row = {"page": "/", "views": 3, "last": None}
B: Row = {"page": "/cart", "views": 1, "last": None}


def found(
    *rows: Row, said: tuple[Row, ...] = (), keys: tuple[str, ...] = ("page",), refused: tuple[Refused, ...] = ()
) -> tuple[str, ...]:
    """The differences of a table with these rows from a case that says others; no refused row was expected."""
    case = Case(name="case", table="gold.pages", doc="", steps=(), rows=said, refused=())
    return differences(case, keys=keys, rows=rows, refused=refused)


def aside(*refused: Refused, said: tuple[Refused, ...] = ()) -> tuple[str, ...]:
    """The differences in what was set aside."""
    case = Case(name="case", table="silver.pages", doc="", steps=(), rows=(), refused=said)
    return differences(case, keys=(), rows=(), refused=refused)


def record(value: bytes | None, reason: str, key: bytes | None = None) -> Refused:
    """A record that was refused."""
    return Refused(row=Wire(key=key, value=value), reason=reason)


def test_rows_in_another_order_are_no_difference() -> None:
    """Tables have no order."""
    assert found(B, A, said=(A, B)) == ()


def test_row_that_is_there_twice_is_extra_once() -> None:
    """Rows are counted: a copy too many is told, and one too few."""
    assert found(A, A, said=(A,)) == ('extra: {page: "/", views: 3}',)
    assert found(A, said=(A, A)) == ('missing: {page: "/", views: 3}',)


def test_rows_of_one_key_are_told_by_column() -> None:
    """The row is named by its keys, each column that differs with both values."""
    other: Row = {"page": "/", "views": 4, "last": date(2026, 11, 21)}

    lines = found(other, B, said=(A, B))

    assert lines == ('differs: {page: "/"}: views: expected 3, found 4; last: expected null, found "2026-11-21"',)


def test_what_is_no_number_is_as_the_case_says() -> None:
    """Though it equals nothing, itself neither."""
    no_number: Row = {"page": "/", "views": float("nan"), "last": None}

    assert found(no_number, said=(dict(no_number),)) == ()
    assert found(A, said=(no_number,)) == ('differs: {page: "/"}: views: expected "NaN", found 3',)


def test_what_cannot_be_computed_is_as_the_case_says() -> None:
    """In the words in which it is reported, and told with where in the transform."""
    said = Case(name="case", table="gold.pages", doc="", steps=(), rows=(), refused=(), left_out=("a: X", "b: X"))

    reported = {"b: X": "b: X in transform.py:3", "c: X": "c: X in transform.py:4"}

    lines = differences(said, keys=(), rows=(), refused=(), left_out=reported)

    assert lines == ("can be computed: a: X", "cannot be computed: c: X in transform.py:4")


def test_rows_of_other_keys_are_missing_and_extra() -> None:
    """However alike they are: another key is another row."""
    other = {**A, "page": "/x"}

    assert found(other, said=(A,)) == ('missing: {page: "/", views: 3}', 'extra: {page: "/x", views: 3}')


def test_without_keys_the_row_most_alike_is_compared() -> None:
    """A row that is like it in half of its columns is taken for the same, one that is less alike is not."""
    alike: Row = {**A, "views": 4}
    unlike: Row = {"page": "/y", "views": 9, "last": date(2026, 11, 21)}

    assert found(unlike, alike, said=(A,), keys=()) == (
        'differs: {page: "/", views: 3}: views: expected 3, found 4',
        'extra: {page: "/y", views: 9, last: "2026-11-21"}',
    )
    assert found(unlike, said=(A,), keys=()) == (
        'missing: {page: "/", views: 3}',
        'extra: {page: "/y", views: 9, last: "2026-11-21"}',
    )


def test_last_digits_of_doubles_are_no_difference() -> None:
    """A sum of doubles depends on the order of its rows in the sixteenth digit, not in the twelfth."""
    assert found({"page": "/", "mean": 0.1 + 0.2}, said=({"page": "/", "mean": 0.3},)) == ()
    assert found({"page": "/", "mean": 0.300001}, said=({"page": "/", "mean": 0.3},)) == (
        'differs: {page: "/"}: mean: expected 0.3, found 0.300001',
    )


def test_values_are_written_as_in_a_case() -> None:
    """Text, times, days and decimals in quotes, bytes as characters; columns that are null are left out."""
    row: Row = {
        "text": 'a "b" ü',
        "at": datetime(2026, 11, 21, 10, 0, 0, 5, tzinfo=UTC),
        "day": date(2026, 11, 21),
        "amount": Decimal("1.50"),
        "raw": b"\xff{",
        "paid": True,
        "gone": None,
    }

    assert written(row) == (
        r'{text: "a \"b\" ü", at: "2026-11-21T10:00:00.000005Z", day: "2026-11-21", '
        r'amount: "1.50", raw: "\u00ff{", paid: true}'
    )


def test_refused_records_are_compared_with_their_reasons() -> None:
    """One that was not refused, one refused for another reason, one nobody expected."""
    lines = aside(
        record(b'{"a":1}', "a: not text"),
        record(b"\xff", "not UTF-8", key=b'{"id":1}'),
        said=(record(b'{"a":1}', "a: missing"), record(None, "no value")),
    )

    assert lines == (
        'refused otherwise: {"a":1}: expected a: missing, found a: not text',
        "not refused: null: expected no value",
        r'refused: {key: {"id":1}, value: {bytes: "\u00ff"}}: not UTF-8',
    )


def test_same_record_refused_twice_is_extra_once() -> None:
    """Records are counted too."""
    assert aside(record(None, "no value"), record(None, "no value"), said=(record(None, "no value"),)) == (
        "refused: null: no value",
    )
