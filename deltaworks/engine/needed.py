"""Which rows of a view's inputs some keys can be made from: those that a kept plan is given."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from deltaworks.engine.snapshot import Condition, Snapshot, UnknownError
from deltaworks.engine.spark.pushed_keys import Place, PushedKeys

Given = tuple[pa.Table, PushedKeys | None]
"""Keys, or values of some key columns, and what decides about their rows; None where that is not known."""


def needed(whole: Mapping[str, Snapshot], given: Sequence[Given]) -> dict[str, pa.Table]:
    """Rows of each input that the rows of these keys can be made from, and others: all where that is not known.

    What holds where all columns have a value need not hold where one is null.
    """
    wanted: dict[str, list[Condition] | None] = {name: [] for name in whole}
    for keys, known in given:
        if known is None or any(column.null_count for column in keys.columns):
            return {name: kept.rows() for name, kept in whole.items()}
        found = _found(whole, keys, known.places)
        read = {place.input for place in known.places}
        for name in whole:
            mine = [found.get(at) for at, place in enumerate(known.places) if place.input == name]
            before = wanted[name]
            if before is None or name not in read or None in mine:
                wanted[name] = None
            else:
                wanted[name] = [*before, *(one for some in mine if some is not None for one in some)]
    return {name: _rows(kept, wanted[name]) for name, kept in whole.items()}


def _found(whole: Mapping[str, Snapshot], keys: pa.Table, places: Sequence[Place]) -> dict[int, list[Condition]]:
    """By place, of whose rows one of these must hold; places that need all rows are not there."""
    found: dict[int, list[Condition]] = {
        at: [{column: keys[key].unique() for key, column in one.items()} for one in place.decides]
        for at, place in enumerate(places)
        if place.decides
    }
    waiting = [(at, one) for at, place in enumerate(places) if at not in found for one in place.joined]
    while told := next((one for one in waiting if one[0] not in found and one[1].place in found), None):
        waiting.remove(told)
        at, joined = told
        try:
            rows = whole[places[joined.place].input].those(found[joined.place])
        except UnknownError:
            continue
        found[at] = [{joined.column: rows[joined.its_column].unique()}]
    return found


def _rows(kept: Snapshot, wanted: Sequence[Condition] | None) -> pa.Table:
    """The rows for which one of these holds; None: all."""
    if wanted is None:
        return kept.rows()
    try:
        return kept.those(wanted)
    except UnknownError:
        return kept.rows()
