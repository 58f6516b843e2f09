"""Have the disk hold what was written. Neither delta-rs nor Spark asks it to: a commit lives in memory for a while.

So a power cut takes the last commits away, or leaves their names and not what they name; `torn.py` puts that right, and
what they brought comes again. It must not take what somebody was told of, or what stands in for something that was
deleted. So before either, all that was written before is on the disk. One call does it for the whole file system, with
bronze, tables over it and those beside them, whoever wrote them: many small files cost one write of its journal.
"""

import ctypes
import os
import sys
import threading
from pathlib import Path

from deltaworks.errors import DiskError

__all__ = ["put", "sync"]


def sync(folder: Path) -> None:
    """Return when all that was written to this folder's file system before this call is on its disk.

    Raises DiskError where the disk could not take what was written (Linux, syncfs(2)), and from then on each time.
    """
    if not sys.platform.startswith("linux"):
        os.sync()  # all file systems, and no word of errors
        return
    with _turn:
        if _failures:  # the kernel says so once, and takes it for written
            raise _failures[0]
        opened = _opened(folder)
        if _LIBC.syncfs(opened) != 0:
            why = os.strerror(ctypes.get_errno())
            next_step = "Look at the disk and the kernel's log; then start the app, or bring back a copy of the lake"
            _failures.append(DiskError(str(folder), f"its disk could not take what was written ({why})", next_step))
            raise _failures[0]


def put(file: Path, text: str) -> None:
    """Have the disk hold a file with this text, after all that was written before: it is whole, or not there.

    Raises OSError, and DiskError as above.
    """
    new = file.with_suffix(".new")
    new.write_text(text)
    sync(file.parent)
    new.rename(file)
    sync(file.parent)


def _opened(folder: Path) -> int:
    """One descriptor per file system for the life of this process: to it the kernel tells what failed meanwhile."""
    device = folder.stat().st_dev
    if device not in _descriptors:
        _descriptors[device] = os.open(folder, os.O_RDONLY)
    return _descriptors[device]


_turn = threading.Lock()
_descriptors: dict[int, int] = {}
_failures: list[DiskError] = []
_LIBC = ctypes.CDLL(None, use_errno=True)
