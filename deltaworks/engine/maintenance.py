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
from deltalake.exceptions import DeltaError

from deltaworks.engine.commit import Committer
from deltaworks.engine.detached import first_line
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.log import read_log
from deltaworks.errors import CommandError

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
"""Classes of which so many are written anew in a second or less: nothing else can go on meanwhile."""
_GROWS = 4
"""What is put together without an order has up to so many times the size of its class: tiny files hold mostly what
each file has, so a few dozen rows more make them no larger."""
VACUUM_HOURS = 7 * 24
"""So long after they were replaced files stay for readers of older versions: who has begun, and who looks back."""
_MARGIN = timedelta(minutes=10)
"""Kept beyond what is needed: a file is a little older than the commit that names it. So far clocks may err, too."""
log = logging.getLogger("deltaworks.maintenance")
_NULL = ""  # as delta-rs takes the value of a part in its filters


@dataclass(frozen=True, kw_only=True)
class Debt:
    """Files of one class of size in one part of a table: how many, and when the newest came (ms since 1970).

    `part`: the part's column and value, None in a table without parts. They are smaller than `size_max` bytes.
    """

    part: tuple[str, str] | None
    size_max: int
    files: int
    newest: int


class SmallFiles:
    """Has very many small files of a table put together without an order, one class of one part after a batch.

    Of classes that are done in a moment, and never twice what fails: an order tells why it does.
    """

    def __init__(self, *, files_max: int = FILES_MAX) -> None:
        """Nothing is looked at yet."""
        self._files_max = files_max
        self._looked: dict[str, int] = {}
        self._left: set[str] = set()
        self._next = 0

    def put_together(self, tables: Iterable[OwnedTable], committer: Committer) -> None:
        """Commit to at most one of these tables; raises CommitLostError, and LeaseLostError from the guard."""
        every = list(tables)
        for _ in every:
            table = every[self._next % len(every)]
            self._next += 1  # who had the turn comes last in the next
            # each commit brings a file or two, so a table that had few can have very many only after some
            if table.version - self._looked.setdefault(table.name, table.version) < self._files_max // 3:
                continue
            self._looked[table.name] = table.version
            if table.outdated is None and table.name not in self._left and self._done(table, committer):
                return

    def _done(self, table: OwnedTable, committer: Committer) -> bool:
        try:
            found = debts(table, sizes=_AT_ONCE, files_min=self._files_max)
            if not found:
                return False
            most = max(found, key=lambda debt: debt.files)
            entry, size_max = table.entry.follow("compact"), _GROWS * most.size_max
            done = committer.rewrite(table, entry, size_max=size_max, part=most.part)
        except (DeltaError, OSError, pa.ArrowException) as error:  # a file that cannot be read is worth no turn
            self._left.add(table.name)
            log.warning('%s: its small files are left as they are (%s). Run "deltaworks compact %s --by-debt"',
                        table.name, first_line(error), table.name)  # fmt: skip
            return False
        table.stage.renew()  # until the next time the log has a checkpoint: to begin there is less to read
        return done


def debts(table: OwnedTable, *, sizes: tuple[int, ...] = SIZES, files_min: int = FILES_MIN) -> list[Debt]:
    """What it would pay to put together, parts that got nothing for the longest time first.

    In each part the smallest files come first: what becomes of them belongs to the next class.
    """
    files = pa.table(table.delta.get_add_actions(flatten=True))
    column = None if table.partition is None else table.partition.name
    part = pa.nulls(files.num_rows) if column is None else files[f"partition.{column}"]
    classes = reduce(pc.add, (pc.greater_equal(files["size_bytes"], size).cast(pa.int8()) for size in sizes))
    grouped = pa.table({"part": part, "class": classes, "newest": files["modification_time"]})
    grouped = grouped.group_by(["part", "class"]).aggregate([([], "count_all"), ("newest", "max")]).sort_by("class")
    found: dict[Any, Debt] = {}
    for one in grouped.to_pylist():
        value = one["part"]
        if one["class"] == len(sizes) or one["count_all"] < files_min or value in found:
            continue
        named = None if column is None else (column, _NULL if value is None else str(value))
        found[value] = Debt(part=named, size_max=sizes[one["class"]], files=one["count_all"], newest=one["newest_max"])
    return sorted(found.values(), key=lambda debt: debt.newest)


def compact_debts(
    table: OwnedTable, *, command: int, committer: Committer, sizes: tuple[int, ...] = SIZES
) -> Iterator[int]:
    """Put small files together where that pays, a commit for each part; yields how many files each has replaced."""
    tried: set[tuple[tuple[str, str] | None, int]] = set()
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
    for reader, version in readers.items():
        if version >= table.data_version:
            continue
        first = read_log(table.path, version + 1)
        if first is None and not version:
            continue  # it has taken nothing, and takes what there is
        if first is None or first.at is None:
            finding = f"{reader} has taken {table.name} up to version {version}, and the log begins later"
            raise CommandError(f"command {command}", finding, f"Rebuild {reader}")
        since = min(since, first.at - _MARGIN)
    doomed = table.delta.vacuum(
        retention_hours=math.ceil((now - since) / timedelta(hours=1)),
        dry_run=True,  # its own commits would pass over a foreign one
        enforce_retention_duration=False,  # an operator may want less than Delta's week, and readers are asked
        full=True,
    )
    if doomed:
        committer.mark(table, table.entry.follow("vacuum", command=command))  # who owns the table no longer ends here
        for name in doomed:
            (table.path / name).unlink(missing_ok=True)
        table.stage.renew()
    return {"files": len(doomed), "readable_since": since.isoformat(timespec="seconds")}
