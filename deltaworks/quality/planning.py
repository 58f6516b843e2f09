"""Where and when each expectation of a suite is judged, and what follows when a critical one is not met.

What single rows can be judged by, the stream judges: a row that is parsed is set aside, one that is computed is counted
as long as it is in the table. Great Expectations judges the whole suite at rest, over the whole table: each night, and
where the table's days close, after each. `meta` may say `when: schedule`, which leaves out the days, or `when: day`,
which judges the rows of each day that closes and nothing else; and of what is critical, `then: tell`, which it is
without a word, `then: hold`, or `then: suspend`.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

from deltaworks import documents
from deltaworks.errors import DeclarationError
from deltaworks.findings import Finding, nearest
from deltaworks.quality.compiling import Compiled, compiled, name_of
from deltaworks.suites import Expectation, Suite, shown_path
from deltaworks.words.table import Column

When = Literal["schedule", "day"]
Then = Literal["tell", "hold", "suspend"]
WHEN: tuple[When, ...] = get_args(When)
THEN: tuple[Then, ...] = get_args(Then)
_QUERY = "unexpected_rows_query"
_NAMED = re.compile(r"\{([a-z][a-z0-9_]*\.[a-z][a-z0-9_]*)\}")
_TOLD: dict[When, str] = {"schedule": "each night", "day": "when a day closes"}
_CONSEQUENCE: dict[Then, str] = {
    "tell": "the run fails",
    "hold": "the day's asset is held back",
    "suspend": "the table is suspended",
}


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One expectation: whether each row is judged by it, when the whole table is, and what then."""

    compiled: Compiled
    each_row: bool
    parses: bool
    when: tuple[When, ...]
    then: Then

    @property
    def expectation(self) -> Expectation:
        """What is judged."""
        return self.compiled.expectation

    @property
    def suspends(self) -> bool:
        """Whether the table is suspended while it is not met; `each_row` says by whom: the stream, or validations."""
        return self.expectation.severity == "critical" and self.then == "suspend"

    @property
    def of_day(self) -> bool:
        """Whether it is judged of the rows of a day, not of the whole table."""
        return self.expectation.meta.get("when") == "day"

    @property
    def judged(self) -> str:
        """When it is judged, in words."""
        if self.compiled.settled:
            return "holds by the declaration"
        if not self.when:
            return f"never: {self.compiled.why_no_rule}"
        at_rest = "when a day closes, of its rows" if self.of_day else ", ".join(_TOLD[one] for one in self.when)
        if self.each_row:
            return f"each row, {at_rest}"
        why = self.compiled.why_no_rule
        return f"{at_rest}; not in the stream: {why}" if why else at_rest

    @property
    def consequence(self) -> str:
        """What follows when it is not met, in words."""
        if self.expectation.severity == "warning":
            return "counted"
        of_row = "sets the row aside" if self.parses else "the app is not well"
        return ", ".join([*([of_row] if self.each_row else []), _CONSEQUENCE[self.then]])


def planned(
    suite: Suite, columns: Sequence[Column], *, later: Sequence[str] = (), parses: bool, closes_days: bool
) -> Iterator[Planned]:
    """Every expectation of a suite; `closes_days`: whether the table's days close, as those of gold tables do."""
    there: tuple[When, ...] = WHEN if closes_days else ("schedule",)
    for one in compiled(suite, columns, later=later):
        meta = one.expectation.meta
        wanted = tuple(when for when in there if meta.get("when", when) == when)
        then = meta.get("then", "tell")
        yield Planned(
            compiled=one,
            # of what is computed a day's rows may be right only when the day is complete: who says when, means that
            each_row=one.rule is not None and (parses or "when" not in meta),
            parses=parses,
            when=() if one.hopeless else wanted,
            then=next((known for known in THEN if known == then), "tell"),
        )


def holds(suite: Suite) -> bool:
    """Whether a day's asset waits for the verdict on the day; asked of tables whose days close."""
    return any(_holds({"severity": one.severity, "meta": one.meta}) for one in suite.expectations)


def is_held(project: Path, table: str) -> bool:
    """The same of a table's file as it is now; raises DeclarationError where that cannot be read."""
    shown = shown_path(table)
    file = project / shown
    document = documents.read(file, shown) if file.is_file() else None
    found = document.get("expectations") if isinstance(document, Mapping) else None
    if found is None and not (isinstance(document, Mapping) and document.get("waived")):
        # half of a file that is just being written must not let a day go
        raise DeclarationError(shown, "has no expectations", "Write expectations: [...], or waived: and why")
    return any(_holds(one) for one in found or [] if isinstance(one, Mapping))


def _holds(one: Mapping[str, Any]) -> bool:
    meta = one.get("meta") or {}
    then, when = (meta.get("then"), meta.get("when")) if isinstance(meta, Mapping) else (None, None)
    return one.get("severity") == "critical" and then == "hold" and when != "schedule"


def identity(one: Expectation) -> str:
    """What is another one where an expectation is another, without a value of it."""
    arguments = json.dumps(dict(one.kwargs), sort_keys=True, default=str)
    return f"{name_of(one)} {sha256(arguments.encode()).hexdigest()[:16]}"


def by_validations(plan: Iterable[Planned]) -> set[str]:
    """The identities of what suspends a table by what validations say of it, as the stream cannot judge it."""
    return {identity(one.expectation) for one in plan if one.suspends and not one.each_row}


def tables_named(one: Expectation) -> tuple[str, ...]:
    """The other tables that a query of an expectation names, as in `... join {silver.orders} using (day)`."""
    return tuple(dict.fromkeys(_NAMED.findall(str(one.kwargs.get(_QUERY, "")))))


def with_views(one: Expectation, views: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of an expectation, whose query has these views for the tables that it names."""
    kwargs = dict(one.kwargs)
    if _QUERY in kwargs:
        kwargs[_QUERY] = _NAMED.sub(lambda found: views[found[1]], str(kwargs[_QUERY]))
    return kwargs


def findings(name: str, plan: Iterable[Planned], *, closes_days: bool, names: Collection[str]) -> Iterator[Finding]:
    """What cannot be: words of `meta` that there are not, consequences that nothing has, other tables than `names`."""
    for judged in plan:
        one = judged.expectation
        place, when, then = f"{shown_path(name)}:{one.line}", one.meta.get("when"), one.meta.get("then")
        for other in tables_named(one):
            if other not in names:
                next_step = nearest(other, names, "tables")
                yield Finding(place=place, finding=f"there is no table {other}", next_step=next_step)
        if when is not None and when not in WHEN:
            yield Finding(place=place, finding=f"when is {when!r}", next_step=nearest(str(when), WHEN, "times"))
        elif when == "day" and not closes_days:
            finding = "the table's days do not close: only gold tables with an event_time have such"
            yield Finding(place=place, finding=finding, next_step="Take when: day out: it is judged each night")
        if then is not None and then not in THEN:
            yield Finding(place=place, finding=f"then is {then!r}", next_step=nearest(str(then), THEN, "consequences"))
        elif then is not None and one.severity == "warning":
            finding = "a warning has no consequence"
            yield Finding(place=place, finding=finding, next_step="Take then: out, or write severity: critical")
        elif then == "suspend" and when == "day":
            finding = "days of a suspended table do not close, so nothing would judge it again"
            yield Finding(place=place, finding=finding, next_step="Write then: hold, or take when: day out")
        elif then == "suspend" and judged.parses and judged.each_row:
            finding = "a row that breaks it is set aside, and the table goes on"
            yield Finding(place=place, finding=finding, next_step="Write then: tell; bad_rows_max stops an app")
        elif then == "hold" and (not closes_days or when == "schedule"):
            finding = "no day's asset can be held back by what is not judged when a day closes"
            yield Finding(place=place, finding=finding, next_step="Write then: tell")
