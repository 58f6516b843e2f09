"""`make proof`: every crash point of every kind of table on both commit paths, and real kills; writes a report.

    .venv/spark/bin/python -m tests.proof --seed 7 --app shop --path arrow --deaths 20

Without options it dies at every point once, by an exception that leaves the flow where it stands; behind every write
once, by a power cut that takes some of what the disk was not asked to hold; and once per kind of table and path by
signal 9. Exit code 1 if the checker finds anything.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Annotated

import typer

from deltaworks.cli.show import out
from deltaworks.engine.checker import Finding
from deltaworks.engine.driver import leave
from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings
from tests.proof.killed import kill
from tests.proof.report import Proof, Tried, write
from tests.proof.walk import Death, Walk
from tests.proof.workloads import WORKLOADS

PATHS = {"arrow": "auto", "spark": "spark"}
_APPS = tuple(one.app for one in WORKLOADS)


def main(
    seed: Annotated[int | None, typer.Option(help="Draws rows and deaths; default: by chance.")] = None,
    app: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(_APPS)}; default: all.")] = None,
    path: Annotated[list[str] | None, typer.Option(help="arrow or spark; default: both.")] = None,
    deaths: Annotated[int | None, typer.Option(min=0, help="So many per app and path; default: every point.")] = None,
    kills: Annotated[bool, typer.Option(help="Real kills, one per kind of table and path.")] = True,
    to: Annotated[Path, typer.Option(help="Folder of the report.")] = ROOT / ".deltaworks/proof",
) -> None:
    """Die, start again, check, report."""
    apps, paths = app or list(_APPS), path or list(PATHS)
    for given, known in ((apps, _APPS), (paths, tuple(PATHS))):
        if unknown := sorted(set(given) - set(known)):
            raise typer.BadParameter(f"{unknown[0]}: known are {', '.join(known)}")
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="deltaworks-proof-") as scratch:
        folder = Path(scratch)
        settings = Settings.load(ROOT, environment={}, data=folder / "session")
        spark = open_session(name="proof", settings=settings, app=AppSettings(), brief=True)
        proof = Proof(seed=seed)
        killed: set[tuple[str, str]] = set()
        for workload in WORKLOADS:
            for name in paths if workload.app in apps else ():
                walk = Walk(
                    workload=workload,
                    path=PATHS[name],
                    seed=seed,
                    folder=folder / f"{workload.app}-{name}",
                    spark=spark,
                )
                for tried in _walk(walk, name, deaths, killed if kills else None):
                    proof.tried.append(tried)
                    out.print(str(tried), markup=False, soft_wrap=True)
        spark.stop()
    out.print(proof.summary(), markup=False, soft_wrap=True)
    out.print(f"report: {write(proof, to)}", markup=False, soft_wrap=True)
    if proof.findings or not proof.tried:
        raise typer.Exit(1)


Look = Callable[[], list[Finding]]


def _walk(walk: Walk, path: str, deaths: int | None, killed: set[tuple[str, str]] | None) -> Iterator[Tried]:
    """The peaceful run, deaths by exception and power cut, kills of the kinds of table that no other app has had."""
    chance = Random(walk.seed)

    def tried(how: str, places: tuple[Death, ...], look: Look) -> Tried:
        began = time.monotonic()
        found = look()
        seconds = time.monotonic() - began
        return Tried(
            app=walk.workload.app, path=path, how=how, places=tuple(map(str, places)), seconds=seconds,
            findings=tuple(map(str, found)),
        )  # fmt: skip

    yield tried("peace", (), walk.begin)
    every = list(walk.deaths(chance))
    for places in every if deaths is None else chance.sample(every, min(deaths, len(every))):
        yield tried("exception", places, partial(walk.die, places))
    cuts = list(walk.cuts(chance))
    for place in cuts if deaths is None else chance.sample(cuts, min(deaths, len(cuts))):
        yield tried("power cut", (place,), partial(walk.die, (place,), power_cut=chance))
    for kind, death in _kills(walk, every, chance):
        if killed is not None and (kind, path) not in killed:
            killed.add((kind, path))
            yield tried("kill -9", (death,), partial(kill, walk, death))


def _kills(walk: Walk, every: Sequence[tuple[Death, ...]], chance: Random) -> Iterator[tuple[str, Death]]:
    """For each kind of table of the app, those beside a table too, one death in the midst of a batch."""
    kinds: dict[str, list[Death]] = {}
    for death, *more in every:
        table, act, _ = death.point.rsplit(".", 2)
        if act == "batch" and not more:
            kinds.setdefault(walk.kind(table), []).append(death)
    yield from ((kind, chance.choice(deaths)) for kind, deaths in sorted(kinds.items()))


def run() -> None:
    """Run the command line; exit codes: 0 nothing found, 1 something, 2 usage."""
    try:
        typer.run(main)
    except SystemExit as end:
        sys.stdout.flush()
        leave(int(end.code or 0))


if __name__ == "__main__":
    run()
