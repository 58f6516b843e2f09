"""`operate__<app>`: an operation that somebody chose in Airflow's form, recorded in the control store with who and why.

It begins in a worker, as only there Airflow says who triggered the run; the waiting is the triggerer's.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TaskFailedEvent, TaskSuccessEvent, TriggerEvent

from deltaworks import operations
from deltaworks.catalog import Catalog, load
from deltaworks.errors import DeltaworksError
from deltaworks.operations import ALL, CANCEL, FIELDS, NONE, OF_APP
from deltaworks.settings import Settings
from deltaworks.supervise.command import watched
from deltaworks.supervise.operating import Done, Look, operating
from deltaworks.supervise.stream import QUIET_SECONDS


class OperateOperator(BaseOperator):
    """Has done what the run's params say; the outcome is the XCom."""

    ui_color = "#f8efd9"

    def __init__(self, *, app: str, project: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.app, self.project = app, str(project)

    def execute(self, context: Context) -> NoReturn:
        """Find out what is wanted by whom, then wait in the triggerer."""
        params, run = context["params"], context["dag_run"]
        operation, reason = str(params["operation"]), str(params["reason"])
        given = {name: params[name] for name in FIELDS}
        try:
            wanted = self._wanted(operation, given)
        except DeltaworksError as error:
            raise AirflowFailException(str(error)) from None
        by = f"{run.triggering_user_name or run.run_type} in Airflow"
        self.log.info("%s, wanted by %s: %s", operation, by, reason)
        self.defer(
            trigger=OperateTrigger(
                app=self.app, project=self.project, operation=operation, by=by, reason=reason,
                orders=[asdict(one) for one in wanted], command=given["command"],
                call=f"{run.dag_id} {run.run_id} {context['ti'].try_number}", deferred_at=time.time(),
            ),
            method_name="execute",  # never: the trigger ends the task
        )  # fmt: skip

    def _wanted(self, operation: str, given: Mapping[str, Any]) -> Sequence[operations.Order]:
        operations.check_fields(operation, given)
        if operation == CANCEL or operation in OF_APP:
            return ()
        catalog = load(Settings.load(Path(self.project)).project)
        return operations.orders(catalog, self.app, operation=operation, given=given)


class OperateTrigger(BaseTrigger):
    """Does it, tells its progress, ends the task. One that Airflow moves or starts again goes on where it was.

    Marking the task failed or clearing it withdraws nothing that was ordered.
    """

    def __init__(
        self, *, app: str, project: str, operation: str, by: str, reason: str, orders: Sequence[Mapping[str, Any]],
        command: int | None, call: str, deferred_at: float,
    ) -> None:  # fmt: skip
        BaseTrigger.__init__(self)
        self.app, self.project, self.operation, self.by, self.reason = app, project, operation, by, reason
        self.orders, self.command, self.call, self.deferred_at = list(orders), command, call, deferred_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        names = ("app", "project", "operation", "by", "reason", "orders", "command", "call", "deferred_at")
        return ("deltaworks.supervise.operate.OperateTrigger", {name: getattr(self, name) for name in names})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Do it, wait, end the task."""
        act: Look | None = None

        def look(waited: float) -> Done | str:
            nonlocal act
            act = act or self._act()
            return act(waited)

        done = await watched(self.log, look)
        # one that ends before the scheduler has seen the deferring process end fails the task (apache/airflow 66374)
        await asyncio.sleep(max(0.0, min(QUIET_SECONDS, self.deferred_at + QUIET_SECONDS - time.time())))
        yield self._end(done)

    def _act(self) -> Look:
        return operating(
            Settings.load(Path(self.project)), app=self.app, operation=self.operation, by=self.by, reason=self.reason,
            orders=[operations.Order(**one) for one in self.orders], command=self.command, call=self.call,
        )  # fmt: skip

    def _end(self, done: Done) -> TriggerEvent:
        for line in done.failed:
            self.log.error("%s", line)
        if done.failed:
            return TaskFailedEvent(xcoms={"return_value": dict(done.result)})
        self.log.info("done: %s", done.result)
        return TaskSuccessEvent(xcoms={"return_value": dict(done.result)})


def choices(catalog: Catalog | None, app: str) -> tuple[list[str], list[str], str]:
    """The operations and tables that the form of an app offers, and what they do, a line each.

    Without a catalog, as a table is wrong, those of the app alone.
    """
    fit = operations.of_app(catalog, app) if catalog else {}
    tables = [table.name for table in catalog.app(app)] if catalog else []
    does = {**OF_APP, **{name: one.does for name, one in fit.items()}, CANCEL: "withdraws a command by its number"}
    return list(does), [NONE, ALL, *tables], "\n".join(f"- **{name}** {what}" for name, what in does.items())
