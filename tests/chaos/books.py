"""The judges after the last fault: the ledger in the commits, and the shop's own comparison, which does not read it."""

import json
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from deltaworks import catalog
from deltaworks.engine.broker import Broker
from deltaworks.engine.ledger import Ledger
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.settings import ROOT, Settings

_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Balance:
    """How the ledger stood at the end of the wait; no findings: every offset is accounted for in every table."""

    seconds: float
    findings: tuple[str, ...]


def balance(settings: Settings, *, seconds_max: float) -> Balance:
    """Wait until bronze has all that the broker has, and every table all that bronze has."""
    broker = Broker(bootstrap=settings.kafka, group="deltaworks.chaos")
    began = time.monotonic()
    try:
        while True:
            findings = _findings(settings, broker)
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


def _findings(settings: Settings, broker: Broker) -> tuple[str, ...]:
    try:
        books = Ledger(catalog.load(settings.project), settings.lake)
        lines = books.lines(broker.reachable(broker.edges(settings.topics), books.offsets()))
    except DeltaworksError as error:
        return (str(error),)
    findings = [f"{one.topic}/{one.partition}: {one.verdict}" for one in lines if one.verdict != "ok"]
    findings += [f"{one.table}: {one.verdict}" for one in books.sheets() if one.verdict != "ok"]
    return tuple(findings) if lines else ("nothing was read",)
