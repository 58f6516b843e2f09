"""`deltaworks source resnapshot`: read the source anew."""

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings


def register(main: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="The database whose changes are captured.", no_args_is_help=True)
    group.callback()(_keep_group)
    group.command()(resnapshot)
    main.add_typer(group, name="source")


def _keep_group() -> None:
    """The database whose changes are captured."""  # with it Typer keeps the group, though it has one command


def resnapshot() -> None:
    """Read every table of the source anew: after a restore, or when its slot was lost.

    What comes counts as newer than all before, and rows that the source no longer has are deleted with the end of the
    snapshot. The connector's file is changed: commit it.
    """
    from deltaworks.local import source

    loaded = settings()
    before, after = source.resnapshot(loaded)
    show.out.print(f"{before.prefix} has become {after.prefix}, slot {after.slot}: a snapshot is being taken")
    assert loaded.source is not None, "a connector was found"
    show.out.print(f"{loaded.source.connector} has changed: commit it")
