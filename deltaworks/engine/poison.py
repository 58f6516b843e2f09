"""Rows that a transform cannot compute, found by halves among those that it can.

Only errors of evaluating rows are looked into: what Spark raises for a value, or a Python function for a row. A plan
that cannot be analysed, a file that is gone, a result that breaks a declaration and a fault of the machine are nobody's
row.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
    PythonException,
    SparkRuntimeException,
    UnknownException,
)
from pyspark.errors.exceptions.captured import convert_exception

from deltaworks.engine.halves import TooManyError, Try, raising

FOUND_MAX = 20
"""More rows than this in a slice are no poison, but a bug that hits everything."""
CAUSES_MAX = 10
"""A row's error is three causes deep; in Java an exception may be among its own causes."""
_WRAPPERS = ("org.apache.spark.SparkException", "java.util.concurrent.ExecutionException")
"""Of these PySpark knows nothing, and makes a long text: only what they came from says something."""
_KINDS = (
    ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, NumberFormatException, PythonException,
    SparkRuntimeException,
)  # fmt: skip
_STATES = ("21", "22", "23", "38", "P0")
"""SQLSTATE classes about values: cardinality, data exception, constraint, external routine, raised by the transform."""


def as_pyspark(error: Exception) -> Exception:
    """What Java raised as PySpark's exception, if that has one: a row's, else the outermost; others as they are.

    PySpark looks one cause deep. A row of a side of a join that is sent to all tasks raises deeper: threads wait for
    threads there, and each wraps what it waited for. (pyspark/errors/exceptions/captured.py, unwrap_spark_exception)
    """
    known: list[Exception] = []
    with suppress(Py4JError):  # the JVM may be gone: then there is nothing to ask
        for cause in _causes(error):
            found = convert_exception(cause)
            if _is_of_rows(found):
                return found
            known += [] if isinstance(found, UnknownException) else [found]
    return known[0] if known else error


def _causes(error: Exception) -> Iterator[Any]:
    """Java's exceptions that say something: not those that only wrap what a thread waited for."""
    cause: Any = getattr(error, "java_exception", None)
    for _ in range(CAUSES_MAX):
        if cause is None:
            return
        if str(cause.getClass().getName()) not in _WRAPPERS:
            yield cause
        cause = cause.getCause()


def is_of_rows(error: Exception) -> bool:
    """Whether an error comes from evaluating a row."""
    return _is_of_rows(as_pyspark(error))


def _is_of_rows(error: Exception) -> bool:
    if not isinstance(error, _KINDS) or (error.getSqlState() or "")[:2] not in _STATES:
        return False
    return not (isinstance(error, PythonException) and "MemoryError" in str(error))


def name_of(error: Exception) -> str:
    """What an error is called; its text may quote values."""
    error = as_pyspark(error)
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return condition or type(error).__name__


def culprits(many: int, attempt: Try) -> dict[int, Exception]:
    """Which of so many rows raise alone, with what they raise; those that only raise together are not told.

    Raises TooManyError if they are more than `FOUND_MAX`, and at once what is no row's error.
    """
    return raising(many, attempt, ours=is_of_rows, found_max=FOUND_MAX, tries_max=tries_max(many))


def suspects(many: int, attempt: Try) -> dict[int, Exception | None]:
    """Which of so many rows that raised before do so again; None for those that there was no time to try."""
    try:
        return dict(raising(many, attempt, ours=is_of_rows, found_max=many, tries_max=tries_max(many)))
    except TooManyError as stopped:
        untried = (at for low, high in stopped.open_ranges for at in range(low, high))
        return {**stopped.found, **dict.fromkeys(untried)}


def tries_max(many: int) -> int:
    """So often some of so many rows are tried in one search, under the app's lock: it finds twenty wherever they are.

    Each row that raises alone takes two tries per halving.
    """
    return 2 * FOUND_MAX * many.bit_length()
