"""`replay__<table>`: a day of a table computed again, as a task that waits in the triggerer for the owner's answer."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.triggers.base import TaskFailedEvent, TriggerEvent

from deltaworks.control.commands import RECOMPUTE
from deltaworks.supervise.command import CommandOperator, CommandTrigger
from deltaworks.supervise.days import KEY_FORMAT

WAIT_SECONDS_MAX = 86_400.0  # other tables' days may be before it, or the app stopped for a while
_DAY = "{{ dag_run.partition_key or '' }}"
_PLAN_ONLY = "{{ params.plan_only }}"


class ReplayOperator(CommandOperator):
    """Has the owner of a table compute the day again that is the run's partition; its counts are the XCom."""

    template_fields = ("day", "plan_only")

    def __init__(self, *, app: str, table: str, project: Path, **kwargs: Any) -> None:
        self.day, self.plan_only = _DAY, _PLAN_ONLY
        trigger = ReplayTrigger(app=app, table=table, project=str(project), day=_DAY, plan_only=_PLAN_ONLY)
        super().__init__(trigger=trigger, **kwargs)


class ReplayTrigger(CommandTrigger):
    """The same for one day such as 2026-11-20; `day` and `plan_only` are templates until the triggerer begins.

    A restart of the app must not lose the days that wait: while it is wanted stopped, they wait.
    """

    wait_seconds_max = WAIT_SECONDS_MAX
    skips_stopped = False

    def __init__(self, *, app: str, table: str, project: str, day: str, plan_only: str) -> None:
        super().__init__(app=app, table=table, kind=RECOMPUTE, project=project)
        self.day, self.plan_only = day, plan_only

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        what = {"app": self.app, "table": self.table, "project": self.project}
        return ("deltaworks.supervise.replay.ReplayTrigger", {**what, "day": self.day, "plan_only": self.plan_only})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Order, wait, end the task."""
        try:
            self.arguments = {**day_of(self.day), "plan_only": {"True": True, "False": False}[self.plan_only]}
        except (ValueError, KeyError):
            self.log.error(
                'The run has no day: %r. Give one such as 2026-11-20 as "Partition Key", or use the form "Backfill";'
                " plan_only (%r) is True or False.",
                self.day,
                self.plan_only,
            )
            yield TaskFailedEvent()
            return
        async for event in super().run():
            yield event


def day_of(key: str) -> Mapping[str, object]:
    """From when until when a day lasts, as an order has it; raises ValueError where it is none."""
    since = datetime.strptime(key, KEY_FORMAT).replace(tzinfo=UTC)
    return {"from": since.isoformat(), "to": (since + timedelta(days=1)).isoformat()}
