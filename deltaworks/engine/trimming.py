"""The owner shortens its tables' logs: each commit, and each reader, pays for the log files that there are.

What is cut away lies before a checkpoint, so the rest is a whole log. First it is put aside as a segment of the table's
past (`past.py`), so that its versions can be opened yet; beyond that the entries of the commits live on as copies
(`copies.py`). Files go oldest first: an owner that dies in between leaves a log that begins a little later, no hole,
and each version in the log, in the past or in both.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaworks.engine import disk
from deltaworks.engine.commit import Guard
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.log import checkpoints, files_before, log_has, whole_from
from deltaworks.engine.past import Segment, begin_anew, commit_of, cut_off, put_aside, segments
from deltaworks.engine.points import reached
from deltaworks.engine.writers.patches import VALUE
from deltaworks.errors import LakeError

STAGED = "staged"
"""Folder beside the lake for tables that are computed again, to be published or compared."""
COMMITS_KEPT = 1_000
"""So many stay in the log. A commit beside so many files costs little more than one beside none..."""
COMMITS_FOLLOWED = 5_000
"""...beside so many some twice as much, which is paid where a table is served or published: who has not told all of its
changes goes on from there, as change feeds are read from the log alone."""
COMMITS_OPENED = 25_000
"""So far back versions can be opened, from the log or from the past."""
FILES_AT_ONCE = 2_000
"""So many of all tables are deleted in one turn: the app's lock is held meanwhile."""
_PARTS = 4
"""Less than one of so many parts of what is kept is not cut: each segment has a checkpoint, which may be large."""
_SEGMENT_COMMITS_MAX = 1_000
"""More are not put into one segment, nor more bytes: who opens a version reads them all."""
_SEGMENT_BYTES_MAX = 16 * 2**20
STAGED_SECONDS = 12 * 3_600.0
"""While something younger is staged, no log is cut: it is read for as long as it is computed, and again when it is
published. What is older was left by a command that was killed, or is refused when it is published."""
log = logging.getLogger("deltaworks.trimming")


def trim(
    table: OwnedTable, *, needed: Iterable[int], kept: int, files_max: int, guard: Guard, opened: int = COMMITS_OPENED
) -> int:
    """Move commits before the last `kept` ones from the log to the past, so many files at most; how many went.

    `needed`: versions that somebody still has to find in the log, with all that follow. `opened`: so many commits stay
    in log and past together. What cannot be put aside, as on a full disk, stays in the log, which is told.
    """
    needed = tuple(needed)
    last = min((table.version - kept, *needed))
    # not for a few: to look through a long log takes longer than they cost
    if last <= 0 or not log_has(table.path, max(last - kept // _PARTS, 0)):
        return 0
    guard()  # who owns the table now may have put a reader back to where it needs more
    try:
        first = _put_aside(table, last, guard)
    except (LakeError, OSError, pa.ArrowException) as error:  # a past that is damaged is worth no turn of the stream
        log.warning("%s: its log is not shortened: %s", table.name, error)
        first = 0
    files = files_before(table.path, first)[:files_max]
    if files:
        disk.sync(table.path)  # the checkpoint and what follows are all that there is then
        guard()
    for file in files:
        reached(table.name, "trim", "before-delete")
        file.unlink(missing_ok=True)
    cut_off(table.path, before=min((table.version - opened, *needed)))  # in any case: it may make room
    return len(files)


def _put_aside(table: OwnedTable, last: int, guard: Guard) -> int:
    """Give the past what lies before a checkpoint of the log, up to a version; before which the log can then be cut.

    Raises LakeError where the past is damaged.
    """
    begin = whole_from(table.path)
    aside = max((one.last + 1 for one in segments(table.path)), default=begin)
    if last < aside <= table.version:  # put aside by an owner that died, and a reader has been put back since
        return begin
    if aside < begin or (aside > begin and not _goes_on(table.path, aside)):
        # something else has cut the log, or what lies there is of another one: the past begins now
        guard()  # but not where another owner has done so, while this one was paused
        begin_anew(table.path)
        aside = begin
    whole = [version for version in checkpoints(table.path) if aside < version <= last]
    near = [version for version in whole if version <= _end(table.path, aside)]
    later = [version for version in whole if version not in near]
    first = next((version for version in (*reversed(near), *later) if is_readable(table.path, version)), aside)
    if first > aside:
        segment = Segment.of(table.path, aside, first - 1)
        reached(table.name, "trim", "before-write")
        try:
            put_aside(segment, _files_of(table.path, segment))
        except (OSError, pa.ArrowException) as error:  # as on a full disk, where deleting is not worth a version
            log.warning("%s: nothing more of its log is put aside: %s", table.name, error)
            return aside
        reached(table.name, "trim", "after-write")
    return first


def _goes_on(path: Path, version: int) -> bool:
    """Whether the log goes on here where the past ends: its checkpoint is there, and what both tell is the same."""
    file = path / "_delta_log" / f"{version - 1:020d}.json"
    told = commit_of(path, version - 1) if file.exists() else None
    return is_readable(path, version) and (told is None or told.strip() == file.read_text().strip())


def _end(path: Path, first: int) -> int:
    """Up to which version a segment goes that begins at this one."""
    total, versions = 0, range(first, first + _SEGMENT_COMMITS_MAX)
    for version in versions:
        with suppress(FileNotFoundError):
            total += (path / "_delta_log" / f"{version:020d}.json").stat().st_size
        if total > _SEGMENT_BYTES_MAX:
            return version
    return versions.stop


def _files_of(path: Path, segment: Segment) -> Iterator[tuple[str, bytes]]:
    for part in sorted((path / "_delta_log").glob(f"{segment.first:020d}.checkpoint*.parquet")):
        yield part.name, _without_tombstones(part)
    for version in range(segment.first, segment.last + 1):
        file = path / "_delta_log" / f"{version:020d}.json"
        yield file.name, file.read_bytes()


def _without_tombstones(checkpoint: Path) -> bytes:
    """A checkpoint names the files that went in the last week, for a VACUUM: most of it, and nothing that opens."""
    made = pa.BufferOutputStream()
    with pq.ParquetFile(checkpoint) as read, pq.ParquetWriter(made, read.schema_arrow, compression="zstd") as into:
        for actions in read.iter_batches():
            there = "remove" in actions.schema.names
            into.write_batch(actions.filter(pc.is_null(actions["remove"])) if there else actions)
    return bytes(made.getvalue())


def is_readable(path: Path, version: int) -> bool:
    """Without what came before, a checkpoint is all that there is."""
    parts = list((path / "_delta_log").glob(f"{version:020d}.checkpoint*.parquet"))
    try:
        return bool(parts) and all(pq.ParquetFile(part).metadata.num_rows for part in parts)
    except (pa.ArrowInvalid, OSError):
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
