"""Whether the tables that deltaworks.toml has replayed on a schedule can be."""

from collections.abc import Iterable

from deltaworks.catalog.declared import Catalog
from deltaworks.findings import Finding, nearest

_PLACE = "deltaworks.toml [replays]"


def schedule_findings(catalog: Catalog, tables: Iterable[str]) -> list[Finding]:
    """What is wrong with the names of tables that are to be replayed."""
    found = []
    for name in tables:
        if name not in catalog.tables:
            told = f"{name}: there is no such table"
            found.append(Finding(place=_PLACE, finding=told, next_step=nearest(name, catalog.tables, "tables")))
        elif not catalog[name].has_range:
            told = f"{name} has no range of event time, so no day of it can be replayed"
            found.append(Finding(place=_PLACE, finding=told, next_step="Take it out, or name a table that has one"))
    return found
