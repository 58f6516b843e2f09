"""Have the disk hold what was written. Neither delta-rs nor Spark asks it to: a commit lives in memory for a while.

So a power cut takes the last commits away, or leaves their names and not what they name; `torn.py` puts that right, and
what they brought comes again. It must not take what somebody was told of, or what stands in for something that was
deleted. So before either, all that was written before is on the disk. One call does it for the whole file system, with
bronze, tables over it and those beside them, whoever wrote them: many small files cost one write of its journal.
"""

import ctypes
import os
import sys
from pathlib import Path

__all__ = ["sync"]


def sync(folder: Path) -> None:
    """Return when all that was written to this folder's file system before this call is on its disk.

    Raises OSError where the disk could not take what was written (Linux, syncfs(2)), and from then on each time: the
    kernel says so once, and takes it for written.
    """
    if _failures:
        raise _failures[0]
    if not sys.platform.startswith("linux"):
        os.sync()  # all file systems, and no word of errors
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        if _LIBC.syncfs(opened) != 0:
            number = ctypes.get_errno()
            _failures.append(OSError(number, os.strerror(number), str(folder)))
            raise _failures[0]
    finally:
        os.close(opened)


_failures: list[OSError] = []
_LIBC = ctypes.CDLL(None, use_errno=True)
