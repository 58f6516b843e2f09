"""The supervisor: one small process that keeps the parts of the plan alive and leaves nothing behind.

Started by `python -m deltaworks.local.supervisor RUN_FOLDER`. SIGHUP: read the plan again. SIGTERM: stop all parts,
those that others need last, and exit. Why not an existing one: docs/decisions/0001-own-supervisor.md.
"""

import ctypes
import sys
from pathlib import Path

from deltaworks.local.guard import Guard

_PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h


def main(run: Path) -> None:
    """Run the supervisor in this process."""
    guard = Guard()  # forked before the rest is loaded, so that it stays at a few megabytes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    import asyncio

    from deltaworks.local.supervision import Supervisor

    asyncio.run(Supervisor(run, guard).serve())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
