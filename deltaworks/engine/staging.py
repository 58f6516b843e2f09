"""Folders beside the lake in which tables are laid out that an order is to publish, or a value that one is to take."""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deltaworks.engine.trimming import STAGED
from deltaworks.settings import Settings

TRIES = 3
"""So often tables are laid out, if each time another order about them is faster."""
_FORGOTTEN_SECONDS = 7 * 86_400.0
"""What was staged by a command that was killed is kept so long: its order may be carried out yet."""


@dataclass
class Staging:
    """A folder beside the lake, and whether an order names it that may be carried out yet."""

    folder: Path
    ordered: bool = False

    def is_ordered(self) -> None:
        """There is such an order now."""
        self.ordered = True


@contextmanager
def staging(now: Settings, *, prefix: str = "") -> Iterator[Staging]:
    """An empty folder; it goes in the end, unless an order that names it may be carried out yet."""
    staged = Staging(now.data / STAGED / f"{prefix}{uuid.uuid4().hex}")
    staged.folder.mkdir(parents=True)
    for other in staged.folder.parent.iterdir():
        with suppress(FileNotFoundError):
            if time.time() - other.stat().st_mtime > _FORGOTTEN_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    try:
        yield staged
    finally:
        if not staged.ordered:
            shutil.rmtree(staged.folder, ignore_errors=True)
