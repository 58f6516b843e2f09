"""Whether the tables that deltaworks.toml has replayed on a schedule can be."""

from collections.abc import Mapping

from croniter import CroniterError, croniter

from deltaworks.catalog.declared import Catalog
from deltaworks.findings import Finding, nearest

_PLACE = "deltaworks.toml [replays]"


def schedule_findings(catalog: Catalog, replays: Mapping[str, str]) -> list[Finding]:
    """What is wrong with the names of tables that are to be replayed, and with when: a cron expression each."""
    found = []
    for name, cron in replays.items():
        if name not in catalog.tables:
            told = f"{name}: there is no such table"
            found.append(Finding(place=_PLACE, finding=told, next_step=nearest(name, catalog.tables, "tables")))
        elif not catalog[name].has_range:
            told = f"{name} has no range of event time, so no day of it can be replayed"
            found.append(Finding(place=_PLACE, finding=told, next_step="Take it out, or name a table that has one"))
        if not _comes(cron):
            told = f"{name}: {cron!r} never comes"
            step = "Give minute, hour, day of the month, month, day of the week: 30 3 * * * is every day at 03:30 UTC"
            found.append(Finding(place=_PLACE, finding=told, next_step=step))
    return found


def _comes(cron: str) -> bool:
    """Whether there is such a time; read as Airflow does."""
    try:
        croniter(cron).get_next()
    except CroniterError:
        return False
    return True
