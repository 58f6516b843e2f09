"""`deltaworks source resnapshot`: read the source anew, whole, or some tables of it beside the stream."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.settings import Settings


def register(main: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="The database whose changes are captured.", no_args_is_help=True)
    group.callback()(_keep_group)
    group.command()(resnapshot)
    main.add_typer(group, name="source")


def _keep_group() -> None:
    """The database whose changes are captured."""  # with it Typer keeps the group, though it has one command


def resnapshot(
    *,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only this table, such as public.orders, beside the stream; may be given again."),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(help="With --table: return only when they have been read; exit code 1 if one may be left out."),
    ] = False,
) -> None:
    """Read every table of the source anew: after a restore, or when its slot was lost.

    What comes counts as newer than all before, and rows that the source no longer has are deleted with the end of the
    snapshot. The connector's file is changed: commit it.

    With --table only these are read, while changes go on, and no file is changed: rows that the lake lacks come, newer
    changes win. Rows whose deletion was lost stay, and each key of a history gets a state more.
    """
    loaded = settings()
    if table:
        _beside(loaded, tuple(dict.fromkeys(table)), wait=wait)
    elif wait:
        raise typer.BadParameter("goes with --table only.", param_hint="--wait")
    else:
        _whole(loaded)


def _whole(loaded: Settings) -> None:
    from deltaworks.local import source

    before, after = source.resnapshot(loaded)
    show.out.print(f"{before.prefix} has become {after.prefix}, slot {after.slot}: a snapshot is being taken")
    assert loaded.source is not None, "a connector was found"
    show.out.print(f"{loaded.source.connector} has changed: commit it")


def _beside(loaded: Settings, tables: Sequence[str], *, wait: bool) -> None:
    from deltaworks.local import doctor, signals

    began = datetime.now(UTC)
    asked, named = signals.read_beside(loaded, tables, signal=uuid.uuid4().hex), ", ".join(tables)
    show.out.print(f"{named}: being read beside the stream; deletions that were lost stay lost", soft_wrap=True)
    if wait:
        with show.out.status("waiting for the connector; what it was asked for it reads without us too"):
            signals.wait_over(loaded, asked)
        if unread := doctor.unread(loaded, since=began):
            for told, next_step in unread:
                show.err.print(f"connect log: {told}. {next_step}.", style="yellow", markup=False, soft_wrap=True)
            raise typer.Exit(1)
        show.out.print(f"{named}: read", soft_wrap=True)
