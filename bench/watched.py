"""What was seen of an app while it was watched: whether it keeps up, and what that costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, linear_regression

from bench.program import cpu_seconds_of, resident_bytes_of
from bench.site import Driver

_MEAN_SECONDS = 60.0
_MEANS_MIN = 4
"""A short watch is cut into so many parts: a line through fewer points has no error to speak of."""
_CHANCE = 1 / 40
"""A slope counts that chance alone makes as steep no more often than this."""


@dataclass(kw_only=True)
class Watched:
    """What was seen of an app: by sample, seconds since the begin, CPU seconds, bytes, records not read yet.

    Over all samples, the tables that were suspended, and the critical rules that rows of computed tables broke.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    lag: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    suspended: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    @property
    def cores(self) -> float:
        """How many cores it kept busy on the average."""
        return (self.cpu[-1] - self.cpu[0]) / (self.seconds[-1] - self.seconds[0])

    @property
    def batch_seconds(self) -> float:
        """How far apart batches were on the average."""
        return (self.seconds[-1] - self.seconds[0]) / max(1, self.batches[-1] - self.batches[0])

    def look(self, driver: Driver, *, seconds: float) -> None:
        """Add a sample."""
        self.seconds.append(seconds)
        self.cpu.append(cpu_seconds_of(driver.pid))
        self.memory.append(resident_bytes_of(driver.pid))
        self.lag.append(sum(sum(parts.values()) for parts in driver.progress["lag"].values()))
        self.behind.append(len(driver.progress.get("behind", ())))
        self.batches.append(driver.progress["batches"])
        self.suspended.update(driver.progress.get("suspended") or driver.progress.get("detached") or ())  # older ones
        for table, rules in (driver.progress.get("broken") or {}).items():
            self.broken.update(f"{table}: {one['rule']}" for one in rules if one["critical"])

    def slope(self, seen: Sequence[int]) -> "Slope":
        """By how much an hour what was seen grows: a line through means of minutes, of less in a short watch.

        Means, for samples within one batch are not independent.
        """
        part = min(_MEAN_SECONDS, self.seconds[-1] / _MEANS_MIN)
        parts: dict[int, list[int]] = {}
        for second, value in zip(self.seconds, seen, strict=True):
            parts.setdefault(min(int(second / part), int(self.seconds[-1] / part) - 1), []).append(value)
        return Slope.of([number * part / 3600 for number in parts], [fmean(values) for values in parts.values()])

    @property
    def keeps_up(self) -> bool:
        """Whether neither lag nor tables behind grow, chance aside, none was suspended and no critical rule broken."""
        well = not self.suspended and not self.broken
        return well and not self.slope(self.lag).rises and not self.slope(self.behind).rises


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A line through points: its slope and the standard error of that."""

    slope: float
    error: float
    points: int

    @classmethod
    def of(cls, x: Sequence[float], y: Sequence[float]) -> "Slope":
        """The line of least squares."""
        fitted = linear_regression(x, y)
        off = sum((b - fitted.intercept - fitted.slope * a) ** 2 for a, b in zip(x, y, strict=True))
        spread = sum((a - fmean(x)) ** 2 for a in x)
        return cls(slope=fitted.slope, error=math.sqrt(off / (len(x) - 2) / spread), points=len(x))

    @property
    def rises(self) -> bool:
        """Whether it rises by more than chance explains."""
        return self.slope > student(1 - _CHANCE, freedom=self.points - 2) * self.error

    def __str__(self) -> str:
        """As it is printed."""
        return f"{self.slope:+.1f} ± {self.error:.1f}"


def student(share: float, *, freedom: int) -> float:
    """The quantile of Student's t: so many standard errors, more where few points tell the error itself.

    Abramowitz and Stegun 26.7.5; within 4 % from two degrees of freedom on, for the shares used here.
    """
    z, n = NormalDist().inv_cdf(share), freedom
    return (
        z
        + (z**3 + z) / 4 / n
        + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / n**2
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / n**3
    )
