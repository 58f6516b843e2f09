"""Triggers run as the triggerer runs them, without Airflow around them."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

_Trigger = TypeVar("_Trigger", bound=BaseTrigger)


def of_run(trigger: _Trigger, dag: str, *, number: int = 1) -> _Trigger:
    """The trigger, of so many a try of a task of the run `run-1`."""
    instance: Any = SimpleNamespace(dag_id=dag, run_id="run-1", task_id="t", try_number=number)
    trigger._task_instance = instance
    return trigger


def ended(trigger: BaseTrigger, *, seconds_max: float = 15) -> TriggerEvent | None:
    """Run the trigger until it ends its task; None if it does not in time."""

    async def run() -> TriggerEvent | None:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(anext(trigger.run()), seconds_max)
        return None

    return asyncio.run(run())
