"""The words that declarations are written in."""

import dataclasses
from datetime import timedelta

import pytest

from deltaworks import words
from deltaworks.errors import DeclarationError
from deltaworks.words import Column, Table, add, aggregate, append, days, hours, kafka, latest, minutes, raw, seconds
from deltaworks.words.types import PLAIN, Type, parse

KNOWN = "boolean, int, bigint, double, string, binary, date, timestamp, decimal(p,s)"


def test_every_word_can_be_imported() -> None:
    """What the words offer is there."""
    missing = [name for name in words.__all__ if not hasattr(words, name)]

    assert words.__all__
    assert not missing


def test_misspelt_field_gets_the_right_name() -> None:
    """The error of a misspelt field names the nearest one."""
    with pytest.raises(TypeError, match="Table has no field 'ownr': did you mean 'owner'"):
        Table(app="shop", reads=kafka("t"), kept_as=raw(), ownr="sales")  # type: ignore[call-arg]  # the mistake


def test_strange_field_gets_all_names() -> None:
    """Where no name is near, all are given."""
    with pytest.raises(TypeError, match="has no field 'zzz': known are app, reads, kept_as, owner"):
        Table(zzz=1)  # type: ignore[call-arg]  # the mistake


def test_declaration_is_frozen_and_comparable() -> None:
    """Equal declarations are equal values that nobody can change."""
    one, other = (Table(app="shop", reads=kafka("t"), kept_as=raw(), owner="sales") for _ in range(2))

    assert one == other
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.app = "web"  # type: ignore[misc]  # the mistake


def test_fields_are_given_by_name() -> None:
    """A table's fields have no order to remember."""
    with pytest.raises(TypeError, match="takes 1 positional argument but 5 were given"):
        Table("shop", kafka("t"), raw(), "sales")  # type: ignore[call-arg]  # the mistake


def test_column_may_be_null_unless_said() -> None:
    """A column without more says: may be null, not personal, encoded the obvious way."""
    column = Column("a", "bigint", doc="A number.")

    assert (column.null, column.pii, column.wire) == (True, False, None)


def test_combining_cannot_be_changed_afterwards() -> None:
    """The mapping handed to aggregate() is copied and sealed."""
    ways = {"views": add}
    kept_as = aggregate(keys=("page",), combine=ways)

    ways["clicks"] = add

    assert dict(kept_as.combine) == {"views": "add"}
    with pytest.raises(TypeError, match="does not support item assignment"):
        kept_as.combine["clicks"] = add  # type: ignore[index]  # the mistake


def test_keeping_is_a_value() -> None:
    """The same words make equal values."""
    assert latest(keys=("a",)) == latest(keys=("a",))
    assert append(dedupe_by=("a",), within=hours(1)) != append(dedupe_by=("a",), within=hours(2))


def test_durations_are_what_they_say() -> None:
    """Each word is its length of time."""
    assert (seconds(60), minutes(60), hours(24)) == (minutes(1), hours(1), days(1))
    assert days(1) == timedelta(days=1)


@pytest.mark.parametrize("text", [*PLAIN, "decimal(1,0)", "decimal(12,2)", "decimal(38,38)"])
def test_type_reads_and_prints_the_same(text: str) -> None:
    """A type's text is its one spelling."""
    assert str(parse(text)) == text


def test_decimal_has_precision_and_scale() -> None:
    """The numbers of a decimal are its parts."""
    assert parse("decimal(12,2)") == Type(name="decimal", precision=12, scale=2)


@pytest.mark.parametrize(
    ("text", "next_step"),
    [
        ("strng", "Write string"),
        ("BIGINT", "Write bigint"),
        ("long", "Write bigint"),
        ("timestamptz", "Write timestamp"),
        ("varchar(20)", "Write string"),
        ("decimal( 12, 2 )", "Write decimal(12,2)"),
        ("decimal", "Write decimal(p,s), as in decimal(12,2)"),
        ("numeric(3)", "Write decimal(p,s)"),
        ("decimal(0,0)", "Precision is 1 to 38, scale at most precision"),
        ("decimal(39,2)", "Precision is 1 to 38, scale at most precision"),
        ("decimal(3,4)", "Precision is 1 to 38, scale at most precision"),
        ("", f"Write one of {KNOWN}"),
        ("struct<a:int,a:int>", f"Write one of {KNOWN}"),
        ("array<string>", "Write string"),
    ],
)
def test_wrong_type_gets_the_right_spelling(text: str, next_step: str) -> None:
    """The error says how the type is written here."""
    with pytest.raises(DeclarationError) as caught:
        parse(text)

    assert caught.value.next_step == next_step


def test_only_integers_and_decimals_add_exactly() -> None:
    """Sums of doubles depend on their order."""
    exact = [text for text in (*PLAIN, "decimal(12,2)") if parse(text).adds_exactly]

    assert exact == ["int", "bigint", "decimal(12,2)"]
