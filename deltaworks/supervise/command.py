"""A task that gives an order to the owner of a table and waits for its end, without a worker: all in the triggerer."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from airflow.sdk import BaseOperator, Context
from airflow.triggers.base import (
    BaseTrigger,
    StartTriggerArgs,
    TaskFailedEvent,
    TaskSkippedEvent,
    TaskSuccessEvent,
    TriggerEvent,
)

from deltaworks.control import Command, Store
from deltaworks.errors import CommandError, DeltaworksError
from deltaworks.settings import Settings

POLL_SECONDS = 1.0
TELL_SECONDS = 5.0  # progress is logged at most so often
WAIT_SECONDS_MAX = 3600.0  # then an order that nobody has taken is withdrawn and the task fails
_TRY = ", try "
_End = TypeVar("_End")
_TRIGGER = "deltaworks.supervise.command.CommandTrigger"


class CommandOperator(BaseOperator):
    """Sends one order (`compact`, ...) to the app that owns a table; ends when it is done, with its result as XCom.

    Starts and ends in the triggerer: a hundred tables to maintain cost no worker process. Skipped while the app is
    wanted stopped.
    """

    ui_color = "#e3ecf8"
    start_from_trigger = True

    def __init__(
        self,
        *,
        trigger: "CommandTrigger",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.trigger = trigger
        classpath, made_of = self.trigger.serialize()
        self.start_trigger_args = StartTriggerArgs(trigger_cls=classpath, trigger_kwargs=made_of, next_method="execute")

    def execute(self, context: Context) -> NoReturn:  # noqa: ARG002  # Airflow's signature
        """Wait in the triggerer; only where the start from the triggerer is not supported (`dag.test()`)."""
        self.defer(trigger=self.trigger, method_name="execute")


class CommandTrigger(BaseTrigger):
    """Gives the order once per try of a task, tells its progress, ends the task with it.

    A trigger that Airflow moves or starts again finds its order by run, try and table and goes on waiting.
    """

    wait_seconds_max = WAIT_SECONDS_MAX
    skips_stopped = True
    """Whether there is nothing to do while the app is wanted stopped; else it is waited for, and what runs may run."""

    def __init__(
        self, *, app: str, table: str | None, kind: str, project: str, arguments: Mapping[str, object] | None = None
    ) -> None:
        BaseTrigger.__init__(self)
        self.app, self.table, self.kind, self.project = app, table, kind, project
        self.arguments: Mapping[str, object] = arguments or {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        what = {"app": self.app, "table": self.table, "kind": self.kind}
        return (_TRIGGER, {**what, "arguments": dict(self.arguments), "project": self.project})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Send, wait, end the task."""
        order: _Order | None = None

        def look(waited: float) -> TriggerEvent | str:
            nonlocal order
            order = order or _Order(self, *self._asker())
            return order.look(patient=waited < self.wait_seconds_max)

        yield await watched(self.log, look)

    def _asker(self) -> tuple[str, str]:
        """Who wants it, and why: the DAG and its run; a task that was cleared, or that Airflow tries again, anew."""
        instance = self.task_instance
        if not instance:
            return "airflow", "no run"
        again = f"{_TRY}{instance.try_number}" if instance.try_number > 1 else ""
        return f"airflow {instance.dag_id}", f"{instance.run_id}{again}"


async def watched(log: Any, look: Callable[[float], _End | str]) -> _End:
    """Look once a second, in a thread, until the end is seen, and log how far it is; what may pass is waited for.

    `look` gets the seconds that have passed.
    """
    waited, blind, told, told_at = 0.0, False, "", -TELL_SECONDS
    while True:
        try:
            now = await asyncio.to_thread(look, waited)
        except DeltaworksError as error:
            if not blind:
                log.warning("%s Waiting.", error)
            blind = True
        else:
            blind = False
            if not isinstance(now, str):
                return now
            if now != told and waited - told_at >= TELL_SECONDS:
                log.info("%s", now)
                told, told_at = now, waited
        await asyncio.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


@lru_cache(maxsize=8)
def store_of(dsn: str) -> Store:
    """One connection for all orders that a triggerer waits for: those of a hundred tables at once. It mends itself."""
    return Store(dsn)


class _Order:
    """The order of one try of a task in the control store."""

    def __init__(self, trigger: CommandTrigger, by: str, reason: str) -> None:
        self._trigger, self._by, self._reason = trigger, by, reason
        self._store = store_of(Settings.load(Path(trigger.project)).control_dsn())
        self._id: int | None = None

    def look(self, *, patient: bool) -> TriggerEvent | str:
        """Send the order if that was not done, and say how far it is; an event is the end."""
        wanted = self._store.app(self._trigger.app).desired
        found = self._store.command(self._id) if self._id else self._sent()
        stopped = wanted == "stopped" and (found is None or found.state == "queued")
        if stopped and self._trigger.skips_stopped:
            self._trigger.log.info("%s is wanted stopped: nothing to do now.", self._trigger.app)
            self._withdraw(found, f"app {self._trigger.app} is wanted stopped")
            return TaskSkippedEvent()
        if found is None:
            self._id = self._send()
            return f"command {self._id} ({self._trigger.kind} {self._trigger.table}) is queued"
        self._id = found.id
        given_up = found.state == "queued" or (found.state == "running" and self._trigger.skips_stopped)
        if not patient and given_up:
            seconds = self._trigger.wait_seconds_max
            self._trigger.log.error("command %d is still %s after %.0f s", found.id, found.state, seconds)
            self._withdraw(found, f"it was not done after {seconds:.0f} s")
            return TaskFailedEvent()
        if stopped:
            return f"command {found.id} ({self._trigger.kind} {self._trigger.table}) waits: the app is wanted stopped"
        progress = f": {json.dumps(found.progress)}" if found.progress else ""
        return (
            self._end(found)
            or f"command {found.id} ({self._trigger.kind} {self._trigger.table}) is {found.state}{progress}"
        )

    def _end(self, found: Command) -> TriggerEvent | None:
        if found.state == "done":
            self._trigger.log.info("command %d is done: %s", found.id, json.dumps(found.result))
            return TaskSuccessEvent(xcoms={"return_value": found.result})
        if found.state == "failed":
            self._trigger.log.error("command %d failed: %s", found.id, found.error)
            return TaskFailedEvent()
        if found.state == "cancelled":
            self._trigger.log.info("command %d was cancelled", found.id)
            return TaskSkippedEvent()
        return None

    def _sent(self) -> Command | None:
        """The order of this try; or of a try before, if nobody has ended it: one that was cleared goes on waiting."""
        trigger = self._trigger
        run, mine = self._run(self._reason), (trigger.table, trigger.kind, self._by)
        known = [
            one
            for one in self._store.commands(trigger.app, limit=500)
            if (one.table_name, one.kind, one.requested_by) == mine and self._run(one.reason) == run
        ]
        return next((one for one in known if one.reason == self._reason or not one.finished), None)

    @staticmethod
    def _run(reason: str) -> str:
        return reason.partition(_TRY)[0]

    def _send(self) -> int:
        trigger = self._trigger
        return self._store.send(
            app=trigger.app, table=trigger.table, kind=trigger.kind, arguments=trigger.arguments,
            by=self._by, reason=self._reason,
        )  # fmt: skip

    def _withdraw(self, found: Command | None, why: str) -> None:
        if found is not None:
            with suppress(CommandError):  # it has just ended
                self._store.cancel(found.id, by=self._by, reason=why)
