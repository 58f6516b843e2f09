"""After a fault: wait until everything runs and every table contains what came meanwhile, then let the checker look."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import psycopg

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.errors import ControlError
from deltaworks.local import connect, stack
from deltaworks.local.chaos.fault import POLL_SECONDS, Lost, Say, Scene
from deltaworks.local.chaos.source import wal_position
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.engine.checker import Finding

FRESH_SECONDS_MAX = 300.0
"""A fault that takes longer to recover from is a finding; a busy machine is slower, and a snapshot has to be read."""
_GONE = "offsets were gone before they were read"
_BEAT_SECONDS_MAX = 5.0


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How long it took from the end of the fault until gold had all that the sources had then; what was found."""

    seconds: float
    findings: tuple[str, ...]


def scene_of(settings: Settings, store: Store, *, chance: Random, app: str, topic: str, say: Say) -> Scene:
    """Make a scene whose read positions are the ledger's."""
    from deltaworks import catalog
    from deltaworks.engine.ledger import Ledger

    def read_up_to(name: str) -> Mapping[int, int]:
        offsets = Ledger(catalog.load(settings.project), settings.lake).offsets()
        return {int(partition): offset for partition, offset in offsets.get(name, {}).items()}

    return Scene(
        settings=settings, store=store, chance=chance, app=app, topic=topic, read_up_to=read_up_to, say=say
    )  # fmt: skip


def with_taken(lost: Mapping[str, int], more: Lost) -> Lost:
    """What was taken away before and what a fault has taken now, together."""
    return {**lost, **{topic: lost.get(topic, 0) + count if count else 0 for topic, count in more.items()}}


def recover(scene: Scene, *, apps: Collection[str], lost: Mapping[str, int]) -> Recovery:
    """Wait until all parts and drivers run, Connect has read the source, and every table contains all of it."""
    from deltaworks import catalog
    from deltaworks.engine.balance import balance
    from deltaworks.engine.checker import Picture, check

    began = time.monotonic()

    def left() -> float:
        return FRESH_SECONDS_MAX - (time.monotonic() - began)

    def unwell() -> str:
        return not_well(scene.settings, scene.store, apps)

    waited = [_until(unwell, left), _until(lambda: _not_captured(scene), left)]
    balanced = balance(scene.settings, seconds_max=max(left(), 0), apps=apps, lost=lost)
    waited.append(_until(unwell, left))  # a part that nobody needed meanwhile may be away still
    seconds = time.monotonic() - began
    findings = [*filter(None, waited), *balanced.findings]
    found = catalog.load(scene.settings.project)
    with Picture(found, scene.settings.lake) as picture:
        findings += [str(one) for one in check(picture, at_rest=False) if not _expected(one, lost)]
    return Recovery(seconds=seconds, findings=tuple(findings))


def _expected(finding: "Finding", lost: Mapping[str, int]) -> bool:
    """Whether it tells what was taken away: how many these are, the balance has compared."""
    topic = finding.place.rpartition(" ")[2].rpartition("/")[0]
    return finding.invariant == "I1" and bool(lost.get(topic)) and _GONE in finding.finding


def not_well(settings: Settings, store: Store, apps: Collection[str]) -> str:
    """What does not run although it should; empty if everything does."""
    for part in stack.state(settings).parts.values():
        if part.of in stack.SERVICES and part.state != ("done" if part.step else "ready"):
            return f"{part.name} is {part.state}"
    for app in apps:
        try:
            lease, beat = store.lease(app), store.heartbeat(app)
        except ControlError as error:
            return str(error)
        if lease is None or beat is None or not lease.live or lease.released_at is not None:
            return f"app {app} has no driver"
        if not processes.lives(lease.pid, lease.process_started):
            return f"the driver of {app} is dead"
        if beat.epoch != lease.epoch or beat.state != "running" or beat.age_seconds > _BEAT_SECONDS_MAX:
            return f"the driver of {app} is {beat.state}, last heard of {beat.age_seconds:.0f} s ago"
    return ""


def _not_captured(scene: Scene) -> str:
    """Whether Connect has yet to read what the source has now; the source beats, so it will go on."""
    if "connect" not in stack.state(scene.settings).parts or connect.connector_of(scene.settings) is None:
        return ""
    with suppress(psycopg.Error):
        wanted = wal_position(scene)
        return _until(lambda: _before(scene, wanted), lambda: 20.0)
    return "the source cannot be read"


def _before(scene: Scene, wanted: int) -> str:
    read = connect.settled_lsn(scene.settings)
    if read is None:
        return "Connect is reading a snapshot of the source, or has not begun"
    return "" if read >= wanted else f"Connect has read up to {read}, the source is at {wanted}"


def _until(reason: Callable[[], str], left: Callable[[], float]) -> str:
    """Wait until there is no reason any more; gives the last one if time is up."""
    deadline = time.monotonic() + left()
    while (told := reason()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return told
