"""Where in a transform.py an error of a row comes from: the fragment that raised, and its line where that is known.

Both are of the code, never of the row. Spark knows the fragment of most expressions: SQL as it is written, or what an
operator or function is called. It knows the lines of operators only where PySpark asks the JVM to note them.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException, QueryContext, QueryContextType
from pyspark.errors import utils as pyspark_errors

from deltaworks.engine.poison import as_pyspark, name_of

FRAGMENT_LENGTH_MAX = 80
"""It stands in every entry of a table that leaves rows out."""
_NOTED = "_enable_debugging_cache"
"""What PySpark has read of the option `spark.python.sql.dataFrameDebugging.enabled`."""


@contextmanager
def lines_noted() -> Iterator[None]:
    """Have PySpark note the line of each operator that is made meanwhile; what is planned then names it when it raises.

    That asks the JVM eight times for each, so it is off (`session.py`), and on while it is looked for what raises.
    PySpark reads the option once per process: so what it has read is changed. Threads that plan meanwhile note them
    too.
    """
    before = vars(pyspark_errors)[_NOTED]
    vars(pyspark_errors)[_NOTED] = True
    try:
        yield
    finally:
        vars(pyspark_errors)[_NOTED] = before


def told(error: Exception, transform: Path | None) -> str:
    """An error of a row by its name and its origin; its text may quote values."""
    name, origin = name_of(error), origin_of(error, transform)
    return name if origin is None else f"{name} in {origin}"


def origin_of(error: Exception, transform: Path | None) -> str | None:
    """Such as "transform.py:12, words div pages"; the fragment alone where its line is not known, None if it is not."""
    fragment, line = None, None
    with suppress(Py4JError):  # the JVM may be gone
        known = as_pyspark(error)
        if isinstance(known, PythonException):
            fragment, line = _in_function(str(known), transform)
        elif isinstance(known, PySparkException):
            fragment, line = _in_context(known.getQueryContext(), transform)
    place = None if transform is None or line is None else f"{transform.name}:{line}"
    return ", ".join(one for one in (place, fragment) if one) or None


def _in_context(contexts: list[QueryContext], transform: Path | None) -> tuple[str | None, int | None]:
    """What the innermost expression is called, or says, with its line."""
    if not contexts:
        return None, None
    context = contexts[0]
    fragment = " ".join(context.fragment().split()).strip("_")
    text = _text_of(transform)
    if context.contextType() == QueryContextType.SQL:
        line = _only_line(r"\s+".join(map(re.escape, fragment.split())), text)
    else:
        file, _, number = context.callSite().rpartition(":")
        line = int(number) if file == str(transform) and number.isdigit() else _only_line(rf"\b{fragment}\(", text)
    return fragment[:FRAGMENT_LENGTH_MAX], line


def _in_function(trace: str, transform: Path | None) -> tuple[str | None, int | None]:
    """The innermost function of the file that a Python trace came through."""
    frames = re.findall(rf'File "{re.escape(str(transform))}", line (\d+), in (\S+)', trace)
    if not frames:
        return None, None
    line, name = frames[-1]
    return name, int(line)


def _only_line(pattern: str, text: str) -> int | None:
    """The line of the only place where a text has a pattern."""
    found = list(re.finditer(pattern, text)) if pattern else []
    return text.count("\n", 0, found[0].start()) + 1 if len(found) == 1 else None


def _text_of(transform: Path | None) -> str:
    try:
        return "" if transform is None else transform.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # it may be edited meanwhile
        return ""
