"""What the shop's transforms cost over a few rows: by direct plans, in Spark's ordinary way, and in an older revision.

    .venv/spark/bin/python bench/transforms.py --against REVISION

See bench/README.md.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import IO, Annotated, Any

import typer
from pyspark.sql import SparkSession

from bench import functions
from bench.checkout import Checkout, checkouts, own_environment
from bench.program import cpu_seconds_of
from bench.stand import run
from deltaworks.cli.show import listing
from deltaworks.engine.session import open_session
from deltaworks.engine.writers.writer import frame
from deltaworks.errors import DeltaworksError
from deltaworks.settings import ROOT, AppSettings, Settings

HERE = "here"
DIRECT = "direct"
ORDINARY = "ordinary"
WAYS = (DIRECT, ORDINARY)
_SETS = 4
"""So many sets of rows take turns: every way has the same one in a round."""
_THIS_BENCH = (
    "import runpy, sys, types; bench = types.ModuleType('bench'); bench.__path__ = [{folder!r}];"
    " sys.modules['bench'] = bench; runpy.run_path({program!r}, run_name='__main__')"
)
"""Runs this program, with this checkout's benchmarks, over the product of the folder that it is started in."""


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

    def __init__(self, spark: SparkSession, *, rows: int, seed: int) -> None:
        """Make sets of so many rows, the same from the same seed."""
        self._spark, chance = spark, Random(seed)
        self.functions = list(functions.functions(spark))
        self._rows = [
            {
                one.name: {name: functions.rows(chance, schema, rows, nulls=0) for name, schema in one.inputs.items()}
                for one in self.functions
            }
            for _ in range(_SETS)
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

    def once(self, number: int) -> None:
        """All of them, over the rows of a round."""
        for one in self.functions:
            given, planned = self._rows[number % len(self._rows)][one.name], self._planned.get(one.name)
            found = None if planned is None else planned.compute(self._spark, given)
            if found is None:
                one.call({name: frame(self._spark, rows) for name, rows in given.items()}).toArrow()


def work(given: Mapping[str, Any]) -> None:
    """Measure on demand: a line in with the number of each round, a line out."""
    with tempfile.TemporaryDirectory(prefix="transforms-", ignore_cleanup_errors=True) as folder:
        settings = Settings.load(ROOT, environment={}, data=Path(folder))
        # as drivers have it, of which older ones have but one kind
        kind: dict[str, Any] = {"few_rows": True} if "few_rows" in inspect.signature(open_session).parameters else {}
        spark = open_session(name="transforms", settings=settings, app=AppSettings(memory=given["memory"]), **kind)
        subject = Subject(spark, rows=given["rows"], seed=given["seed"])
        if given["way"] == DIRECT:
            subject.plan()
        _say({"functions": len(subject.functions), "ordinary": subject.ordinary})
        for line in sys.stdin:
            began, spent = time.perf_counter(), cpu_seconds_of(os.getsid(0))
            subject.once(int(line))
            _say({"wall": time.perf_counter() - began, "cpu": cpu_seconds_of(os.getsid(0)) - spent})
        spark.stop()


def _say(what: Mapping[str, Any]) -> None:
    print(f"said {json.dumps(what)}", flush=True)


class Worker:
    """A process that measures one revision in one way when it is asked to; it has measured nothing else."""

    def __init__(self, name: str, checkout: Checkout, way: str, given: Mapping[str, Any], errors: IO[str]) -> None:
        """Start it in that checkout; `errors` keeps what it says. Raises DeltaworksError if it cannot measure there."""
        self.name, self.way, asked = name, way, ["--work", json.dumps({**given, "way": way})]
        self._errors = errors  # a file, as nobody reads a pipe while it works
        program = _THIS_BENCH.format(folder=str(Path(__file__).parent), program=__file__)
        self._process = subprocess.Popen(
            [str(checkout.python), "-c", program, *asked], env=own_environment(),
            cwd=checkout.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            start_new_session=True,
        )  # fmt: skip
        first = self._answer()
        self.measured = Measured(functions=first["functions"], ordinary=first["ordinary"])
        if len(self.measured.ordinary) == self.measured.functions:
            self.way = ORDINARY

    def round(self, number: int) -> Round:
        """All functions once. Raises DeltaworksError if it has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it says nothing then
            print(number, file=self._process.stdin, flush=True)
        said = self._answer()
        return Round(way=self.way, wall_seconds=said["wall"], cpu_seconds=said["cpu"])

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("said "):
                said: dict[str, Any] = json.loads(line.removeprefix("said "))
                return said
        code = self._process.wait()
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["it said nothing"])[-1]
        raise DeltaworksError(self.name, f"ended by itself with {code}: {last}", "Mend what it says and measure again")


def measure(against: str | None, *, rounds: int, warm_up: int, given: Mapping[str, Any]) -> dict[str, Measured]:
    """Rounds of both ways here, and of the other revision, in turn: the order changes from round to round.

    Raises StackError and DeltaworksError where a revision cannot be measured, or has other functions.
    """
    with checkouts(against, keep=False) as (*others, here), ExitStack() as begun:
        workers = list[Worker]()
        for name, checkout, way in [*((one.name, one, DIRECT) for one in others), *((HERE, here, way) for way in WAYS)]:
            errors = begun.enter_context(tempfile.TemporaryFile("w+"))
            workers.append(Worker(name, checkout, way, given, errors))
            begun.callback(workers[-1].close)
        _refuse_others(workers)
        for number in range(warm_up + rounds):
            for worker in workers if number % 2 == 0 else reversed(workers):
                taken = worker.round(number)
                if number >= warm_up:
                    worker.measured.rounds.append(taken)
    found = {worker.name: worker.measured for worker in reversed(workers)}
    found[HERE].rounds += workers[-1].measured.rounds
    return found


def _refuse_others(workers: Sequence[Worker]) -> None:
    """Ratios between different work would say nothing."""
    many = {worker.name: worker.measured.functions for worker in workers}
    if len(set(many.values())) > 1:
        told = ", ".join(f"{name} has {number}" for name, number in many.items())
        raise DeltaworksError("functions", told, "Compare with a revision whose tables compute as much")


def show(found: Mapping[str, Measured], *, as_json: bool) -> None:
    """Medians, and their ratios to the direct way here. Raises DeltaworksError if nothing goes it."""
    if as_json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}, indent=2))
        return
    if not any(one.way == DIRECT for one in found[HERE].rounds):
        why_not = "; ".join(sorted(set(found[HERE].ordinary.values()))) or "direct_plans is off"
        raise DeltaworksError("functions", f"none is computed directly: {why_not}", "Mend that and measure again")
    base = _medians(found[HERE], DIRECT)
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

    def measured() -> bool:
        show(measure(against, rounds=rounds, warm_up=warm_up, given=given), as_json=as_json)
        return True

    sys.exit(run(measured))


if __name__ == "__main__":
    typer.run(main)
