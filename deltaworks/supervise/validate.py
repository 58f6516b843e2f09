"""`validate__<table>`: a suite judged by Great Expectations, each night and after a day of the table closes.

It begins in a worker, as only there Airflow says which days a run is for; the judging is a process of its own, which
the triggerer waits for: one at a time, as each has a Spark.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from airflow.sdk import Asset, AssetWatcher, BaseOperator, Context
from airflow.triggers.base import BaseTrigger, TaskFailedEvent, TaskSuccessEvent, TriggerEvent
from airflow.triggers.shared_stream import SharedStreamProducer

from deltaworks.control import ClosedPartition, Store
from deltaworks.errors import ControlError, DeltaworksError
from deltaworks.settings import Settings
from deltaworks.supervise.assets import ClosedPartitionStream, PartitionClosedTrigger, closed
from deltaworks.supervise.judging import JUDGE_SECONDS_MAX, Said, Wanted
from deltaworks.supervise.launcher import BeingJudged, launcher_of
from deltaworks.supervise.stream import QUIET_SECONDS

POLL_SECONDS = 0.5
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def to_judge(table: str, *, project: Path) -> Asset:
    """The closed days of a table that are held back until they were judged: what its validation is scheduled on."""
    layer, _, name = table.partition(".")
    watcher = AssetWatcher(name=f"{table} to judge", trigger=DayToJudgeTrigger(table=table, project=str(project)))
    return Asset(
        name=f"{table} to judge", uri=f"deltaworks://{layer}/{name}/to-judge", group="quality", watchers=[watcher]
    )


class DayToJudgeTrigger(PartitionClosedTrigger):
    """Yields every partition of a table that is complete, once, before anybody else is told of it."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        return ("deltaworks.supervise.validate.DayToJudgeTrigger", {"table": self.table, "project": self.project})

    def shared_stream_key(self) -> Hashable:
        """One stream per table, beside that of the days that all are told of."""
        return ("deltaworks days to judge", self.project, self.table)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Make the source of the stream."""
        return DaysToJudge(table=kwargs["table"], project=Path(kwargs["project"]))


class DaysToJudge(ClosedPartitionStream):
    """Reads closed partitions that no validation was asked about."""

    def _found(self, store: Store) -> Sequence[ClosedPartition]:
        return store.unasked_partitions(self._table)

    def _mark_one(self, store: Store, partition: str) -> None:
        store.ask_partition(self._table, partition)


class ValidateOperator(BaseOperator):
    """Has a table's suite judged for the days that the run is for; what came of it is the XCom."""

    ui_color = "#f4e3ec"

    def __init__(self, *, app: str, table: str, project: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.app, self.table, self.project = app, table, str(project)

    def execute(self, context: Context) -> NoReturn:
        """Find out what it is for, then wait in the triggerer."""
        days = closed(context["triggering_asset_events"])
        by_schedule = not days and str(context["dag_run"].run_type) == "scheduled"
        self.log.info("%s for %s", self.table, ", ".join(days) or ("the night" if by_schedule else "whoever asked"))
        self.defer(
            trigger=ValidateTrigger(
                app=self.app,
                table=self.table,
                project=self.project,
                days=days,
                by_schedule=by_schedule,
                deferred_at=time.time(),
            ),
            method_name="execute",  # never: the trigger ends the task
        )


class ValidateTrigger(BaseTrigger):
    """Has `deltaworks quality run` run, where the lake is, once it is its turn, and ends the task by its verdict.

    A trigger that Airflow moves or starts again has it judged again, which only adds to `ops.quality`.
    """

    def __init__(
        self, *, app: str, table: str, project: str, days: Sequence[str], by_schedule: bool, deferred_at: float
    ) -> None:
        BaseTrigger.__init__(self)
        self.app, self.table, self.project, self.days = app, table, project, list(days)
        self.by_schedule, self.deferred_at = by_schedule, deferred_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        names = ("app", "table", "project", "days", "by_schedule", "deferred_at")
        return ("deltaworks.supervise.validate.ValidateTrigger", {name: getattr(self, name) for name in names})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the turn, have it judged, end the task."""
        async with _slot():
            event = await self._judged()
        # one that ends before the scheduler has seen the deferring process end fails the task (apache/airflow 66374)
        await asyncio.sleep(max(0.0, min(QUIET_SECONDS, self.deferred_at + QUIET_SECONDS - time.time())))
        yield event

    async def _judged(self) -> TriggerEvent:
        settings = Settings.load(Path(self.project))
        wanted = Wanted(table=self.table, days=tuple(self.days), night=self.by_schedule)
        try:
            with Store(settings.control_dsn()) as store:
                judging = await asyncio.to_thread(launcher_of(settings, store).judge, self.app, wanted)
                said = await _end_of(judging)
        except TimeoutError:
            self.log.error("%s: not judged within %.0f s, so nobody knows.", self.table, JUDGE_SECONDS_MAX)
            return TaskFailedEvent()
        except (DeltaworksError, OSError) as error:
            self.log.error("%s is not judged: %s", self.table, error)
            return TaskFailedEvent()
        try:
            outcome = json.loads(said.outcome)
        except ValueError:
            self.log.error("%s is not judged: %s", self.table, said.errors)
            return TaskFailedEvent()
        return self._event(outcome)

    def _event(self, outcome: Mapping[str, Any]) -> TriggerEvent:
        """End the task by the verdict: what nobody could say is no success."""
        for one in outcome["expectations"]:
            if one["verdict"] != "passed":
                place = one["day"] or one["where"]
                self.log.warning("%s %s, %s: %s", one["severity"], one["expectation"], place, one["verdict"])
        told = f"{self.table}, version {outcome['version']}: {outcome['verdict']}. Pages: {outcome['pages']}"
        xcoms: dict[str, Any] = {"return_value": dict(outcome)}
        if outcome["verdict"] == "passed":
            self.log.info("%s", told)
            return TaskSuccessEvent(xcoms=xcoms)
        self.log.error("%s", told)
        return TaskFailedEvent(xcoms=xcoms)


async def _end_of(judging: BeingJudged) -> Said:
    """Wait for what it says; raises TimeoutError. A control store that is away is waited for."""
    try:
        async with asyncio.timeout(JUDGE_SECONDS_MAX):
            while True:
                with suppress(ControlError):
                    said = await asyncio.to_thread(judging.poll)
                    if said is not None:
                        return said
                await asyncio.sleep(POLL_SECONDS)
    finally:
        judging.end()


def _slot() -> asyncio.Semaphore:
    """The one place of this triggerer for what has a Spark of its own."""
    return _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(1))
