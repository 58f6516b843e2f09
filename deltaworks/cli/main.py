"""The door: registers every group of commands and turns expected errors into one line."""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from deltaworks.cli.context import remember
from deltaworks.cli.show import err
from deltaworks.errors import DeltaworksError

_MODULES = (
    "stack",
    "tables",
    "apps",
    "ledger",
    "profile",
    "wait",
    "quarantine",
    "quality",
    "late",
    "analyst",
    "source",
    "prove",
    "compute_again",
    "demo",
    "chaos",
)
main = typer.Typer(
    name="deltaworks",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an unexpected error shows Python's own trace
    help="A streaming lakehouse that Airflow runs.",
    rich_markup_mode=None,
)


@main.callback()
def _door(
    project: Annotated[Path | None, typer.Option(help="Folder with tables/, dags/, deltaworks.toml.")] = None,
) -> None:
    remember(project)


for _module in _MODULES:
    importlib.import_module(f"deltaworks.cli.{_module}").register(main)


def run() -> None:
    """Run the command line; exit codes: 0 ok, 1 finding, 2 usage, 3 cannot."""
    try:
        main(prog_name="deltaworks")
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(3)
    except KeyboardInterrupt:
        sys.exit(130)
