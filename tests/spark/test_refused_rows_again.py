"""Refused rows that are judged again, where Spark takes part: the tables above, merges by Spark, the checker."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.replay import replay as replay_bronze
from tests.broken_rules import Shop, replay
from tests.chance import seeded
from tests.flows import Log, Owner
from tests.shop_rows import random_changes, random_views

RIGHT, WRONG = "[placed, paid, cancelled]", "[placed]"


def test_gold_is_as_if_the_rule_had_never_been_wrong(spark: SparkSession, tmp_path: Path) -> None:
    """Sums and sessions of events; the checker finds nothing, and all of bronze judged at once gives the same."""
    records = random_views(seeded(), 60)
    project = Shop(tmp_path / "project")
    calm, log = Owner(spark, project.settings(tmp_path / "calm"), "web"), Log()
    log.send(records)
    calm.take(log.batch())
    project.edit("silver/page_views.yml", "'^/'", "'^/c'")
    owner, log = Owner(spark, project.settings(tmp_path / "wrong"), "web"), Log()
    for part in (records[:20], records[20:40]):
        log.send(part)
        owner.take(log.batch())
    project.edit("silver/page_views.yml", "'^/c'", "'^/'")
    owner.start()
    log.send(records[40:])
    owner.take(log.batch())  # from now on the rows of late are in memory
    before = owner.rows("gold.page_views_per_minute")

    replay(owner, "silver.page_views")
    owner.flow.settle()

    assert before != calm.rows("gold.page_views_per_minute")
    for table in ("gold.page_views_per_minute", "gold.user_sessions"):
        shown = [
            [{k: v for k, v in row.items() if k != "complete"} for row in one.rows(table)] for one in (owner, calm)
        ]
        assert shown[0] == shown[1]
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_changes_are_placed_alike_on_both_commit_paths(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """A view follows what a replay changes; the checker finds nothing, a replay of bronze gives the same tables."""
    only = ("silver.orders", "gold.daily_orders")
    records = random_changes(seeded(), 50)
    project = Shop(tmp_path / "project")
    calm, log = Owner(spark, project.settings(tmp_path / "calm"), "shop", only=only), Log()
    log.send(records)
    calm.take(log.batch())
    project.edit("silver/orders.yml", RIGHT, WRONG)
    owner, log = Owner(spark, project.settings(tmp_path / "wrong"), "shop", only=only if path == "spark" else ()), Log()
    log.send(records)
    owner.take(log.batch())
    project.edit("silver/orders.yml", WRONG, RIGHT)
    owner.path = path
    owner.start()

    done = replay(owner, "silver.orders")
    owner.flow.settle()

    assert done["moved"] > 0 == done["still_refused"]
    for table in only:
        assert owner.rows(table) == calm.rows(table)
    assert owner.verdicts() == {"ok"}
    if path == "auto":
        with Picture(owner.catalog, owner.settings.lake) as picture:
            assert check(picture, at_rest=True) == []
            assert replay_bronze(picture, spark, owner.settings.changed(data=tmp_path / "anew")) == []
