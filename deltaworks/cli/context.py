"""What every command needs: the settings of the project it was called for."""

from contextvars import ContextVar
from pathlib import Path

from deltaworks.settings import Settings

_project: ContextVar[Path | None] = ContextVar("project", default=None)


def settings() -> Settings:
    """Load the settings of the project given with --project (else DELTAWORKS_PROJECT, else this checkout)."""
    return Settings.load(_project.get())


def remember(project: Path | None) -> None:
    """Keep the project's folder for the command that follows."""
    _project.set(project)
