"""The DAGs that follow from the catalog. Parsing reads files only: no network, no control store.

A DAG that vanishes because its file does not parse leaves its app unsupervised. So the streams' DAGs need no valid
table: while a table is wrong they are built from deltaworks.toml alone, and the finding is the import error of the
file that does need the tables (maintenance.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from airflow.sdk import DAG, Param, TaskGroup, get_parsing_context
from airflow.utils.types import DagRunType

from deltaworks.catalog import Catalog, Declared, load
from deltaworks.errors import DeclarationError
from deltaworks.settings import Settings
from deltaworks.supervise.assets import gold
from deltaworks.supervise.command import CommandOperator, CommandTrigger
from deltaworks.supervise.days import Days
from deltaworks.supervise.replay import ReplayOperator
from deltaworks.supervise.stream import StreamOperator

# fixed: without a start date a continuous DAG runs once and never again (Airflow 3.3.2)
START = datetime(2026, 1, 1, tzinfo=UTC)
MAINTAIN_EVERY = "*/10 * * * *"
VACUUM_EVERY = "@daily"
EXPIRE_EVERY = "@daily"
REPLAYS_MAX = 16
"""So many days of a table may wait at a time outside of a backfill: together they are computed together."""


def stream_dags(settings: Settings) -> Iterator[DAG]:
    """One DAG per app that keeps its driver running; raises nothing for a wrong table."""
    try:
        catalog, finding = load(settings.project), ""
        apps: Iterable[str] = catalog.apps
    except DeclarationError as error:
        catalog, finding, apps = None, str(error), sorted(settings.apps)
    for app in apps:
        if _wanted(f"stream__{app}"):
            yield _stream_dag(settings, app, catalog, finding)


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
    for name in settings.replays:
        if not catalog[name].has_range:  # raises, with the nearest name
            finding = f"{name} has no range of event time, so no day of it can be replayed"
            raise DeclarationError("deltaworks.toml [replays]", finding, "Take it out, or name a table that has one")
    for name, table in catalog.tables.items():
        if table.has_range and _wanted(f"replay__{name}"):
            yield _replay_dag(settings, table, settings.replays.get(name))


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
            allowed_run_types=[DagRunType.SCHEDULED, DagRunType.MANUAL],  # type: ignore[list-item]  # Airflow's annotation names a private twin
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
            f"Stop: `deltaworks app stop {app}`. Start: `deltaworks app start {app}`.",
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


def _first_line(doc: str) -> str:
    return doc.strip().split("\n")[0].replace("|", "\\|")


def _wanted(dag_id: str) -> bool:
    """A worker and the triggerer parse a file for one DAG of it."""
    asked = get_parsing_context().dag_id
    return asked is None or asked == dag_id
