"""The judges after the last fault: the ledger in the commits, and the shop's own comparison, which does not read it."""

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltaworks import catalog
from deltaworks.engine.broker import Broker, Edge
from deltaworks.engine.ledger import Ledger
from deltaworks.engine.through import Lineage
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.settings import ROOT, Settings

_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Balance:
    """How the ledger stood at the end of the wait; no findings: every offset is accounted for in every table."""

    seconds: float
    findings: tuple[str, ...]


def balance(settings: Settings, *, seconds_max: float) -> Balance:
    """Wait until every table contains all that the broker has now, and no number is red.

    What comes afterwards is left out: a source beats every few seconds, so somebody is always behind by a heartbeat.
    """
    broker = Broker(bootstrap=settings.kafka, group="deltaworks.chaos")
    began = time.monotonic()
    try:
        wanted = broker.edges(settings.topics)
        while True:
            findings = _findings(settings, broker, wanted)
            seconds = time.monotonic() - began
            if not findings or seconds > seconds_max:
                return Balance(seconds=seconds, findings=findings)
            time.sleep(_POLL_SECONDS)
    finally:
        broker.close()


def compare(settings: Settings, *, wait_seconds: float) -> list[dict[str, Any]]:
    """What the shop's check says, one row per comparison; it reads Kafka, Postgres and the lake itself."""
    done = subprocess.run(
        [str(settings.spark_python), "-m", "shop.check", "--wait", f"{wait_seconds:g}", "--json"],
        cwd=ROOT,
        env=settings.inherited(),
        capture_output=True,
        text=True,
        timeout=wait_seconds + 300,
        check=False,
    )
    if done.returncode not in {0, 1}:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise StackError("the check", f"exit code {done.returncode}, said last: {said[-1][:500]}", "Run it by hand")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    if not rows:
        raise StackError("the check", "compared nothing", "Run it by hand")
    return rows


def _findings(settings: Settings, broker: Broker, wanted: Mapping[str, Mapping[str, Edge]]) -> tuple[str, ...]:
    found, lineage = catalog.load(settings.project), Lineage(settings.lake)
    try:
        books = Ledger(found, settings.lake)
        lines = books.lines(broker.reachable(broker.edges(settings.topics), books.offsets()))
        findings = [f"{one.topic}/{one.partition}: {one.verdict}" for one in lines if not _well(one.verdict)]
        findings += [f"{one.table}: {one.verdict}" for one in books.sheets() if not _well(one.verdict)]
        for table in found.tables:
            through = lineage.processed_through(table)
            findings += [
                f"{table}: contains {topic}/{partition} below {through.offsets.get(topic, {}).get(partition, 0)}"
                f" of {edge.high}"
                for topic in dict.fromkeys(found.topics_below(table))
                for partition, edge in wanted[topic].items()
                if edge.high and not through.contains(topic, int(partition), edge.high - 1)
            ]
    except DeltaworksError as error:
        return (str(error),)
    return tuple(findings) if lines else ("nothing was read",)


def _well(verdict: str) -> bool:
    return verdict == "ok" or verdict.startswith("behind")
