"""Expectations that suspend their table while they are not met, as validations found them."""

import dataclasses
from collections.abc import Collection, Mapping
from datetime import datetime

from deltaworks.control.database import Database, Shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unmet:
    """An expectation by its identity, which changes with it, and why the table is suspended."""

    table_name: str
    expectation: str
    reason: str
    since: datetime


_UNMET = Shape(Unmet, "table_name, expectation, reason, since")


class UnmetExpectations(Database):
    """What suspends tables."""

    def judge_expectations(
        self, table: str, *, unmet: Mapping[str, str], judged: Collection[str], those: Collection[str]
    ) -> None:
        """Note which of the judged expectations of a table are not met, with the reason; the other ones are forgotten.

        So is what is not among `those` that the table has now. One that is still not met keeps its time.
        """
        note = """
            with gone as (
                delete from unmet_expectations where table_name = %(table)s
                and (expectation = any(%(met)s) or not expectation = any(%(those)s))
            )
            insert into unmet_expectations (table_name, expectation, reason)
            select %(table)s, * from unnest(%(unmet)s::text[], %(reasons)s::text[])
            on conflict (table_name, expectation) do update set reason = excluded.reason
            returning {columns}"""
        values = {
            "table": table, "unmet": list(unmet), "reasons": list(unmet.values()), "those": sorted(those),
            "met": sorted(set(judged) - set(unmet)),
        }  # fmt: skip
        self._all(note, values, _UNMET)

    def forget_unmet(self, table: str, *, but: Collection[str]) -> None:
        """Forget of a table what it does not have any more: `but` what it has."""
        forget = """
            delete from unmet_expectations
            where table_name = %(table)s and not expectation = any(%(but)s) returning {columns}"""
        self._all(forget, {"table": table, "but": sorted(but)}, _UNMET)

    def unmet_expectations(self) -> list[Unmet]:
        """List them, of all tables, in order."""
        return self._all("select {columns} from unmet_expectations order by table_name, since, expectation", {}, _UNMET)
