"""One validation at a time on this machine: each has a Spark of its own."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from deltaworks.local.private import open_log, private_folder
from deltaworks.settings import Settings


@contextmanager
def turn(settings: Settings) -> Iterator[None]:
    """Wait until no other process of this project validates; a process that dies gives its turn back."""
    private_folder(settings.run)
    with open_log(settings.run / "quality.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
