"""`deltaworks compact` and `commands list | show | cancel`: orders to the owners of tables."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaworks.cli import show
from deltaworks.cli.actors import ASKED, By, Reason, airflow_is_up, user
from deltaworks.cli.context import settings
from deltaworks.errors import CommandError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

    from deltaworks.control import Command, CommandState, Store

LONELY_SECONDS_MAX = 60.0  # Airflow starts a wanted driver within seconds, Spark is up after some ten
_POLL_SECONDS = 0.3
_STATES: "tuple[CommandState, ...]" = ("queued", "running", "done", "failed", "cancelled")

_Number = Annotated[int, typer.Argument(help="The command's number.")]
_Timeout = Annotated[float | None, typer.Option(min=1, help="Seconds that it may run; then it is given up.")]
_AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(main: typer.Typer) -> None:
    """Add this module's commands."""
    group = typer.Typer(no_args_is_help=True, help="Orders to the owners of tables.", rich_markup_mode=None)
    for name, command in (("list", listed), ("show", shown), ("cancel", cancel)):
        group.command(name)(command)
    main.add_typer(group, name="commands")
    main.command()(compact)
    main.command()(vacuum)
    main.command()(expire)


def compact(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")],
    *,
    by_debt: Annotated[
        bool, typer.Option("--by-debt", help="Only where there are many small files, a part of the table at a time.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Follow it until it has ended.")] = True,
    timeout: _Timeout = None,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Have the owner of a table turn many small files into few. Exit code 1 if it fails."""
    if timeout is not None and not by_debt:
        raise typer.BadParameter("goes with --by-debt only: without it all is one step", param_hint="--timeout")
    order(
        table, kind="compact", arguments={"by_debt": by_debt}, by=by, reason=reason, wait=wait, timeout=timeout
    )  # fmt: skip


def vacuum(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")],
    *,
    hours: Annotated[
        int | None, typer.Option(min=0, help="How long files stay once they are replaced; default: 168, a week.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Follow it until it has ended.")] = True,
    timeout: _Timeout = None,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Have the owner delete files that only older versions have; what a slow table above still needs stays.

    Older versions cannot be read afterwards.
    """
    order(table, kind="vacuum", arguments={"hours": hours}, by=by, reason=reason, wait=wait, timeout=timeout)


def expire(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.page_views.")],
    *,
    wait: Annotated[bool, typer.Option(help="Follow it until it has ended.")] = True,
    timeout: _Timeout = None,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Have the owner delete rows that are older than the table's keep_days; the ledger counts them.

    What is computed from a table goes first. Nothing comes back: bronze has it still, a rebuild leaves it out.
    """
    order(table, kind="expire", arguments={}, by=by, reason=reason, wait=wait, timeout=timeout)


def order(
    table: str, *, kind: str, arguments: Mapping[str, object], by: str | None, reason: str, wait: bool,
    app: str | None = None, timeout: float | None = None,
) -> None:  # fmt: skip
    """Send a command to the app that owns the table; follow it if `wait`, and run it here if no driver lives."""
    ended = ordered(table, kind=kind, arguments=arguments, by=by, reason=reason, wait=wait, app=app, timeout=timeout)
    if ended is not None:
        told(ended)


def ordered(
    table: str, *, kind: str, arguments: Mapping[str, object], by: str | None, reason: str, wait: bool = True,
    app: str | None = None, timeout: float | None = None, sent: Callable[[], None] | None = None,
) -> "Command | None":  # fmt: skip
    """The same without a word about how it ended; None if nobody waits for that.

    `sent` is called once the order has a number: from then on it may be carried out.
    """
    from deltaworks import catalog
    from deltaworks.control import Store

    loaded = settings()
    found = catalog.load(loaded.project)
    app = app or found[table].table.app
    with Store(loaded.control_dsn(), application="deltaworks cli") as store:
        store.declare_apps(found.apps)
        number = store.send(
            app=app, table=table, kind=kind, arguments=arguments, by=by or user(), reason=reason,
            timeout_seconds=timeout,
        )  # fmt: skip
        if sent is not None:
            sent()
        if not wait:
            _say(f'command {number} is queued for app {app}; "deltaworks commands show {number}"')
            return None
        try:
            with _progress() as progress:
                return _follow(loaded, store, store.command(number), progress)
        except KeyboardInterrupt:
            _say(f'command {number} goes on; "deltaworks commands cancel {number}" withdraws it')
            raise


def listed(
    *,
    app: Annotated[str | None, typer.Option(help="Only this app's.")] = None,
    state: Annotated[str | None, typer.Option(help=f"Only those that are {', '.join(_STATES)}.")] = None,
    table: Annotated[str | None, typer.Option(help="Only those about this table.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind, such as compact.")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Only those that this one wanted.")] = None,
    limit: Annotated[int, typer.Option("--number", "-n", min=1, max=10_000, help="How many.")] = 20,
    as_json: _AsJson = False,
) -> None:
    """List commands, newest first."""
    from deltaworks import catalog

    wanted = next((one for one in _STATES if one == state), None)
    if state is not None and wanted is None:
        raise typer.BadParameter(f"Known are {', '.join(_STATES)}.", param_hint="--state")
    if table is not None:
        table = catalog.load(settings().project)[table].name  # raises, with the nearest name
    with _store() as store:
        if app is not None:
            store.app(app)  # the same
        found = store.commands(app, wanted, limit, table=table, kind=kind, by=by)
    names = (
        "id", "app", "table_name", "kind", "arguments", "state", "requested_by", "reason", "requested_at",
        "finished_at",
    )  # fmt: skip
    rows = [{name: getattr(one, name) for name in names} for one in found]
    if not as_json:  # what fits a terminal; `commands show` has the rest
        rows = [
            {
                "id": one.id,
                "table": one.table_name or one.app,
                "kind": _kind(one),
                "state": one.state,
                "by": one.requested_by,
                "asked for": one.requested_at,
            }
            for one in found
        ]
    show.listing(rows, title="commands", as_json=as_json, empty="none")


def _kind(command: "Command") -> str:
    """Of a publication also what made the tables; orders of before do not tell."""
    what = command.arguments.get("what")
    return command.kind if what is None else f"{command.kind} ({what})"


def shown(number: _Number, *, as_json: _AsJson = False) -> None:
    """Show everything about one command."""
    import dataclasses
    import json

    with _store() as store:
        found = dataclasses.asdict(store.command(number))
    if as_json:
        show.listing([found], title="command", as_json=True)
        return
    rows = [
        {"field": name, "value": json.dumps(value) if isinstance(value, dict) else value}
        for name, value in found.items()
        if value is not None
    ]
    show.listing(rows, title=f"command {number}", as_json=False)


def cancel(number: _Number, *, by: By = None, reason: Reason = ASKED) -> None:
    """Withdraw a command; one that runs ends after the step that it is in, and what it has done stays."""
    with _store() as store:
        found = store.cancel(number, by=by or user(), reason=reason)
    _say(f"command {number} {'is cancelled' if found.finished else 'ends after the step that it is in'}")


@contextmanager
def _store() -> "Iterator[Store]":
    from deltaworks.control import Store

    with Store(settings().control_dsn(), application="deltaworks cli") as store:
        yield store


def _follow(loaded: Settings, store: "Store", command: "Command", progress: "Progress") -> "Command":
    """Wait for the command's end: by a driver or, if none lives and none is coming, by an owner for it alone."""
    line = progress.add_task("", total=None)
    lonely_since = time.monotonic()
    while not command.finished:
        _draw(progress, line, command)
        if _has_driver(loaded, store, command.app):
            lonely_since = time.monotonic()
        elif not _driver_comes(loaded, store, command.app):
            command = _obey_here(loaded, store, command, progress)
            lonely_since = time.monotonic()
            continue
        elif time.monotonic() - lonely_since > LONELY_SECONDS_MAX:
            finding = f"is {command.state}, and app {command.app} has had no driver for {LONELY_SECONDS_MAX:.0f} s"
            raise CommandError(f"command {command.id}", finding, f'See "deltaworks app status {command.app}"')
        time.sleep(_POLL_SECONDS)
        command = store.command(command.id)
    _draw(progress, line, command)
    return command


def _has_driver(loaded: Settings, store: "Store", app: str) -> bool:
    from deltaworks.supervise.launch import running

    return running(loaded, store, app) is not None


def _driver_comes(loaded: Settings, store: "Store", app: str) -> bool:
    """Whether a driver is wanted and Airflow is there to start it."""
    return store.app(app).desired == "running" and airflow_is_up(loaded)


def _obey_here(loaded: Settings, store: "Store", command: "Command", progress: "Progress") -> "Command":
    """Start a process that takes the app's lease, carries out this command and ends; follow it."""
    from deltaworks.supervise.launch import NOT_OWNER, start_owner

    progress.console.print(f"app {command.app} has no driver: its tables get an owner for this command")
    line = progress.add_task("", total=None)
    with start_owner(loaded, command) as owner:
        while owner.poll() is None:
            _draw(progress, line, store.command(command.id))
            time.sleep(_POLL_SECONDS)
    progress.remove_task(line)
    now = store.command(command.id)
    if not now.finished and owner.returncode not in (0, NOT_OWNER):
        finding = f"is {now.state}: its owner ended with code {owner.returncode}"
        raise CommandError(f"command {command.id}", finding, f'See "deltaworks logs app-{command.app}"')
    return now


@contextmanager
def _progress() -> "Iterator[Progress]":
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=show.out, transient=True, disable=not show.out.is_terminal) as progress:
        yield progress


def _draw(progress: "Progress", line: Any, command: "Command") -> None:
    """Show how far it is: a bar if the owner says `done` and `total`, and what else it says."""
    done, total = (_number(command.progress.get(name)) for name in ("done", "total"))
    rest = {name: value for name, value in command.progress.items() if name not in ("done", "total")}
    facts = "  ".join([command.state, *_facts(rest)])
    description = f"command {command.id} {_words(command.kind)} {command.table_name or command.app}: {facts}"
    progress.update(line, description=description, completed=done or 0, total=total)


def told(command: "Command") -> None:
    """Print how it ended; exit 1 unless well."""
    began, ended = command.started_at, command.finished_at
    took = f" after {(ended - began).total_seconds():.1f} s" if began and ended else ""
    what = f"command {command.id} {_words(command.kind)} {command.table_name or command.app}"
    if command.state == "done":
        _say("  ".join([f"{what}: done{took}", *_facts(command.result or {})]))
        return
    withdrawn = ": ".join(filter(None, (command.cancelled_by and f"By {command.cancelled_by}", command.cancel_reason)))
    why = command.error or withdrawn
    show.err.print(f"{what}: {command.state}{took}. {why}".rstrip(), markup=False, soft_wrap=True)
    raise typer.Exit(1)


def _facts(found: Mapping[str, object]) -> list[str]:
    """Name and value in words; what was before and what is after stand together."""
    facts = []
    for name, value in found.items():
        stem = name.removesuffix("_before").removesuffix("_after")
        if f"{stem}_before" in found and f"{stem}_after" in found:
            if name.endswith("_before"):
                facts.append(f"{_words(stem)} {_amount(value)} to {_amount(found[f'{stem}_after'])}")
        else:
            facts.append(f"{_words(name)} {_amount(value)}")
    return facts


def _words(name: str) -> str:
    return name.replace("_", " ")


def _amount(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_amount(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_amount, value)) or "none"
    if value is None:
        return "none"
    return str(value) if _number(value) is None else f"{value:,}"


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _say(text: str) -> None:
    show.out.print(text, markup=False, soft_wrap=True)
