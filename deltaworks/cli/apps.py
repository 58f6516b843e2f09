"""`deltaworks app start | stop | restart | status` and `run`: what should run, and what does.

Start and stop are wishes in the control store; this module says who carries them out.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaworks.cli import commands, show
from deltaworks.cli.actors import ASKED, By, Reason, airflow_is_up, user
from deltaworks.cli.context import settings
from deltaworks.errors import ControlError
from deltaworks.settings import ROOT, Settings

if TYPE_CHECKING:
    from deltaworks.control import Heartbeat, Store
    from deltaworks.supervise.judge import Seen, Verdict

DRAIN_SECONDS_MAX = 60.0  # a driver ends its micro-batch and leaves; a batch takes seconds
_POLL_SECONDS = 0.2

_Apps = Annotated[list[str] | None, typer.Argument(help="Names of apps.")]
_All = Annotated[bool, typer.Option("--all", help="Every app of the project.")]
_Here = Annotated[bool, typer.Option("--here", help="Launch the driver from here instead of leaving it to Airflow.")]
_AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(main: typer.Typer) -> None:
    """Add this module's commands, and those for orders to the owners of tables."""
    group = typer.Typer(no_args_is_help=True, help="Start, stop and look at apps.", rich_markup_mode=None)
    for command in (start, stop, restart, status):
        group.command()(command)
    main.add_typer(group, name="app")
    main.command()(run)
    commands.register(main)


def start(
    apps: _Apps = None, *, every: _All = False, by: By = None, reason: Reason = ASKED, here: _Here = False
) -> None:
    """Want apps running, and say who starts them."""
    loaded = settings()
    with _store(loaded) as store:
        for app in _chosen(loaded, store, apps, every=every):
            store.desire(app, "running", by=by or user(), reason=reason)
            _started(loaded, app, here=here)


def stop(
    apps: _Apps = None,
    *,
    every: _All = False,
    by: By = None,
    reason: Reason = ASKED,
    wait: Annotated[bool, typer.Option(help="Return only when the drivers have ended.")] = False,
) -> None:
    """Want apps stopped: each driver ends its micro-batch and leaves. Exit code 1 if one is still there."""
    loaded = settings()
    with _store(loaded) as store:
        chosen = _known(store, apps, every=every)
        for app in chosen:
            store.desire(app, "stopped", by=by or user(), reason=reason)
            driver = _look(loaded, store, app).driver
            _say(f"{app}: {f'pid {driver.pid} ends its batch and leaves' if driver else 'no driver runs'}")
        if wait:
            _complain(_still_there(loaded, store, chosen), "", 'See "deltaworks logs app-{app}"')


def restart(
    apps: _Apps = None, *, every: _All = False, by: By = None, reason: Reason = ASKED, here: _Here = False
) -> None:
    """Stop apps, wait until their drivers have ended, start those. Exit code 1 if one does not: it stays stopped."""
    loaded = settings()
    with _store(loaded) as store:
        chosen = _chosen(loaded, store, apps, every=every)
        for app in chosen:
            store.desire(app, "stopped", by=by or user(), reason=reason)
        left = _still_there(loaded, store, chosen)
        ended = [app for app in chosen if app not in left]
        for app in ended:
            store.desire(app, "running", by=by or user(), reason=reason)
        for app in ended:
            _started(loaded, app, here=here)
        _complain(left, '; "stopped" is wanted still', 'Once it has ended, run "deltaworks app start {app}"')


def status(apps: _Apps = None, *, as_json: _AsJson = False) -> None:
    """Show per app what is wanted, how it is and how far. Exit code 1 if one is not well."""
    from deltaworks.supervise.watch import judged

    loaded = settings()
    with _store(loaded) as store:
        looks = [judged(loaded, store, app) for app in _known(store, apps, every=not apps)]
    rows = [_row(seen, verdict) for seen, verdict in looks]
    if as_json:
        show.listing(rows, title="apps", as_json=True)
    else:
        # pid and epoch are names, not amounts; the reasons have lines of their own, and say what is broken
        plain = [
            {name: str(value) if name in ("pid", "epoch") and value else value for name, value in row.items()}
            for row in rows
        ]
        for row in plain:
            del row["reason"], row["broken"], row["copies"]
        show.listing(plain, title="apps", as_json=False, empty='none; "deltaworks app start" declares the project\'s')
        for seen, verdict in looks:
            _say(f"{seen.app.name}: {verdict.reason}")
        if copies := [copy for row in rows for copy in row["copies"]]:
            show.listing(copies, title="copies", as_json=False)
    if not all(verdict.well for _, verdict in looks):
        raise typer.Exit(1)


def run(
    app: Annotated[str, typer.Argument(help="Name of the app.")],
    drain: Annotated[bool, typer.Option("--drain", help="Work until everything that is there is taken, then end.")],
) -> None:
    """Run an app's driver in the foreground, without Airflow. Exit code 75 if another driver owns the app."""
    from deltaworks import catalog
    from deltaworks.supervise.launch import driver_environment

    assert drain, "a required flag"
    loaded = settings()
    catalog.load(loaded.project).app(app)
    script = [str(ROOT / "spark_apps" / "stream.py"), "--app", app, "--project", str(loaded.project), "--drain"]
    sys.stdout.flush()
    python = str(loaded.spark_python)
    os.execve(python, [python, *script], dict(driver_environment(loaded)))  # noqa: S606  # our own program, no shell


@contextmanager
def _store(loaded: Settings) -> "Iterator[Store]":
    from deltaworks.control import Store

    with Store(loaded.control_dsn(), application="deltaworks cli") as store:
        yield store


def _look(loaded: Settings, store: "Store", app: str) -> "Seen":
    from deltaworks.supervise.watch import look

    return look(loaded, store, app)


def _chosen(loaded: Settings, store: "Store", apps: Sequence[str] | None, *, every: bool) -> list[str]:
    """The apps of the project that are meant; makes them known to the control store."""
    from deltaworks import catalog

    found = catalog.load(loaded.project)
    names = _named(apps, every=every, known=found.apps)
    for name in names:
        found.app(name)  # raises, with the nearest name
    store.declare_apps(found.apps)
    return names


def _known(store: "Store", apps: Sequence[str] | None, *, every: bool) -> list[str]:
    """The apps of the control store that are meant: stopping and looking need no catalog that loads."""
    names = _named(apps, every=every, known=[app.name for app in store.apps()] if every else ())
    for name in names:
        store.app(name)  # raises, with the nearest name
    return names


def _named(apps: Sequence[str] | None, *, every: bool, known: Sequence[str]) -> list[str]:
    if bool(apps) == every:
        raise typer.BadParameter("Name the apps, or give --all.")
    return list(known) if every else list(apps or ())


def _started(loaded: Settings, app: str, *, here: bool) -> None:
    """Start the driver, or say who does."""
    from deltaworks.supervise import launch

    if here:
        launched = launch.start(loaded, app)
        what = "runs already" if launched.adopted else "started"
        _say(f'{app}: driver {what}, pid {launched.pid}; "deltaworks logs app-{app}"')
    elif airflow_is_up(loaded):
        _say(f"{app}: Airflow's stream__{app} starts it within seconds")
    else:
        _say(f'{app}: Airflow is not up. Run "deltaworks up", or "deltaworks app start {app} --here"')


def _still_there(loaded: Settings, store: "Store", apps: Sequence[str]) -> list[str]:
    """Wait until no driver of these apps lives; returns the apps that have one after DRAIN_SECONDS_MAX."""
    left, until = list(apps), time.monotonic() + DRAIN_SECONDS_MAX
    with show.out.status("") as spinner:
        while left := [app for app in left if _look(loaded, store, app).driver is not None]:
            if time.monotonic() > until:
                break
            spinner.update(f"waiting for {', '.join(left)}")
            time.sleep(_POLL_SECONDS)
    return left


def _complain(apps: Sequence[str], further: str, next_step: str) -> None:
    """Name the apps whose driver did not end and what to do ({app} stands for the name); exit 1 if there are any."""
    for app in apps:
        finding = f"its driver has not ended after {DRAIN_SECONDS_MAX:.0f} s{further}"
        error = ControlError(f"app {app}", finding, next_step.format(app=app))
        show.err.print(str(error), markup=False, soft_wrap=True)
    if apps:
        raise typer.Exit(1)


def _row(seen: "Seen", verdict: "Verdict") -> dict[str, Any]:
    from deltaworks.supervise.judge import lag_rows

    lease, beat = seen.lease, seen.heartbeat
    # what a driver said that is gone is no rate and no lag any more
    present = beat if seen.driver and lease and beat and beat.epoch == lease.epoch else None
    return {
        "app": seen.app.name,
        "wanted": seen.app.desired,
        "state": verdict.state,
        "epoch": lease.epoch if lease else None,
        "pid": seen.driver.pid if seen.driver else None,
        "heartbeat_seconds": round(beat.age_seconds, 1) if beat else None,
        "rows_per_second": present.progress.get("rows_per_second") if present else None,
        "lag_rows": lag_rows(present) if present else None,
        "commit_seconds": _age(beat.progress.get("last_commit_at") if beat else None, seen.at),
        "reason": verdict.reason,
        "broken": verdict.broken if seen.app.desired == "running" else False,  # what is to rest raises no alarm
        "copies": _copies(present, seen.at) if present else [],
    }


def _copies(beat: "Heartbeat", now: datetime) -> list[dict[str, object]]:
    """How far behind its table each copy is; None while this driver has not brought it anywhere yet."""
    from deltaworks.supervise.judge import copies_of

    return [
        {
            "table": copy["table"],
            "to": copy["to"],
            "versions_behind": copy["newest"] - copy["version"] if copy["version"] >= 0 else None,
            "behind_seconds": _age(copy["behind_since"], now),
            "error": copy["error"],
        }
        for copy in copies_of(beat)
    ]


def _age(at: object, now: datetime) -> float | None:
    """Seconds since a time that a driver wrote into its progress."""
    if not isinstance(at, str):
        return None
    time_of = datetime.fromisoformat(at)
    return round(max((now - (time_of if time_of.tzinfo else time_of.replace(tzinfo=UTC))).total_seconds(), 0.0), 1)


def _say(text: str) -> None:
    """Print a line as it is."""
    show.out.print(text, markup=False, soft_wrap=True)
