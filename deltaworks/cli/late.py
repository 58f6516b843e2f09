"""`deltaworks late`: rows that came too late for a table and were set aside. Listing needs no JVM."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.actors import ASKED, By, Reason
from deltaworks.cli.context import settings

if TYPE_CHECKING:
    from deltaworks.catalog import Catalog

_COUNTED = """
    select count(*) filter (where {open}) as open, count(*) filter (where not {open}) as used,
        max(_late_by) filter (where {open}) / 1e6 as latest_by_seconds from {table}"""


def register(main: typer.Typer) -> None:
    """Add this module's commands."""
    group = typer.Typer(no_args_is_help=True, help="Rows that came too late for a table.", rich_markup_mode=None)
    group.command("list")(listed)
    group.command("apply")(apply)
    group.command("revise")(revise)
    main.add_typer(group, name="late")


def listed(
    table: Annotated[str | None, typer.Argument(help="Only this table's, such as gold.page_views_set_aside.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List, by table, how many rows are set aside, how late the latest is, and how many were used after all."""
    from deltaworks import analyst, catalog
    from deltaworks.engine.through import Lineage

    now = settings()
    rows: list[dict[str, object]] = []
    with analyst.connect(now.lake) as lake:
        for name in _setting_aside(catalog.load(now.project), table):
            side = f"{name}__late"
            if side not in lake.tables():
                continue
            uses = next(((entry.position.applied or (0, 0))[0] for entry in Lineage(now.lake).entries(name)), 0)
            columns = [column["column_name"] for column in lake.sql(f"describe {_named(side)}").dicts()]
            is_open = f"coalesce(_claimed > {uses}, true)" if "_claimed" in columns else "true"
            (counted,) = lake.sql(_COUNTED.format(table=_named(side), open=is_open)).dicts()
            rows.append({"table": name, **counted})
    show.listing(rows, title="late", as_json=as_json, empty="no row is set aside")


def apply(
    table: Annotated[str, typer.Argument(help="Name of the table, such as gold.page_views_set_aside.")],
    *,
    wait: Annotated[bool, typer.Option(help="Follow it until it has ended.")] = True,
    timeout: Annotated[float | None, typer.Option(min=1, help="Seconds that it may run; then it is given up.")] = None,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Use the rows that are set aside: the table is then as if they had come in time. Each is used once."""
    from deltaworks import catalog
    from deltaworks.cli.commands import order

    (name,) = _setting_aside(catalog.load(settings().project), table)
    order(name, kind="apply_late_rows", arguments={}, by=by, reason=reason, wait=wait, timeout=timeout)


def revise(
    table: Annotated[str, typer.Argument(help="The table of events, such as silver.page_views.")],
    *,
    to: Annotated[str, typer.Option(help="How far time had come, such as 2026-11-22T10:00 (UTC).")],
    wait: Annotated[bool, typer.Option(help="Follow it until it has ended.")] = True,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Revise how far the events of a table have come, where a wrong clock made all others late.

    What comes from now on is judged by it; what has come stays as late as it was, and is used by "late apply".
    """
    from deltaworks import catalog
    from deltaworks.cli.commands import order
    from deltaworks.cli.compute_again import moment

    named = catalog.load(settings().project)[table]  # raises, with the nearest name
    if not named.has_events:
        finding = f"{named.name} has no events that say how far time has come: no append(...) with event_time=."
        raise typer.BadParameter(finding, param_hint="TABLE")
    micros = (moment(to, option="--to") - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
    order(named.name, kind="revise_mark", arguments={"to_micros": micros}, by=by, reason=reason, wait=wait)


def _setting_aside(found: "Catalog", table: str | None) -> Sequence[str]:
    """The tables that set late rows aside; if one is named, that one, or a usage error."""
    names = [name for name, one in found.tables.items() if one.sets_late_rows_aside]
    if table is None:
        return names
    named = found[table.removesuffix("__late")].name  # raises, with the nearest name
    if named not in names:
        raise typer.BadParameter(f"{named} sets no late rows aside: its late= is not side_output.", param_hint="TABLE")
    return [named]


def _named(table: str) -> str:
    return '"' + table.replace(".", '"."') + '"'
