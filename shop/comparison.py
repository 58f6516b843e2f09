"""Comparing what should be with what is: two tables of one DuckDB database with the same columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

_SHOWN_MAX = 3  # differences of each sort that are named


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One line of the report. `differences` names keys and columns, never values: those may be personal."""

    name: str
    expected: int
    found: int | None
    differences: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Are both the same, row by row?"""
        return self.found == self.expected and not self.differences


def quoted(names: Sequence[str], prefix: str = "") -> str:
    """Column names for DuckDB and DataFusion: `offset` and `timestamp` are words of SQL."""
    return ", ".join(f'{prefix}"{name}"' for name in names)


def compare(
    database: duckdb.DuckDBPyConnection, *, name: str, expected: str, found: str, keys: Sequence[str]
) -> Comparison:
    """Compare table `found` with table `expected`; rows belong together by `keys`, which are unique in `expected`."""
    columns = [row[0] for row in database.execute(f"describe {expected}").fetchall()]  # our own names
    return Comparison(
        name=name,
        expected=count(database, expected),
        found=count(database, found),
        differences=(
            *_sorted_out(database, "missing", _anti(expected, found, keys), keys),
            *_sorted_out(database, "unexpected", _anti(found, expected, keys), keys),
            *_sorted_out(database, "more than once", _doubled(found, keys), keys),
            *_changed(database, expected, found, keys, [name for name in columns if name not in keys]),
        ),
    )


def count(database: duckdb.DuckDBPyConnection, table: str) -> int:
    """Rows of a table."""
    row = database.execute(f"select count(*) from {table}").fetchone()  # noqa: S608  # our own names
    assert row is not None  # an aggregate has a row
    return int(row[0])


def _anti(these: str, those: str, keys: Sequence[str]) -> str:
    return f"select {quoted(keys, 'a.')} from {these} a anti join {those} b on {_joined(keys)}"  # noqa: S608  # our own names


def _doubled(table: str, keys: Sequence[str]) -> str:
    return f"select {quoted(keys)} from {table} group by all having count(*) > 1"  # noqa: S608  # our own names


def _joined(keys: Sequence[str]) -> str:
    return " and ".join(f'a."{key}" = b."{key}"' for key in keys)


def _sorted_out(database: duckdb.DuckDBPyConnection, finding: str, query: str, keys: Sequence[str]) -> tuple[str, ...]:
    row = database.execute(f"select count(*) from ({query})").fetchone()  # noqa: S608  # our own names
    number = int(row[0]) if row else 0
    if number == 0:
        return ()
    shown = database.execute(f"{query} order by all limit {_SHOWN_MAX}").fetchall()
    return (f"{number:,} {finding}: {'; '.join(_key(keys, values) for values in shown)}",)


def _changed(
    database: duckdb.DuckDBPyConnection, expected: str, found: str, keys: Sequence[str], columns: Sequence[str]
) -> tuple[str, ...]:
    if not columns:
        return ()
    differs = [f'a."{name}" is distinct from b."{name}"' for name in columns]
    joined = f"from {expected} a join {found} b on {_joined(keys)} where {' or '.join(differs)}"
    row = database.execute(f"select count(*) {joined}").fetchone()
    if not row or row[0] == 0:
        return ()
    query = f"select {quoted(keys, 'a.')}, {', '.join(differs)} {joined} order by all limit {_SHOWN_MAX}"
    shown = []
    for values in database.execute(query).fetchall():
        marks = values[len(keys) :]
        wrong = ", ".join(name for name, mark in zip(columns, marks, strict=True) if mark)
        shown.append(f"{_key(keys, values[: len(keys)])} in {wrong}")
    return (f"{row[0]:,} different: {'; '.join(shown)}",)


def _key(keys: Sequence[str], values: Sequence[object]) -> str:
    return " ".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))
