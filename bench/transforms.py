"""What the shop's transforms cost over a few rows: by kept plans, in Spark's ordinary way, and in an older revision.

    .venv/spark/bin/python bench/transforms.py --against 858d81b

See bench/README.md.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyspark.sql import SparkSession

from bench import functions
from bench.program import cpu_seconds_of
from deltaworks.cli.show import listing
from deltaworks.engine.session import open_session
from deltaworks.engine.writers.writer import frame
from deltaworks.errors import DeltaworksError
from deltaworks.settings import ROOT, AppSettings, Settings

Given = Mapping[str, pa.Table]
HERE = "here"
ORDINARY = "ordinary"


@dataclass(frozen=True, kw_only=True)
class Round:
    """All functions once, one after the other."""

    way: str
    wall_seconds: float
    cpu_seconds: float


@dataclass(kw_only=True)
class Measured:
    """What one process has measured."""

    functions: int
    rounds: list[Round] = field(default_factory=list)
    ordinary: dict[str, str] = field(default_factory=dict)
    """What takes the ordinary way though the direct one is there, and why."""


class Subject:
    """The shop's functions, with rows for them, in a session that drivers have."""

    def __init__(self, spark: SparkSession, *, rows: int, rounds: int, seed: int) -> None:
        """Make rows for so many rounds, the same from the same seed."""
        self._spark, chance = spark, Random(seed)
        self.functions = list(functions.functions(spark))
        self._rows = [
            {
                one.name: {name: functions.rows(chance, schema, rows, nulls=0) for name, schema in one.inputs.items()}
                for one in self.functions
            }
            for _ in range(rounds)
        ]
        self._planned = dict[str, Any]()
        self.ordinary = dict[str, str]()

    def plan(self) -> None:
        """Plan all of them; where the revision has no plans that are kept, none is."""
        try:
            from deltaworks.engine.spark.planned import Planned
        except ImportError:
            self.ordinary = dict.fromkeys((one.name for one in self.functions), "there are no kept plans")
            return
        for one in self.functions:
            planned = Planned(place=one.name, code="bench", inputs=one.inputs, function=one.call)
            why_not = planned.plan(self._spark)
            if why_not is None:
                self._planned[one.name] = planned
            else:
                self.ordinary[one.name] = why_not

    def once(self, number: int, *, direct: bool) -> None:
        """All of them, over the rows of a round."""
        for one in self.functions:
            given, planned = self._rows[number % len(self._rows)][one.name], self._planned.get(one.name)
            found = planned.compute(self._spark, given) if direct and planned is not None else None
            if found is None:
                one.call({name: frame(self._spark, rows) for name, rows in given.items()}).toArrow()


def work(given: Mapping[str, Any]) -> None:
    """Measure on demand: a line in for each round, a line out."""
    with tempfile.TemporaryDirectory(prefix="transforms-", ignore_cleanup_errors=True) as folder:
        settings = Settings.load(ROOT, environment={}, data=Path(folder))
        spark = open_session(name="transforms", settings=settings, app=AppSettings(memory=given["memory"]))
        subject = Subject(spark, rows=given["rows"], rounds=4, seed=given["seed"])
        subject.plan()
        _say({"functions": len(subject.functions), "ordinary": subject.ordinary})
        for number, line in enumerate(sys.stdin):
            began, spent = time.perf_counter(), cpu_seconds_of(os.getsid(0))
            subject.once(number, direct=line.strip() != ORDINARY)
            _say({"wall": time.perf_counter() - began, "cpu": cpu_seconds_of(os.getsid(0)) - spent})
        spark.stop()


def _say(what: Mapping[str, Any]) -> None:
    print(f"said {json.dumps(what)}", flush=True)


class Worker:
    """A process that measures one revision when it is asked to."""

    def __init__(self, name: str, checkout: Path, given: Mapping[str, Any]) -> None:
        """Start it in that checkout."""
        self.name, asked = name, ["--work", json.dumps(given)]
        self._process = subprocess.Popen(
            # its folder comes first on Python's path so, before this checkout: this program, over that product
            [sys.executable, "-c", f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')", *asked],
            cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        first = self._answer()
        self.measured = Measured(functions=first["functions"], ordinary=first["ordinary"])

    def round(self, way: str) -> Round:
        """All functions once, by that way."""
        assert self._process.stdin is not None
        print(way, file=self._process.stdin, flush=True)
        said = self._answer()
        return Round(way=way, wall_seconds=said["wall"], cpu_seconds=said["cpu"])

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("said "):
                said: dict[str, Any] = json.loads(line.removeprefix("said "))
                return said
        raise DeltaworksError(self.name, "ended by itself", "Run it with --work to see what it says")


@contextmanager
def _checkouts(against: str | None) -> Iterator[dict[str, Path]]:
    """This checkout, and a worktree of the other revision with this one's environments and jars."""
    if against is None:
        yield {HERE: ROOT}
        return
    with tempfile.TemporaryDirectory(prefix="transforms-", ignore_cleanup_errors=True) as folder:
        other = Path(folder) / "checkout"
        add = ["git", "worktree", "add", "--detach", str(other), against]
        subprocess.run(add, cwd=ROOT, check=True, capture_output=True)
        try:
            for name in (".venv", ".jars"):
                (other / name).symlink_to(ROOT / name)
            yield {HERE: ROOT, against: other}
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(other)], cwd=ROOT, check=True)


def measure(against: str | None, *, rounds: int, warm_up: int, given: Mapping[str, Any]) -> dict[str, Measured]:
    """Rounds of both ways here, and of the other revision, in turn: the order changes from round to round."""
    with _checkouts(against) as checkouts:
        workers = [Worker(name, checkout, given) for name, checkout in checkouts.items()]
        try:
            turns = [(worker, way) for worker in workers for way in _ways(worker)]
            for number in range(warm_up + rounds):
                for worker, way in turns if number % 2 == 0 else reversed(turns):
                    taken = worker.round(way)
                    if number >= warm_up:
                        worker.measured.rounds.append(taken)
        finally:
            for worker in workers:
                worker.close()
        return {worker.name: worker.measured for worker in workers}


def _ways(worker: Worker) -> Sequence[str]:
    return ("direct", ORDINARY) if worker.name == HERE else (ORDINARY if _all_ordinary(worker) else "direct",)


def _all_ordinary(worker: Worker) -> bool:
    return len(worker.measured.ordinary) == worker.measured.functions


def show(found: Mapping[str, Measured], *, as_json: bool) -> None:
    """Medians, and their ratios to the direct way here."""
    if as_json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}, indent=2))
        return
    base = _medians(found[HERE], "direct")
    lines = []
    for name, measured in found.items():
        for way in sorted({one.way for one in measured.rounds}):
            wall, cpu = _medians(measured, way)
            lines.append({
                "revision": name, "way": way, "functions": measured.functions, "wall s": f"{wall:.2f}",
                "cpu s": f"{cpu:.2f}", "wall ratio": f"{wall / base[0]:.1f}", "cpu ratio": f"{cpu / base[1]:.1f}",
            })  # fmt: skip
    listing(lines, title="all transforms once", as_json=False)
    for name, why_not in found[HERE].ordinary.items():
        print(f"in the ordinary way, and counted in: {name}: {why_not}")


def _medians(measured: Measured, way: str) -> tuple[float, float]:
    mine = [one for one in measured.rounds if one.way == way]
    return median(one.wall_seconds for one in mine), median(one.cpu_seconds for one in mine)


def main(
    against: Annotated[str | None, typer.Option(help="Measure that revision beside this one.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="Rows of each input.")] = 60,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 9,
    warm_up: Annotated[int, typer.Option(min=0, help="Rounds before these.")] = 6,
    seed: Annotated[int, typer.Option(help="Of the rows.")] = 1,
    memory: Annotated[str, typer.Option(help="Heap of each JVM.")] = "1g",
    as_json: Annotated[bool, typer.Option("--json", help="Every round, as JSON.")] = False,
    for_work: Annotated[str | None, typer.Option("--work", hidden=True)] = None,
) -> None:
    """Measure all transforms of the shop, one after the other, in both ways, and beside another revision."""
    if for_work is not None:
        work(json.loads(for_work))
        return
    given = {"rows": rows, "seed": seed, "memory": memory}
    print(f"seed {seed}", file=sys.stderr)
    show(measure(against, rounds=rounds, warm_up=warm_up, given=given), as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
