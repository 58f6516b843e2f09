"""Which rows of a view's inputs some keys can be made from: those that a kept plan is given."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from deltaworks.engine.snapshot import Condition, Snapshot, UnknownError
from deltaworks.engine.spark.pushed_keys import PushedKeys, Scan

Wanted = tuple[pa.Table, PushedKeys | None]
"""Keys, or values of some key columns, and what decides about their rows; None where that is not known."""


def needed(whole: Mapping[str, Snapshot], wanted: Sequence[Wanted]) -> dict[str, pa.Table]:
    """Rows of each input that the rows of these keys can be made from, and others: all where that is not known.

    What holds where all columns have a value need not hold where one is null.
    """
    conditions: dict[str, list[Condition] | None] = {name: [] for name in whole}
    for keys, known in wanted:
        if known is None or any(column.null_count for column in keys.columns):
            return {name: kept.rows() for name, kept in whole.items()}
        found = _found(whole, keys, known.scans)
        read = {scan.input for scan in known.scans}
        for name in whole:
            mine = [found.get(at) for at, scan in enumerate(known.scans) if scan.input == name]
            before = conditions[name]
            if before is None or name not in read or None in mine:
                conditions[name] = None
            else:
                conditions[name] = [*before, *(one for some in mine if some is not None for one in some)]
    return {name: _rows(kept, conditions[name]) for name, kept in whole.items()}


def _found(whole: Mapping[str, Snapshot], keys: pa.Table, scans: Sequence[Scan]) -> dict[int, list[Condition]]:
    """By scan, of whose rows one of these must hold; scans that need all rows are not there."""
    found: dict[int, list[Condition]] = {
        at: [{column: keys[key].unique() for key, column in one.items()} for one in scan.decides]
        for at, scan in enumerate(scans)
        if scan.decides
    }
    rows: dict[int, pa.Table | None] = {}
    while True:  # what one scan needs may tell what another does
        asked = {one.scan for at, scan in enumerate(scans) if at not in found for one in scan.joined}
        rows |= {at: _those(whole[scans[at].input], found[at]) for at in asked if at in found and at not in rows}
        told = dict[int, list[Condition]]()
        for at, scan in enumerate(scans):
            joined = [(one, rows.get(one.scan)) for one in scan.joined]
            condition = {one.column: theirs[one.its_column].unique() for one, theirs in joined if theirs is not None}
            if at not in found and condition:
                told[at] = [condition]
        if not told:
            return found
        found |= told


def _those(kept: Snapshot, conditions: Sequence[Condition]) -> pa.Table | None:
    """The rows for which one of these holds; None where nobody knows."""
    try:
        return kept.those(conditions)
    except UnknownError:
        return None


def _rows(kept: Snapshot, conditions: Sequence[Condition] | None) -> pa.Table:
    """The same; all where there is no condition, or nobody knows."""
    found = None if conditions is None else _those(kept, conditions)
    return kept.rows() if found is None else found
