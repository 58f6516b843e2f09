"""Gold tables as Airflow assets: a DAG scheduled on one runs when a partition is complete, not whenever a row came.

    DAG(..., schedule=gold("gold.daily_orders"))        and in its task        closed(triggering_asset_events)

An event is taken from the control store, and marked as announced there only after Airflow has stored it: a triggerer
that is killed in between announces again, it loses nothing. (Tried with Airflow's asset_state_store: it lost one.)
"""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
from airflow.utils.log.logging_mixin import LoggingMixin

from deltaworks.control import ClosedPartition, Store
from deltaworks.errors import DeltaworksError
from deltaworks.quality.planning import is_held
from deltaworks.settings import Settings

POLL_SECONDS = 2.0
# Airflow 3.3.2 leaves out of a run what came after the first event that the scheduler has not seen yet, and keeps it
# for the next run: so events of one table come far enough apart for the scheduler, which looks every second
APART_SECONDS = 5.0


def gold(table: str, *, project: Path | None = None) -> Asset:
    """The asset of a table. Use it wherever the asset is meant: one without the watcher would take the watcher away."""
    layer, _, name = table.partition(".")
    trigger = PartitionClosedTrigger(table=table, project=str(project or Settings.load().project))
    watcher = AssetWatcher(name=f"{table} closed", trigger=trigger)
    return Asset(name=table, uri=f"deltaworks://{layer}/{name}", group="lake", watchers=[watcher])


def closed(events: Mapping[Any, Iterable[Any]]) -> list[str]:
    """Give the partitions that `triggering_asset_events` announce, in order; several may come in one run."""
    payloads = [(event.extra or {}).get("payload") or {} for found in events.values() for event in found]
    return sorted({str(payload["partition"]) for payload in payloads if "partition" in payload})


class PartitionClosedTrigger(BaseEventTrigger):
    """Yields {"partition": "2026-11-20", "version": 17} for every partition of a table that is complete, once."""

    def __init__(self, *, table: str, project: str) -> None:
        BaseEventTrigger.__init__(self)
        self.table, self.project = table, project

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        return ("deltaworks.supervise.assets.PartitionClosedTrigger", {"table": self.table, "project": self.project})

    def shared_stream_key(self) -> Hashable:
        """One stream per table, whoever watches it. Only shared streams are told when an event has been stored."""
        return ("deltaworks closed partitions", self.project, self.table)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Make the source of the stream."""
        return ClosedPartitionStream(table=kwargs["table"], project=Path(kwargs["project"]))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Turn every partition into an event."""
        async for partition in shared_stream:
            yield TriggerEvent(partition)

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Never called: the stream is shared."""
        raise NotImplementedError


class ClosedPartitionStream(SharedStreamProducer, LoggingMixin):
    """Reads closed partitions that were not announced, one at a time; the next only after the last one is marked.

    Those of a table whose suite holds days back only once they passed it, or somebody released them.
    """

    def __init__(self, *, table: str, project: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # LoggingMixin's constructor has no types
        self._table, self._project = table, project
        self._store: Store | None = None
        self._announced = asyncio.Event()

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Give each partition, with itself as what `advance` needs; waits for ever."""
        blind = False
        while True:
            try:
                found = await asyncio.to_thread(self._next)
                blind = False
            except DeltaworksError as error:
                found = None
                if not blind:
                    self.log.warning("%s: %s Watching on.", self._table, error)
                blind = True
            if found is None:
                await asyncio.sleep(POLL_SECONDS)
                continue
            self._announced.clear()
            yield {"partition": found.partition, "version": found.version}, found.partition
            await self._announced.wait()
            await asyncio.sleep(APART_SECONDS)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Airflow has stored these events: mark them. What failed is given out again."""
        stored = [item.broker_payload for item in batch if item.outcome.acked]
        while stored:
            try:
                await asyncio.to_thread(self._mark, stored)
                break
            except DeltaworksError as error:
                self.log.warning("%s: %s Trying again.", self._table, error)
                await asyncio.sleep(POLL_SECONDS)
        self._announced.set()

    async def aclose(self) -> None:
        """Close the connection to the control store."""
        if self._store:
            self._store.close()

    def _next(self) -> ClosedPartition | None:
        self._store = self._store or Store(Settings.load(self._project).control_dsn())
        return next(iter(self._found(self._store)), None)

    def _found(self, store: Store) -> Sequence[ClosedPartition]:
        """Those to give, in order: of a table whose suite holds days back, those that are well."""
        return store.unannounced_partitions(self._table, well=is_held(self._project, self._table))

    def _mark(self, partitions: list[str]) -> None:
        assert self._store is not None
        for partition in partitions:
            self._mark_one(self._store, partition)

    def _mark_one(self, store: Store, partition: str) -> None:
        store.announce_partition(self._table, partition)
