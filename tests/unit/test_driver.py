"""The driver's own loop: Spark calls nobody while nothing arrives."""

import time
from pathlib import Path

import pytest

from deltaworks.engine import driver as driving
from deltaworks.engine.broker import Edge
from deltaworks.engine.closing import Closing
from deltaworks.engine.driver import Driver
from deltaworks.errors import ControlError
from deltaworks.settings import ROOT, Settings
from tests.flows import Log, take_arrow
from tests.scratch_postgres import ScratchPostgres
from tests.shop_rows import change, order
from tests.unit.launching import scratch_project


class Quiet:
    """A query that brings no batch; after so many looks at it, it has ended."""

    def __init__(self, *, looks: int) -> None:
        """Run."""
        self.looks = looks

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """As Spark's."""
        self.looks -= 1
        return self.looks >= 0

    def exception(self) -> None:
        """Say that it ended well."""


def test_quiet_app_goes_on_settles_obeys_announces_and_stops(
    postgres: ScratchPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in the first turn of the loop: what is behind and what is only remembered, an order, a closed day, a stop."""
    monkeypatch.setattr(driving, "SETTLE_SECONDS", 0.0)
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as settings:
        driver = Driver(app="changes", settings=settings.changed(project=ROOT / "tests" / "changes"))
        with driver.store as store:
            store.declare_apps(["changes"])
            driver.ownership.take()
            flow, log = driver._open(), Log()
            flow.begin({"shop.changes": {"0": Edge(0, 10**9)}})
            for number in (1, 2):
                log.send([change("c", order(number), lsn=number)])  # none of this project's tables has orders
                take_arrow(flow, log.batch(), above=False)
            about = {"app": "changes", "arguments": {}, "by": "test", "reason": "test"}
            compact = store.send(table="bronze.changes", kind="compact", **about)  # type: ignore[arg-type]  # as named
            store.desire("changes", "stopped", by="test")
            closing, nobody, query = Closing(flow, store), None, Quiet(looks=20)
            closing._untold["gold.days", "2026-11-20"] = 1

            driver._loop(nobody, query, closing)  # type: ignore[arg-type]  # no batch is made

            silver = flow.inputs["silver.plain"].table
            silver.reopen()
            assert silver.entry.position.batches == {"bronze.changes": 2}
            result = store.command(compact).result
            assert result is not None
            assert result["files_after"] == 1
            assert [one.partition for one in store.closed_partitions("gold.days")] == ["2026-11-20"]
            assert driver.heart.state == "draining"
            driver.ownership.give_back()


def test_control_store_that_is_away_is_told_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop asks four times a second: a warning each time would fill the disk. Its return is told too."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "deltaworks").write_text("sesame")
    settings = Settings.load(ROOT / "tests" / "changes", environment={}, data=tmp_path)
    driver, now, away = Driver(app="changes", settings=settings), 0.0, True
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def question() -> str:
        if away:
            raise ControlError("control store", "is away", "Wait")
        return "answer"

    with caplog.at_level("INFO", logger="deltaworks.driver"):
        for _ in range(4 * 70):
            now += 0.25
            assert driver._ask(question) is None
        away = False
        answers = [driver._ask(question) for _ in range(2)]

    assert answers == ["answer", "answer"]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3 + ["INFO"]
    assert "back after 70 s" in caplog.records[-1].message
