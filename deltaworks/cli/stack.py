"""`deltaworks up | down | status | doctor | logs | airflow`: the local stack."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import held_up, in_lake, show
from deltaworks.cli.context import settings
from deltaworks.errors import StackError

if TYPE_CHECKING:
    from rich.table import Table

    from deltaworks.local.part import PartState, StackState

_AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(main: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (up, down, status, doctor, logs):
        main.command()(command)
    main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})(airflow)


def up(
    parts: Annotated[
        list[str] | None,
        typer.Argument(help="source, control, kafka, connect, airflow (default), and the project's own processes."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Return only when everything is ready.")] = True,
) -> None:
    """Start the local stack: Postgres twice, Kafka, Connect with Debezium, Airflow; twice is harmless."""
    from deltaworks.local import stack

    loaded = settings()
    began = time.monotonic()
    chosen = tuple(parts) if parts else stack.SERVICES
    with _progress(chosen) as watcher:
        stack.up(loaded, parts=chosen, wait_for=chosen if wait else (), watcher=watcher)
    took = time.monotonic() - began
    show.out.print(f"up after {took:.1f} s" if wait else "starting", style="bold")
    if "airflow" in chosen:
        show.out.print(f"Airflow {loaded.airflow_url}, user admin, password in {loaded.secrets / 'airflow_admin'}")


def down() -> None:
    """Stop the apps, then every part; says whether something had to be killed, and leaves no process."""
    from deltaworks.local import stack

    began = time.monotonic()
    with show.out.status("stopping"):
        met = stack.down(settings())
    for app, became in met.apps.items():
        show.out.print(f"app {app}: {became}")
    rest = f"{met.killed} left-over processes killed, none" if met.killed else "no process"
    show.out.print(f"down after {time.monotonic() - began:.1f} s, {rest} of ours is left", style="bold")


def airflow(arguments: Annotated[list[str] | None, typer.Argument(help="What Airflow is to do.")] = None) -> None:
    """Run Airflow's own command line on this stack's Airflow: deltaworks airflow dags list; its exit code is ours."""
    from deltaworks.local import airflow as local_airflow

    sys.stdout.flush()
    local_airflow.run(settings(), arguments or ["--help"])


def status(as_json: _AsJson = False) -> None:
    """Show the parts of the local stack: state, process, uptime, restarts. Exit code 1 if one is not ready."""
    from deltaworks.local import stack
    from deltaworks.local.part import UP

    found = stack.state(settings())
    services = [one for one in found.parts.values() if not one.step]
    failing = [one for one in found.parts.values() if one.step and one.state not in UP and found.pid is not None]
    rows = [_row(one) for one in [*services, *failing]]
    show.listing(rows, title="local stack", as_json=as_json, empty="not started")
    if any(one.state != "ready" for one in services) or failing or not services:
        raise typer.Exit(1)


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Look through all rows and commits of the lake too.")] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="With --deep: recompute every table (starts Spark).")
    ] = False,
    source: Annotated[bool, typer.Option("--source", help="With --deep: compare with the source database.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Check the machine and the running stack; each finding with its next step. Exit code 1 on a finding."""
    from deltaworks.local.doctor import examine

    if (replay or source) and not deep:
        raise typer.BadParameter("--replay and --source go with --deep")
    rows: list[dict[str, object]] = [
        {"check": one.check, "verdict": one.verdict, "finding": one.finding, "next step": one.next_step}
        for one in examine(settings())
    ]
    rows += in_lake.look(settings())
    rows += held_up.look(settings())
    if deep:
        from deltaworks.cli.deep import look_deep

        rows += look_deep(settings(), replay=replay, source=source)
    show.listing(rows, title="doctor", as_json=as_json)
    if any(row["verdict"] == "fail" for row in rows):
        raise typer.Exit(1)


def logs(
    part: Annotated[str | None, typer.Argument(help="kafka, app-shop, ...; default: which there are.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on printing as lines come.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last lines.")] = 50,
    as_json: _AsJson = False,
) -> None:
    """Print the last lines of a part's log; without a name: which logs there are."""
    folder = settings().logs
    names = sorted(path.stem for path in folder.glob("*.log")) if folder.is_dir() else []
    if part is None:
        rows = [{"log": name, "bytes": (folder / f"{name}.log").stat().st_size} for name in names]
        show.listing(rows, title=str(folder), as_json=as_json)
        return
    if part not in names:
        raise StackError(f"log {part}", "there is none", f"Known are {', '.join(names) or 'none yet'}")
    for line in _last(folder / f"{part}.log", lines=lines, follow=follow):
        sys.stdout.write(line)
        sys.stdout.flush()


def _last(path: Path, *, lines: int, follow: bool) -> Iterator[str]:
    """The last lines; when following also those that come, in the new file too after the log was rotated."""
    with path.open(errors="replace") as file:
        yield from file.readlines()[-lines:] if lines else []
        file.seek(0, 2)
        while follow:
            line = file.readline()
            if line:
                yield line
            elif path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                yield from _last(path, lines=sys.maxsize, follow=True)
            else:
                time.sleep(0.2)


def _row(part: "PartState") -> dict[str, object]:
    from deltaworks.local.part import now

    return {
        "part": part.name,
        "state": part.state,
        "pid": part.pid if part.pid is None else str(part.pid),
        "port": str(part.port) if part.port else None,
        "for": _duration(now() - part.since),
        "restarts": part.restarts,
        "last exit": part.last_exit,
    }


def _duration(seconds: float) -> str:
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@contextmanager
def _progress(services: Sequence[str]) -> Iterator["_Progress"]:
    """Live lines on a terminal; elsewhere one line per part when it is ready."""
    from rich.live import Live

    progress = _Progress(services)
    if not show.out.is_terminal:
        yield progress
        return
    with Live(get_renderable=progress.render, console=show.out, refresh_per_second=8, transient=True):
        yield progress


class _Progress:
    """Prints each part once when it is ready, and shows the others meanwhile."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = services
        self._began = time.monotonic()
        self._printed: set[str] = set()
        self._pending: list[PartState] = []

    def __call__(self, state: "StackState") -> None:
        from deltaworks.local.part import UP

        self._pending = [one for one in state.parts.values() if one.state not in UP]
        for part in state.parts.values():
            if part.state in UP and part.name not in self._printed:
                self._printed.add(part.name)
                if not part.step:
                    show.out.print(f"[green]ready[/green]  {part.name:22} {time.monotonic() - self._began:5.1f} s")

    def render(self) -> "Table":
        """What is still awaited, for the live display."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        for part in self._pending:
            again = f"failed {part.restarts} times, last with {part.last_exit}" if part.restarts else ""
            grid.add_row(f"[yellow]{part.state}[/yellow]", part.name, again)
        grid.add_row(f"{time.monotonic() - self._began:.0f} s")
        return grid
