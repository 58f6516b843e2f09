"""Maintenance by the owner: many small files become few, the log gets a checkpoint."""

from collections.abc import Callable, Mapping
from typing import Any

from deltaworks.engine.commit import Guard
from deltaworks.engine.lake import HOOKS_OFF, OwnedTable
from deltaworks.engine.points import reached

TARGET_BYTES = 128 * 2**20


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
