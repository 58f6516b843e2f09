"""A table's Delta log as readers of the ledger need it: by version, without opening the table. No Spark here.

What its owner has cut from it is read from the table's past (`past.py`), as if it were there. Local disk is assumed:
log files are read by path.
"""

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltaworks.engine.entry import Entry
from deltaworks.engine.past import commit_of, reaches
from deltaworks.errors import LakeError

ROWS_ADDED, ROWS_UPDATED, ROWS_DELETED = "rowsAdded", "rowsUpdated", "rowsDeleted"
"""What a commit says itself, where the committing library cannot tell."""
_ADDED = (ROWS_ADDED, "num_added_rows", "num_target_rows_inserted", "numOutputRows", "numTargetRowsInserted")
_UPDATED = (ROWS_UPDATED, "num_target_rows_updated", "numTargetRowsUpdated")
_DELETED = (ROWS_DELETED, "num_deleted_rows", "num_target_rows_deleted", "numTargetRowsDeleted")


@dataclass(frozen=True, kw_only=True)
class Logged:
    """One version as its log file tells it; rows as the committing library counted them."""

    version: int
    at: datetime | None
    entry: Entry | None
    text: str | None
    """The entry as it was written."""
    rows_added: int
    rows_updated: int
    rows_deleted: int
    changes: bool
    """Whether the version may have other rows than the one before."""


def read_log(folder: Path, version: int) -> Logged | None:
    """Read one version; None if neither the log nor the past has it (not yet, or cut off)."""
    try:
        actions = actions_of(folder, version)
    except FileNotFoundError:
        return None
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    metrics: Mapping[str, Any] = {**info, **(info.get("operationMetrics") or {})}
    text, stamp = info.get("userMetadata"), info.get("timestamp")
    merged = str(info.get("operation", "")).upper() == "MERGE"
    # Spark's MERGE counts what it wrote out, rows that only moved to another file too
    added = tuple(name for name in _ADDED if not (merged and name == "numOutputRows"))
    return Logged(
        version=version,
        at=None if stamp is None else datetime.fromtimestamp(int(stamp) / 1000, UTC),
        entry=Entry.from_json(text, place=f"{folder.parent.name}.{folder.name}"),
        text=text,
        rows_added=_metric(metrics, added),
        rows_updated=_metric(metrics, _UPDATED),
        rows_deleted=_metric(metrics, _DELETED),
        changes=any(action.get(what, {}).get("dataChange") for action in actions for what in ("add", "remove")),
    )


def actions_of(folder: Path, version: int) -> list[dict[str, Any]]:
    """What a version did, as Delta writes it; raises FileNotFoundError if neither the log nor the past has it.

    Raises LakeError where that is not whole, as after a power cut (`torn.py`).
    """
    try:
        actions = [json.loads(line) for line in _lines(folder, version)]
    except ValueError:
        actions = []
    if not actions:
        finding = f"its version {version} is not whole, as a power cut leaves it"
        raise LakeError(f"{folder.parent.name}.{folder.name}", finding, "Start its app, which cuts it off and goes on")
    return actions


def first_version(folder: Path) -> int | None:
    """The oldest version that is still told, with all that follow; None if none is."""
    first = min(_versions(folder), default=None)
    return None if first is None else reaches(folder, first)


def newest_version(folder: Path, known: int = -1) -> int | None:
    """The newest version, cheaply if one not far below it is known; None if there is no table."""
    if known < 0:
        return max(_versions(folder), default=None)
    at = known
    while log_has(folder, at + 1):
        at += 1
    # what was known may have been cleaned up since, with what followed it
    return at if at > known or log_has(folder, at) else newest_version(folder)


def log_has(folder: Path, version: int) -> bool:
    """Whether the log itself has this version."""
    return _log_file(folder, version).exists()


def is_told(folder: Path, version: int) -> bool:
    """Whether the log or the past has this version."""
    return log_has(folder, version) or commit_of(folder, version) is not None


def opens_from(folder: Path) -> int:
    """The oldest version from which on each can be opened, from the log or from the past, while its files are there."""
    return reaches(folder, whole_from(folder))


def whole_from(folder: Path) -> int:
    """The oldest version from which on the log itself has all that opening takes.

    Clean-up deletes the oldest files first: what it left below a checkpoint when it was killed tells of itself only.
    """
    versions = set(_versions(folder))
    first = max(versions, default=0)
    while first - 1 in versions:
        first -= 1
    return 0 if first == 0 else min((one for one in checkpoints(folder) if one >= first), default=first)


def committed_at(folder: Path, version: int) -> datetime:
    """When a version was committed, by its own word: what the file system says of the log changes with each copy.

    Raises LakeError where the log does not tell.
    """
    logged = read_log(folder, version)
    if logged is None or logged.at is None:
        finding = f"its log does not tell when version {version} was committed"
        raise LakeError(f"{folder.parent.name}.{folder.name}", finding, 'Run "deltaworks doctor"')
    return logged.at


def version_at(folder: Path, moment: datetime) -> int | None:
    """The newest version that was committed by then; None if all that can be opened came later.

    Times of commits are taken to rise: where a clock was set back it is one of the versions around that.
    """
    begin, newest = whole_from(folder), newest_version(folder) or 0
    if committed_at(folder, begin) <= moment:
        versions = range(begin, newest + 1)
    else:  # only who asks for older ones reads the past
        versions = range(reaches(folder, begin), begin)
    found = bisect_right(versions, moment, key=lambda version: committed_at(folder, version))
    return versions[found - 1] if found else None


def readable_from(folder: Path) -> int:
    """The oldest version from which on each can be read: no file that it has was deleted since."""
    first, newest = opens_from(folder), newest_version(folder) or 0
    for version in range(newest, first, -1):
        told = (json.loads(line) for line in _lines(folder, version) if '"remove"' in line)  # there may be very many
        removed = (action["remove"]["path"] for action in told if "remove" in action)
        if not all((folder / unquote(name)).exists() for name in removed):
            return version
    return first


def checkpoints(folder: Path) -> list[int]:
    """Versions whose whole state lies beside the log, oldest first."""
    return sorted({version for version, name in _files(folder) if ".checkpoint." in name and name.endswith(".parquet")})


def files_before(folder: Path, version: int) -> list[Path]:
    """The log's files of the versions before this one, oldest first."""
    return sorted(folder / "_delta_log" / name for number, name in _files(folder) if number < version)


def _versions(folder: Path) -> list[int]:
    return [version for version, name in _files(folder) if name.endswith(".json") and ".checkpoint." not in name]


def _files(folder: Path) -> Iterator[tuple[int, str]]:
    """Version and name of each file that is about one."""
    try:
        with os.scandir(folder / "_delta_log") as files:
            yield from ((int(file.name[:20]), file.name) for file in files if file.name[:20].isdigit())
    except FileNotFoundError:
        return


def _lines(folder: Path, version: int) -> list[str]:
    """The lines of a commit; raises FileNotFoundError if neither the log nor the past has it."""
    try:
        text = _log_file(folder, version).read_text()
    except FileNotFoundError:
        found = commit_of(folder, version)  # asked after the log: its owner puts a commit there before it cuts it off
        if found is None:
            raise
        text = found
    # not by splitlines: a text may have what only Unicode takes for the end of a line
    return [line for line in text.split("\n") if line]


def _log_file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020d}.json"


def _metric(metrics: Mapping[str, Any], names: tuple[str, ...]) -> int:
    # delta-rs writes numbers, Spark writes them as text
    return next((int(metrics[name]) for name in names if name in metrics), 0)
