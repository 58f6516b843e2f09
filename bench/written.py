"""What is written to a lake: files, entries of logs, bytes. Each turn of an app commits, so turns have a price here."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PAST = "_past"
"""The folder beside a log in which the product keeps what it cuts from it: that is written too."""
_FILES = ("add", "cdc")
"""Actions of a Delta log that tell of a file with rows."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """Sums over all tables; `bytes` are those of the files with rows and of the logs."""

    files: float = 0
    commits: float = 0
    bytes: float = 0

    def __add__(self, other: "Written") -> "Written":
        """Both together."""
        return Written(
            files=self.files + other.files, commits=self.commits + other.commits, bytes=self.bytes + other.bytes
        )

    def per_hour(self, seconds: float) -> "Written":
        """The same per hour, if it was written in so many seconds."""
        hours = seconds / 3600
        return Written(files=self.files / hours, commits=self.commits / hours, bytes=self.bytes / hours)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a lake had at one time."""

    newest: Mapping[Path, int]
    """The newest version of each table, by the folder of its log."""
    past: Mapping[Path, int]
    """Bytes of the files of the tables' pasts."""


def look(lake: Path) -> Look:
    """Look at all tables. Look once a minute: what a log was given must be seen before it is cut from it."""
    logs = [Path(folder) / "_delta_log" for folder in _tables(lake)]
    return Look(
        newest={log: max(_versions(os.listdir(log)), default=-1) for log in logs},
        past={file: size for log in logs for file, size in _segments(log.with_name(_PAST))},
    )


def written(begin: Look, end: Look) -> Written:
    """What came between two looks. Raises FileNotFoundError if it was cut from its log already."""
    commits = (_of_log(log, begin.newest.get(log, -1) + 1, last) for log, last in end.newest.items())
    past = sum(size for file, size in end.past.items() if file not in begin.past)
    return sum(commits, start=Written(bytes=past))


def _of_log(log: Path, first: int, last: int) -> Written:
    """What these versions wrote, checkpoints of the log included."""
    if first > last:
        return Written()
    checkpoints = [name for name in os.listdir(log) if ".checkpoint" in name and first <= _version(name) <= last]
    own = Written(bytes=sum((log / name).stat().st_size for name in checkpoints))
    return sum((_of_commit(log / f"{version:020d}.json") for version in range(first, last + 1)), start=own)


def _of_commit(entry: Path) -> Written:
    text = entry.read_text()
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    files = [action[kind] for action in actions for kind in _FILES if kind in action]
    data = sum(int(file["size"]) for file in files)
    return Written(files=len(files), commits=1, bytes=data + len(text.encode()))


def _tables(lake: Path) -> Iterator[str]:
    for folder, inside, _ in os.walk(lake):
        if "_delta_log" in inside:
            inside.clear()  # no table is inside another
            yield folder


def _versions(names: list[str]) -> Iterator[int]:
    return (_version(name) for name in names if name.endswith(".json"))


def _version(name: str) -> int:
    """The version that a file of a log is of; -1 for another file."""
    return int(name[:20]) if name[:20].isdecimal() else -1


def _segments(past: Path) -> Iterator[tuple[Path, int]]:
    if past.is_dir():
        yield from ((file, file.stat().st_size) for file in past.glob("*.zip"))
