"""Patches of refused rows where Spark takes part: batches that Spark parses, backfills, the tables above."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine import backfill, rewind
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.replay import replay as replay_bronze
from deltaworks.engine.prove import prove
from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command, replay
from tests.flows import START, Log, Owner, carry_out
from tests.patching import patch
from tests.shop_rows import broken, view

VIEWS = "silver.page_views"
PER_MINUTE = "gold.page_views_per_minute"


def mended(number: int) -> bytes:
    """What a broken record should have said."""
    value = view(number, page="/mended", at=START + timedelta(minutes=number)).value
    assert value is not None
    return value


def settings_of(folder: Path) -> Settings:
    """The shop without what costs time here."""
    project = Shop(folder / "project")
    shutil.rmtree(project.folder / "tables/gold/user_sessions")
    (project.folder / "expectations/gold/user_sessions.yml").unlink()
    return project.settings(folder / "data")


def feed(owner: Owner) -> None:
    """Three broken records: one is patched and in the table, one is patched, one is not."""
    log = Log()
    for number in range(3):
        log.send([view(number), broken(b"{" * (number + 1))])
        owner.take(log.batch())
    rows = sorted(owner.rows(f"{VIEWS}__quarantine"), key=lambda row: int(row["offset"]))
    patch(owner, VIEWS, rows[0], mended(10), number=1)
    replay(owner, VIEWS, number=2)
    patch(owner, VIEWS, rows[1], mended(11), number=3)
    owner.flow.settle()


def pages(owner: Owner) -> list[str]:
    """The mended pages of the aggregate, each by its minute."""
    return [f"{row['minute']:%M}" for row in owner.rows(PER_MINUTE) if row["page"] == "/mended"]


@pytest.mark.parametrize("path", ["arrow", "spark"])
def test_both_paths_parse_with_patches(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """A table that goes back to its beginning takes everything again, each row as somebody says that it should be."""
    settings = settings_of(tmp_path)
    before = ArrowOwner(settings, "web")
    feed(before)
    folder = settings.data / "staged" / "one"
    folder.mkdir(parents=True)
    past = rewind.plan(VIEWS, catalog=before.catalog, lake=settings.lake, to=0)
    rewind.stage(past, catalog=before.catalog, lake=settings.lake, folder=folder)

    owner = Owner(spark, settings, "web", path=path, epoch=before.epoch, only=(VIEWS, PER_MINUTE))
    carry_out(owner, command("publish", VIEWS, number=4, folder="one"))
    owner.turn()

    assert sorted(row["event_id"] for row in owner.rows(VIEWS)) == ["e0", "e1", "e10", "e11", "e2"]
    assert pages(owner) == ["10", "11"]
    assert [row["value"] for row in owner.rows(f"{VIEWS}__quarantine")] == [b"{{{"]
    assert owner.verdicts() == {"ok"}


def test_backfill_takes_a_row_with_its_patch(spark: SparkSession, tmp_path: Path) -> None:
    """Before it and after it what streamed is what comes of bronze."""
    settings = settings_of(tmp_path)
    owner, lake = Owner(spark, settings, "web"), settings.lake
    feed(owner)
    found: list[object] = []
    for name in ("before", "after"):
        folder = settings.data / "staged" / name
        folder.mkdir(parents=True)
        with Picture(owner.catalog, lake) as picture:
            anew = settings.changed(data=tmp_path / f"{name} anew")
            found += [*check(picture, at_rest=True), *replay_bronze(picture, spark, anew)]
        proof = prove(VIEWS, catalog=owner.catalog, lake=lake, spark=spark,
                      anew=settings.changed(data=tmp_path / name), keys_min=1)  # fmt: skip
        found += [] if proof.verdict == "proved" else [proof]
        if name == "before":
            backfill.stage(VIEWS, ranges=[(START, START + timedelta(hours=1))], catalog=owner.catalog, lake=lake,
                           spark=spark, anew=settings.changed(data=folder))  # fmt: skip
            carry_out(owner, command("publish", VIEWS, number=4, folder=name))
            owner.turn()
            owner.flow.settle()

    assert found == []
    assert pages(owner) == ["10", "11"]
    assert owner.verdicts() == {"ok"}
