"""Walk a workload once in peace, then die at its crash points, start again, and let the checker look.

The workload is cut into steps. Each step begins with a new owner of the lake that the step before left, so a death in
a step is tried over a copy of that lake, and the lake that the step left in peace is what must come out.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import deltalake
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.control.commands import Command
from deltaworks.engine import disk, maintenance
from deltaworks.engine.checker import Finding, Picture, check, constant
from deltaworks.engine.commit import Committer
from deltaworks.engine.maintenance import SmallFiles
from deltaworks.engine.points import Listener, listening
from deltaworks.engine.rewind import plan, stage
from deltaworks.engine.torn import mend
from deltaworks.engine.trimming import STAGED
from deltaworks.settings import Settings
from tests.flows import Crash, Log, Owner, carry_out
from tests.power import Power
from tests.proof.workloads import Workload

STEPS = {"open": (0,), "stream": (1, 2), "quiet": (3,), "orders": (), "tend": ()}
"""The batches that a step brings; `orders` has the owner carry some out, `tend` compacts every table, without an order
and then with one, and writes its log's checkpoint."""
_BEHIND_A_WRITE = ("after-commit", "after-write", "before-delete")
_EPOCHS = 100  # more than any step has owners
Lake = dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class Death:
    """At which point, the how manieth time that it is reached, and in which step."""

    step: str
    point: str
    time: int = 1

    def __str__(self) -> str:
        """As the setting `fail_at` takes it, after the step."""
        return f"{self.step} {self.point}:{self.time}"


@dataclass(kw_only=True)
class Walk:
    """One workload on one commit path, in a folder of its own; `begin` runs it in peace."""

    workload: Workload
    path: str
    """auto (small batches by Arrow), spark, or mixed: another one in each step."""
    seed: int
    folder: Path
    spark: SparkSession
    reached: dict[str, Counter[str]] = field(default_factory=dict)
    """Per step, how often each point was reached in peace."""
    after: dict[str, Lake] = field(default_factory=dict)
    """Per step, the rows that it left in peace."""
    deaths_died: int = 0
    lost: int = 0
    """So many files power cuts have taken, or torn."""

    def __post_init__(self) -> None:
        """Draw the rows."""
        self.batches = self.workload.batches(Random(self.seed))
        self.settings = self.workload.settings(self.folder)
        self.catalog = catalog.load(self.workload.mended(self.settings).project)

    def begin(self) -> list[Finding]:
        """Run all steps in peace, keep the lake that each begins with; what the checker finds at the end."""
        for step in STEPS if self.workload.orders else [step for step in STEPS if step != "orders"]:
            if self.settings.lake.exists():
                shutil.copytree(self.settings.lake, self.kept(step))
            self.reached[step] = Counter()
            with listening(self._count(step)):
                self.live(self.settings, step)
            self.after[step] = rows_of(self.settings)
        return self.found(self.settings)

    def kind(self, table: str) -> str:
        """What keeps a table, or what a table beside a table is."""
        main, _, beside = table.partition("__")
        if main.startswith("ops."):
            return "book"
        return beside or type(self.catalog[main].table.kept_as).__name__.lower()

    def deaths(self, chance: Random) -> Iterator[tuple[Death, ...]]:
        """For each point one death, in one of the places where it was reached.

        The roll-back of a side table is reached after a death only, so there are two.
        """
        where: dict[str, list[Death]] = {}
        for step, counted in self.reached.items():
            for point, times in counted.items():
                where.setdefault(point, []).extend(Death(step=step, point=point, time=n + 1) for n in range(times))
        for point in sorted(where):
            death = chance.choice(where[point])
            yield (death,)
            table, act, last = point.rsplit(".", 2)
            if "__" in table and (act, last) == ("batch", "after-commit"):
                for place in ("before-commit", "after-commit"):
                    yield death, Death(step=death.step, point=f"{table}.redo.{place}")

    def cuts(self, chance: Random) -> Iterator[Death]:
        """For each point behind a write one death, in one of the places where it was reached."""
        for death, *more in self.deaths(chance):
            if not more and death.point.rsplit(".", 1)[1] in _BEHIND_A_WRITE:
                yield death

    def die(self, deaths: Sequence[Death], *, power_cut: Random | None = None) -> list[Finding]:
        """Die at each of these points in turn, all in one step; what is wrong with the lake that comes out.

        With `power_cut`, which draws what is lost, the machine dies each time.
        """
        settings, left, counted = self.copy(deaths[0].step), list(deaths), Counter[str]()
        found: list[Finding] = []

        def crash(point: str) -> None:
            counted[point] += 1
            if power_cut is not None:
                power.look()
            if left and (left[0].point, left[0].time) == (point, counted[point]):
                del left[0]
                counted.clear()
                raise Crash(point)

        with _power(settings.lake) as power, listening(crash):

            def lose() -> None:
                assert power_cut is not None, "asked before"
                power.cut(power_cut)
                if self.path != "auto":  # what Spark remembers of logs by their paths goes with its machine
                    assert self.spark._jvm is not None
                    self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
                self._mend(settings)
                found.extend(
                    Finding("disk", one, "it was there before the power cut", "Repeat") for one in power.forgotten()
                )
                power.back()
                self.lost += power.lost

            self.live(settings, deaths[0].step, died=None if power_cut is None else lose)
        missed = [Finding("drill", str(death), "the point was not reached", "Repeat with the seed") for death in left]
        return [*missed, *found, *self.judge(settings, deaths[0].step)]

    def _mend(self, settings: Settings) -> None:
        """What the next owner does first."""
        inputs = {one.name: one.inputs for one in self.catalog.app(self.workload.app)}
        mend(self.workload.app, inputs, lake=settings.lake, guard=lambda: None)

    def judge(self, settings: Settings, step: str) -> list[Finding]:
        """What is wrong with a lake after a step: it must be as in peace, and the checker finds nothing."""
        found, there = self.found(settings), rows_of(settings)
        for name, rows in self.after[step].items():
            if there.get(name) != rows:
                told = f"{len(there.get(name, ()))} rows, {len(rows)} in peace, or other values"
                found.append(Finding("I5", name, told, "Compare the two lakes"))
        return found

    def found(self, settings: Settings) -> list[Finding]:
        """What the checker says of a lake at rest."""
        with Picture(self.catalog, settings.lake) as picture:
            found = check(picture, at_rest=True)
            for one in self.workload.constants:
                found += constant(picture, one.table, one.sum)
        return found

    def live(
        self, settings: Settings, step: str, *, owners_before: int = 0, died: Callable[[], None] | None = None
    ) -> None:
        """Go through a step; after each death, and what else it has `died`, another owner goes on.

        With `owners_before` some have died in it already: the broker has all its batches.
        """
        log, waiting = Log(), list(STEPS[step])
        ends = STEPS[step][0] if STEPS[step] else len(self.batches)
        if not STEPS[step]:
            settings = self.workload.mended(settings)
        for records in self.batches[:ends]:
            log.send(records)
            log.batch()
        number = list(STEPS).index(step)
        epoch = _EPOCHS * (1 + number) + owners_before
        path = ("spark", "auto")[number % 2] if self.path == "mixed" else self.path
        while True:
            epoch += 1
            try:
                if owners_before:
                    self._send(log, waiting)
                owner = Owner(self.spark, settings, self.workload.app, path=path, epoch=epoch, suspends=True)
                self._own(owner, log, waiting, step)
            except Crash:
                if died is not None:
                    died()
                continue
            return

    def _own(self, owner: Owner, log: Log, waiting: list[int], step: str) -> None:
        owner.catch_up(log)
        while waiting:
            log.send(self.batches[waiting.pop(0)])
            owner.take(log.batch())
        for order in self.workload.orders if step == "orders" else ():
            if order.table_name in owner.flow.inputs:  # some walk without tables above others
                if order.kind == "publish":
                    lay_back(owner, order)
                carry_out(owner, order)
                disk.sync(owner.settings.lake)  # before it is told that it is done
        owner.take(Log().batch())  # who went back goes on
        if (failed := owner.flow.suspended.error()) is not None:  # half a publication waits for its order, no longer
            raise failed
        owner.flow.settle()
        if step == "tend":
            owner.flow.small_files = owner.flow.files_of_book = SmallFiles(files_max=2)
            for _ in owner.flow.tables():  # one at a time
                owner.flow.tend()
            committer = Committer(spark=None, arrow_bytes_max=0, guard=owner.flow.guard)
            for table in owner.flow.tables():
                maintenance.compact(table, command=1, committer=committer)
                table.checkpoint()

    def _send(self, log: Log, waiting: list[int]) -> None:
        while waiting:
            log.send(self.batches[waiting.pop(0)])
            log.batch()

    def _count(self, step: str) -> Listener:
        return lambda point: self.reached[step].update([point])

    def kept(self, step: str) -> Path:
        """The lake that a step begins with; missing for the first."""
        return self.folder / "kept" / step

    @property
    def _dying(self) -> Path:
        return self.folder / f"dying-{self.deaths_died}"

    def copy(self, step: str) -> Settings:
        """Settings with a copy of the lake that the step begins with."""
        shutil.rmtree(self._dying, ignore_errors=True)
        self.deaths_died += 1  # a folder of its own: Spark remembers by path what a log says
        settings = self.settings.changed(data=self._dying)
        if self.kept(step).exists():
            shutil.copytree(self.kept(step), settings.lake)
        return settings


@contextmanager
def _power(lake: Path) -> Iterator[Power]:
    """A disk of which a test knows what it holds."""
    lake.mkdir(parents=True, exist_ok=True)
    power, sync = Power(lake), disk.sync
    disk.sync = power.sync
    try:
        yield power
    finally:
        disk.sync = sync


def lay_back(owner: Owner, order: Command) -> None:
    """Lay a table out as it was, for the order to publish it, unless an owner that died has done so."""
    folder = owner.settings.data / STAGED / str(order.arguments["folder"])
    if not folder.exists():
        lake, table = owner.settings.lake, str(order.table_name)
        past = plan(table, catalog=owner.catalog, lake=lake, to=int(str(order.arguments["to"])))
        folder.mkdir(parents=True)
        stage(past, catalog=owner.catalog, lake=lake, folder=folder)


Walks = dict[str, Walk]
"""By app."""


def rows_of(settings: Settings) -> Lake:
    """Every table's rows without the engine's columns, sorted; not the remembered deletions, nor the copy of the log.

    Of two deletions of a key in one slice only the last is remembered, and a restart cuts other slices. After a death
    there are other commits.
    """
    lake: Lake = {}
    folders = (path for path in settings.lake.glob("*/*") if path.parent.name != "ops")
    for folder in sorted(path for path in folders if not path.name.endswith("__deleted")):
        rows = deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        shown = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
        lake[f"{folder.parent.name}.{folder.name}"] = sorted(map(str, shown))
    return lake
