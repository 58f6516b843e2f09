"""Death at every commit of a run, on both commit paths: restarted, the lake is as if nothing had happened."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltaworks.settings import Settings
from tests.chance import seeded
from tests.flows import Crash, Log, Owner, Record
from tests.shop_rows import random_changes, random_views

TABLES = {
    "web": ("silver.page_views", "silver.page_views__quarantine", "gold.page_views_per_minute"),
    "shop": ("silver.orders", "silver.customers", "gold.daily_orders"),
}
Lake = dict[str, list[dict[str, Any]]]


def batches(app: str) -> list[list[Record]]:
    """Two micro-batches of the app's rows."""
    chance = seeded()
    records = random_views(chance, 60) if app == "web" else random_changes(chance, 60)
    return [records[:30], records[30:]]


def run(owner: Owner, parts: list[list[Record]]) -> Lake:
    """All batches; after a crash a restart, once."""
    log = Log()
    for part in parts:
        log.send(part)
        rows = log.batch()
        try:
            owner.take(rows)
        except Crash:
            owner.crash_at = -1
            owner.start()
            owner.catch_up(log)
    return {table: owner.rows(table) for table in TABLES[owner.app]}


@pytest.mark.parametrize(("app", "path"), [("web", "auto"), ("shop", "auto"), ("web", "spark"), ("shop", "spark")])
def test_death_before_any_commit_changes_nothing(spark: SparkSession, shop: Settings, app: str, path: str) -> None:
    """For every commit of the run: die right before it, restart, and end with the same rows and a balanced ledger."""
    parts = batches(app)
    calm = Owner(spark, shop.changed(data=shop.data / "calm"), app, path=path)
    opened = calm.commits
    expected = run(calm, parts)
    assert calm.commits - opened >= 6
    assert all(expected.values())
    step = 1 if path == "auto" else 5  # a Spark commit takes a second: every fifth

    for crash_at in range(opened, calm.commits, step):
        owner = Owner(spark, shop.changed(data=shop.data / f"crash{crash_at}"), app, path=path)
        owner.crash_at = crash_at
        assert run(owner, parts) == expected, f"crash before commit {crash_at}"
        books = owner.ledger()
        assert {sheet.verdict for sheet in books.sheets()} == {"ok"}, f"crash before commit {crash_at}"


@pytest.mark.parametrize("app", ["web", "shop"])
def test_both_commit_paths_leave_the_same_rows(spark: SparkSession, shop: Settings, app: str) -> None:
    """Random rows through the Arrow path, the Spark path, and a change of path in between."""
    parts = batches(app)
    lakes = [
        run(Owner(spark, shop.changed(data=shop.data / path), app, path=path), parts) for path in ("auto", "spark")
    ]
    mixed = Owner(spark, shop.changed(data=shop.data / "mixed"), app)
    log = Log()
    for number, part in enumerate(parts):
        mixed.path = ("spark", "auto")[number % 2]
        mixed.start()
        log.send(part)
        mixed.take(log.batch())

    assert all(lakes[0].values())
    assert lakes[0] == lakes[1]
    assert lakes[0] == {table: mixed.rows(table) for table in TABLES[app]}
