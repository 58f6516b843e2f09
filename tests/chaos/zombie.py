"""Stop a driver with SIGSTOP, let a successor take over, wake it: it may commit nothing and every row is there once.

    .venv/spark/bin/python -m tests.chaos.zombie --times 10 --seed 7

Each time a driver is stopped at another commit, after its guard has let it pass (the worst moment) or in the middle of
the work that follows; its lease runs out, a second driver fences it out and does the work, the first one is woken. Both
are real processes with their own JVM; the control store is real; only the rows come from a seed instead of Kafka.
Takes about half a minute each time.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import IO, Annotated, Any, Self

import deltalake
import typer

from deltaworks import catalog, processes
from deltaworks.cli.show import out
from deltaworks.control import Store
from deltaworks.engine.driver import EXIT_NOT_OWNER
from deltaworks.engine.lake import read_commit
from deltaworks.engine.ledger import Ledger
from deltaworks.settings import ROOT, Settings
from shop.part import FIRST, part_of_shop
from tests.running_stack import running_stack

LEASE_SECONDS = 3.0
SECONDS_MAX = 240.0  # for anything that a driver says or does; a busy machine starts a JVM in half a minute
_COMMITS = {"web": 6, "shop": 8}  # so many a driver reaches at least, on both paths
_LATE_SECONDS = {"auto": 0.3, "spark": 1.5}  # most are still at work then, some are at rest


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Whom to stop, and when. `late_seconds` None: as soon as the guard has let the commit pass."""

    app: str
    path: str
    commit: int
    who: str = "all"
    late_seconds: float | None = None

    def __str__(self) -> str:
        """As reported."""
        when = "at once" if self.late_seconds is None else f"{self.late_seconds:.2f} s later"
        return f"{self.app}, {self.path} path, commit {self.commit} let pass, {self.who} stopped {when}"


@dataclass(kw_only=True)
class Woken:
    """What became of it; no findings is what is promised."""

    moment: Moment
    code: int
    met: str
    findings: list[str] = field(default_factory=list)


def draw(chance: Random, times: int) -> Iterator[Moment]:
    """Moments by chance: both paths in turn, half of them right after the guard."""
    for number in range(times):
        app, path = chance.choice(["shop", "web"]), ("spark", "auto")[number % 2]
        yield Moment(
            app=app,
            path=path,
            commit=chance.randint(1, _COMMITS[app]),
            who=chance.choice(["all", "all", "python"]),
            late_seconds=chance.choice([None, chance.uniform(0, _LATE_SECONDS[path])]),
        )


@contextmanager
def control_store() -> Iterator[Settings]:
    """Give settings with a control store that runs, and nothing else."""
    with (
        tempfile.TemporaryDirectory(prefix="deltaworks-zombie-") as folder,
        running_stack(parts=("control",), project=part_of_shop(Path(folder) / "project", *FIRST)) as settings,
    ):
        with Store(settings.control_dsn()) as store:
            store.declare_apps(catalog.load(settings.project).apps)
        yield settings.changed(lease_seconds=LEASE_SECONDS)


def wake(settings: Settings, moment: Moment, *, seed: int) -> Woken:
    """Stop a driver at this moment, let another one do its work, wake the first one, and look at the lake."""
    lake = Path(settings.data, "runs", f"{time.time_ns()}")
    lake.mkdir(parents=True)
    (lake / "secrets").symlink_to(settings.secrets)
    with (
        Process(settings.changed(data=lake), moment, seed=seed, halts=True) as first,
        Process(settings.changed(data=lake), moment, seed=seed, halts=False) as second,
        Store(settings.control_dsn()) as store,
    ):
        first.begin()
        first.hear(f"commit {moment.commit}")
        if moment.late_seconds is not None:
            first.say()
            time.sleep(moment.late_seconds)
        first.stop(moment.who)
        if moment.late_seconds is None:
            first.say()
        _run_out(store, moment.app)
        second.begin()
        code = second.ended()
        assert code == 0, f"{moment}: the successor ended with {code}: {second.last_line()}"
        before = _versions(lake / "lake")
        first.go_on()
        woken = Woken(moment=moment, code=first.ended(), met=first.last_line())
    after = _versions(lake / "lake")
    woken.findings += [
        f"{name}: version {after[name]}, was {before[name]}" for name in after if after[name] != before[name]
    ]
    if woken.code != EXIT_NOT_OWNER:
        woken.findings.append(f"exit code {woken.code}, not {EXIT_NOT_OWNER}: {woken.met}")
    woken.findings += _epochs(lake / "lake") + _rows(lake) + _books(settings.project, lake / "lake")
    return woken


class Process:
    """A mortal driver in a session of its own."""

    def __init__(self, settings: Settings, moment: Moment, *, seed: int, halts: bool) -> None:
        """Start it; it waits for `begin`."""
        self.log = settings.data / f"driver-{'first' if halts else 'second'}.log"
        words = ["--app", moment.app, "--path", moment.path, "--seed", str(seed)]
        words += ["--halt-at", str(moment.commit)] if halts else ["--calm"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.mortal", *words],
                cwd=ROOT, env=settings.inherited(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        processes.kill_session(self.process.pid)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def begin(self) -> None:
        """Let it take the lease and work."""
        self.hear("ready")
        self.say()

    def hear(self, line: str) -> None:
        """Wait until it says this line."""
        for said in _pipe(self.process.stdout):
            if said.strip() == line:
                return
        raise AssertionError(f"it ended before it said {line!r}: {self.last_line()}")

    def say(self) -> None:
        """Send the line that it waits for."""
        pipe = _pipe(self.process.stdin)
        pipe.write("\n")
        pipe.flush()

    def stop(self, who: str) -> None:
        """SIGSTOP to all of its processes, to Python alone or to the JVM alone."""
        for pid in self._pids(who):
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT to all of its processes."""
        for pid in self._pids("all"):
            os.kill(pid, signal.SIGCONT)

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        for _ in _pipe(self.process.stdout):
            pass
        return self.process.wait(timeout=SECONDS_MAX)

    def last_line(self) -> str:
        """What the driver logged last, without what Spark says of its own end."""
        lines = [line for line in self.log.read_text().splitlines() if " deltaworks" in line]
        return lines[-1][:400] if lines else "nothing"

    def _pids(self, who: str) -> list[int]:
        if who == "python":
            return [self.process.pid]
        every = processes.members(self.process.pid)
        return every if who == "all" else [pid for pid in every if "java" in processes.command_of(pid)]


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _run_out(store: Store, app: str) -> None:
    until = time.monotonic() + SECONDS_MAX
    while (lease := store.lease(app)) is None or lease.live:
        assert time.monotonic() < until, "its lease does not run out: somebody goes on renewing it"
        time.sleep(0.1)


def _tables(lake: Path) -> Iterator[tuple[str, Path]]:
    for log in sorted(lake.glob("*/*/_delta_log")):
        yield f"{log.parent.parent.name}.{log.parent.name}", log.parent


def _versions(lake: Path) -> dict[str, int]:
    found = {name: deltalake.DeltaTable(str(path)).version() for name, path in _tables(lake)}
    assert found, f"no table in {lake}"
    return found


def _epochs(lake: Path) -> list[str]:
    """Commits of an older owner above one of a newer."""
    findings = []
    for name, path in _tables(lake):
        newest = 0
        for version in range(deltalake.DeltaTable(str(path)).version() + 1):
            entry = read_commit(path, version).entry
            epoch = 0 if entry is None else entry.epoch
            if epoch < newest:
                findings.append(f"{name}: version {version} is of epoch {epoch}, after one of epoch {newest}")
            newest = max(newest, epoch)
    return findings


def _rows(lake: Path) -> list[str]:
    """Tables whose rows differ from those of a run without faults."""
    found, calm = (dict(_tables(lake / folder)) for folder in ("lake", "calm/lake"))
    assert found.keys() == calm.keys()
    # batches cut otherwise remember other deletes, and leave other entries
    compared = [name for name in found if not name.endswith("__deleted") and not name.startswith("ops.")]
    return [f"{name}: other rows than without faults" for name in compared if _read(found[name]) != _read(calm[name])]


def _read(path: Path) -> list[Mapping[str, Any]]:
    table = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    shown = [name for name in table.column_names if not name.startswith("_")]
    return sorted(table.select(shown).to_pylist(), key=str)


def _books(project: Path, lake: Path) -> list[str]:
    sheets = Ledger(catalog.load(project), lake).sheets()
    return [f"{sheet.table}: {sheet.verdict}" for sheet in sheets if sheet.verdict != "ok"]


def main(
    times: Annotated[int, typer.Option(min=1, help="Drivers to stop and wake.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Decides whom, when and which rows; default: by chance.")] = None,
) -> None:
    """Stop, take over, wake, compare. Exit code 1 if a woken driver did anything."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    wrong = 0
    with control_store() as settings:
        for moment in draw(Random(seed), times):
            woken = wake(settings, moment, seed=seed)
            out.print(f"{'ok   ' if not woken.findings else 'WRONG'} {moment}", soft_wrap=True)
            out.print(f"      {woken.met}", markup=False, soft_wrap=True)
            for finding in woken.findings:
                out.print(f"      {finding}", markup=False, soft_wrap=True)
            wrong += bool(woken.findings)
    out.print("No woken driver committed anything; every row is there once." if not wrong else "It did not hold.")
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
