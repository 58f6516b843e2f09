"""What is written to a lake: files, entries of logs, bytes. Each turn of an app commits, so turns have a price here."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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


def newest(lake: Path) -> dict[Path, int]:
    """The newest version of each table, by the folder of its log."""
    logs = (log for log in lake.rglob("_delta_log") if log.is_dir())
    return {log: max(_versions(log), default=-1) for log in logs}


def written(begin: Mapping[Path, int], end: Mapping[Path, int]) -> Written:
    """What came between two looks at the newest versions."""
    return sum(
        (
            of(log, version)
            for log, last in end.items()
            for version in range(begin.get(log, -1) + 1, last + 1)
        ),
        start=Written(),
    )  # fmt: skip


def of(log: Path, version: int) -> Written:
    """What one version wrote, the checkpoint of the log beside it included."""
    name = f"{version:020d}"
    try:
        text = (log / f"{name}.json").read_text()
    except FileNotFoundError:  # cleaned up since
        return Written()
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    files = [action[kind] for action in actions for kind in _FILES if kind in action]
    checkpoints = sum(file.stat().st_size for file in log.glob(f"{name}.checkpoint*"))
    data = sum(int(file["size"]) for file in files)
    return Written(files=len(files), commits=1, bytes=data + len(text.encode()) + checkpoints)


def _versions(log: Path) -> Iterator[int]:
    return (int(file.stem) for file in log.glob("*.json") if file.stem.isdigit())
