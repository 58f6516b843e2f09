"""Kill the Spark drivers and the parts of the stack with -9 while the shop works, and see that gold comes back right.

    .venv/spark/bin/python -m tests.chaos.kills --seed 7

It runs the whole stack, Airflow included, on free ports and in a scratch folder, or with --data in that folder with
the settings of this checkout; a stack that runs there already is used and left running. Takes about 15 minutes.
"""

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Annotated

import typer

from deltaworks import catalog
from deltaworks.cli.show import err, listing, out
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.local import stack
from deltaworks.settings import ROOT, Settings
from tests.chaos.drill import FRESH_SECONDS_MAX, Drilled, Outcome, drill
from tests.chaos.victims import PARTS, draw
from tests.running_stack import START_SECONDS_MAX, left_over, load_scratch

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended


def main(
    data: Annotated[Path | None, typer.Option(help="Data folder; default: a scratch folder and free ports.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides who is killed and when; default: by chance.")] = None,
    driver_kills: Annotated[int, typer.Option(min=0, help="Spark drivers to kill.")] = 5,
    victims: Annotated[str, typer.Option(help="Parts to kill once each, with commas; empty: none.")] = ",".join(PARTS),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running.")] = False,
) -> None:
    """Kill, measure, compare, report. Exit code 1 if gold came back late or wrong."""
    parts = [part.strip() for part in victims.split(",") if part.strip()]
    if unknown := sorted(set(parts) - set(PARTS)):
        raise typer.BadParameter(f"{unknown[0]}: known are {', '.join(PARTS)}")
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    try:
        with _started(data, keep=keep) as settings:
            chance, clock = Random(seed), _Clock()
            drawn = draw(chance, apps=catalog.load(settings.project).apps, driver_kills=driver_kills, parts=parts)
            found = drill(settings, drawn, chance=chance, say=clock.say)
            _report(found, seed)
            if found.findings:
                raise typer.Exit(1)  # here, so that the scratch folder with the logs stays
    except KeyboardInterrupt:
        err.print("interrupted; what was started is stopped" if not keep else "interrupted")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _started(data: Path | None, *, keep: bool) -> Iterator[Settings]:
    """Start the stack unless it runs, stop it if it was started here; the scratch folder stays if something failed."""
    scratch = None if data else Path(tempfile.mkdtemp(prefix="deltaworks-chaos-"))
    settings = load_scratch(ROOT, data=scratch) if scratch else Settings.load(ROOT, data=data)
    ran = stack.alive(settings)
    played = ran and stack.state(settings).parts.get("simulator") is not None
    try:
        out.print(f"{'using' if ran else 'starting'} the stack in {settings.data}")
        if played:
            stack.hold(settings, "simulator")  # the check compares what stands still
        stack.up(settings, seconds_max=START_SECONDS_MAX)
        yield settings
    except BaseException:
        if scratch:
            err.print(f"its logs stay in {settings.logs}", soft_wrap=True)
        raise
    finally:
        _ignore_interrupts()
        if ran and played:
            stack.up(settings, parts=("simulator",), wait_for=())
        elif not ran and not keep:
            stack.down(settings)
    if not ran and not keep:
        if left := left_over(settings):
            raise StackError("processes", f"left over: {left}", "Kill them")
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


class _Clock:
    """Says what happened and when, in seconds since the stack was up."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """One line with the time."""
        out.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/dim]  {text}", soft_wrap=True)


def _report(found: Drilled, seed: int) -> None:
    out.print("\nSeconds from the kill until a view and an order sent after it were in gold, and until all ran again.")
    listing([_row(one, found.usual_seconds) for one in found.outcomes], title="Kills", as_json=False)
    out.print()
    compared = [{name: row[name] for name in ("comparison", "expected", "found", "verdict")} for row in found.compared]
    listing(compared, title="Sources and lake, row by row", as_json=False)
    sent = ("messages", "duplicates", "late", "malformed", "orders_placed", "orders_paid", "orders_cancelled")
    out.print("\nsent: " + ", ".join(f"{found.sent[name]:,} {name.replace('_', ' ')}" for name in sent), soft_wrap=True)
    usual = f"a fresh row takes {found.usual_seconds:.2f} s without a fault"
    out.print(f"seed {seed}; {usual}; bound {FRESH_SECONDS_MAX:g} s", soft_wrap=True)
    for finding in found.findings:
        out.print(finding, markup=False, soft_wrap=True)
    out.print("Nothing was lost, nothing was doubled, nothing was late." if not found.findings else "It did not hold.")


def _row(one: Outcome, usual_seconds: float) -> dict[str, object]:
    seconds = one.fresh.seconds
    return {
        "victim": str(one.victim),
        "process": one.victim.process,
        "fresh s": seconds,
        "x usual": None if seconds is None else seconds / usual_seconds,
        "in time": seconds is not None,
        "back s": one.back_seconds,
        "new drivers": ", ".join(f"{count} {app}" for app, count in sorted(one.restarted.items())) or "none",
        "verdict": "fail" if one.findings else "ok",
    }


def _interrupt(*_: object) -> None:
    _ignore_interrupts()  # a second one must not cut the cleaning up short
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def run() -> None:
    """Run the command line; exit codes: 0 held, 1 not, 2 usage, 3 cannot, 130 interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        typer.run(main)
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(3)


if __name__ == "__main__":
    run()
