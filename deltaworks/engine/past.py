"""A table's past: what its owner cuts from the log lies beside it, in segments, so that old versions can be opened yet.

A segment is one file: the checkpoint of its first version, and the commits from there to where the next one begins, in
one text, as they are alike. Whatever begins with an underscore no VACUUM and no reader of the table looks at. Local
disk is assumed. No Spark here.
"""

import os
import re
import shutil
import tempfile
import uuid
import weakref
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote

from deltaworks.errors import LakeError

if TYPE_CHECKING:
    import deltalake

PAST = "_past"
_COMMITS = "commits"
_BETWEEN = b"\n\n"  # no commit has an empty line
_TORN = (zipfile.BadZipFile, zlib.error, KeyError, IndexError)
_NAME = re.compile(r"(\d{20})\.(\d{20})\.zip")  # as Delta names compacted logs: the first and the last version


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Commits `first` to `last` of a table."""

    file: Path
    first: int
    last: int

    @classmethod
    def of(cls, folder: Path, first: int, last: int) -> Self:
        """The one of these commits, whether it is there or not."""
        return cls(file=folder / PAST / f"{first:020d}.{last:020d}.zip", first=first, last=last)


def segments(folder: Path) -> list[Segment]:
    """What is there, oldest first."""
    found = (_NAME.fullmatch(name) for name in _names(folder))
    return [Segment.of(folder, int(name[1]), int(name[2])) for name in found if name is not None]


def reaches(folder: Path, first: int) -> int:
    """The oldest version from which on each up to `first` is in the past; `first` if none is."""
    for segment in reversed(segments(folder)):
        if segment.last + 1 < first:  # what lies between is gone: nothing leads from there to here
            break
        first = min(first, segment.first)
    return first


def commit_of(folder: Path, version: int) -> str | None:
    """The text of a commit; None if it is not in the past. Raises LakeError where a segment is damaged."""
    segment = _with(folder, version)
    if segment is None:
        return None
    try:
        found = segment.file.stat()
        # a file of this name may be of another lake that was put into the place of this one
        commits = _commits(segment.file, found.st_ino, found.st_mtime_ns, found.st_size)
        return commits[version - segment.first].decode()
    except FileNotFoundError:  # its owner has cut it off
        return None
    except _TORN:
        raise _damaged(segment) from None


def put_aside(segment: Segment, files: Iterable[tuple[str, bytes]]) -> None:
    """Write a segment from names and contents of files of a log: its checkpoint, then its commits, in order.

    There is all of it, or nothing. Raises OSError, as on a full disk.
    """
    segment.file.parent.mkdir(exist_ok=True)
    for left in segment.file.parent.glob("*.new"):  # by an owner that died
        left.unlink(missing_ok=True)
    # a name of its own: an owner that was paused here may wake up beside the next one
    made, commits = segment.file.with_name(f"{uuid.uuid4().hex}.new"), list[bytes]()
    try:
        with made.open("wb") as file:
            with zipfile.ZipFile(file, "w") as into:
                for name, content in files:
                    if name.endswith(".parquet"):
                        into.writestr(name, content)
                    else:
                        commits.append(b"\n".join(line for line in content.splitlines() if line))
                into.writestr(_COMMITS, _BETWEEN.join(commits), zipfile.ZIP_DEFLATED)
            file.flush()
            os.fsync(file.fileno())  # before its name: a segment that is torn is none
        made.rename(segment.file)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def cut_off(folder: Path, *, before: int) -> int:
    """Delete the segments that end before a version, oldest first; how many went."""
    gone = [segment for segment in segments(folder) if segment.last < before]
    for segment in gone:
        segment.file.unlink(missing_ok=True)
    return len(gone)


def begin_anew(folder: Path) -> None:
    """Forget all of it: another table of this name was there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder / PAST)


def unpack(folder: Path, version: int, log: Path) -> bool:
    """Lay the log as it was at a version into an empty folder; False if the past does not have it."""
    segment = _with(folder, version)
    if segment is None:
        return False
    try:
        with zipfile.ZipFile(segment.file) as found:
            commits = found.read(_COMMITS).split(_BETWEEN)
            for name in found.namelist():
                if name != _COMMITS:
                    (log / name).write_bytes(found.read(name))
    except FileNotFoundError:
        return False
    except _TORN:
        raise _damaged(segment) from None
    if len(commits) != segment.last + 1 - segment.first:
        raise _damaged(segment)
    for number, commit in zip(range(segment.first, version + 1), commits, strict=False):
        (log / f"{number:020d}.json").write_bytes(commit)
    return True


def lay_out(folder: Path, version: int, to: Path) -> "deltalake.DeltaTable | None":
    """Make a folder that any reader of Delta opens as the table at a version; None if the past does not have it.

    Its rows are links to the table's own files: whether those are all there, who asks must look.
    """
    import deltalake  # who asks of a time in the log needs none

    (to / "_delta_log").mkdir(parents=True)
    if not unpack(folder, version, to / "_delta_log"):
        return None
    found = deltalake.DeltaTable(str(to))
    paths = found.get_add_actions()["path"].to_pylist()
    for name in {unquote(path).partition("/")[0] for path in paths}:  # of a table in parts their folders
        (to / name).symlink_to(folder.resolve() / name)
    return found


def opened(folder: Path, version: int) -> "deltalake.DeltaTable | None":
    """A version of the past; None if it does not have it. Rows can be read for as long as the handle is held."""
    scratch = Path(tempfile.mkdtemp(prefix="deltaworks-past-"))
    found = None
    try:
        found = lay_out(folder, version, scratch)
    finally:
        if found is None:
            shutil.rmtree(scratch, ignore_errors=True)
    if found is not None:
        weakref.finalize(found, shutil.rmtree, scratch, ignore_errors=True)
    return found


def _with(folder: Path, version: int) -> Segment | None:
    """The segment that has a version."""
    names = _names(folder)
    at = bisect_right(names, f"{version:020d}.~") - 1
    found = _NAME.fullmatch(names[at]) if at >= 0 else None
    if found is None or int(found[2]) < version:
        return None
    return Segment.of(folder, int(found[1]), int(found[2]))


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(folder / PAST) if name.endswith(".zip"))
    return []


@lru_cache(maxsize=16)
def _commits(file: Path, *_: int) -> list[bytes]:
    """The commits of a segment, some two kilobytes each; who walks over them asks for each in turn.

    Of the last 16 segments they stay in memory: 2 MB each as a rule, 16 MiB at most (`trimming.py`).
    """
    with zipfile.ZipFile(file) as found:
        return found.read(_COMMITS).split(_BETWEEN)


def _damaged(segment: Segment) -> LakeError:
    folder = segment.file.parent.parent
    return LakeError(
        f"{folder.parent.name}.{folder.name}",
        f"{segment.file} is damaged",
        "Bring it back, or delete it; what is older goes too",
    )
