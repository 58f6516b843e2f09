"""What ordered recomputations lay out beside the lake: ranges of a table, all of it, or its earlier versions.

With the table those above it, in a folder of their own, from which the owner publishes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deltaworks import catalog as catalogs
from deltaworks.catalog import Catalog
from deltaworks.control.commands import BACKFILL, Command
from deltaworks.engine import backfill, rebuild, rewind
from deltaworks.engine.event_range import Part
from deltaworks.engine.recomputing import recomputing
from deltaworks.errors import CommandError, LakeError
from deltaworks.settings import Settings

WHATS = (BACKFILL, "rebuild", "rewind", "replay")
"""What an order of the kind `recompute` may be."""


@dataclass(frozen=True, kw_only=True)
class LaidOut:
    """What lies in the folder; `results` are the orders', by their numbers.

    `changes`: whether there is anything to publish. `only_once`: where another order was faster it is not laid out
    again, as it would undo what nobody has looked at.
    """

    results: Mapping[int, Mapping[str, Any]]
    changes: bool
    only_once: bool = False


@dataclass(frozen=True, kw_only=True)
class Range:
    """Event times from `since` until before `until` (UTC)."""

    part: Part


@dataclass(frozen=True, kw_only=True)
class Whole:
    """All of the table."""


@dataclass(frozen=True, kw_only=True)
class Back:
    """An earlier version, by its number or by a time; `since`: one that has nothing of what arrived from then on.

    `seen`: the tables' versions and the orders that are undone, as somebody has looked at them; None if nobody has.
    """

    to: int | datetime | None = None
    since: datetime | None = None
    seen: tuple[Mapping[str, int], frozenset[int]] | None = None


Wanted = Range | Whole | Back


def wanted(order: Command) -> Wanted:
    """What an order asks for; raises CommandError where it does not say it."""
    given = order.arguments
    match given.get("what", BACKFILL):
        case "backfill":
            return Range(part=_range(order))
        case "rebuild":
            return Whole()
        case "rewind" | "replay":
            return _back(order)
        case other:
            finding = f"it is not known how to {other}"
            raise CommandError(f"command {order.id}", finding, f"Known are {', '.join(WHATS)}")


def lay_out(table: str, orders: Mapping[int, Wanted], *, settings: Settings, app: str, folder: Path) -> LaidOut:
    """Compute what the orders of a table ask for into an empty folder; ranges together, anything else alone."""
    catalog = catalogs.load(settings.project)
    name = catalog[table].name  # raises, with the nearest name
    ranges = {number: one.part for number, one in orders.items() if isinstance(one, Range)}
    if ranges:
        with recomputing(settings, name=f"recompute-{app}", folder=folder) as (spark, own):
            made = backfill.stage(
                name, ranges=tuple(ranges.values()), catalog=catalog, lake=settings.lake, spark=spark, anew=own
            )
        changes = bool(made.gone or made.come)
        about = {"together": len(ranges), "above": list(made.above) if changes else []}
        counted = {number: _counts(one) | about for number, one in zip(ranges, made.ranges, strict=True)}
        return LaidOut(results=counted, changes=changes)
    ((number, one),) = orders.items()
    if isinstance(one, Back):
        return LaidOut(results={number: _gone_back(name, one, catalog, settings, folder)}, changes=True, only_once=True)
    rebuild.refuse(name, catalog)
    with recomputing(settings, name=f"recompute-{app}", folder=folder) as (spark, own):
        staged = rebuild.stage(name, catalog=catalog, lake=settings.lake, spark=spark, anew=own)
    return LaidOut(results={number: {"tables": list(staged.tables)}}, changes=True)


def _gone_back(name: str, back: Back, catalog: Catalog, settings: Settings, folder: Path) -> Mapping[str, Any]:
    to = back.to
    if back.since is not None:
        to = rewind.before(name, catalog=catalog, lake=settings.lake, since=back.since)
    assert to is not None, "one of them was given"
    past = rewind.plan(name, catalog=catalog, lake=settings.lake, to=to)
    versions, again = {one.table: one.version for one in past}, {one.table: one.again for one in past}
    undone = sorted({number for one in past for number in one.undone})
    if back.seen is not None:
        _refuse_other(name, back.seen, past, undone)
    rewind.stage(past, catalog=catalog, lake=settings.lake, folder=folder)
    return {"to_versions": versions, "rows_to_take_again": again, "commands_undone": undone}


def _refuse_other(
    name: str, seen: tuple[Mapping[str, int], frozenset[int]], past: Sequence[rewind.Rewind], undone: Sequence[int]
) -> None:
    """Raise LakeError where the lake would go back otherwise than somebody has looked at.

    A table that has taken nothing of it yet stays at its newest version, whichever that is by now.
    """
    looked_at, known = seen
    if more := [str(number) for number in undone if number not in known]:
        raise LakeError(
            name, f"more would be undone than was looked at: commands {', '.join(more)}", "Look at it again"
        )
    back = {one.table: one.version for one in past if one.version != one.newest}
    if other := [one for one, version in back.items() if looked_at.get(one) != version]:
        raise LakeError(name, f"{', '.join(other)} would go to another version than was looked at", "Look at it again")


def _range(order: Command) -> Part:
    try:
        since, until = (_time(order.arguments[name]) for name in ("from", "to"))
    except (KeyError, ValueError):
        since = until = order.requested_at
    if not since < until:
        raise CommandError(f"command {order.id}", f"has no range: {order.arguments}", 'Give it "from" and "to"')
    return since, until


def _back(order: Command) -> Back:
    to, since, looked = (order.arguments.get(name) for name in ("to", "since", "seen"))
    try:
        seen = None if looked is None else (dict(looked["versions"]), frozenset(looked["undone"]))
        if isinstance(to, int) and to >= 0:
            return Back(to=to, seen=seen)
        if to is not None:
            return Back(to=_time(to), seen=seen)
        return Back(since=_time(since), seen=seen)
    except (KeyError, TypeError, ValueError):
        finding = f"does not say how far back: {order.arguments}"
        raise CommandError(f"command {order.id}", finding, 'Give it "to", a version or a time, or "since"') from None


def _time(text: object) -> datetime:
    """A time with its zone; raises ValueError for anything else."""
    found = datetime.fromisoformat(str(text))
    if found.tzinfo is None:
        raise ValueError(text)
    return found


def _counts(one: backfill.Recomputed) -> dict[str, Any]:
    return {
        "from": one.since.isoformat(), "to": one.until.isoformat(), "rows_read": one.read, "rows_written": one.come,
        "rows_gone": one.gone, "rows_unchanged": one.unchanged,
    }  # fmt: skip
