"""Partitions: a hidden column beside the declared ones, made from one of them right before a commit.

The declared column stays in the files as it is. What Delta makes of a partition's value (an empty text becomes null, a
long or odd one an impossible folder) touches the hidden column only, and files can be read without their folder's name.
"""

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltaworks.catalog import Declared
from deltaworks.engine.merge import Clause, Merge
from deltaworks.engine.own_columns import hidden
from deltaworks.words.partitioning import DayOf

PARTS_LISTED_MAX = 200
"""A merge into more parts than this names none: a longer list costs more than it saves."""
_ODD, _LONG = "[^A-Za-z0-9]", 60
"""Of a text its plain characters, and not all of a long one: it becomes a folder's name (255 bytes at most)."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The hidden column `name`, made of `column`."""

    name: str
    column: str
    kind: pa.DataType

    @property
    def field(self) -> pa.Field:
        """As stored."""
        return pa.field(self.name, self.kind)

    def beside(self, rows: pa.Table) -> pa.Table:
        """The rows with the hidden column."""
        made = rows[self.column]
        if pa.types.is_string(self.kind):
            made = pc.utf8_slice_codeunits(pc.replace_substring_regex(made, _ODD, "_"), 0, _LONG)
            made = pc.if_else(pc.equal(made, ""), None, made)
        return rows.append_column(self.field, made.cast(self.kind))

    def beside_spark(self, rows: DataFrame) -> DataFrame:
        """The same by Spark."""
        made = F.col(self.column)
        if pa.types.is_string(self.kind):
            made = F.nullif(F.substring(F.regexp_replace(made, _ODD, "_"), 1, _LONG), F.lit(""))
        elif pa.types.is_date(self.kind):
            made = F.to_date(made)  # the session's zone is UTC
        return rows.withColumn(self.name, made)

    def carried(self, how: Merge) -> Merge:
        """The merge, putting the hidden column wherever it puts the column that it is made of."""

        def carry(clause: Clause) -> Clause:
            moved = {self.name: f"s.{self.name}"} if self.column in clause.set else {}
            return replace(clause, set={**clause.set, **moved})

        return replace(how, clauses=tuple(carry(clause) for clause in how.clauses))

    def bound(self, how: Merge, rows: pa.Table | DataFrame) -> str | None:
        """A condition that prunes: the parts in which the rows' keys can lie; None where that is not known."""
        if how.whole or self.column not in how.keys:
            return None
        parts = self.parts(rows)
        if len(parts) > PARTS_LISTED_MAX or not parts:
            return None
        listed = ", ".join(_literal(part) for part in parts if part is not None)
        conditions = [f"t.{self.name} in ({listed})"] if listed else []
        conditions += [f"t.{self.name} is null"] if None in parts else []
        return f"({' or '.join(conditions)})"

    def parts(self, rows: pa.Table | DataFrame) -> list[Any]:
        """The different values of the hidden column, at most one more than can be listed."""
        if isinstance(rows, pa.Table):
            found: list[Any] = pc.unique(rows[self.name]).to_pylist()
            return found[: PARTS_LISTED_MAX + 1]
        return [row[0] for row in rows.select(self.name).distinct().limit(PARTS_LISTED_MAX + 1).collect()]


def partition_of(declared: Declared, schema: pa.Schema) -> Partition | None:
    """What a table declares, over the columns that it stores."""
    name, by = hidden(declared), declared.table.partition_by
    if name is None or by is None:
        return None
    if isinstance(by, DayOf):
        return Partition(name=name, column=by.column, kind=pa.date32())
    return Partition(name=name, column=by, kind=schema.field(by).type)


def _literal(value: Any) -> str:
    """SQL that DataFusion and Spark both read; texts have only plain characters."""
    if isinstance(value, date):
        return f"cast('{value.isoformat()}' as date)"
    return f"'{value}'" if isinstance(value, str) else str(value)
