"""Fields that a table does not declare: told once in the position and the log, by name or by number; never a value."""

import json
import logging
import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaworks.engine.commit import Rows

SHOWN_MAX = 50
OTHER, MORE = "(not a name)", "(more)"
_LISTS_MAX = 1_000  # of different lists of names looked at in one batch
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
log = logging.getLogger("deltaworks.strays")


def tell(table: str, known: tuple[str, ...], parsed: Rows) -> tuple[str, ...]:
    """The undeclared fields that are known after this batch; new ones are logged.

    A producer can put anything into a field's name: what is no plain name is told as `(not a name)`, and after 50 names
    the rest is `(more)`.
    """
    if MORE in known:
        return known
    found = {name if _NAME.fullmatch(name) else OTHER for text in _lists(parsed) for name in json.loads(text)}
    new = sorted(found - {*known})
    if not new:
        return known
    told = (*known, *new) if len(known) + len(new) <= SHOWN_MAX else (*(*known, *new)[:SHOWN_MAX], MORE)
    log.warning("%s: undeclared fields seen: %s", table, ", ".join(told[len(known) :]))
    return told


def count(table: str, known: int | None, parsed: Rows) -> int | None:
    """How many different undeclared fields a batch had at most, this one included; a higher number is logged.

    For names that may be a person's. Above 50 it is 51; None while there is none.
    """
    found = min(len({name for text in _lists(parsed) for name in json.loads(text)}), SHOWN_MAX + 1)
    if found <= (known or 0):
        return known
    number = f"more than {SHOWN_MAX}" if found > SHOWN_MAX else found
    log.warning("%s: undeclared fields seen: %s in a batch; with named=True they are told by name", table, number)
    return found


def _lists(parsed: Rows) -> Iterable[str]:
    if isinstance(parsed, pa.Table):
        lists = pc.unique(parsed["_strays"].drop_null())
        return [text.as_py() for text in lists.slice(0, _LISTS_MAX)]
    lists = parsed.select("_strays").where(F.col("_strays").isNotNull()).distinct().limit(_LISTS_MAX)
    return [row[0] for row in lists.collect()]
