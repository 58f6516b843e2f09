"""`health__<app>`: red in Airflow while an app is not well, green again by itself.

The triggerer looks at the app and tells Airflow what has changed, as an event of an asset; each event is a run, which
fails or succeeds by what it tells. So nothing runs while nothing changes, and Airflow's home counts the DAG as failed
for just as long as the app is not well.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetWatcher, BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from deltaworks.control import Store
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings
from deltaworks.supervise.assets import APART_SECONDS
from deltaworks.supervise.judge import NOT_WELL, Seen, State, Verdict, broken_rules, copies_of, suspended_tables
from deltaworks.supervise.launch import Launched
from deltaworks.supervise.watch import Eyes, judged

POLL_SECONDS = 2.0
STEADY_LOOKS = 3
"""So many looks in a row an app is well before it is told so."""
RED_SECONDS_MIN = 15.0
"""For so long at least what went wrong is to be seen, also where all was well a second later."""
UNDECIDED_SECONDS_MAX = 120.0
"""Whoever is about to start, or of whom nothing can be seen, for so long is not well."""
_ENDED: tuple[State, ...] = ("dead", "failed")
"""What a driver's end leaves: told already where the end was seen."""
log = logging.getLogger("deltaworks.health")


@dataclass(frozen=True, kw_only=True)
class Health:
    """Whether an app is well, its state, and why in words."""

    app: str
    well: bool
    state: str
    reason: str


class Changes:
    """Tells of the looks at an app those that are worth telling: it is well, or not well, for another reason."""

    def __init__(self, app: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing was told yet; `clock` gives seconds."""
        self._app, self._clock = app, clock
        self._told: Health | None = None
        self._trouble: object = None  # what the last one that was not well was about
        self._red_until = 0.0
        self._undecided_since: float | None = None
        self._gave_up: Launched | None = None  # the driver of which it was told that it hangs, or gave up
        self._well_looks = 0
        self._last: Seen | None = None

    def look(self, seen: Seen, verdict: Verdict) -> Health | None:
        """What is to be told now; None where nothing has changed, or it cannot be said yet."""
        died, self._last = self._died(seen), seen
        if died is not None:
            self._undecided_since = None
            reason = died if verdict.well else f"{died}; {verdict.reason}"
            return self._bad("died", reason, trouble=died)
        if is_undecided(seen, verdict):
            return self.unsure(verdict.state, verdict.reason)
        self._undecided_since = None
        if not verdict.well:
            if verdict.state in ("failed", "stuck"):
                self._gave_up = seen.driver
            return self._bad(verdict.state, verdict.reason, trouble=_what(seen, verdict))
        self._well_looks += 1
        is_told = self._told is not None and self._told.well
        if seen.heartbeat is not None and seen.heartbeat.progress.get("uncounted"):
            return None  # as after a start: what was wrong may be so still
        if is_told or self._well_looks < STEADY_LOOKS or self._clock() < self._red_until:
            return None
        return self._tell(well=True, state=verdict.state, reason=verdict.reason)

    def unsure(self, state: str, reason: str) -> Health | None:
        """Nobody can say how it is: for a while that is nothing to tell."""
        now = self._clock()
        self._well_looks = 0
        self._undecided_since = now if self._undecided_since is None else self._undecided_since
        if now - self._undecided_since < UNDECIDED_SECONDS_MAX:
            return None
        told = f"{reason}; it is so for more than {UNDECIDED_SECONDS_MAX:.0f} s"
        return self._bad(state, told, trouble=("undecided", state))

    def _bad(self, state: str, reason: str, *, trouble: object) -> Health | None:
        self._well_looks = 0
        self._red_until = self._clock() + RED_SECONDS_MIN
        is_red = self._told is not None and not self._told.well
        if is_red and (trouble == self._trouble or state in _ENDED):
            return None
        self._trouble = trouble
        return self._tell(well=False, state=state, reason=reason)

    def _tell(self, *, well: bool, state: str, reason: str) -> Health:
        self._told = Health(app=self._app, well=well, state=state, reason=reason)
        return self._told

    def _died(self, seen: Seen) -> str | None:
        """In words, if the driver of the last look is gone although nobody wished anything since."""
        last = self._last
        if last is None or last.driver is None or last.app.desired_at != seen.app.desired_at:
            return None
        before, now = last.driver, seen.driver
        if now is not None and (now.pid, now.process_started) == (before.pid, before.process_started):
            return None
        if last.app.desired == "stopped" or _ended_well(last, seen) or before == self._gave_up:
            return None
        next_one = f"pid {now.pid} is its successor" if now is not None else "it has no successor yet"
        return f"the driver with pid {before.pid} ended, and nobody wanted it to; {next_one}"


def is_undecided(seen: Seen, verdict: Verdict) -> bool:
    """Whether nothing can be said of it yet: a driver is starting, or is about to be started."""
    return verdict.state == "starting" or (verdict.state == "stopped" and seen.app.desired == "running")


def _ended_well(last: Seen, seen: Seen) -> bool:
    """Whether the driver of the last look ended in order, by its last words: before that look, or since."""
    epoch = last.lease.epoch if last.lease else None
    beats = (beat for beat in (last.heartbeat, seen.heartbeat) if beat is not None and epoch in (None, beat.epoch))
    return any(beat.state in ("draining", "stopped") for beat in beats)


def _what(seen: Seen, verdict: Verdict) -> object:
    """What is the matter, but for its numbers: while this stays the same, nothing new is told."""
    if verdict.broken and seen.heartbeat is not None:
        return verdict.state if verdict.state in NOT_WELL else "", verdict.late, *sorted(broken_rules(seen.heartbeat))
    if verdict.state != "suspended" or seen.heartbeat is None:
        return verdict.state
    copies = [copy["table"] for copy in copies_of(seen.heartbeat) if copy["error"]]
    return tuple(sorted(suspended_tables(seen.heartbeat))), tuple(copies)


class HealthTrigger(BaseEventTrigger):
    """Yields the app's Health when it has changed."""

    def __init__(self, *, app: str, project: str) -> None:
        BaseEventTrigger.__init__(self)
        self.app, self.project = app, project

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        return ("deltaworks.supervise.health.HealthTrigger", {"app": self.app, "project": self.project})

    def shared_stream_key(self) -> Hashable:
        """One stream per app: only shared ones are told when an event has been stored."""
        return ("deltaworks health", self.project, self.app)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Make the source of the stream."""
        return HealthStream(app=kwargs["app"], project=Path(kwargs["project"]))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Turn each health into an event."""
        async for health in shared_stream:
            yield TriggerEvent(health)

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Never called: the stream is shared."""
        raise NotImplementedError


class HealthStream(SharedStreamProducer):
    """Looks every few seconds, and gives out what has changed; the next only after Airflow has stored the last one."""

    def __init__(self, *, app: str, project: Path) -> None:
        self._app, self._project = app, project
        self._eyes: Eyes | None = None
        self._stored = asyncio.Event()
        self._lost = False

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Give each health; waits for ever."""
        changes, blind = Changes(self._app), False
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                if self._eyes is None:
                    self._eyes = await asyncio.to_thread(Eyes, self._app, self._project)
                seen, verdict = await asyncio.to_thread(self._eyes.look)
                blind = False
                found = changes.look(seen, verdict)
            except DeltaworksError as error:
                if not blind:
                    log.warning("%s: %s Watching on.", self._app, error)
                blind = True
                found = changes.unsure("unknown", str(error))
            if found is None:
                continue
            self._lost = True
            while self._lost:
                self._stored.clear()
                yield asdict(found), found.state
                await self._stored.wait()
            await asyncio.sleep(APART_SECONDS)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Airflow has stored this event, or has lost it: then it is given out again."""
        self._lost = not all(item.outcome.acked for item in batch)
        self._stored.set()

    async def aclose(self) -> None:
        """Close the connection to the control store."""
        if self._eyes:
            self._eyes.close()


class HealthOperator(BaseOperator):
    """Succeeds where the newest event says that the app is well, else fails with the reason; by hand: as it is now."""

    ui_color = "#f3e3e3"

    def __init__(self, *, app: str, project: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.app, self.project = app, str(project)

    def execute(self, context: Context) -> Mapping[str, Any]:
        """Tell."""
        found = newest(context["triggering_asset_events"]) or self._look()
        told = f"{self.app} is {found['state']}: {found['reason']}"
        if not found["well"]:
            raise AirflowFailException(told)
        self.log.info("%s", told)
        return found

    def _look(self) -> Mapping[str, Any]:
        settings = Settings.load(Path(self.project))
        with Store(settings.control_dsn()) as store:
            seen, verdict = judged(settings, store, self.app)
        if is_undecided(seen, verdict):
            raise AirflowSkipException(f"{self.app} is {verdict.state}: {verdict.reason}. Look again in a while")
        return asdict(Health(app=self.app, well=verdict.well, state=verdict.state, reason=verdict.reason))


def health(app: str, *, project: Path) -> Asset:
    """The asset whose events tell how an app is."""
    trigger = HealthTrigger(app=app, project=str(project))
    watcher = AssetWatcher(name=f"health of {app}", trigger=trigger)
    return Asset(name=f"health of {app}", uri=f"deltaworks://apps/{app}", group="apps", watchers=[watcher])


def newest(events: Mapping[Any, Iterable[Any]]) -> Mapping[str, Any] | None:
    """What the newest event of `triggering_asset_events` tells; None where a person started the run."""
    found = sorted((event for of in events.values() for event in of), key=lambda event: event.timestamp)
    payloads = [(event.extra or {}).get("payload") for event in found]
    return next((payload for payload in reversed(payloads) if payload), None)
