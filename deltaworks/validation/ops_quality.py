"""`ops.quality`: what came of each expectation, each time that a suite was judged.

Whoever judges appends, from whatever process: nothing is ever replaced, so two that append at once only go one after
the other, which delta-rs sees to. No owner, no entry: no row of the lake depends on it.
"""

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
log = logging.getLogger("deltaworks.validation")


def rows_of(outcome: Outcome) -> pa.Table:
    """The rows of one judging."""
    said = {
        "run_id": outcome.run_id, "judged_at": outcome.judged_at, "table_name": outcome.table,
        "version": outcome.version, "suite": outcome.table,
    }  # fmt: skip
    all_days: Sequence[str | None] = outcome.days or [None]
    rows = [
        {
            **said,
            "day": day and date.fromisoformat(day),
            "expectation": one.name,
            "severity": one.severity,
            "judged": one.where,
            "verdict": one.verdict,
            "result": one.result,
        }
        for one in outcome.judged
        for day in ([one.day] if one.day else all_days)
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
            schema_mode="merge",  # a table of before lacks a column
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
    """Put small files together now and then, in one process at a time."""
    with _alone(path) as alone:
        table = deltalake.DeltaTable(str(path))
        if not alone or table.version() == 0 or table.version() % TIDY_EACH:
            return
        try:
            table.optimize.compact()
            table.vacuum(dry_run=False)  # of a week ago: no query reads for so long
            table.create_checkpoint()
            table.cleanup_metadata()
        except DeltaError as error:
            log.warning("%s is not put together now: %s", TABLE, str(error).partition("\n")[0])


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether nobody else puts its files together.

    Of two that do, delta-rs would put one behind the other though both took the same files: rows would be there twice.
    """
    folder = os.open(path / "_delta_log", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(folder)
