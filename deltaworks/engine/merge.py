"""What a merge does, as values: both commit paths carry it out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One branch of a merge; expressions are SQL that DataFusion and Spark both read, over `t` (table) and `s`."""

    on: Literal["matched", "not matched", "not matched by source"]
    act: Literal["update", "delete", "insert"]
    when: str | None = None
    brings: tuple[str, bool | str] | None = None
    """Of an insert with `when`: the column, and its value in the rows that this means; not for SQL, but for Arrow."""
    set: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Put rows in by key: the first clause that fits a row counts."""

    keys: tuple[str, ...]
    nullable_keys: frozenset[str] = frozenset()
    idempotent: bool = False
    """Whether a row that was merged changes nothing if it comes again, unless another of its key came since."""
    clauses: tuple[Clause, ...]
    gone: tuple[str, bool | str] | None = None
    """The column, and its value in the rows whose key is taken out; as `brings` of a clause.

    Where it is said, a row that the insert brings is also what an update leaves of its key, in all columns.
    """

    @property
    def whole(self) -> bool:
        """Whether rows that the batch does not name are looked at too."""
        return any(clause.on == "not matched by source" for clause in self.clauses)

    def brought(self, rows: pa.Table, names: Sequence[str]) -> pa.Table | None:
        """Of a batch whose keys are all new, the rows that are put in; None where only SQL can tell."""
        inserts = [clause for clause in self.clauses if clause.on == "not matched"]
        if len(inserts) != 1 or any(inserts[0].set.get(name) != f"s.{name}" for name in names):
            return None
        (insert,) = inserts
        if insert.brings is not None:
            column, value = insert.brings
            rows = rows.filter(pc.equal(rows[column], value))
        elif insert.when is not None:
            return None
        return rows.select(names)

    def stands(self, rows: pa.Table, names: Sequence[str]) -> pa.Table | None:
        """All that the table has of the batch's keys after it; None where that depends on what it had."""
        inserts = [clause for clause in self.clauses if clause.on == "not matched"]
        if not self.idempotent or self.whole or self.gone is None or len(inserts) != 1 or inserts[0].brings is None:
            return None
        come, gone = (pc.equal(rows[column], value) for column, value in (inserts[0].brings, self.gone))
        return self.brought(rows, names) if pc.all(pc.or_(come, gone), skip_nulls=False).as_py() else None
