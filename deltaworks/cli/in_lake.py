"""What of the lake is not as declared, for `doctor`. No Spark here."""

from deltaworks.settings import Settings


def look(settings: Settings) -> list[dict[str, object]]:
    """A row as the doctor's for each table that is otherwise or not declared, or one that there is none.

    None where there is no lake, or where the project has mistakes: those come first.
    """
    from deltaworks import catalog
    from deltaworks.engine.as_declared import everything

    if not settings.lake.is_dir() or catalog.check(settings.project):
        return []
    found = everything(catalog.load(settings.project), settings.lake)
    if not found:
        return [_row("ok", "tables as declared, and no others", "")]
    return [_row("warn", f"{one.place}: {one.finding}", one.next_step) for one in found]


def _row(verdict: str, finding: str, next_step: str) -> dict[str, object]:
    return {"check": "lake", "verdict": verdict, "finding": finding, "next step": next_step}
