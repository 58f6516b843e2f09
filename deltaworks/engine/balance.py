"""Does every table contain all that the broker had at a moment, and is every offset accounted for? No Spark here."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from deltaworks import catalog
from deltaworks.engine.broker import Broker, Edge
from deltaworks.engine.ledger import Ledger, Line
from deltaworks.engine.through import Lineage
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings

_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Balance:
    """How the ledger stood at the end of the wait; no findings: every offset is accounted for in every table."""

    seconds: float
    findings: tuple[str, ...]


def balance(
    settings: Settings,
    *,
    seconds_max: float,
    apps: Collection[str] | None = None,
    lost: Mapping[str, int] | None = None,
) -> Balance:
    """Wait until every table contains all that the broker has now, and no number is red.

    What comes afterwards is left out: a source beats every few seconds, so somebody is always behind by a heartbeat.
    `apps`: only their tables, default all. `lost`: offsets per topic that must be shown as gone, and no others.
    """
    broker = Broker(bootstrap=settings.kafka, group="deltaworks.balance")
    began, wanted = time.monotonic(), dict[str, Mapping[str, Edge]]()
    try:
        while True:
            try:
                wanted = wanted or dict(broker.edges(_topics(settings, apps)))
                findings = _findings(settings, broker, wanted, apps, lost or {})
            except DeltaworksError as error:
                findings = (str(error),)
            seconds = time.monotonic() - began
            if not findings or seconds > seconds_max:
                return Balance(seconds=seconds, findings=findings)
            time.sleep(_POLL_SECONDS)
    finally:
        broker.close()


def _topics(settings: Settings, apps: Collection[str] | None) -> list[str]:
    found = catalog.load(settings.project)
    ours = [one for one in found.tables.values() if apps is None or one.table.app in apps]
    return list(dict.fromkeys(topic for one in ours for topic in one.topics))


def _findings(
    settings: Settings,
    broker: Broker,
    wanted: Mapping[str, Mapping[str, Edge]],
    apps: Collection[str] | None,
    lost: Mapping[str, int],
) -> tuple[str, ...]:
    found, lineage = catalog.load(settings.project), Lineage(settings.lake)
    ours = [name for name, one in found.tables.items() if apps is None or one.table.app in apps]
    books = Ledger(found, settings.lake)
    reachable = broker.reachable(broker.edges(wanted), books.offsets())
    lines = [one for one in books.lines(reachable) if one.topic in wanted]
    gone = {topic: sum(one.lost for one in lines if one.topic == topic) for topic in wanted}
    findings = [
        f"{topic}: {gone[topic]} offsets were gone, {lost.get(topic, 0)} were taken away"
        for topic in wanted
        if gone[topic] != lost.get(topic, 0)
    ]
    findings += [f"{one.topic}/{one.partition}: {one.verdict}" for one in lines if not _well(one)]
    findings += [f"{one.table}: {one.verdict}" for one in books.sheets() if one.table in ours and _red(one.verdict)]
    for table in ours:
        through = lineage.processed_through(table)
        for topic in dict.fromkeys(found.topics_below(table)):
            for partition, edge in wanted[topic].items():
                # a topic that is quiet since a transaction ends with its marker, which is no record
                end = min(edge.high, reachable[topic][partition].high)
                if end > edge.low and not through.contains(topic, int(partition), end - 1):
                    below = through.offsets.get(topic, {}).get(partition, 0)
                    findings.append(f"{table}: contains {topic}/{partition} below {below} of {end}")
    return tuple(findings) if lines else ("nothing was read",)


def _well(line: Line) -> bool:
    return bool(line.lost) or not _red(line.verdict)  # how many are lost is compared as a number


def _red(verdict: str) -> bool:
    return not (verdict == "ok" or verdict.startswith("behind"))
