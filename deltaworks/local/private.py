"""Folders and files that no other user of the machine can read: they hold rows, keys and passwords.

The user's umask (022 almost everywhere) would let everybody read them. Standard library only: drivers' launchers use
this too.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from deltaworks.errors import StackError


def private_folder(path: Path) -> None:
    """Make a folder that only we can enter, or close the one that is there.

    Raises StackError if it is somebody else's.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) == 0o700:
        return
    try:
        path.chmod(0o700)
    except PermissionError:
        finding = "belongs to another user and is open to others"
        raise StackError(str(path), finding, "Give it to the user that runs the stack (chown)") from None


def open_log(path: Path) -> BinaryIO:
    """Open a log that only we can read, at its end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(descriptor, 0o600)  # one that was there may be open to others
    return os.fdopen(descriptor, "ab")


def write_private(path: Path, text: str) -> None:
    """Replace a file that only we can read, in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
