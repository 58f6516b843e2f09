import shutil
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError, TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent, TriggerEvent

from deltaworks.control import Store
from deltaworks.operations import NONE
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise import launch
from deltaworks.supervise.operate import OperateOperator, OperateTrigger
from tests.unit.airflow.triggers import ended
from tests.unit.launching import wait_owned

ORDER = {"table": "silver.orders", "kind": "compact", "arguments": {"by_debt": False}}
OTHER = {"table": "silver.customers", "kind": "compact", "arguments": {"by_debt": False}}
FILES = {"files_before": 9, "files_after": 1, "rows": 100}


@pytest.mark.parametrize("wanted", ["running", "stopped"])
def test_orders_are_given_and_their_results_end_the_task(store: Store, settings: Settings, wanted: str) -> None:
    """By the driver, or by an owner that is there for them alone where the app is stopped; on record with who and why.

    A triggerer that starts again in the middle gives none of them twice.
    """
    if wanted == "running":
        launch.start(settings, "shop")
    else:
        store.desire("shop", "stopped", by="ann", reason="a test")

    first = ended(trigger(settings, orders=[ORDER, OTHER]), seconds_max=0.2)
    events = [first, ended(trigger(settings, orders=[ORDER, OTHER])), ended(trigger(settings, orders=[ORDER, OTHER]))]

    assert first is None
    for event in events[1:]:
        assert isinstance(event, TaskSuccessEvent)
        assert [(one["table"], one["state"], one["result"]) for one in of(event)["commands"]] == [
            ("silver.orders", "done", FILES), ("silver.customers", "done", FILES),
        ]  # fmt: skip
    sent = store.commands("shop", kind="compact")
    assert [(one.requested_by, one.reason) for one in sent] == [("ann in Airflow", "too slow")] * 2


def test_an_order_that_fails_fails_the_task_and_the_others_are_told(store: Store, settings: Settings) -> None:
    """The return value has each order's state."""
    ended(trigger(settings, orders=[ORDER, OTHER]), seconds_max=1.5)
    first = store.take("shop")
    assert first is not None
    store.fail(first.id, "disk full")
    second = store.take("shop")
    assert second is not None
    store.finish(second.id, {})

    event = ended(trigger(settings, orders=[ORDER, OTHER]))

    assert isinstance(event, TaskFailedEvent)
    assert [one["state"] for one in of(event)["commands"]] == ["failed", "done"]


def test_an_owner_that_cannot_start_fails_the_task(store: Store, settings: Settings) -> None:
    """What failed here is not to be done on the day when the app is started."""
    store.desire("shop", "stopped", by="ann", reason="a test")
    settings.data.mkdir(exist_ok=True)
    (settings.data / "manners").write_text("crashes")

    event = ended(trigger(settings, orders=[ORDER]))

    assert isinstance(event, TaskFailedEvent)
    assert [one["state"] for one in of(event)["commands"]] == ["cancelled"]


def test_an_app_is_stopped_started_and_restarted(store: Store, settings: Settings) -> None:
    """Each waits until it is so, and is on record with who and why."""
    first = launch.start(settings, "shop")
    wait_owned(store, "shop", first.pid)

    stopped = ended(trigger(settings, operation="stop"))
    assert isinstance(stopped, TaskSuccessEvent)
    assert of(stopped)["state"] == "stopped"
    assert launch.running(settings, store, "shop") is None

    waits = ended(trigger(settings, operation="start"), seconds_max=2.5)
    assert waits is None  # nobody has started it
    second = launch.start(settings, "shop")
    wait_owned(store, "shop", second.pid)
    started = ended(trigger(settings, operation="start"))
    assert isinstance(started, TaskSuccessEvent)
    assert of(started)["state"] == "healthy"

    again = ended(trigger(settings, operation="restart", call="2"), seconds_max=4)
    assert again is None
    assert launch.running(settings, store, "shop") is None
    assert store.app("shop").desired == "running"
    third = launch.start(settings, "shop")
    wait_owned(store, "shop", third.pid)
    moved = ended(trigger(settings, operation="restart", call="2"))  # to another triggerer
    assert isinstance(moved, TaskSuccessEvent)
    found = launch.running(settings, store, "shop")
    assert found is not None
    assert found.pid == third.pid
    kinds = [(one.kind, one.requested_by, one.reason) for one in reversed(store.commands("shop", by="ann in Airflow"))]
    assert kinds == [(kind, "ann in Airflow", "too slow") for kind in ("stop", "start", "stop", "start")]


@pytest.mark.parametrize("manner", ["works", "fails", "crashes"])
def test_a_drain_takes_what_is_there_and_stops(store: Store, settings: Settings, manner: str) -> None:
    """A driver of its own does so; where it gives up, the task fails."""
    first = launch.start(settings, "shop")
    wait_owned(store, "shop", first.pid)
    (settings.data / "manners").write_text(manner)

    event = ended(trigger(settings, operation="drain"))

    last = launch.log_tail(settings, "shop")
    assert isinstance(event, TaskSuccessEvent if manner == "works" else TaskFailedEvent)
    assert store.app("shop").desired == "stopped"
    assert [one.kind for one in store.commands("shop", by="ann in Airflow")] == ["drain"]
    assert f"stand-in of shop: {manner}" in last


def test_a_drain_ends_where_somebody_wants_the_app_running(store: Store, settings: Settings) -> None:
    """Its stream takes what is there then: nobody is told of that for ever."""
    (settings.data).mkdir(exist_ok=True)
    (settings.data / "manners").write_text("hangs")
    assert ended(trigger(settings, operation="drain"), seconds_max=4) is None
    store.desire("shop", "running", by="ben", reason="a test")

    event = ended(trigger(settings, operation="drain"))

    assert isinstance(event, TaskFailedEvent)


def test_a_command_is_cancelled(store: Store, settings: Settings) -> None:
    """One that is queued at once; one that there is not is the task's failure."""
    number = store.send(app="shop", table="silver.orders", kind="compact", arguments={}, by="ben", reason="nightly")

    done = ended(trigger(settings, operation="commands cancel", command=number))
    none = ended(trigger(settings, operation="commands cancel", command=number + 7))
    of_web = store.send(app="web", table="silver.page_views", kind="compact", arguments={}, by="ben", reason="nightly")
    other = ended(trigger(settings, operation="commands cancel", command=of_web))

    assert isinstance(done, TaskSuccessEvent)
    assert of(done) == {"command": number, "state": "cancelled"}
    assert (store.command(number).cancelled_by, store.command(number).cancel_reason) == ("ann in Airflow", "too slow")
    assert isinstance(none, TaskFailedEvent)
    assert isinstance(other, TaskFailedEvent)
    assert store.command(of_web).state == "queued"


def test_the_task_hands_over_what_the_form_says(settings: Settings) -> None:
    """With the name of who triggered the run; a clear or a retry of it is another call."""
    task = operator(settings)

    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context(operation="compact", table="silver.orders"))

    handed = deferred.value.trigger
    assert isinstance(handed, OperateTrigger)
    assert (handed.by, handed.reason, handed.orders) == ("ann in Airflow", "too slow", [ORDER])
    assert OperateTrigger(**handed.serialize()[1]).serialize() == handed.serialize()
    assert handed.call == "operate__shop run-1 1"


@pytest.mark.parametrize(
    ("given", "finding"),
    [
        ({"operation": "rebuild", "table": "bronze.shop_changes"}, "is not for this table"),
        ({"operation": "rewind", "table": "silver.orders", "to": "now"}, "is no time such as"),
        ({"operation": "stop", "table": "silver.orders"}, "takes no table"),
        ({"operation": "commands cancel"}, "which command"),
    ],
)
def test_a_form_that_cannot_be_followed_fails_the_task_for_good(
    settings: Settings, given: dict[str, object], finding: str
) -> None:
    """With the next step, and nothing is ordered."""
    with pytest.raises(AirflowFailException, match=finding):
        operator(settings).execute(context(**given))


@pytest.mark.usefixtures("settings")
def test_each_app_has_a_form() -> None:
    """It can be stored; the operation and the reason have to be given."""
    bag = DagBag(dag_folder=ROOT / "dags" / "operate.py")

    assert bag.import_errors == {}
    assert set(bag.dags) == {"operate__shop", "operate__web"}
    for dag in bag.dags.values():
        assert DagSerialization.to_dict(dag)
        for missing in ("operation", "reason"):
            with pytest.raises(ParamValidationError):
                dag.params.get_param(missing).resolve()
    web = bag.dags["operate__web"].params
    assert "late apply" in web.get_param("operation").schema["enum"]
    assert "silver.page_views" in web.get_param("table").schema["enum"]
    with pytest.raises(ParamValidationError):
        web.get_param("reason").resolve("")


def test_a_wrong_table_takes_no_form_away(settings: Settings) -> None:
    """The app can still be stopped; its tables are not offered."""
    (settings.project / "tables").unlink()
    shutil.copytree(ROOT / "tables", settings.project / "tables")
    table = settings.project / "tables" / "gold" / "daily_orders" / "table.py"
    table.write_text(table.read_text().replace('owner="sales"', 'ower="sales"'))

    bag = DagBag(dag_folder=ROOT / "dags" / "operate.py")

    assert bag.import_errors == {}
    offered = bag.dags["operate__shop"].params.get_param("operation").schema["enum"]
    assert offered == ["start", "stop", "restart", "drain", "commands cancel"]


def operator(settings: Settings) -> OperateOperator:
    """The only task of the form."""
    return OperateOperator(task_id="operate", app="shop", project=settings.project)


def context(**given: object) -> Any:
    """What Airflow hands to the task of a run that ann has triggered."""
    empty = {"table": NONE, "to": None, "cause": None, "hours": None, "command": None, "plan_only": False}
    run = SimpleNamespace(dag_id="operate__shop", run_id="run-1", run_type="manual", triggering_user_name="ann")
    return {
        "params": {**empty, "reason": "too slow", **given}, "dag_run": run, "ti": SimpleNamespace(try_number=1),
    }  # fmt: skip


def trigger(
    settings: Settings, *, operation: str = "compact", orders: list[dict[str, Any]] | None = None,
    command: int | None = None, call: str = "1",
) -> OperateTrigger:  # fmt: skip
    """The trigger of a run; it was deferred to long ago."""
    return OperateTrigger(
        app="shop", project=str(settings.project), operation=operation, by="ann in Airflow", reason="too slow",
        orders=orders or [], command=command, call=f"{operation} {call}", deferred_at=0.0,
    )  # fmt: skip


def of(event: TriggerEvent | None) -> Mapping[str, Any]:
    """The return value."""
    assert isinstance(event, TaskSuccessEvent | TaskFailedEvent)
    value: Any = (event.xcoms or {})["return_value"]
    return dict(value)
