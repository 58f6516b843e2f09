"""`ops.quality`: what came of each expectation, each time that a suite was judged.

Whoever judges appends, from whatever process: nothing is ever replaced, so two that append at once only go one after
the other, which delta-rs sees to. No owner, no entry: no row of the lake depends on it.
"""

import logging
from collections.abc import Callable
from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError

from deltaworks.engine import disk
from deltaworks.engine.lake import HOOKS_OFF
from deltaworks.errors import QualityError
from deltaworks.quality.verdict import Outcome

TABLE = "ops.quality"
SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("judged_at", pa.timestamp("us", "UTC")),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("day", pa.date32()),
        ("suite", pa.string()),
        ("expectation", pa.string()),
        ("severity", pa.string()),
        ("judged", pa.string()),
        ("verdict", pa.string()),
        ("result", pa.string()),
    ]
)
"""A row per run, expectation, day that it was for, and where it was `judged`; `result` is Great Expectations' own JSON,
without values."""
TIDY_EACH = 50
"""After so many commits its small files are put together."""
_RETRIES = 50  # each is another one that appended first
# delta-rs puts a compaction behind another one of the same files, and all their rows are there twice
_FOR_THIS_VERSION = deltalake.CommitProperties(max_commit_retries=0)
log = logging.getLogger("deltaworks.validation")


def rows_of(outcome: Outcome) -> pa.Table:
    """The rows of one judging."""
    said = {
        "run_id": outcome.run_id, "judged_at": outcome.judged_at, "table_name": outcome.table,
        "version": outcome.version, "suite": outcome.table,
    }  # fmt: skip
    days: list[date | None] = [*map(date.fromisoformat, outcome.days)] or [None]
    rows = [
        {
            **said,
            "day": day,
            "expectation": one.name,
            "severity": one.severity,
            "judged": one.where,
            "verdict": one.verdict,
            "result": one.result,
        }
        for day in days
        for one in outcome.judged
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def tell(lake: Path, outcome: Outcome) -> None:
    """Append it; raises QualityError where that cannot be done, DiskError where the disk does not hold it."""
    try:
        path = _made(lake)
        deltalake.write_deltalake(
            deltalake.DeltaTable(str(path)),
            rows_of(outcome),
            mode="append",
            commit_properties=deltalake.CommitProperties(max_commit_retries=_RETRIES),
            post_commithook_properties=HOOKS_OFF,
        )
    except (DeltaError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        next_step = "Mend that; a table that cannot be opened may be moved away, nothing depends on it"
        raise QualityError(TABLE, f"cannot be written ({why})", next_step) from None
    disk.sync(path)
    _tidy(path)


def _made(lake: Path) -> Path:
    layer, _, name = TABLE.partition(".")
    path = lake / layer / name
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        # "ignore": of two that make it one does
        deltalake.DeltaTable.create(str(path), schema=SCHEMA, mode="ignore", name="quality")
    return path


def _tidy(path: Path) -> None:
    """Put small files together now and then; where another one does it too, one of them does."""
    table = deltalake.DeltaTable(str(path))
    steps: list[Callable[[], object]] = [
        lambda: table.optimize.compact(commit_properties=_FOR_THIS_VERSION),
        lambda: table.vacuum(
            dry_run=False, commit_properties=_FOR_THIS_VERSION
        ),  # of a week ago: no query reads for so long
        table.create_checkpoint,
        table.cleanup_metadata,
    ]
    if table.version() == 0 or table.version() % TIDY_EACH:
        return
    try:
        for step in steps:
            step()
    except DeltaError as error:
        log.warning("%s is not put together now: %s", TABLE, str(error).partition("\n")[0])
