"""What a merge does, as values: both commit paths carry it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One branch of a merge; expressions are SQL that DataFusion and Spark both read, over `t` (table) and `s`."""

    on: Literal["matched", "not matched", "not matched by source"]
    act: Literal["update", "delete", "insert"]
    when: str | None = None
    set: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Put rows in by key: the first clause that fits a row counts."""

    keys: tuple[str, ...]
    nullable_keys: frozenset[str] = frozenset()
    clauses: tuple[Clause, ...]

    @property
    def whole(self) -> bool:
        """Whether rows that the batch does not name are looked at too."""
        return any(clause.on == "not matched by source" for clause in self.clauses)
