"""Patches of refused rows where Spark takes part: batches that Spark parses, backfills, the tables above."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine import backfill, rewind
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.replay import replay as replay_bronze
from deltaworks.engine.prove import prove
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


def patched(spark: SparkSession, folder: Path, *, path: str) -> Owner:
    """A lake of three broken records: one is patched and in the table, one is patched, one is not."""
    owner = Owner(spark, Shop(folder / "project").settings(folder / "data"), "web", path=path, only=(VIEWS, PER_MINUTE))
    log = Log()
    for number in range(3):
        log.send([view(number), broken(b"{" * (number + 1))])
        owner.take(log.batch())
    rows = sorted(owner.rows(f"{VIEWS}__quarantine"), key=lambda row: int(row["offset"]))
    patch(owner, VIEWS, rows[0], mended(10), number=1)
    replay(owner, VIEWS, number=2)
    patch(owner, VIEWS, rows[1], mended(11), number=3)
    owner.flow.settle()
    return owner


def pages(owner: Owner) -> list[str]:
    """The mended pages of the aggregate, each by its minute."""
    return [f"{row['minute']:%M}" for row in owner.rows(PER_MINUTE) if row["page"] == "/mended"]


@pytest.mark.parametrize("path", ["arrow", "spark"])
def test_both_paths_parse_with_patches(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """A table that goes back to its beginning takes everything again, each row as somebody says that it should be."""
    owner = patched(spark, tmp_path, path=path)
    folder = owner.settings.data / "staged" / "one"
    folder.mkdir(parents=True)
    then = pages(owner)

    past = rewind.plan(VIEWS, catalog=owner.catalog, lake=owner.settings.lake, to=0)
    rewind.stage(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
    carry_out(owner, command("publish", VIEWS, number=4, folder="one"))
    owner.turn()

    assert (then, pages(owner)) == (["10"], ["10", "11"])
    assert [row["value"] for row in owner.rows(f"{VIEWS}__quarantine")] == [b"{{{"]
    assert owner.verdicts() == {"ok"}


def test_backfill_takes_a_row_with_its_patch(spark: SparkSession, tmp_path: Path) -> None:
    """Before it and after it what streamed is what comes of bronze."""
    owner = patched(spark, tmp_path, path="auto")
    lake, settings = owner.settings.lake, owner.settings
    found = []
    for name in ("before", "after"):
        folder = settings.data / "staged" / name
        folder.mkdir(parents=True)
        with Picture(owner.catalog, lake) as picture:
            found += check(picture, at_rest=False)
        proof = prove(VIEWS, catalog=owner.catalog, lake=lake, spark=spark,
                      anew=settings.changed(data=tmp_path / name), keys_min=1)  # fmt: skip
        found += [] if proof.verdict == "proved" else [proof]
        if name == "before":
            backfill.stage(VIEWS, since=START, until=START + timedelta(hours=1), catalog=owner.catalog, lake=lake,
                           spark=spark, anew=settings.changed(data=folder))  # fmt: skip
            carry_out(owner, command("publish", VIEWS, number=4, folder=name))
            owner.turn()
            owner.flow.settle()

    assert found == []
    assert pages(owner) == ["10", "11"]
    assert owner.verdicts() == {"ok"}


def test_checker_takes_bronze_anew_with_the_patches_that_were_used(spark: SparkSession, tmp_path: Path) -> None:
    """One that was not yet is none of the table's."""
    settings = Shop(tmp_path / "project").settings(tmp_path / "data")
    owner, log = Owner(spark, settings, "web"), Log()
    log.send([view(1), broken(b"{"), broken(b"[")])
    owner.take(log.batch())
    first, second = sorted(owner.rows(f"{VIEWS}__quarantine"), key=lambda row: int(row["offset"]))
    patch(owner, VIEWS, first, mended(10), number=1)
    replay(owner, VIEWS, number=2)
    patch(owner, VIEWS, second, mended(11), number=3)
    owner.flow.settle()

    with Picture(owner.catalog, settings.lake) as picture:
        found = [
            *check(picture, at_rest=True),
            *replay_bronze(picture, spark, settings.changed(data=tmp_path / "anew")),
        ]

    assert found == []
    assert pages(owner) == ["10"]
