"""`rebuild`: a table and those above it are computed again from their inputs."""

import shutil
import uuid
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.engine.rebuild import Staged


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command()(rebuild)


def rebuild(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")],
    *,
    by: Annotated[str | None, typer.Option("--by", help="Who wants it; default: the user of the system.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "asked for on the command line",
) -> None:
    """Compute a table again from all of its inputs, with the code and rules of now, and every table above it.

    The stream goes on meanwhile; what it brings is in the new table too.
    """
    from deltaworks import catalog
    from deltaworks.cli.commands import order
    from deltaworks.engine.commands import STAGED

    now = settings()
    name = catalog.load(now.project)[table].name  # raises, with the nearest name
    folder = now.data / STAGED / uuid.uuid4().hex
    folder.mkdir(parents=True)
    try:
        staged = _staged(now.changed(data=folder), now, name)
        show.out.print(f"computed again: {', '.join(staged.tables)}", markup=False, soft_wrap=True)
        order(name, kind="publish_rebuilt", arguments={"folder": folder.name}, by=by, reason=reason, wait=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _staged(own: Settings, now: Settings, table: str) -> "Staged":
    from deltaworks import catalog
    from deltaworks.engine.jvm_log import jvm_log, no_query_log
    from deltaworks.engine.rebuild import stage
    from deltaworks.engine.session import open_session
    from deltaworks.settings import AppSettings

    with jvm_log(now.logs / "rebuild.log"):
        spark = open_session(name="rebuild", settings=own, app=AppSettings())
    try:
        with no_query_log():
            return stage(table, catalog=catalog.load(now.project), lake=now.lake, spark=spark, anew=own)
    finally:
        spark.stop()
