"""Maintenance by the owner: many small files become few, the log gets a checkpoint."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deltaworks.engine.commit import Guard
from deltaworks.engine.lake import HOOKS_OFF, OwnedTable

TARGET_BYTES = 128 * 2**20
CHECKPOINT_COMMITS = 10  # an idle table commits its position too: readers should not open every one of these


def compact(
    table: OwnedTable, *, command: int, guard: Guard, report: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Rewrite small files into large ones as one commit with an entry; rows stay the same.

    Returns files and bytes before and after. Nothing is committed when there is nothing to gain; the log gets its
    checkpoint all the same.
    """
    guard()
    before = table.delta.get_add_actions().num_rows
    size_before = table.bytes()
    report({"files_before": before, "bytes_before": size_before})
    entry = table.entry.follow("compact", command=command)
    version = table.version
    table.delta.optimize.compact(
        target_size=TARGET_BYTES,
        commit_properties=table.properties(entry),
        post_commithook_properties=HOOKS_OFF,
    )
    if table.delta.version() > version:
        table.moved_to(table.delta.version(), entry, brought_rows=False)
    if table.version - _last_checkpoint(table.path) >= CHECKPOINT_COMMITS or table.version > version:
        table.delta.create_checkpoint()  # readers start here instead of at the first commit
    return {
        "files_before": before,
        "files_after": table.delta.get_add_actions().num_rows,
        "bytes_before": size_before,
        "bytes_after": table.bytes(),
        "version": table.version,
    }


def _last_checkpoint(path: Path) -> int:
    """Version of the last log checkpoint, -1 if there is none (Delta protocol, "Last Checkpoint File")."""
    try:
        return int(json.loads((path / "_delta_log" / "_last_checkpoint").read_text())["version"])
    except (FileNotFoundError, ValueError, KeyError):  # it is a hint: without it one checkpoint more is made
        return -1
