"""Maintenance by the owner: many small files become few, the log gets a checkpoint, files that nobody needs go."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from deltaworks.engine.commit import Guard
from deltaworks.engine.lake import HOOKS_OFF, OwnedTable
from deltaworks.engine.log import read_log
from deltaworks.engine.points import reached
from deltaworks.errors import CommandError

TARGET_BYTES = 128 * 2**20
VACUUM_HOURS = 7 * 24
"""So long after they were replaced files stay for readers of older versions: who has begun, and who looks back."""
_MARGIN = timedelta(minutes=10)
"""Kept beyond what a slow reader needs: a file is a little older than the commit that names it."""


def compact(
    table: OwnedTable, *, command: int, guard: Guard, report: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Rewrite small files into large ones as one commit with an entry; rows stay the same.

    Returns files and bytes before and after. Nothing is committed when there is nothing to gain.
    """
    guard()
    before = table.delta.get_add_actions().num_rows
    size_before = table.bytes()
    report({"files_before": before, "bytes_before": size_before})
    entry = table.entry.follow("compact", command=command)
    version = table.version
    reached(table.name, entry.kind, "before-commit")
    table.delta.optimize.compact(
        target_size=TARGET_BYTES,
        commit_properties=table.properties(entry),
        post_commithook_properties=HOOKS_OFF,
    )
    if table.delta.version() > version:
        reached(table.name, entry.kind, "after-commit")
        table.moved_to(table.delta.version(), entry, brought_rows=False)
        table.checkpoint()  # readers need not open what went
    return {
        "files_before": before,
        "files_after": table.delta.get_add_actions().num_rows,
        "bytes_before": size_before,
        "bytes_after": table.bytes(),
        "version": table.version,
    }


def vacuum(
    table: OwnedTable,
    *,
    readers: Mapping[str, int],
    hours: int,
    command: int,
    guard: Guard,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Delete files that no version of the last `hours` has, and those that no commit ever named.

    `readers`: tables over this one, and the last version that each has taken: what was added since is never deleted,
    however far a reader is behind. Versions that lose files cannot be read any more.

    Returns how many files went, and from when on versions can be read. Raises CommandError if the clock stands before
    the last commit, or a reader's place is not in the log any more.
    """
    now = datetime.now(UTC) if now is None else now
    since = now - timedelta(hours=hours)
    last = read_log(table.path, table.version)
    if last is not None and last.at is not None and last.at > now + _MARGIN:
        raise CommandError(
            f"command {command}", f"the clock stands before the last commit of {table.name}", "Set the clock"
        )
    for reader, version in readers.items():
        if version >= table.data_version:
            continue
        first = read_log(table.path, version + 1)
        if first is None or first.at is None:
            finding = f"{reader} has taken {table.name} up to version {version}, and the log begins later"
            raise CommandError(f"command {command}", finding, f"Rebuild {reader}")
        since = min(since, first.at - _MARGIN)
    guard()
    entry, version = table.entry.follow("vacuum", command=command), table.version
    reached(table.name, entry.kind, "before-commit")
    gone = table.delta.vacuum(
        retention_hours=math.ceil((now - since) / timedelta(hours=1)),
        dry_run=False,
        enforce_retention_duration=False,  # an operator may want less than Delta's week, and readers are asked
        full=True,
        commit_properties=table.properties(entry),
        post_commithook_properties=HOOKS_OFF,
    )
    if table.delta.version() > version:
        reached(table.name, entry.kind, "after-commit")
        table.moved_to(table.delta.version(), entry, brought_rows=False)
    table.stage.renew()
    return {"files": len(gone), "readable_since": since.isoformat(timespec="seconds")}
