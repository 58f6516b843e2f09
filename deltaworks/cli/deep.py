"""`doctor --deep`: the checker over the lake."""

from typing import TYPE_CHECKING

from deltaworks.errors import ControlError, SettingsError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.engine.checker import Finding, Picture

PROMISES = {
    "I1": "every row that was read went somewhere",
    "I2": "no row is there twice",
    "I3": "tables equal the source",
    "I5": "a replay gives the same rows",
    "I6": "nothing is left to take",
    "I7": "what was not taken is counted once and listed",
}


def look_deep(settings: Settings, *, replay: bool, source: bool) -> list[dict[str, object]]:
    """Look for what the lake promises: a row for each finding, as the doctor's rows are, or for each promise kept.

    `replay` recomputes every table in a lake of its own, with Spark; `source` compares with the source database. Both
    want a lake at rest; I6 is looked for only in such a one.
    """
    from deltaworks import catalog
    from deltaworks.engine.checker import Picture, check

    with Picture(catalog.load(settings.project), settings.lake) as picture:
        if not picture.tables:
            return [_row("warn", "lake", "has no table yet", 'Start an app: "deltaworks app start APP"')]
        looked, resting = {"I1", "I2", "I7"}, _at_rest(settings)
        found = check(picture, at_rest=resting)
        if resting:
            looked.add("I6")
        if source:
            looked.add("I3")
            found += _against_source(settings, picture)
        if replay:
            looked.add("I5")
            found += _against_replay(settings, picture)
        broken = {one.invariant for one in found}
        kept = [_row("ok", name, f"{PROMISES[name]}: {len(picture.tables)} tables") for name in sorted(looked - broken)]
        return [*kept, *(_row("fail", f"{one.invariant} {one.place}", one.finding, one.next_step) for one in found)]


def _at_rest(settings: Settings) -> bool:
    """Whether no driver works here; without a control store those started on this machine are looked for."""
    from deltaworks.control import Store
    from deltaworks.supervise.launch import driver_processes

    try:
        with Store(settings.control_dsn()) as store:
            return not driver_processes(settings, store)
    except (ControlError, SettingsError):
        return not driver_processes(settings, None)


def _against_source(settings: Settings, picture: "Picture") -> "list[Finding]":
    import psycopg

    from deltaworks.engine.checker import Finding
    from deltaworks.engine.checker.source import equals_source

    try:
        return equals_source(picture, settings.source_dsn())
    except psycopg.Error as error:
        first = str(error).strip().partition("\n")[0]
        return [Finding("I3", "source", f"cannot be read: {first}", 'Run "deltaworks up source"')]


def _against_replay(settings: Settings, picture: "Picture") -> "list[Finding]":
    from deltaworks.engine.checker.replay import replay
    from deltaworks.engine.recomputing import recomputing

    with recomputing(settings, name="doctor-deep") as (spark, own):
        return replay(picture, spark, own)


def _row(verdict: str, check: str, finding: str, next_step: str = "") -> dict[str, object]:
    return {"check": check, "verdict": verdict, "finding": finding, "next step": next_step}
