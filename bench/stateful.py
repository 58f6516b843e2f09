"""What the shop's `stateful` tables cost: one driver that has them all, beside one that has only what they read.

    .venv/spark/bin/python bench/stateful.py

Every table is in one app with a turn every ten seconds; the simulator sends at its own rate. Each driver has a stack of
its own, one after the other, and who goes first changes.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from bench.program import Program
from bench.sides import Deltaworks
from bench.stand import APP, PARTS, PORT_FIRST, ports_from, run, scratch
from deltaworks import catalog
from deltaworks.cli.show import err, listing, out
from deltaworks.control import Store
from deltaworks.errors import StackError
from deltaworks.settings import ROOT, Settings
from deltaworks.words.keeping import Stateful
from shop.part import part_of_shop

_START_SECONDS_MAX = 180.0
_LOOK_SECONDS = 0.5  # between two looks at the driver's heartbeat


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a driver took in its window: cores kept busy, seconds between its turns, the most memory (bytes)."""

    tables: int
    cores: float
    turn_seconds: float
    memory: int


def stateful() -> list[str]:
    """The shop's tables of this kind."""
    return [one.name for one in catalog.load(ROOT).tables.values() if isinstance(one.table.kept_as, Stateful)]


def inputs(tables: Sequence[str]) -> list[str]:
    """What they read directly."""
    found = catalog.load(ROOT)
    return sorted({name for table in tables for name in found[table].inputs} - set(tables))


def measure(
    tables: Sequence[str], *, seconds: float, warm_up: float, trigger: float, port_first: int, keep: bool
) -> Cost:
    """Let a driver with these tables, and those below, follow the simulator."""

    def settings_for(data: Path) -> Settings:
        project = part_of_shop(data / "project", *tables)
        for declaration in (project / "tables").glob("*/*/table.py"):
            declaration.write_text(declaration.read_text().replace('app="shop"', f'app="{APP}"'))
        (project / "deltaworks.toml").write_text(f"[apps.{APP}]\ntrigger_seconds = {trigger}\n")
        return Settings.load(project, environment={}, data=data, **ports_from(port_first))

    with scratch(settings_for, parts=PARTS, keep=keep) as settings:
        side, simulator = Deltaworks(), [str(settings.spark_python), "-m", "shop.simulate", "--order-rate", "0"]
        simulator += ["--late", "0.05", "--duplicates", "0.02", "--project", str(ROOT)]
        with side.start(settings) as driver, Program("simulator", simulator, settings=settings) as shop:
            _until(settings, driver, batches=1)
            _pass(warm_up, driver, shop)
            first, cpu, began = _batches(settings), driver.cpu_seconds(), time.monotonic()
            _pass(seconds, driver, shop)
            took, turns = time.monotonic() - began, _batches(settings) - first
            cores, memory = (driver.cpu_seconds() - cpu) / took, driver.memory()
            side.ask_to_stop(settings, driver)
            driver.wait(_START_SECONDS_MAX)
        return Cost(
            tables=len(catalog.load(settings.project).tables), cores=cores, turn_seconds=took / max(1, turns),
            memory=memory.jvm + memory.driver + memory.workers,
        )  # fmt: skip


def _until(settings: Settings, driver: Program, *, batches: int) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while _batches(settings) < batches:
        driver.must_run()
        if time.monotonic() > deadline:
            raise StackError("the driver", "takes nothing", "Run again with --keep and read its log")
        time.sleep(_LOOK_SECONDS)


def _batches(settings: Settings) -> int:
    with Store(settings.control_dsn()) as store:
        beat = store.heartbeat(APP)
    return 0 if beat is None else int(beat.progress.get("batches", 0))


def _pass(seconds: float, *programs: Program) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for program in programs:
            program.must_run()
        time.sleep(_LOOK_SECONDS)


def main(
    seconds: Annotated[float, typer.Option(min=30, help="Measured window.")] = 180,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before that.")] = 60,
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of drivers.")] = 2,
    trigger: Annotated[float, typer.Option(min=0.5, help="Seconds from turn to turn.")] = 10,
    port_first: Annotated[int, typer.Option(help="The stack takes its ports from here on.")] = PORT_FIRST,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data folders, with the logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure. Exit codes: 0 measured, 2 usage, 3 cannot."""
    tables = stateful()
    sides = {"what they read": inputs(tables), "the stateful tables too": tables}
    found: dict[str, list[Cost]] = {name: [] for name in sides}

    def measured() -> bool:
        for number in range(repeats):
            for name in list(sides) if number % 2 == 0 else reversed(sides):
                err.print(f"{name} ...")
                cost = measure(
                    sides[name], seconds=seconds, warm_up=warm_up, trigger=trigger, port_first=port_first, keep=keep
                )
                found[name].append(cost)
        return True

    code = run(measured)
    if code == 0:
        rows = [
            {
                "driver": name,
                "tables": costs[0].tables,
                "% of a core": round(100 * fmean(one.cores for one in costs)),
                "seconds between turns": round(fmean(one.turn_seconds for one in costs), 1),
                "memory GB": round(max(one.memory for one in costs) / 10**9, 2),
            }
            for name, costs in found.items()
        ]
        listing(rows, title=f"{len(tables)} stateful tables", as_json=as_json)
        without, beside = (fmean(one.cores for one in costs) for costs in found.values())
        if not as_json:
            out.print(f"with them the driver takes {beside / without:.2f} times the CPU time")
    sys.exit(code)


if __name__ == "__main__":
    typer.run(main)
