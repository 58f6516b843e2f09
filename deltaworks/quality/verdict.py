"""What came of judging a suite over a version of a table. No Great Expectations here."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from deltaworks.quality.compiling import name_of
from deltaworks.quality.planning import identity
from deltaworks.suites import Expectation, Severity

Verdict = Literal["passed", "failed", "unknown"]
"""`unknown`: nobody could say, which is not passed."""
Where = Literal["at rest", "in the stream"]
"""At rest: over the rows of a version. In the stream: each row as it was parsed, and there it had its consequence."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One expectation: its verdict, and what Great Expectations says of it, as its own JSON, without values."""

    expectation: Expectation
    verdict: Verdict
    result: str
    where: Where = "at rest"
    day: str | None = None
    """The day whose rows were judged; None where it was the whole table."""

    @property
    def name(self) -> str:
        """Type and columns."""
        return name_of(self.expectation)

    @property
    def severity(self) -> Severity:
        """Whether anything follows."""
        return self.expectation.severity


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A suite, judged over a version; `days`: those that it was done for, if it was for any."""

    run_id: str
    judged_at: datetime
    table: str
    version: int
    days: Sequence[str]
    judged: Sequence[Judged]

    @property
    def verdict(self) -> Verdict:
        """Of what is critical and judged at rest: failed if something is, else unknown if something is, else passed."""
        return of_all(one.verdict for one in self._critical())

    @property
    def reason(self) -> str:
        """Why the verdict is not `passed`: names of expectations, no values; empty where it is."""
        return _reason(self._critical())

    def of_day(self, day: str) -> tuple[Verdict, str]:
        """The same of what holds a day back, with the reason."""
        holding = [
            one for one in self._critical() if one.expectation.meta.get("then") == "hold" and one.day in (None, day)
        ]
        return of_all(one.verdict for one in holding), _reason(holding)

    def unmet(self, those: Collection[str]) -> tuple[dict[str, str], set[str]]:
        """Of these identities what is not met or nobody could say, with the reason; and all that were judged."""
        found = {identity(one.expectation): one for one in self._critical()}
        judged = {name: one for name, one in found.items() if name in those}
        return {name: _reason([one]) for name, one in judged.items() if one.verdict != "passed"}, set(judged)

    def _critical(self) -> list[Judged]:
        return [one for one in self.judged if one.severity == "critical" and one.where == "at rest"]


def of_all(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several: failed if one is, else unknown if one is, else passed."""
    found = {*verdicts}
    return "failed" if "failed" in found else "unknown" if "unknown" in found else "passed"


def _reason(judged: Sequence[Judged]) -> str:
    return ", ".join(dict.fromkeys(f"{one.name} {one.verdict}" for one in judged if one.verdict != "passed"))
