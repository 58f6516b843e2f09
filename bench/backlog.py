"""A backlog drained by the product through its Spark path and through its Arrow path: same gold, at what cost."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.gold import views_in
from bench.program import Memory, Program
from bench.sides import driver_command
from bench.stand import APP, PORT_FIRST, run, settings_of, stand
from bench.traffic import Minute
from deltaworks.cli.show import err, listing
from deltaworks.control import Store
from deltaworks.errors import StackError
from deltaworks.settings import AppSettings, Settings
from deltaworks.supervise.launch import driver_environment

_DRAIN_SECONDS_MAX = 3600.0
_SAMPLE_SECONDS = 0.2
_TABLES = ("bronze/web_events", "silver/page_views", "gold/page_views_per_minute")


@dataclass(frozen=True, kw_only=True)
class Way:
    """A commit path, and the rows per batch that make the product take it."""

    name: str
    rows_per_batch_max: int


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What draining one way took, start of the driver included."""

    way: Way
    rows: int
    seconds: float
    cpu_seconds: float
    memory: Memory
    commits: dict[str, int]
    """Commits to bronze, silver and gold by each engine."""
    gold: dict[Minute, int]

    @property
    def rows_per_cpu_second(self) -> float:
        """Rows read from Kafka per second of user and system time of the driver and all its processes."""
        return self.rows / self.cpu_seconds

    def told(self) -> dict[str, int | float]:
        """What is shown of it."""
        return {
            "rows per batch at most": self.way.rows_per_batch_max,
            "rows per CPU second": round(self.rows_per_cpu_second),
            "CPU seconds": round(self.cpu_seconds, 1),
            "seconds": round(self.seconds, 1),
            "peak of the JVM, MB": self.memory.jvm // 10**6,
            "peak of the driver's Python, MB": self.memory.driver // 10**6,
            "peak of the Python workers, MB": self.memory.workers // 10**6,
            "commits by Spark": self.commits["spark"],
            "commits by Arrow": self.commits["arrow"],
            "rows": self.rows,
            "views in gold": sum(self.gold.values()),
        }


def fill(settings: Settings, events: int, *more: str) -> dict[str, int]:
    """Put the backlog into the topic: a hundredth is sent twice; gives the simulator's totals.

    `more`: other options of the simulator.
    """
    options = ["--backlog", str(events), "--duplicates", "0.01", "--seed", "1", "--json", *more]
    command = [str(settings.spark_python), "-m", "shop.simulate", *options, "--project", str(settings.project)]
    done = subprocess.run(command, env=settings.inherited(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise StackError("shop.simulate", f"ended with code {done.returncode}", "See what it said above")
    totals: dict[str, int] = json.loads(done.stdout)
    return totals


def drain(settings: Settings, way: Way, *, rows: int) -> Drained:
    """Drain the topic into a fresh lake; raises StackError if the driver fails."""
    with Store(settings.control_dsn()) as store:
        store.declare_apps([APP])
    began, cpu, memory = time.monotonic(), 0.0, Memory()
    command, environment = driver_command(settings, "--drain"), driver_environment(settings)
    with Program(f"drain-{way.name}", command, settings=settings, environment=environment) as program:
        while not program.ended:
            cpu, memory = max(cpu, program.cpu_seconds()), memory | program.memory()
            if time.monotonic() - began > _DRAIN_SECONDS_MAX:
                raise StackError(program.name, f"is not done after {_DRAIN_SECONDS_MAX:g} s", "Drain fewer events")
            time.sleep(_SAMPLE_SECONDS)
    seconds = time.monotonic() - began
    lake = settings.lake.rename(settings.data / f"lake-{way.name}")  # the next driver finds none, and starts anew
    return Drained(
        way=way,
        rows=rows,
        seconds=seconds,
        cpu_seconds=cpu,
        memory=memory,
        commits=commits_in(lake),
        gold=views_in(lake / _TABLES[-1]),
    )


def commits_in(lake: Path) -> dict[str, int]:
    """Commits to the three tables by each engine: that the path was taken which was to be measured."""
    found = {"spark": 0, "arrow": 0}
    for log in (file for table in _TABLES for file in (lake / table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines() if line]
        if any("add" in action for action in actions):
            engine = next((str(action["commitInfo"]) for action in actions if "commitInfo" in action), "")
            found["spark" if "Apache-Spark" in engine else "arrow"] += 1
    return found


def judge(drained: list[Drained], *, sent: int) -> list[str]:
    """What is wrong; nothing if both ways left the same gold, which counts every view once, each by its own path."""
    first, *others = drained
    found = [
        f"gold by {one.way.name} differs from gold by {first.way.name}" for one in others if one.gold != first.gold
    ]
    for one in drained:
        counted = sum(one.gold.values())
        if counted != sent:
            found.append(f"gold by {one.way.name} counts {counted:,} of {sent:,} views")
        if not one.commits[one.way.name]:
            found.append(f"the {one.way.name} path was not taken: change its rows per batch")
    return found


def main(
    events: Annotated[int, typer.Option(min=1000, help="Page views in the backlog.")] = 2_000_000,
    spark_rows: Annotated[int, typer.Option(min=1, help="Rows per batch on the Spark path.")] = 400_000,
    arrow_rows: Annotated[int, typer.Option(min=1, help="Rows per batch on the Arrow path.")] = 50_000,
    memory: Annotated[str, typer.Option(help="Heap of the JVM.")] = "1g",
    port_first: Annotated[int, typer.Option(help="The stack takes six ports from here on.")] = PORT_FIRST,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data folder, with the logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Drain a backlog through both paths and compare what they leave and what they cost.

    Exit codes: 0 same and complete, 1 not, 2 usage, 3 cannot.
    """
    ways = (Way(name="spark", rows_per_batch_max=spark_rows), Way(name="arrow", rows_per_batch_max=arrow_rows))

    def measure() -> bool:
        with stand(web=AppSettings(memory=memory), port_first=port_first, keep=keep) as settings:
            err.print(f"filling the topic with {events:,} page views ...")
            totals = fill(settings, events)
            drained = []
            for way in ways:
                web = AppSettings(rows_per_batch_max=way.rows_per_batch_max, memory=memory)
                mine = settings_of(settings.data, web=web, port_first=port_first, name=f"project-{way.name}")
                err.print(f"draining through the {way.name} path ...")
                drained.append(drain(mine, way, rows=totals["messages"]))
        wrong = judge(drained, sent=totals["views_sent"])
        _show(drained, wrong, as_json=as_json)
        return not wrong

    sys.exit(run(measure))


def _show(drained: list[Drained], wrong: list[str], *, as_json: bool) -> None:
    told = {one.way.name: one.told() for one in drained}
    if as_json:
        print(json.dumps({"ok": not wrong, "findings": wrong, "paths": told}, indent=2))
        return
    measures = next(iter(told.values()))
    rows = [{"measure": name} | {way: values[name] for way, values in told.items()} for name in measures]
    listing(rows, title="Backlog", as_json=False)
    print("\n".join(wrong) if wrong else "same result, every view counted once")


if __name__ == "__main__":
    typer.run(main)
