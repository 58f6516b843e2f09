"""An error of a row names the fragment of the transform that raised it, and its line where that is known."""

import re
from pathlib import Path

import pytest
from pyspark.errors import utils as pyspark_errors
from pyspark.sql import SparkSession

from deltaworks.engine.origin import lines_noted
from deltaworks.engine.suspended import LAST_SECONDS
from deltaworks.settings import Settings
from tests.flows import Log, Owner
from tests.spark.test_poison import (
    CITIES,
    CITIES_FILE,
    DAYS,
    DAYS_FILE,
    DIVIDES,
    DUES,
    FUNCTION,
    REFUSES,
    SITTINGS,
    SITTINGS_FILE,
    SUM,
    WORDS,
    member,
    note,
    records,
    take,
    tiny,
    unfit,
)

OPERATOR = 'F.sum(F.col("words") + F.col("words") % (F.col("words") - 13)).alias("words")'
CALLED = 'F.sum(F.pmod("words", F.col("words") - 13)).alias("words")'
TWICE = """F.sum(F.expr("words div (13 - words)")).alias("others"),
        F.sum(F.expr("words div (13 - words)")).alias("words")"""
TO_NUMBER = 'F.sum((F.col("dues") * F.col("name").substr(1, 1).cast("int")).cast("decimal(18,2)"))'
FRAGMENT = "words * (13 - words) div (13 - words)"


def line(owner: Owner, path: str, text: str) -> int:
    """Where a text is in a file of the project."""
    lines = (owner.settings.project / path).read_text().splitlines()
    (found,) = (number for number, one in enumerate(lines, start=1) if text in one)
    return found


@pytest.mark.parametrize(
    ("table", "path", "sound", "spoilt", "origin"),
    [
        (DAYS, DAYS_FILE, WORDS, DIVIDES, FRAGMENT),
        (DAYS, DAYS_FILE, WORDS, OPERATOR, "mod"),
        (DAYS, DAYS_FILE, WORDS, CALLED, "pmod"),
        (DAYS, DAYS_FILE, WORDS, FUNCTION, "<lambda>"),
        (SITTINGS, SITTINGS_FILE, SUM, OPERATOR, "mod"),
        (CITIES, CITIES_FILE, DUES, TO_NUMBER, "cast"),
    ],
    ids=["SQL", "an operator", "a function", "Python", "a stateful table's", "a view's"],
)
def test_row_that_is_left_out_names_the_line_of_the_transform(
    spark: SparkSession, tmp_path: Path, table: str, path: str, sound: str, spoilt: str, origin: str
) -> None:
    """Of SQL, operators, functions and Python's own, whichever way the table is kept."""
    project = tiny(tmp_path / "project")
    project.edit(path, sound, spoilt)
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny", only=("silver.members" if table == CITIES else "silver.notes", table))
    several = [note(number, words=13 if number == 3 else 5) for number in range(8)]

    take(owner, Log(), [member(1, name="4 Ever"), member(2, name="Eve")] if table == CITIES else several)

    (one,) = unfit(owner, table)
    assert one.origin == f"transform.py:{line(owner, path, spoilt)}, {origin}"
    assert owner.rows(table)
    assert vars(pyspark_errors)["_enable_debugging_cache"] is False


def test_fragment_that_stands_twice_has_no_line(spark: SparkSession, tmp_path: Path) -> None:
    """It would be a guess."""
    project = tiny(tmp_path / "project")
    project.edit(DAYS_FILE, WORDS, TWICE)
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny", only=("silver.notes", DAYS))

    take(owner, Log(), records(range(8), bad=[3]))

    assert [one.origin for one in unfit(owner, DAYS)] == ["words div (13 - words)"]


def test_error_without_a_context_is_told_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """Spark says nothing of where it was raised."""
    project = tiny(tmp_path / "project")
    project.edit(SITTINGS_FILE, SUM, REFUSES)
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny", only=("silver.notes", SITTINGS))

    take(owner, Log(), records(range(8), bad=[3]))

    assert [(one.error, one.origin) for one in unfit(owner, SITTINGS)] == [("USER_RAISED_EXCEPTION", None)]


@pytest.mark.parametrize("first", [5, 13], ids=["others can be computed", "no row can"])
def test_suspended_table_names_row_and_line_at_every_try(spark: SparkSession, tmp_path: Path, first: int) -> None:
    """More rows raise than are left out, or all that there are."""
    project = tiny(tmp_path / "project")
    project.edit(DAYS_FILE, WORDS, OPERATOR)
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner, log = Owner(spark, settings, "tiny", suspends=True, only=("silver.notes", DAYS)), Log()
    bad = 22 if first == 5 else 4
    take(owner, log, [note(number, words=first) for number in range(3)])
    take(owner, log, [note(number, words=13) for number in range(3, 3 + bad)])
    once = owner.flow.suspended.tables[DAYS]
    owner.now += LAST_SECONDS
    owner.turn()
    again = owner.flow.suspended.tables[DAYS]

    assert (once.failures, again.failures) == (1, 2) if first == 5 else again.failures > once.failures
    found = re.fullmatch(
        r"its transform cannot compute (notes/\d+/\d+) of silver\.notes and \d+ more rows that were tried: "
        rf"REMAINDER_BY_ZERO in transform\.py:{line(owner, DAYS_FILE, OPERATOR)}, mod\. Mend it; it is tried again\.",
        once.error,
    )
    assert found
    words = {row["_source"]: row["words"] for row in owner.flow.inputs["silver.notes"].table.read().to_pylist()}
    assert words[found[1]] == 13
    assert again.error == once.error


def test_keys_of_a_view_are_not_told_outside_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    """They are values; how many, and the line, are no secret."""
    project = tiny(tmp_path / "project")
    project.edit(CITIES_FILE, DUES, TO_NUMBER)
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny", suspends=True, only=("silver.members", CITIES))

    take(owner, Log(), [member(number, name="Eve") for number in range(4)])

    told = owner.flow.suspended.tables[CITIES].error
    where = f"CAST_INVALID_INPUT in transform.py:{line(owner, CITIES_FILE, TO_NUMBER)}, cast"
    assert told == f"its transform cannot compute keys (4 that were tried): {where}. Mend it; it is tried again."


def test_lines_are_noted_for_a_while() -> None:
    """An error ends it too."""
    before = vars(pyspark_errors)["_enable_debugging_cache"]
    with pytest.raises(ZeroDivisionError), lines_noted():
        assert pyspark_errors.is_debugging_enabled()
        raise ZeroDivisionError

    assert vars(pyspark_errors)["_enable_debugging_cache"] is before
