"""Tables of every kind of double: what is asked of them must not depend on what files tell of themselves."""

from collections.abc import Callable, Iterator
from math import isnan
from pathlib import Path

import pyarrow as pa

from deltaworks import analyst
from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.datasets import ds
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable

INF, NAN = float("inf"), float("nan")
SETS: dict[str, list[float | None]] = {
    "high": [1.0, INF],
    "low": [1.0, -INF],
    "both": [-INF, 2.0, INF],
    "no_number": [1.0, NAN],
    "only_no_number": [NAN, NAN],
    "only_high": [INF, INF],
    "all": [NAN, INF, -INF, 5.0],
    "empty": [NAN, None],
    "plain": [1.0, 2.0],
}
ASKED: dict[str, Callable[[float | None], bool]] = {
    "value > 3": lambda value: value is not None and (value > 3 or isnan(value)),  # in SQL NaN is above all numbers
    "value <= 3": lambda value: value is not None and value <= 3,
    "value < -1e308": lambda value: value is not None and value < -1e308,
    "value = 'Infinity'::double": lambda value: value == INF,
    "value = 'NaN'::double": lambda value: value is not None and isnan(value),
    "value in (1.0, 2.0)": lambda value: value in (1.0, 2.0),
    "value is null": lambda value: value is None,
}
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])
MERGE = Merge(
    keys=("key",),
    clauses=(
        Clause(on="matched", act="update", set={"value": "s.value"}),
        Clause(on="not matched", act="insert", set={"key": "s.key", "value": "s.value"}),
    ),
)


def owned(lake: Path, name: str, schema: pa.Schema = SCHEMA) -> OwnedTable:
    """A table of keys and doubles in gold."""
    entry = Entry(kind="create", app="a", epoch=1)
    return OwnedTable(name=f"gold.{name}", path=lake / "gold" / name, schema=schema, entry=entry)


def put(table: OwnedTable, committer: Committer, values: list[float | None], how: Merge | None = None) -> None:
    """Commit values, each under its place in the list."""
    rows = pa.table({"key": range(len(values)), "value": values}, schema=table.schema)
    counts = Counts(read=len(values), taken=len(values))
    committer.commit(table, rows, table.entry.follow("batch", counts=counts), how=how)


def hidden(lake: Path) -> Iterator[str]:
    """Which questions do not find in a table of `SETS` what it has: by SQL, and by the engine's own reads."""
    with analyst.connect(lake) as door:
        for name, values in SETS.items():
            for condition, holds in ASKED.items():
                (found,) = door.sql(f"select count(*) as n from gold.{name} where {condition}").dicts()  # of this file
                if found["n"] != sum(map(holds, values)):
                    yield f"{name}: {condition}"
            table = owned(lake, name)
            for value in {value for value in values if value is not None and not isnan(value)}:  # as Arrow finds none
                found = table.read(where=ds.field("value").isin(pa.array([value]))).num_rows
                if found != values.count(value):
                    yield f"{name}: {value}"
