"""Rows that raise when they are evaluated are found by halves; other errors are not looked into."""

import pytest
from pyspark.errors import AnalysisException, ArithmeticException, PythonException, SparkRuntimeException
from pyspark.errors.exceptions.base import PySparkException

from deltaworks.engine.halves import TooManyError
from deltaworks.engine.poison import FOUND_MAX, culprits, is_of_rows, name_of, suspects, tries_max
from deltaworks.errors import LakeError
from tests.chance import seeded


class Divided(ArithmeticException):  # it stands for what a JVM raises
    """Spark's, as it comes from the JVM."""

    def __init__(self) -> None:
        """A text that quotes the row."""
        super().__init__("[DIVIDE_BY_ZERO] secret")

    def getCondition(self) -> str:  # noqa: N802  # Spark's own name
        """Its name."""
        return "DIVIDE_BY_ZERO"

    def getSqlState(self) -> str:  # noqa: N802  # Spark's own name
        """Its class."""
        return "22012"


class Rows:
    """Rows of which some raise, by their numbers, and some only when they are together."""

    def __init__(self, *, bad: set[int], together: set[int] | None = None, error: Exception | None = None) -> None:
        """Count the attempts."""
        self.bad, self.together, self.error, self.attempts = bad, together, error or Divided(), 0

    def attempt(self, low: int, high: int) -> None:
        """Evaluate them."""
        self.attempts += 1
        mine = set(range(low, high))
        if mine & self.bad or (self.together and self.together <= mine):
            raise self.error


def test_just_the_rows_that_raise_are_found_in_few_attempts() -> None:
    """Wherever they are among the others."""
    chance = seeded()
    for many in (1, 2, 7, 1_000):
        bad = set(chance.sample(range(many), min(many, 3)))
        rows = Rows(bad=bad)

        found = culprits(many, rows.attempt)

        assert set(found) == bad
        assert rows.attempts <= 2 * len(bad) * (many.bit_length() + 1) + 1


def test_rows_that_raise_together_only_are_not_found() -> None:
    """Nobody can say which of them is to go."""
    assert culprits(100, Rows(bad=set(), together={3, 70}).attempt) == {}


def test_bug_that_hits_everything_is_given_up_soon() -> None:
    """After as many rows as are looked for, however many there are."""
    rows = Rows(bad=set(range(100_000)))

    with pytest.raises(TooManyError):
        culprits(100_000, rows.attempt)

    assert rows.attempts < 4 * FOUND_MAX + 20


def test_as_many_as_are_looked_for_are_found() -> None:
    """The bound itself is in."""
    assert len(culprits(1_000, Rows(bad=set(range(0, 1_000, 50))).attempt)) == FOUND_MAX
    with pytest.raises(TooManyError):
        culprits(1_050, Rows(bad=set(range(0, 1_050, 50))).attempt)


def test_attempt_that_raises_over_no_rows_is_not_made() -> None:
    """There is nothing to halve."""

    def attempt(low: int, high: int) -> None:
        del low, high
        raise Divided

    assert culprits(0, attempt) == {}
    assert suspects(0, attempt) == {}


def test_search_ends_after_so_many_tries_though_no_row_raises_alone() -> None:
    """Each pair raises together only, and there are many."""
    tries = 0

    def attempt(low: int, high: int) -> None:
        nonlocal tries
        tries += 1
        if high - low > 1:
            raise Divided

    with pytest.raises(TooManyError):
        culprits(4_096, attempt)

    assert tries == tries_max(4_096)


def test_rows_that_there_is_no_time_to_try_are_told_as_such() -> None:
    """They raised before, and nobody knows better."""
    rows = Rows(bad=set(range(1_000)))

    found = suspects(1_000, rows.attempt)

    assert set(found) == set(range(1_000))
    assert rows.attempts == tries_max(1_000)
    assert 0 < sum(error is None for error in found.values()) < 1_000
    assert suspects(1_000, Rows(bad={7}).attempt).keys() == {7}


@pytest.mark.parametrize(
    "error",
    [
        LakeError("gold.days", "the transform gave null", "Mend it"),
        RuntimeError("disk full"),
        AnalysisException("no such column"),
        SparkRuntimeException("no state"),
        PySparkException("maxResultSize"),
    ],
)
def test_what_no_row_raises_is_raised_at_once(error: Exception) -> None:
    """A declaration that is broken, a machine, a plan: nobody's row."""
    rows = Rows(bad={1}, error=error)

    with pytest.raises(type(error)):
        culprits(8, rows.attempt)

    assert rows.attempts == 1
    assert not is_of_rows(error)


def test_function_that_runs_out_of_memory_is_no_rows_fault() -> None:
    """The machine may have none."""

    class Function(PythonException):
        def getSqlState(self) -> str:  # noqa: N802  # Spark's own name
            return "38000"

    assert is_of_rows(Function("ZeroDivisionError: division by zero"))
    assert not is_of_rows(Function("MemoryError"))


def test_an_errors_name_tells_no_value() -> None:
    """Its text quotes the row."""
    assert name_of(Divided()) == "DIVIDE_BY_ZERO"
    assert name_of(ValueError("secret")) == "ValueError"
