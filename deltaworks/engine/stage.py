"""Where Spark commits: a copy of the log beside the rows, whose next version the owner then puts into the real log.

Spark takes the newest version for granted when its job begins, tests whether its own version is free and then renames
over it: a process that is stopped in between and wakes up overwrites what its successor has committed. Here Spark
never writes to the table's log. Its version, complete, is given its name by a hard link, which exists or does not, and
which fails if the name is taken: the same put-if-absent that delta-rs uses.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

STAGES = "_spark"  # hidden from all readers of the table, and from a vacuum
COMMITS_MAX = 1_000
"""A stage that has seen more begins anew, from the table's last checkpoint: it has few of its own."""
_LOG = "_delta_log"


class TakenError(Exception):
    """The version that was to be published is there already."""


class OtherCommitError(Exception):
    """What is committed on the stage is not what was to be published."""


class Stage:
    """One owner's stage of one table: the table as Spark sees it while it commits."""

    def __init__(self, table: Path) -> None:
        """Name a stage that nobody else has; nothing is made before it is needed."""
        self._table = table
        self._begin()

    def _begin(self) -> None:
        self.path = self._table / STAGES / uuid.uuid4().hex
        self._followed: int | None = None
        self._began = 0
        self._shown: set[str] = set()

    def renew(self) -> None:
        """Begin a new one: what this one shows may not be there any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._begin()

    @contextmanager
    def attempt(self, version: int, *, files: Iterable[str] = ()) -> Iterator[None]:
        """Follow, for one commit; begin anew whatever fails meanwhile.

        What a failed attempt may have committed here, the next one would be taken to have done: Spark leaves out,
        silently, a txn that it finds.
        """
        self.follow(version, files=files)
        try:
            yield
        except Exception:
            self.renew()
            raise

    def follow(self, version: int, *, files: Iterable[str] = ()) -> None:
        """Bring the stage up to this version; `files` are those of its data files that Spark is going to read."""
        if self._followed is not None and self._is_outlived(version):
            self.renew()
        try:
            self._follow(version, files)
        except OSError:
            self.renew()  # a full disk: it has a part, and would not take the same again
            raise

    def _follow(self, version: int, files: Iterable[str]) -> None:
        log = self.path / _LOG
        log.mkdir(parents=True, exist_ok=True)
        for name in self._unseen(version):
            os.link(self._table / _LOG / name, log / name)
        self._began, self._followed = version if self._followed is None else self._began, version
        for name in files:
            if name not in self._shown:
                self._show(name)

    def publish(self, version: int, *, entry: str) -> bool:
        """Give Spark's commit its place in the table's log; False if Spark committed nothing.

        Raises OtherCommitError where it does not say what `entry` does. Raises TakenError, and forgets the stage, when
        the version is taken or a newer owner has cleared the stage away: nothing of the commit can be seen then.
        """
        made = self.path / _LOG / _log_file(version)
        try:
            if not made.exists():
                self._must_be_there()
                return False
            if (told := _told(made)) != entry:
                raise OtherCommitError(told)
            for name in self._new_files():
                target = self._table / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (self.path / name).rename(target)
            os.link(made, self._table / _LOG / made.name)
        except (FileExistsError, FileNotFoundError):
            self._begin()  # Spark remembers a version here that does not exist
            raise TakenError from None
        self._followed = version
        return True

    def _is_outlived(self, version: int) -> bool:
        """Whether the table's log was shortened beyond what is here, or too much is here."""
        assert self._followed is not None
        gone = self._followed < version and not (self._table / _LOG / _log_file(self._followed + 1)).exists()
        return gone or version - self._began > COMMITS_MAX

    def _must_be_there(self) -> None:
        """Nothing committed, and a stage that a newer owner has cleared away, look alike. Raises FileNotFoundError."""
        assert self._followed is not None, "follow() comes first"
        (self.path / _LOG / _log_file(self._followed)).stat()

    def _unseen(self, version: int) -> Iterator[str]:
        """Log files that the stage lacks: the last checkpoint and what follows, later only what follows."""
        since = self._followed
        if since is None:
            # not from the hint in _last_checkpoint: an owner that was stopped may have set it back
            found = sorted(file.name for file in (self._table / _LOG).glob("*.checkpoint*.parquet"))
            since = max((number for name in found if (number := int(name[:20])) <= version), default=-1)
            yield from (name for name in found if int(name[:20]) == since)
            if since == version and (self._table / _LOG / _log_file(since)).exists():
                yield _log_file(since)  # delta-rs looks for the commit of the version that it stands at
        yield from (_log_file(number) for number in range(since + 1, version + 1))

    def _show(self, name: str) -> None:
        target = self._table / unquote(name)  # the log writes names as URLs
        link = self.path / target.relative_to(self._table)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        self._shown.add(name)

    def _new_files(self) -> Iterator[Path]:
        """What Spark wrote; also what an attempt before this one left, for the next vacuum to find.

        Not Hadoop's sums beside it: where a power cut leaves an empty one, Spark cannot read the file that it is of.
        """
        for folder, below, names in os.walk(self.path):
            if _LOG in below:
                below.remove(_LOG)
            for name in names:
                file = Path(folder, name)
                if not file.is_symlink() and file.suffix != ".crc":
                    yield file.relative_to(self.path)


def clear(table: Path) -> None:
    """Remove the stages of earlier owners, living or dead: in one step for whoever is about to publish from one."""
    gone = table / f"{STAGES}_{uuid.uuid4().hex}"
    with suppress(FileNotFoundError):
        (table / STAGES).rename(gone)
    for left in table.glob(f"{STAGES}_*"):
        shutil.rmtree(left, ignore_errors=True)  # one that lives may be writing there


def _told(commit: Path) -> str | None:
    """The entry in a commit."""
    # not by splitlines: a text may have what only Unicode takes for the end of a line
    infos = (json.loads(line).get("commitInfo") for line in commit.read_text().split("\n") if '"commitInfo"' in line)
    return next((info.get("userMetadata") for info in infos if info is not None), None)


def _log_file(version: int) -> str:
    return f"{version:020d}.json"
