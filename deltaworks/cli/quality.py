"""`deltaworks quality`: suites judged by Great Expectations itself, its pages, and the days that are held back."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.actors import By, user
from deltaworks.cli.context import settings
from deltaworks.errors import DeltaworksError, QualityError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.catalog import Catalog
    from deltaworks.quality.planning import When
    from deltaworks.quality.verdict import Outcome, Verdict

_EXIT = {"passed": 0, "failed": 1, "unknown": 3}
_DAY = ["%Y-%m-%d"]
_Table = Annotated[str, typer.Argument(help="Name of the table, such as gold.daily_orders.")]
_Json = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(main: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Suites, judged by Great Expectations.", rich_markup_mode=None)
    for name, command in (("run", run), ("docs", docs), ("held", held), ("release", release)):
        group.command(name)(command)
    main.add_typer(group, name="quality")


def run(
    table: _Table,
    *,
    day: Annotated[
        list[datetime] | None,
        typer.Option(formats=_DAY, help="A closed day that it is done for, such as 2026-11-20; may be given again."),
    ] = None,
    night: Annotated[bool, typer.Option("--night", help="Only what is judged each night.")] = False,
    as_json: _Json = False,
) -> None:
    """Judge a table's suite by Great Expectations, over its newest version; streams go on.

    Without --day and --night all of it. Exit code 0: all that is critical passed; 1: something critical failed;
    3: nobody could say. What came of each expectation is in ops.quality, and as pages in Data Docs; neither has values
    of rows. A day that is held back goes out once it passes.
    """
    from deltaworks import catalog

    if day and night:
        raise typer.BadParameter("--day and --night exclude each other")
    now = settings()
    found = catalog.load(now.project)
    suite = found.suite(table)  # raises, with the nearest name
    if suite.waived:
        raise QualityError(table, f"its suite is waived: {suite.waived}", "There is nothing to judge")
    days = sorted({one.date().isoformat() for one in day or []})
    try:
        outcome = _validated(now, found, table, days=days, occasion="day" if days else "schedule" if night else None)
    except DeltaworksError as error:
        _judge_days(now, table, dict.fromkeys(days, ("unknown", error.finding)))
        raise
    except Exception as error:  # noqa: BLE001  # whatever Spark, Arrow or Great Expectations raise
        name = _name_of(error)  # its text may quote a row
        _judge_days(now, table, dict.fromkeys(days, ("unknown", name)))
        raise QualityError(table, f"cannot be judged ({name})", "See the log of its Spark, quality.log") from None
    _judge_table(now, found, outcome)
    _judge_days(now, table, {day: outcome.of_day(day) for day in days})
    _tell(outcome, now, as_json=as_json)
    raise typer.Exit(_EXIT[outcome.verdict])


def _validated(
    now: Settings, found: "Catalog", table: str, *, days: Sequence[str], occasion: "When | None"
) -> "Outcome":
    from deltaworks.engine.recomputing import recomputing
    from deltaworks.validation.turn import turn

    with turn(now), _quietly(), recomputing(now, name="quality") as (spark, _):
        # slow to load: not before it is this one's turn
        from deltaworks.validation import ops_quality
        from deltaworks.validation import run as running

        outcome = running.validate(spark, now, found, table, days=days, occasion=occasion)
        ops_quality.tell(now.lake, outcome)
    return outcome


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of libraries, which quote what they were given; what they print is no answer."""
    import logging
    import warnings

    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        yield


def _name_of(error: Exception) -> str:
    """What Python and Spark call it."""
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    return " ".join(filter(None, [type(error).__name__, condition]))


def _judge_days(now: Settings, table: str, days: "Mapping[str, tuple[Verdict, str]]") -> None:
    """Tell the control store, which holds days back or lets them go."""
    if not days:
        return
    from deltaworks.control import Store

    with Store(now.control_dsn()) as store:
        for day, (verdict, reason) in days.items():
            if not store.judge_partition(table, day, verdict, reason=reason):
                raise QualityError(f"{table} {day}", "no such day is closed", "Give one that is, or none")


def _judge_table(now: Settings, found: "Catalog", outcome: "Outcome") -> None:
    """Tell the control store what suspends the table, or does no longer; its owner asks for it."""
    from deltaworks.control import Store
    from deltaworks.engine.rule_counts import plan_of
    from deltaworks.quality.planning import by_validations

    those = by_validations(plan_of(found[outcome.table]))
    if not those:
        return
    unmet, judged = outcome.unmet(those)
    with Store(now.control_dsn()) as store:
        store.judge_expectations(outcome.table, unmet=unmet, judged=judged, those=those)


def _tell(outcome: "Outcome", now: Settings, *, as_json: bool) -> None:
    rows = [
        {
            "expectation": one.name,
            "severity": one.severity,
            "where": one.where,
            "day": one.day,
            "verdict": one.verdict,
        }
        for one in outcome.judged
    ]
    pages = now.quality_docs / "index.html"
    if as_json:
        whole = {
            "table": outcome.table, "version": outcome.version, "days": list(outcome.days), "verdict": outcome.verdict,
            "reason": outcome.reason, "run_id": outcome.run_id, "pages": str(pages), "expectations": rows,
        }  # fmt: skip
        show.document(whole)
        return
    show.listing(rows, title=f"{outcome.table}, version {outcome.version}: {outcome.verdict}", as_json=False)
    show.out.print(f"pages: {pages}", markup=False, soft_wrap=True)


def docs(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any that is free.")] = 18090,
    styles: Annotated[
        bool, typer.Option("--styles", help="Let the browser fetch styles and scripts from the hosts of others.")
    ] = False,
) -> None:
    """Show Data Docs in a browser, read-only, for this machine alone, until it is interrupted."""
    from deltaworks.validation.pages import server

    now = settings()
    folder = now.quality_docs
    if not (folder / "index.html").is_file():
        raise QualityError("Data Docs", "there are none yet", 'Run "deltaworks quality run TABLE"')
    try:
        serving = server(folder, results=now.quality_results, port=port, styles=styles)
    except OSError as error:
        raise QualityError(f"port {port}", f"cannot be used ({error.strerror})", "Give another with --port") from None
    with serving:
        show.out.print(f"http://127.0.0.1:{serving.server_port}/ until Ctrl+C", markup=False)
        serving.serve_forever()


def held(as_json: _Json = False) -> None:
    """List the closed days that are held back, the tables that validations suspend, and why. Exit code 1 if any."""
    from deltaworks.control import Store

    with Store(settings().control_dsn()) as store:
        found, unmet = store.held_partitions(), store.unmet_expectations()
    rows = [
        {
            "table": one.table_name, "day": one.partition, "verdict": one.verdict or "not judged",
            "why": one.reason or "its validation has not ended",
        }
        for one in found
    ]  # fmt: skip
    rows += [{"table": one.table_name, "day": "suspended", "verdict": "unmet", "why": one.reason} for one in unmet]
    show.listing(rows, title="held back", as_json=as_json, empty="nothing is")
    if rows:
        raise typer.Exit(1)


def release(
    table: _Table,
    day: Annotated[datetime, typer.Argument(formats=_DAY, help="The day, such as 2026-11-20.")],
    *,
    by: By = None,
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
) -> None:
    """Let a day go as it is, whatever was said of it: DAGs that wait for it run."""
    from deltaworks.control import Store

    name, told = f"{day:%Y-%m-%d}", f"{by or user()}: {reason}"
    with Store(settings().control_dsn()) as store:
        if not store.judge_partition(table, name, "released", reason=told):
            raise QualityError(f"{table} {name}", "no such day is closed", 'See "deltaworks quality held"')
    show.out.print(f"{table} {name}: released", markup=False)
