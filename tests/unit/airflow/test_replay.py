from datetime import datetime

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction
from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent
from pendulum import DateTime, instance

from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise.days import Days
from deltaworks.supervise.replay import ReplayTrigger
from tests.unit.airflow.triggers import ended, of_run

TABLE = "gold.page_views_per_minute"
NIGHTLY = "gold.page_views_set_aside"


def at(text: str) -> DateTime:
    """A time in UTC."""
    return instance(datetime.fromisoformat(text), tz="UTC")


@pytest.mark.parametrize("cron", [None, "30 3 * * *", "*/5 * * * *"])
def test_a_range_of_days_is_one_run_a_day(cron: str | None) -> None:
    """Both ends with it, whatever the hour at which runs are scheduled."""
    found = list(Days(cron).iter_partition_dagrun_infos(earliest=at("2026-11-18"), latest=at("2026-11-20")))

    assert [one.partition_key for one in found] == ["2026-11-18", "2026-11-19", "2026-11-20"]
    assert [one.partition_date for one in found] == [at("2026-11-18"), at("2026-11-19"), at("2026-11-20")]
    assert Days(cron).resolve_partition_date("2026-11-18") == at("2026-11-18")


def test_a_scheduled_run_is_for_the_day_before() -> None:
    """And one that is not scheduled has no next run, but may be backfilled."""
    none = TimeRestriction(earliest=at("2026-11-01"), latest=None, catchup=True)

    night = Days("30 3 * * *").next_dagrun_info_v2(last_dagrun_info=None, restriction=none)

    assert night is not None
    assert (night.run_after, night.partition_key) == (at("2026-11-01T03:30"), "2026-10-31")
    assert Days().next_dagrun_info_v2(last_dagrun_info=None, restriction=none) is None
    assert Days().periodic


@pytest.mark.usefixtures("settings")
def test_each_table_with_a_range_has_a_dag() -> None:
    """Which the scheduler can make again of what is stored; what cannot be replayed has none."""
    bag = DagBag(dag_folder=ROOT / "dags" / "replay.py")

    assert bag.import_errors == {}
    tables = {dag_id.removeprefix("replay__") for dag_id in bag.dags}
    assert {TABLE, "gold.daily_orders", "gold.user_sessions", "silver.page_views"} <= tables
    assert not {"bronze.shop_changes", "silver.orders", "gold.product_sales"} & tables
    for dag in bag.dags.values():
        again = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
        assert isinstance(again, Days)
        assert isinstance(dag.timetable, Days)
        assert again.summary == dag.timetable.summary
        assert again.summary == ("30 3 * * *" if dag.dag_id == f"replay__{NIGHTLY}" else "by day")


@pytest.mark.parametrize(
    ("table", "finding"),
    [("gold.page_view_per_minute", "there is no such table"), ("silver.orders", "has no range of event time")],
)
def test_a_schedule_for_what_cannot_be_replayed_is_an_import_error(
    settings: Settings, table: str, finding: str
) -> None:
    """With the place of the mistake."""
    file = settings.project / "deltaworks.toml"
    text = file.read_text()
    assert text.count(NIGHTLY) == 1
    file.write_text(text.replace(NIGHTLY, table))

    bag = DagBag(dag_folder=ROOT / "dags" / "replay.py")

    assert bag.dags == {}
    (error,) = bag.import_errors.values()
    assert finding in error


@pytest.mark.parametrize("plan_only", ["False", "True"])
def test_a_run_orders_its_day_and_is_told_its_rows(store: Store, settings: Settings, plan_only: str) -> None:
    """The owner's result is the task's return value."""
    assert ended(trigger(settings, plan_only=plan_only), seconds_max=1.5) is None
    epoch = store.acquire("web", owner="stream", seconds=60, pid=1, process_started="1").epoch
    (order,) = store.take_recomputations("web", epoch=epoch, many=9)
    assert order.arguments == {
        "from": "2026-11-20T00:00:00+00:00", "to": "2026-11-21T00:00:00+00:00", "plan_only": plan_only == "True",
    }  # fmt: skip
    assert (order.requested_by, order.reason) == (f"airflow replay__{TABLE}", "run-1")
    store.finish(order.id, {"rows_written": 3}, epoch=epoch)

    event = ended(trigger(settings, plan_only=plan_only))

    assert isinstance(event, TaskSuccessEvent)
    assert event.xcoms == {"return_value": {"rows_written": 3}}
    assert len(store.commands("web", kind="recompute")) == 1


def test_a_restart_of_the_app_loses_no_day(store: Store, settings: Settings) -> None:
    """While the app is wanted stopped the order waits; other tasks are skipped then."""
    ended(trigger(settings), seconds_max=1.5)
    store.desire("web", "stopped", by="ann", reason="a test")

    assert ended(trigger(settings), seconds_max=3) is None

    assert [one.state for one in store.commands("web", kind="recompute")] == ["queued"]


@pytest.mark.parametrize("day", ["", "None", "2026-11", "2026-11-31", "2026-11-20T00:00:00"])
def test_a_run_without_a_day_fails_and_orders_nothing(store: Store, settings: Settings, day: str) -> None:
    """One that somebody triggers without a partition key, or with one that is no day."""
    event = ended(trigger(settings, day=day))

    assert isinstance(event, TaskFailedEvent)
    assert store.commands("web", kind="recompute") == []


def trigger(settings: Settings, *, day: str = "2026-11-20", plan_only: str = "False") -> ReplayTrigger:
    """The trigger of a run, its templates filled in."""
    project = str(settings.project)
    made = ReplayTrigger(app="web", table=TABLE, project=project, day=day, plan_only=plan_only)
    return of_run(made, f"replay__{TABLE}")
