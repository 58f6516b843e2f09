"""A power cut, as a file system with a journal leaves it: names up to some moment, of new files not all their content.

It stands in for the disk: what is asked to be there is noted, and all that was written since may be lost in part.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from deltaworks.engine import torn
from deltaworks.engine.log import newest_version, read_log
from deltaworks.engine.stage import STAGES

_BLOCK = 4096
LOG = "_delta_log"
_Known = tuple[int, int, int]
"""Inode, size, and when it was last written, in nanoseconds."""


@dataclass(frozen=True)
class Told:
    """The newest commit of a table when the disk was last asked to hold all: its version and its entry."""

    version: int
    entry: str | None


class Power:
    """The disk of a lake and of what lies beside it. `sync` takes the place of `disk.sync`."""

    def __init__(self, lake: Path) -> None:
        """What is there now is on the disk."""
        self.lake, self.lost, self._is_out = lake, 0, False
        self.sync(lake)

    def sync(self, folder: Path) -> None:
        """Hold all that is there now, whichever folder of the lake asks."""
        del folder
        if self._is_out:
            return
        self._seen = dict[Path, int]()
        self._held = {file: _known(file) for file in _files(self.lake.parent)}
        self.told = {path: told for path in self.lake.glob("*/*") if (told := _told(path)) is not None}

    def look(self) -> None:
        """Note which names are new: what is found at another look was made at another moment."""
        moment = 1 + max(self._seen.values(), default=0)
        for file in _files(self.lake):
            self._seen.setdefault(file, moment)

    def cut(self, chance: Random) -> None:
        """Lose names from some moment on, and of other new files, of all tables or of one, some of what is in them."""
        new = [file for file in _files(self.lake) if self._held.get(file) != _known(file)]
        held = set(self._held.values())  # under another name, as links are
        self.look()
        new.sort(key=self._made)
        last = chance.choice([len(new), chance.randrange(len(new) + 1)])
        for file in new[last:]:
            file.unlink()
        tables = sorted({_table(file, self.lake) for file in new[:last]})
        torn_ones = chance.choice([tables, *([one] for one in tables)])
        for file in (file for file in new[:last] if _table(file, self.lake) in torn_ones):
            size = chance.choice([None, 0, 0, _BLOCK])
            if size is not None and size < file.stat().st_size and _known(file) not in held:
                os.truncate(file, size)
                self.lost += 1
        self.lost += len(new) - last
        self._is_out = True

    def _made(self, file: Path) -> tuple[int, int, bool, str]:
        """Give a name's place in the order in which names were made.

        The file system's clock ticks every few milliseconds. Looks are made before and after each commit, so of one
        moment and one tick are at most a commit and what is in it, which was there before.
        """
        return self._seen[file], file.stat().st_ctime_ns, LOG in file.parts, str(file)

    def back(self) -> None:
        """Hold what there is by now, and what is asked for from now on."""
        self._is_out = False
        self.sync(self.lake)

    def forgotten(self) -> list[str]:
        """Tables that lack what the disk was asked to hold, by the log that a new owner finds."""
        return [
            f"{path.parent.name}.{path.name} lacks version {told.version}"
            for path, told in self.told.items()
            if _entry(path, told.version) != told.entry
        ]


def _files(folder: Path) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        below[:] = [one for one in below if one not in (torn.ASIDE, STAGES)]
        yield from (Path(place, name) for name in names)


def _table(file: Path, lake: Path) -> Path:
    return Path(*file.relative_to(lake).parts[:2])


def _known(file: Path) -> _Known:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _told(path: Path) -> Told | None:
    newest = newest_version(path)
    return None if newest is None else Told(newest, _entry(path, newest))


def _entry(path: Path, version: int) -> str | None:
    found = read_log(path, version)
    return None if found is None else found.text
