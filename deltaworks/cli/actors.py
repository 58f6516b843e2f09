"""Who acts, and why, for the record: the person at the keyboard, and Airflow if it is up."""

import os
import pwd
from typing import Annotated

import typer

from deltaworks.settings import Settings

By = Annotated[str | None, typer.Option("--by", help="Who wants it; default: the user of the system.")]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]
ASKED = "asked for on the command line"
"""The reason of who gives none."""


def user() -> str:
    """Name of the system's user, for the record: from the user database, not from a variable that anybody can set."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def airflow_is_up(settings: Settings) -> bool:
    """Whether every part of Airflow is ready, by what the local stack's supervisor says."""
    from deltaworks.local import stack

    parts = [part for part in stack.state(settings).parts.values() if part.of == "airflow" and not part.step]
    return bool(parts) and all(part.state == "ready" for part in parts)
