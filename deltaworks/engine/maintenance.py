"""Maintenance by the owner: many small files become few, files that nobody needs go."""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine import disk
from deltaworks.engine.commit import Committer
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.log import read_log
from deltaworks.engine.suspended import first_line
from deltaworks.errors import CommandError, CommitLostError, ForeignCommitError, LeaseLostError

FILES_MIN = 8
"""Fewer files of one class of size are no debt: what they cost readers is less than to write them anew."""
FILES_MAX = 60
"""So many of one class are put together without an order: a busy stream has them every minute, and its next batches pay
for them, as each query does."""
SIZES = (2**14, 2**17, 2**20, 2**23, 2**26)
"""Where one class of size ends and the next begins, in bytes. As many files of one class as are a debt make one of the
next, so a row is written anew a few times in all, however many batches come; files of the last size are left alone."""
TARGET_BYTES = 2 * SIZES[-1]
_AT_ONCE = SIZES[:3]
"""Classes of which very many are few bytes."""
_BYTES_AT_ONCE = 2**25
"""So much is written anew in a second or so, in which nothing else can go on. More waits for an order, which goes in
steps."""
_AGAIN = 1_000
"""Commits after which what could not be put together is tried again: a full disk passes, a torn file does not."""
_GROWS = 4
"""What is put together without an order has up to so many times the size of its class: tiny files hold mostly what
each file has, so a few dozen rows more make them no larger."""
VACUUM_HOURS = 7 * 24
"""So long after they were replaced files stay for readers of older versions: who has begun, and who looks back."""
_MARGIN = timedelta(minutes=10)
"""Kept beyond what is needed: a file is a little older than the commit that names it. So far clocks may err, too."""
log = logging.getLogger("deltaworks.maintenance")


@dataclass(frozen=True, kw_only=True)
class Debt:
    """Files of one class of size in one part of a table: how many, and when the newest came (ms since 1970).

    `part`: the hidden column and its value, None in a table without parts. They are smaller than `size_max` bytes.
    """

    part: tuple[str, Any] | None
    size_max: int
    files: int
    newest: int


class SmallFiles:
    """Has very many small files of a table put together without an order, one class of one part after a batch.

    No more than is done in a moment. What fails is told, and tried again after many commits.
    """

    def __init__(self, *, files_max: int = FILES_MAX, sizes: tuple[int, ...] = _AT_ONCE) -> None:
        """Nothing is looked at yet. `sizes` are the classes, and so many of one are too many."""
        self._files_max, self._sizes = files_max, sizes
        self._pause = files_max // 3
        """Each commit brings a part a file or two, so one that had few can have very many only after some."""
        self._look_at: dict[str, int] = {}
        """Per table the version from which on it is looked at."""
        self._again_at: dict[tuple[str, tuple[str, Any] | None], int] = {}
        """Per table and part that for which it failed."""
        self._next = 0

    def put_together(self, tables: Iterable[OwnedTable], committer: Committer) -> None:
        """Commit to at most one of these tables.

        Raises LeaseLostError from the guard, CommitLostError, ForeignCommitError, and what comes after a commit.
        """
        every = list(tables)
        for _ in every:
            table = every[self._next % len(every)]
            self._next += 1  # who had the turn comes last in the next
            if table.version < self._look_at.setdefault(table.name, table.version + self._pause):
                continue
            if table.outdated is None and self._done(table, committer):
                return

    def _done(self, table: OwnedTable, committer: Committer) -> bool:
        version = table.version
        found = debts(table, sizes=self._sizes, files_min=self._files_max)
        found = [debt for debt in found if self._may(table, debt)]
        if len(found) <= 1:  # else its other parts have their turns after the next batches
            self._look_at[table.name] = version + self._pause
        if not found:
            return False
        most = max(found, key=lambda debt: debt.files)
        entry = table.entry.follow("compact")
        try:
            if committer.rewrite(table, entry, size_max=_GROWS * most.size_max, part=most.part):
                table.stage.renew()  # until the next time the log has a checkpoint: to begin there is less to read
                return True
            finding = "no two of them come one after the other in the log"  # larger ones lie between
        except (LeaseLostError, CommitLostError, ForeignCommitError):
            raise
        except Exception as error:  # as of an order: delta-rs has errors of any kind for a file that cannot be read
            if (lost := table.left_behind()) is not None:
                raise lost from error
            finding = first_line(error)
        self._again_at[table.name, most.part] = version + _AGAIN
        told = "%s: %d small files of a part stay as they are for %d commits: %s"
        log.warning(told, table.name, most.files, _AGAIN, finding)
        return False

    def _may(self, table: OwnedTable, debt: Debt) -> bool:
        """Whether it has not failed lately, and what would be written anew is little."""
        if table.version < self._again_at.get((table.name, debt.part), 0):
            return False
        size = pc.sum(table.smaller(_GROWS * debt.size_max, debt.part)["size_bytes"]).as_py()
        return bool(size <= _BYTES_AT_ONCE)


def debts(table: OwnedTable, *, sizes: tuple[int, ...] = SIZES, files_min: int = FILES_MIN) -> list[Debt]:
    """What it would pay to put together, parts that got nothing for the longest time first.

    In each part the smallest files come first: what becomes of them belongs to the next class.
    """
    files = table.adds()
    classes = reduce(pc.add, (pc.greater_equal(files["size_bytes"], size).cast(pa.int8()) for size in sizes))
    grouped = files.append_column("class", classes).group_by(["part", "class"])
    grouped = grouped.aggregate([([], "count_all"), ("modification_time", "max")])
    found: dict[Any, Debt] = {}
    for one in grouped.sort_by("class").to_pylist():
        value = one["part"]
        if one["class"] == len(sizes) or one["count_all"] < files_min or value in found:
            continue
        found[value] = Debt(
            part=None if table.partition is None else (table.partition.name, value),
            size_max=sizes[one["class"]],
            files=one["count_all"],
            newest=one["modification_time_max"],
        )
    return sorted(found.values(), key=lambda debt: debt.newest)


def compact_debts(
    table: OwnedTable, *, command: int, committer: Committer, sizes: tuple[int, ...] = SIZES
) -> Iterator[int]:
    """Put small files together where that pays, a commit for each part; yields how many files each has replaced."""
    tried: set[tuple[tuple[str, Any] | None, int]] = set()
    # each once: new files come while others are put together
    while left := [debt for debt in debts(table, sizes=sizes) if (debt.part, debt.size_max) not in tried]:
        for debt in left:
            tried.add((debt.part, debt.size_max))
            entry = table.entry.follow("compact", command=command)
            # twice the size: two that are nearly of it go together too
            if committer.rewrite(table, entry, size_max=2 * debt.size_max, part=debt.part):
                yield debt.files
    if tried:
        table.checkpoint()  # readers need not open what went
        table.stage.renew()  # the next one begins here


def compact(table: OwnedTable, *, command: int, committer: Committer) -> bool:
    """Put all small files together in one commit; False, and no commit, where there is nothing to gain."""
    done = committer.rewrite(table, table.entry.follow("compact", command=command), size_max=TARGET_BYTES)
    if done:
        table.checkpoint()
    return done


def size_of(table: OwnedTable) -> dict[str, int]:
    """Files and bytes of the present version."""
    return {"files": len(table.files()), "bytes": table.bytes()}


def vacuum(
    table: OwnedTable,
    *,
    readers: Mapping[str, int],
    hours: int,
    command: int,
    committer: Committer,
    read_since: datetime | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Delete files that no version of the last `hours` has, and those that no commit ever named.

    `readers`: tables over this one, and the last version that each has taken: what was added since is never deleted,
    however far a reader is behind. `read_since`: since when tables are computed again from the lake as it was then; so
    that stays too. Versions that lose files cannot be read any more.

    Returns how many files went, and from when on versions can be read. Raises CommandError if the clock stands before
    the last commit, or a reader's place is not in the log any more.
    """
    now = datetime.now(UTC) if now is None else now
    since = now - timedelta(hours=hours)
    if read_since is not None:
        since = min(since, read_since - _MARGIN)
    last = read_log(table.path, table.version)
    if last is not None and last.at is not None and last.at > now + _MARGIN:
        raise CommandError(
            f"command {command}", f"the clock stands before the last commit of {table.name}", "Set the clock"
        )
    slow = {reader: version for reader, version in readers.items() if version < table.data_version}
    begun = list[int]()
    for reader, version in slow.items():
        first = read_log(table.path, version + 1)
        if first is None and not version:
            continue  # it has taken nothing, and takes what there is
        if first is None or first.at is None:
            finding = f"{reader} has taken {table.name} up to version {version}, and the log begins later"
            raise CommandError(f"command {command}", finding, f"Rebuild {reader}")
        begun.append(version + 1)
    if begun:
        since = min(since, *(at - _MARGIN for at in _times(table, min(begun))))
    doomed = table.delta.vacuum(
        retention_hours=math.ceil((now - since) / timedelta(hours=1)),
        dry_run=True,  # its own commits would pass over a foreign one
        enforce_retention_duration=False,  # an operator may want less than Delta's week, and readers are asked
        full=True,
    )
    if doomed:
        committer.mark(table, table.entry.follow("vacuum", command=command))  # who owns the table no longer ends here
        disk.sync(table.path)  # what took the place of these
        for name in doomed:
            (table.path / name).unlink(missing_ok=True)
        table.stage.renew()
    return {"files": len(doomed), "readable_since": since.isoformat(timespec="seconds")}


def _times(table: OwnedTable, first: int) -> Iterator[datetime]:
    """When this version was committed, and all since: where a clock was set back, files went earlier than they came."""
    for version in range(first, table.version + 1):
        logged = read_log(table.path, version)
        if logged is not None and logged.at is not None:
            yield logged.at
