"""`rebuild`, `backfill`, `rewind`, `replay`: a table and those above it, computed again, or as they were."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from deltaworks.cli import show
from deltaworks.cli.actors import ASKED, By, Reason
from deltaworks.cli.context import settings
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.catalog import Catalog, Declared

_Read = TypeVar("_Read")
_Table = Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would go back.")]


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.command()(rebuild)
    main.command()(backfill)
    main.command()(rewind)
    main.command()(replay)


def rebuild(
    table: _Table,
    *,
    from_changelog: Annotated[
        bool, typer.Option("--from-changelog", help="From its topic alone, as a table of the serving database.")
    ] = False,
    into: Annotated[
        str | None, typer.Option(help="With --from-changelog: name of that table; default rebuilt.TABLE.")
    ] = None,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Compute a table again from all of its inputs, with the code and rules of now, and every table above it.

    The stream goes on meanwhile; what it brings is in the new table too. With --from-changelog the lake is neither
    read nor changed: what the topic holds becomes a table of the serving database.
    """
    from deltaworks import catalog
    from deltaworks.engine.rebuild import refuse

    now = settings()
    found = catalog.load(now.project)
    name = found[table].name  # raises, with the nearest name
    if from_changelog:
        _restore(found[name], now, into or f"rebuilt.{name.split('.', 1)[1]}")
        return
    if into is not None:
        raise typer.BadParameter("goes with --from-changelog only", param_hint="--into")
    refuse(name, found)

    _ordered(name, {"what": "rebuild"}, by=by, reason=reason)


def _restore(declared: "Declared", now: Settings, into: str) -> None:
    from deltaworks.engine.outlets.restoring import restore

    if not re.fullmatch(r"rebuilt[.][a-z][a-z0-9_]{0,62}", into):  # no other schema: there are live copies
        raise typer.BadParameter("Write a name such as rebuilt.products.", param_hint="--into")
    rows = restore(declared, now, into=into)
    _say(f'{into}: {rows:,} rows, from the topic alone; look at it with "deltaworks sql --served"')


def backfill(
    table: _Table,
    *,
    since: Annotated[str, typer.Option("--from", help="A day or a time such as 2026-11-22T10:00 (UTC).")],
    until: Annotated[str, typer.Option("--to", help="Up to then; a day counts whole.")],
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Compute a range of event time of a table again, with the code and rules of now.

    Events are taken again from bronze; what is computed from events, from them as they are. Every table above follows
    what changed. The stream goes on meanwhile.
    """
    from deltaworks import catalog
    from deltaworks.engine.backfill import refuse

    first, last = moment(since, option="--from"), moment(until, option="--to", end=True)
    if first >= last:
        raise typer.BadParameter("The range is empty: --to lies before --from.", param_hint="--to")
    now = settings()
    found = catalog.load(now.project)
    name = found[table].name
    refuse(name, found)

    asked = {"what": "backfill", "from": first.isoformat(), "to": last.isoformat()}
    _ordered(name, asked, by=by, reason=reason)


def rewind(
    table: _Table,
    *,
    to: Annotated[str, typer.Option(help="A version, or a time such as 2026-11-22T10:00 (UTC).")],
    dry_run: _DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Bring a table and every table above it back to an earlier version; from there they take again what came since.

    So rows that wrong code or rules have made since are made anew by the code and rules of now.
    """
    from deltaworks import catalog
    from deltaworks.times import version_or_time

    now = settings()
    found = catalog.load(now.project)
    version = _understood(version_or_time, to, option="--to")
    what = {"what": "rewind"}
    _go_back(now, found, found[table].name, version, what=what, dry_run=dry_run, as_json=as_json, by=by, reason=reason)


def replay(
    table: _Table,
    *,
    from_offset: Annotated[str | None, typer.Option(help="A record, as TOPIC/PARTITION/OFFSET.")] = None,
    from_time: Annotated[
        str | None, typer.Option(help="A time by the broker's clock, such as 2026-11-22T10:00.")
    ] = None,
    dry_run: _DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Have a table over bronze take again what arrived since a record or a time, and every table above it.

    They go back to where they had nothing of it, as with `rewind`.
    """
    from deltaworks import catalog
    from deltaworks.engine.rewind import before

    if (from_offset is None) == (from_time is None):
        raise typer.BadParameter("Give one of --from-offset and --from-time.")
    since = (
        record(from_offset, option="--from-offset")
        if from_offset is not None
        else moment(str(from_time), option="--from-time")
    )
    now = settings()
    found = catalog.load(now.project)
    name = found[table].name
    version = before(name, catalog=found, lake=now.lake, since=since)
    what = {"what": "replay", "since": from_offset if isinstance(since, tuple) else since.isoformat()}
    _go_back(now, found, name, version, what=what, dry_run=dry_run, as_json=as_json, by=by, reason=reason)


def _go_back(
    now: Settings,
    found: "Catalog",
    name: str,
    to: int | datetime,
    *,
    what: Mapping[str, object],
    dry_run: bool,
    as_json: bool,
    by: str | None,
    reason: str,
) -> None:
    from deltaworks.engine.publish import behind_topics
    from deltaworks.engine.rewind import plan

    past = plan(name, catalog=found, lake=now.lake, to=to)
    back = {one.table for one in past}
    rows = [
        {"table": one.table, "from version": one.newest, "to version": one.version, "committed at": one.at,
         "rows to take again": one.again, "orders undone": ", ".join(map(str, one.undone)) or None,
         "copies": ", ".join(_copies(found[one.table])) or None,
         "topic read by": ", ".join(name for name in behind_topics(found, [one.table]) if name not in back) or None}
        for one in past
    ]  # fmt: skip
    show.listing(rows, title=f"back to version {past[0].version} of {name}", as_json=as_json)

    if not dry_run:
        undone = sorted({number for one in past for number in one.undone})
        seen = {"versions": {one.table: one.version for one in past}, "undone": undone}  # not otherwise than was shown
        _ordered(name, {**what, "to": past[0].version, "seen": seen}, by=by, reason=reason)


def _copies(declared: "Declared") -> Iterator[str]:
    """Where its rows are beside the lake, and follow."""
    if declared.table.serves is not None:
        yield "postgres"
    if declared.table.publishes is not None:
        yield f"topic {declared.table.publishes.topic}"


def record(text: str, *, option: str) -> tuple[str, int, int]:
    """Topic, partition and offset."""
    topic, _, numbers = text.partition("/")
    partition, _, offset = numbers.partition("/")
    if not topic or not partition.isdigit() or not offset.isdigit():
        raise typer.BadParameter(f"{text!r} is not TOPIC/PARTITION/OFFSET.", param_hint=option)
    return topic, int(partition), int(offset)


def moment(text: str, *, option: str, end: bool = False) -> datetime:
    """A time in UTC; of a day its beginning, or its `end`."""
    from deltaworks.times import utc

    return _understood(partial(utc, end=end), text, option=option)


def _understood(read: Callable[[str], _Read], text: str, *, option: str) -> _Read:
    try:
        return read(text)
    except ValueError:
        hint = f"{text!r} is no day or time such as 2026-11-22T10:00."
        raise typer.BadParameter(hint, param_hint=option) from None


def _ordered(name: str, asked: Mapping[str, object], *, by: str | None, reason: str) -> None:
    """Order a recomputation, which a process beside the owner carries out; tell what came of it."""
    from deltaworks.cli.commands import ordered, told
    from deltaworks.control.commands import RECOMPUTE

    ended = ordered(name, kind=RECOMPUTE, arguments=asked, by=by, reason=reason)
    assert ended is not None, "it was waited for"
    told(ended)
    if (ended.result or {}).get("published") is None:
        _say("every row came out as it was: nothing was published")


def _say(text: str) -> None:
    show.out.print(text, markup=False, soft_wrap=True)
