"""The whole shop under Airflow at the simulator's own rate: what each app costs, and whether it keeps up.

    .venv/spark/bin/python bench/whole.py --minutes 30

Exit code 1 if the lag of an app or the number of its tables behind grows, if a table was set aside, or if all that runs
takes more than 8 GB.
"""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Annotated

import typer

from bench.program import cpu_seconds_of, resident_bytes_of
from bench.stand import PORT_FIRST, ports_from, run, scratch
from deltaworks import catalog
from deltaworks.cli.show import listing, out
from deltaworks.control import Store
from deltaworks.errors import StackError
from deltaworks.local import stack
from deltaworks.settings import ROOT, Settings

BYTES_MAX = 8 * 10**9
PARTS = ("source", "control", "kafka", "connect", "airflow")
_SAMPLE_SECONDS = 5.0
_START_SECONDS_MAX = 300.0
_MEAN_SECONDS = 60.0
_ERRORS = 2.0
"""A slope of so many standard errors is no chance any more: one in forty."""


@dataclass(kw_only=True)
class Watched:
    """What was seen of an app: by sample, seconds since the begin, CPU seconds, bytes, records not read yet."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    lag: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    detached: set[str] = field(default_factory=set)

    @property
    def cores(self) -> float:
        """How many cores it kept busy on the average."""
        return (self.cpu[-1] - self.cpu[0]) / (self.seconds[-1] - self.seconds[0])

    @property
    def batch_seconds(self) -> float:
        """How far apart batches were on the average."""
        return (self.seconds[-1] - self.seconds[0]) / max(1, self.batches[-1] - self.batches[0])

    def slope(self, seen: Sequence[int]) -> tuple[float, float]:
        """By how much an hour what was seen grows, and the standard error of that: a line through means of minutes.

        Minutes, for samples within one batch are not independent.
        """
        minutes: dict[int, list[int]] = {}
        for second, value in zip(self.seconds, seen, strict=True):
            minutes.setdefault(int(second // _MEAN_SECONDS), []).append(value)
        x = [minute * _MEAN_SECONDS / 3600 for minute in minutes]
        y = [fmean(values) for values in minutes.values()]
        fitted = linear_regression(x, y)
        off = sum((b - fitted.intercept - fitted.slope * a) ** 2 for a, b in zip(x, y, strict=True))
        spread = sum((a - fmean(x)) ** 2 for a in x)
        return fitted.slope, math.sqrt(off / (len(x) - 2) / spread)

    @property
    def keeps_up(self) -> bool:
        """Whether neither the lag nor the number of tables behind grows, chance aside, and none was set aside."""
        grows = (slope > _ERRORS * error for slope, error in (self.slope(self.lag), self.slope(self.behind)))
        return not self.detached and not any(grows)


def measure(settings: Settings, *, minutes: float, warm_up: float) -> tuple[Mapping[str, Watched], int]:
    """Let the shop work; what was seen of each app, and the most memory that everything took together."""
    apps = catalog.load(settings.project).apps
    with Store(settings.control_dsn()) as store:
        store.declare_apps(apps)
        for app in apps:
            store.desire(app, "running", by="bench")
        stack.up(settings, parts=("simulator",), wait_for=())
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not all(_runs(store, app) for app in apps):
            if time.monotonic() > deadline:
                raise StackError("the apps", "do not all run", "Run again with --keep and read the logs")
            time.sleep(1)
        time.sleep(warm_up)
        seen, most = {app: Watched() for app in apps}, 0
        began = time.monotonic()
        while (now := time.monotonic() - began) < minutes * 60:
            for app, watched in seen.items():
                _look(store, app, now, watched)
            most = max(most, _everything(settings, store, apps))
            time.sleep(_SAMPLE_SECONDS)
        for app in apps:
            store.desire(app, "stopped", by="bench")
    return seen, most


def _runs(store: Store, app: str) -> bool:
    beat = store.heartbeat(app)
    return beat is not None and beat.state == "running" and beat.progress.get("batches", 0) > 0


def _look(store: Store, app: str, now: float, watched: Watched) -> None:
    lease, beat = store.lease(app), store.heartbeat(app)
    if lease is None or beat is None:
        raise StackError(f"app {app}", "has no driver any more", "Run again with --keep and read its log")
    watched.seconds.append(now)
    watched.cpu.append(cpu_seconds_of(lease.pid))
    watched.memory.append(resident_bytes_of(lease.pid))
    watched.lag.append(sum(sum(parts.values()) for parts in beat.progress["lag"].values()))
    watched.behind.append(len(beat.progress.get("behind", ())))
    watched.batches.append(beat.progress["batches"])
    watched.detached.update(beat.progress.get("detached") or ())


def _everything(settings: Settings, store: Store, apps: Sequence[str]) -> int:
    sessions = {part.pid for part in stack.state(settings).parts.values() if part.pid is not None}
    sessions |= {lease.pid for app in apps if (lease := store.lease(app)) is not None}
    return sum(resident_bytes_of(session) for session in sessions)


def show(seen: Mapping[str, Watched], most: int, *, as_json: bool) -> None:
    """A line for each app, and one for all."""
    rows = [
        {
            "app": app,
            "cores": round(one.cores, 2),
            "memory GB": round(max(one.memory) / 10**9, 2),
            "seconds between batches": round(one.batch_seconds, 1),
            "lag": round(fmean(one.lag), 1),
            "lag per hour": "{:+.1f} ± {:.1f}".format(*one.slope(one.lag)),
            "tables behind": round(fmean(one.behind), 1),
            "behind per hour": "{:+.1f} ± {:.1f}".format(*one.slope(one.behind)),
            "set aside": ", ".join(sorted(one.detached)) or None,
            "keeps up": one.keeps_up,
        }
        for app, one in seen.items()
    ]
    listing(rows, title="The shop at work", as_json=as_json)
    if not as_json:
        out.print(f"all that ran took {most / 10**9:.1f} GB at most")


def main(
    minutes: Annotated[float, typer.Option(min=5, help="How long it is watched.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before that.")] = 90,
    port_first: Annotated[int, typer.Option(help="The stack takes its ports from here on.")] = PORT_FIRST,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data folder, with the logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Measure the whole shop. Exit codes: 0 it keeps up, 1 it does not, 2 usage, 3 cannot."""

    def judged() -> bool:
        def settings_for(data: Path) -> Settings:
            return Settings.load(ROOT, environment={}, data=data, **ports_from(port_first))

        with scratch(settings_for, parts=PARTS, keep=keep) as settings:
            seen, most = measure(settings, minutes=minutes, warm_up=warm_up)
        show(seen, most, as_json=as_json)
        return most <= BYTES_MAX and all(one.keeps_up for one in seen.values())

    sys.exit(run(judged))


if __name__ == "__main__":
    typer.run(main)
