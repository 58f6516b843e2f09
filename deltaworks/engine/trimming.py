"""The owner shortens its tables' logs: each commit, and each reader, pays for the log files that there are.

What is cut away lies before a checkpoint, so the rest is a whole log; the entries of the commits live on as copies
(`copies.py`). Files go oldest first: an owner that dies in between leaves a log that begins a little later, no hole.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deltaworks.engine.commit import Guard
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.log import checkpoints, files_before, log_has
from deltaworks.engine.points import reached
from deltaworks.engine.writers.patches import VALUE

STAGED = "staged"
"""Folder beside the lake for tables that are computed again, to be published or compared."""
COMMITS_KEPT = 5_000
"""So far back versions can be opened. A commit to a log of so many costs some three times one to an empty log."""
FILES_AT_ONCE = 2_000
"""So many of all tables are deleted in one turn: the app's lock is held meanwhile."""
_FEW = 10
"""Less than this part of what is kept is not cut."""
STAGED_SECONDS = 12 * 3_600.0
"""While something younger is staged, no log is cut: it is read for as long as it is computed, and again when it is
published. What is older was left by a command that was killed, or is refused when it is published."""


def trim(table: OwnedTable, *, needed: Iterable[int], kept: int, files_max: int, guard: Guard) -> int:
    """Delete log files of commits before the last `kept` ones, so many at most; how many went.

    `needed`: versions that somebody still has to find in the log, with all that follow.
    """
    last = min((table.version - kept, *needed))
    # not for a few: to look through a long log takes longer than they cost
    if last <= 0 or not log_has(table.path, max(last - kept // _FEW, 0)):
        return 0
    whole = (version for version in reversed(checkpoints(table.path)) if version <= last)
    first = next((version for version in whole if _is_readable(table.path, version)), 0)
    files = files_before(table.path, first)[:files_max]
    if files:
        guard()  # who owns the table now may have put a reader back to where it needs more
    for file in files:
        reached(table.name, "trim", "before-delete")
        file.unlink(missing_ok=True)
    return len(files)


def _is_readable(path: Path, version: int) -> bool:
    """Without what came before, a checkpoint is all that there is."""
    parts = list((path / "_delta_log").glob(f"{version:020d}.checkpoint*.parquet"))
    try:
        return bool(parts) and all(pq.ParquetFile(part).metadata.num_rows for part in parts)
    except pa.ArrowInvalid:
        return False


def is_staged(staged: Path, *, seconds: float = STAGED_SECONDS) -> bool:
    """Whether in this folder tables are laid out that may be published yet."""
    now = time.time()
    return any(now - moment < seconds for moments in _staged(staged) for moment in moments)


def staged_since(staged: Path) -> datetime | None:
    """Since when what is laid out in this folder reads the lake, as it was then; None where nothing does.

    Its lake is made when it begins, and the folder of that changes no more once every layer is there.
    """
    now = time.time()
    begun = [min(moments) for moments in _staged(staged) if now - max(moments) < STAGED_SECONDS]
    return datetime.fromtimestamp(min(begun), UTC) if begun else None


def _staged(staged: Path) -> Iterator[list[float]]:
    """Of each that is laid out, when its folder, its lake and the word that it is whole were last changed."""
    for folder in staged.iterdir() if staged.is_dir() else ():
        if (folder / VALUE).exists():  # of a patch: no table
            continue
        moments = []
        for place in (folder, folder / "lake", folder / "staged.json"):
            with suppress(OSError):
                moments.append(place.stat().st_mtime)
        if moments:
            yield moments
