"""Rows that a transform cannot compute, found by halves among those that it can.

Only errors of evaluating rows are looked into: what Spark raises for a value, or a Python function for a row. A plan
that cannot be analysed, a file that is gone, a result that breaks a declaration and a fault of the machine are nobody's
row.
"""

from collections.abc import Callable

from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
    PythonException,
    SparkRuntimeException,
)

FOUND_MAX = 20
"""More rows than this in a slice are no poison, but a bug that hits everything."""
_KINDS = (
    ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, NumberFormatException, PythonException,
    SparkRuntimeException,
)  # fmt: skip
_STATES = ("21", "22", "23", "38", "P0")
"""SQLSTATE classes about values: cardinality, data exception, constraint, external routine, raised by the transform."""
Attempt = Callable[[int, int], None]
"""Evaluates the rows from the first to before the second; raises what they raise."""


class TooManyError(Exception):
    """More rows raise, or are to be looked through, than is looked into."""


def is_of_rows(error: Exception) -> bool:
    """Whether an error comes from evaluating a row."""
    if not isinstance(error, _KINDS) or (error.getSqlState() or "")[:2] not in _STATES:
        return False
    return not (isinstance(error, PythonException) and "MemoryError" in str(error))


def name_of(error: Exception) -> str:
    """What an error is called; its text may quote values."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return condition or type(error).__name__


def culprits(many: int, attempt: Attempt, *, found_max: int = FOUND_MAX) -> dict[int, Exception]:
    """Which of so many rows raise alone, with what they raise; those that only raise together are not told.

    Raises TooManyError if they are more than `found_max`, and at once what is no row's error.
    """
    found: dict[int, Exception] = {}
    open_ranges = [(0, many)]
    while open_ranges:
        low, high = open_ranges.pop()
        try:
            attempt(low, high)
        except Exception as error:
            if not is_of_rows(error):
                raise
            if high - low == 1:
                found[low] = error
                if len(found) > found_max:
                    raise TooManyError from error
            else:
                middle = (low + high) // 2
                open_ranges += [(middle, high), (low, middle)]
    return found
