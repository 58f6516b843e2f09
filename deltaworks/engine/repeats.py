"""What the last merges did to each key of a table, so that a row that would do the same again is left out of the next.

A view computes a key anew whenever a row that it depends on changes, and mostly finds what it found before; a merge
that changes nothing costs as much as one that does. Losing the memory changes nothing.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from deltaworks.engine.merge import Merge
from deltaworks.engine.values import told_apart, tuples

ROWS_MAX, BYTES_MAX = 1_000, 2**20
"""Of more rows at once each is merged: to look at them takes longer than that saves."""
KEPT_MAX = 5_000
"""Keys of a table; the oldest go."""


Key: TypeAlias = tuple[Any, ...]
"""Values of key columns, as `values.tuples` gives them."""


class Last(NamedTuple):
    """The row that was merged last for a key: its digest, and whether the table has the key since."""

    digest: bytes
    there: bool


Done: TypeAlias = dict[Key, Last]


class Repeats:
    """The last row that was merged for each key, as of the last version that may have brought rows."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._done: Done = {}
        self._version = -1
        self._how: Merge | None = None

    def without(self, rows: pa.Table, how: Merge, *, version: int) -> tuple[pa.Table, Done | None]:
        """The rows that may change the table as of a version, and what `merged` is to be told once they are merged.

        That is None where it cannot be said what the rows do; then nothing is known of any key any more.
        """
        if self._version != version or self._how != how:  # another commit has put rows in, or taken some out
            self._done = {}
        small = rows.num_rows <= ROWS_MAX and rows.nbytes <= BYTES_MAX
        done = _done(rows, how) if how.idempotent and not how.whole and small else None
        if done is None:
            self._done = {}
            return rows, None
        news = pa.array([self._done.get(key) != last for key, last in done.items()], pa.bool_())
        return rows.filter(news), done

    def there(self, keys: Iterable[Key], existing: AbstractSet[Key] | None) -> dict[Key, bool] | None:
        """Whether the table has each of these keys, and then with another row than `without` left; None: not known.

        `existing`: has every one of them that the table has (None: not known).
        """
        found: dict[Key, bool] = {}
        for key in keys:
            last = self._done.get(key)
            if last is None and (existing is None or key in existing):
                return None
            found[key] = last is not None and last.there
        return found

    def merged(self, done: Done, how: Merge, *, version: int) -> None:
        """This was done, and the table is as of this version now."""
        for key, last in done.items():
            self._done.pop(key, None)  # the newest are last
            self._done[key] = last
        for key in list(self._done)[: max(0, len(self._done) - KEPT_MAX)]:
            del self._done[key]
        self._version, self._how = version, how


def _done(rows: pa.Table, how: Merge) -> Done | None:
    """Of each key what its row does; None where a key has several, or a value cannot be told."""
    try:
        keys, values = tuples(rows, how.keys), told_apart(rows, rows.column_names)
    except (OverflowError, ValueError):  # in a list or a struct there are times that Python has not
        return None
    column, gone = (None, None) if how.gone is None else how.gone
    there = [True] * len(keys) if column is None else [value != gone for value in rows[column].to_pylist()]
    lasts = (Last(_digest(row), stays) for row, stays in zip(values, there, strict=True))
    done = dict(zip(keys, lasts, strict=True))
    return done if len(done) == rows.num_rows else None


def _digest(row: tuple[Any, ...]) -> bytes:
    return blake2b(repr(row).encode(), digest_size=16).digest()
