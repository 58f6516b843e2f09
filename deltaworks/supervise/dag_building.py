"""The DAGs that follow from the catalog. Parsing reads files only: no network, no control store.

A DAG that vanishes because its file does not parse leaves its app unsupervised. So the streams' DAGs need no valid
table: while a table is wrong they are built from deltaworks.toml alone, and the finding is the import error of the
file that does need the tables (maintenance.py).
"""

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable, Param, TaskGroup, get_parsing_context
from airflow.utils.types import DagRunType

from deltaworks.catalog import Catalog, Declared, load, schedule_findings
from deltaworks.errors import DeclarationError
from deltaworks.quality.planning import holds
from deltaworks.settings import Settings
from deltaworks.supervise.assets import gold
from deltaworks.supervise.command import CommandOperator, CommandTrigger
from deltaworks.supervise.days import Days
from deltaworks.supervise.health import HealthOperator, health
from deltaworks.supervise.operate import OperateOperator, choices
from deltaworks.supervise.replay import ReplayOperator
from deltaworks.supervise.stream import StreamOperator
from deltaworks.supervise.validate import ValidateOperator, to_judge

# fixed: without a start date a continuous DAG runs once and never again (Airflow 3.3.2)
START = datetime(2026, 1, 1, tzinfo=UTC)
MAINTAIN_EVERY = "*/10 * * * *"
VACUUM_EVERY = "@daily"
EXPIRE_EVERY = "@daily"
REPLAYS_MAX = 16
"""So many days of a table may wait at a time outside of a backfill: together they are computed together."""
OPERATIONS_MAX = 16
"""So many operations on an app may wait at a time."""
# Airflow annotates run types by a private twin of the type that it documents
_BY_HAND: Any = [DagRunType.MANUAL]
_NO_BACKFILL: Any = [DagRunType.SCHEDULED, DagRunType.MANUAL]


def stream_dags(settings: Settings) -> Iterator[DAG]:
    """One DAG per app that keeps its driver running; raises nothing for a wrong table."""
    catalog, finding, apps = _known(settings)
    for app in apps:
        if _wanted(f"stream__{app}"):
            yield _stream_dag(settings, app, catalog, finding)


def _known(settings: Settings) -> tuple[Catalog | None, str, Iterable[str]]:
    """The tables, the finding where one is wrong, and the apps, which are known in any case."""
    try:
        catalog = load(settings.project)
    except DeclarationError as error:
        return None, str(error), sorted(settings.apps)
    return catalog, "", catalog.apps


def maintenance_dags(settings: Settings) -> Iterator[DAG]:
    """Per app the DAGs that keep its tables in order; raises DeclarationError while a table is wrong."""
    catalog = load(settings.project)
    for app in catalog.apps:
        if _wanted(f"maintain__{app}"):
            yield _orders_dag(
                f"maintain__{app}", settings, app, catalog, kind="compact", schedule=MAINTAIN_EVERY,
                arguments={"by_debt": True},
                does=f"Compacts the small files of {app}'s tables, through its driver",
            )  # fmt: skip
        if _wanted(f"vacuum__{app}"):
            yield _orders_dag(
                f"vacuum__{app}", settings, app, catalog, kind="vacuum", schedule=VACUUM_EVERY,
                does=f"Deletes files of {app}'s tables that only versions of more than a week ago have",
            )  # fmt: skip
        if _wanted(f"expire__{app}") and any(_expires(table) for table in catalog.app(app)):
            yield _orders_dag(
                f"expire__{app}", settings, app, catalog, kind="expire", schedule=EXPIRE_EVERY, which=_expires,
                does=f"Deletes rows of {app}'s tables that are older than their keep_days",
            )  # fmt: skip


def replay_dags(settings: Settings) -> Iterator[DAG]:
    """A DAG for each table of which a range can be computed again; raises DeclarationError while one is wrong."""
    catalog = load(settings.project)
    for finding in schedule_findings(catalog, settings.replays):
        raise finding.error()
    for name, table in catalog.tables.items():
        if table.has_range and _wanted(f"replay__{name}"):
            yield _replay_dag(settings, table, settings.replays.get(name))


def validate_dags(settings: Settings, *, tables: Collection[str] | None = None) -> Iterator[DAG]:
    """A DAG for each table (of these) that has expectations; raises DeclarationError while a table is wrong."""
    catalog = load(settings.project)
    for name, table in catalog.tables.items():
        asked = tables is None or name in tables
        if asked and catalog.suite(name).expectations and _wanted(f"validate__{name}"):
            yield _validate_dag(settings, table, holds=table.closes_days and holds(catalog.suite(name)))


def health_dags(settings: Settings) -> Iterator[DAG]:
    """Per app a DAG that is red while the app is not well; raises nothing for a wrong table."""
    _, _, apps = _known(settings)
    for app in apps:
        if _wanted(f"health__{app}"):
            with DAG(
                f"health__{app}",
                description=f"Fails while {app} is not well, succeeds when it is again",
                doc_md=_HEALTH_DOC.format(app=app),
                schedule=health(app, project=settings.project),
                start_date=START,
                catchup=False,
                max_active_runs=1,
                is_paused_upon_creation=False,
                tags=["deltaworks", "health", app],
            ) as dag:
                HealthOperator(task_id="health", app=app, project=settings.project)
            yield dag


def operate_dags(settings: Settings) -> Iterator[DAG]:
    """Per app a form for what a person may have done to it; while a table is wrong, for the app alone."""
    catalog, _, apps = _known(settings)
    for app in apps:
        if _wanted(f"operate__{app}"):
            yield _operate_dag(settings, app, catalog)


def _operate_dag(settings: Settings, app: str, catalog: Catalog | None) -> DAG:
    names, tables, does = choices(catalog, app)
    times = "a time such as 2026-11-22T10:00 (UTC)"
    with DAG(
        f"operate__{app}",
        description=f"Operations on {app} and its tables, as a form",
        doc_md=_OPERATE_DOC.format(app=app, does=does),
        schedule=None,
        start_date=START,
        max_active_runs=OPERATIONS_MAX,
        is_paused_upon_creation=False,
        allowed_run_types=_BY_HAND,
        tags=["deltaworks", "operate", app],
        params={
            "operation": Param(type="string", enum=names, title="Operation", description_md=does),
            "table": Param(
                tables[0], type="string", enum=tables, title="Table",
                description="None for start, stop, restart, drain, commands cancel",
            ),
            "reason": Param(type="string", pattern=r"\S", title="Why", description="For the record, beside your name"),
            "to": Param(
                None, type=["null", "string"], title="To",
                description=f"rewind: a version or {times}; replay, late revise: {times}",
            ),
            "cause": Param(
                None, type=["null", "string"], title="Cause",
                description="Of refused rows: only those that were refused for this, as listed; discard: or any",
            ),
            "hours": Param(
                None, type=["null", "integer"], minimum=0, title="Hours", description="vacuum: so long files stay",
            ),
            "command": Param(
                None, type=["null", "integer"], minimum=1, title="Command", description="Number of the one to cancel",
            ),
            "plan_only": Param(
                default=False, type="boolean", title="Only see what would be done",
                description="rebuild, rewind, replay: computes it and tells; nothing is published",
            ),
        },
    ) as dag:  # fmt: skip
        OperateOperator(task_id="operate", app=app, project=settings.project)
    return dag


def _replay_dag(settings: Settings, table: Declared, cron: str | None) -> DAG:
    when = f"Every night (`{cron}`, UTC) for the day before." if cron else "Only by hand or as a backfill."
    with DAG(
        f"replay__{table.name}",
        description=f"Computes a day of {table.name} again, with the code and rules of now",
        doc_md=_REPLAY_DOC.format(table=table.name, when=when),
        schedule=Days(cron),
        start_date=START,
        catchup=False,
        max_active_runs=REPLAYS_MAX,
        is_paused_upon_creation=False,
        tags=["deltaworks", "replay", table.table.app],
        params={
            "plan_only": Param(
                default=False, type="boolean", title="Only see what would be done",
                description="Computes it and tells the counts; nothing is published",
            )
        },
    ) as dag:  # fmt: skip
        ReplayOperator(task_id="replay", app=table.table.app, table=table.name, project=settings.project)
    return dag


def _validate_dag(settings: Settings, table: Declared, *, holds: bool) -> DAG:
    # with a start date, or without that argument, the first run would be that of the night before, for all tables
    night = CronTriggerTimetable(_night(table.name), timezone="UTC", run_immediately=timedelta(0))
    schedule: Any = night
    when = f"Each night (`{_night(table.name)}`, UTC)."
    if table.closes_days:
        day = to_judge(table.name, project=settings.project) if holds else gold(table.name, project=settings.project)
        schedule = AssetOrTimeSchedule(timetable=night, assets=[day])
        when = f"{when[:-1]}, and after a day closes."
    with DAG(
        f"validate__{table.name}",
        description=f"Great Expectations judges the suite of {table.name}",
        doc_md=_VALIDATE_DOC.format(table=table.name, when=when, then=_HELD_DOC if holds else ""),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=["deltaworks", "quality", table.table.app],
    ) as dag:
        ValidateOperator(task_id="validate", app=table.table.app, table=table.name, project=settings.project)
    return dag


def _night(table: str) -> str:
    """When a table is judged at night: each at a minute of its own between 1 and 5 o'clock."""
    minute = 60 + zlib.crc32(table.encode()) % 240
    return f"{minute % 60} {minute // 60} * * *"


def _stream_dag(settings: Settings, app: str, catalog: Catalog | None, finding: str) -> DAG:
    tables = catalog.app(app) if catalog else ()
    with DAG(
        f"stream__{app}",
        description=f"Keeps the Spark driver of {app} running",
        doc_md=_stream_doc(app, tables, finding),
        schedule="@continuous",
        start_date=START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=["deltaworks", "stream"],
    ) as dag:
        # never emitted by the task, which never succeeds: they show in Airflow's graph where an asset comes from
        outlets = [gold(table.name, project=settings.project) for table in tables if table.layer == "gold"]
        StreamOperator(task_id="supervise", app=app, project=settings.project, outlets=outlets)
    return dag


def _orders_dag(
    dag_id: str,
    settings: Settings,
    app: str,
    catalog: Catalog,
    *,
    kind: str,
    schedule: str,
    does: str,
    arguments: Mapping[str, object] | None = None,
    which: Callable[[Declared], bool] = lambda _: True,
) -> DAG:
    with (
        DAG(
            dag_id,
            description=does,
            doc_md=f"Sends `{kind}` to the driver of **{app}** for each table and waits for its end.\n\n"
            f"Skipped while the app is stopped. By hand: `deltaworks {kind} TABLE`.",
            schedule=schedule,
            start_date=START,
            catchup=False,
            max_active_runs=1,
            is_paused_upon_creation=False,
            # a backfill would order for the past what can only be done now
            allowed_run_types=_NO_BACKFILL,
            tags=["deltaworks", "maintenance"],
        ) as dag,
        TaskGroup(kind),
    ):
        for table in sorted(filter(which, catalog.app(app)), key=lambda table: table.name):
            trigger = CommandTrigger(
                app=app, table=table.name, kind=kind, project=str(settings.project), arguments=arguments
            )
            CommandOperator(task_id=table.name, trigger=trigger)
    return dag


def _expires(table: Declared) -> bool:
    return table.table.keep_days is not None


def _stream_doc(app: str, tables: Iterable[Declared], finding: str) -> str:
    rows = [f"| `{table.name}` | {table.reads} | {_first_line(table.doc)} |" for table in tables]
    owned = ["It alone writes these tables:", "", "| table | reads | what |", "| --- | --- | --- |", *rows]
    return "\n".join(
        [
            f"Keeps the Spark driver of **{app}** running, for ever.",
            "",
            f"Stop and start: *Trigger* of `operate__{app}`, or `deltaworks app stop {app}` and `... app start {app}`.",
            "Marking the task failed or clearing it does not stop the driver; pausing the DAG only stops the watching.",
            "",
            *([f"**The tables cannot be read now:** {finding}"] if finding else owned),
        ]
    )


_REPLAY_DOC = """A day (UTC) of **{table}** is computed again beside the stream, with the code and rules of now, and
published in its place; the tables above follow what changed. Rows that come out as they were stay.

{when} A range of days: *Trigger*, then *Backfill*, and all runs, or Airflow leaves out days that have one. One
day: *Trigger* with the day, such as 2026-11-20, as partition key. Days that wait at the same time are computed
together; each run's return value tells its own rows read, written, gone and unchanged, and which tables above followed.
While the app is stopped, days wait.

Marking a run failed or clearing it does not stop what was ordered: `deltaworks commands cancel NUMBER` does. A run that
is cleared orders its day again, which changes nothing where all is as it should be.

From a terminal, without Airflow: `deltaworks backfill {table} --from DAY --to DAY`.
"""


_VALIDATE_DOC = """Great Expectations judges the suite of **{table}** over its newest version. {when}

A run succeeds if all that is critical passed, and fails if something did not, or nobody could say. The task's log names
what did not pass; its return value has each verdict. {then}

Pages: `deltaworks quality docs`. Verdicts as a table: `ops.quality`. By hand: `deltaworks quality run {table}`.
"""

_HELD_DOC = """A day that has not passed is held back: DAGs that are scheduled on the table do not run for it. Mend the
rows, then *Clear* the run; or let the day go as it is: `deltaworks quality release`."""

_HEALTH_DOC = """The last run tells how **{app}** is. It has failed while a table is suspended, rows of a computed table
break a critical rule, something has waited for longer than `behind_seconds`, or the driver hangs, gave up, or ended
although nobody wanted that; the task's log says why. When all is well again, one succeeds by itself. A run for each
change, none meanwhile; *Trigger* looks at once.
"""

_OPERATE_DOC = """*Trigger* opens a form: what is to be done to **{app}** or to its tables, and why. It is recorded with
your name (`deltaworks commands list`).

{does}

The task's log tells how far it is, its return value what came of it. A stopped app gets an owner for what is ordered.
Marking the run failed or clearing it withdraws nothing: *commands cancel* does.
"""


def _first_line(doc: str) -> str:
    return doc.strip().split("\n")[0].replace("|", "\\|")


def _wanted(dag_id: str) -> bool:
    """A worker and the triggerer parse a file for one DAG of it."""
    asked = get_parsing_context().dag_id
    return asked is None or asked == dag_id
