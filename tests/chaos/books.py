"""The judges after the last fault: the ledger in the commits, and the shop's own comparison, which does not read it."""

import json
import subprocess
from typing import Any

from deltaworks.engine.balance import Balance, balance
from deltaworks.errors import StackError
from deltaworks.settings import ROOT, Settings

__all__ = ["Balance", "balance", "compare"]


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
