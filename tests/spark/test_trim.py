"""Logs that were shortened, as Spark meets them: who had read before, who is new, who commits."""

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.log import first_version, opens_from, whole_from
from deltaworks.engine.prove import prove
from deltaworks.engine.rebuild import stage
from deltaworks.engine.writers import writer
from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command
from tests.chance import seeded
from tests.flows import START, Log, Owner, carry_out
from tests.shop_rows import random_views, view
from tests.spark.test_views import VIEWS as OF_TINY
from tests.spark.test_views import note, with_views

VIEWS, TABLES = "silver.page_views", ("silver.page_views", "gold.page_views_per_minute", "gold.user_sessions")


def test_spark_reads_and_commits_to_what_is_left(spark: SparkSession, tmp_path: Path) -> None:
    """Tables above that are new take what is there, on both commit paths; what is computed again comes out the same."""
    project, chance, log = Shop(tmp_path / "project"), seeded(), Log()
    small = ArrowOwner(project.settings(tmp_path / "cut"), "web")
    for number in range(50):
        log.send(random_views(chance, 3, first=10 * number))
        small.take(log.batch())
        small.flow.tend()
    views = small.flow.inputs[VIEWS].table
    before = read(spark, views.path)
    shutil.copytree(tmp_path / "cut", tmp_path / "whole")
    small.flow.commits_kept = small.flow.commits_opened = 10
    small.flow.settle()
    first = first_version(views.path) or 0
    assert first > 10

    assert read(spark, views.path) == before
    assert 0 < read(spark, views.path, first) < before
    with pytest.raises(AnalysisException):
        read(spark, views.path, first - 1)
    log.send(random_views(chance, 30, first=1_000))
    more, rows = log.batch(), []
    for name, path in (("cut", "auto"), ("cut", "spark"), ("whole", "auto")):
        settings = Settings.load(project.folder, environment={}, data=tmp_path / name)
        if path == "spark":
            shutil.rmtree(settings.lake)
            shutil.copytree(tmp_path / "copy", settings.lake)
        elif name == "cut":
            shutil.copytree(settings.lake, tmp_path / "copy")
        owner = Owner(spark, settings, "web", path=path, epoch=small.epoch)
        owner.turn()
        owner.take(more)
        rows.append([owner.rows(table) for table in TABLES])
        assert all(rows[-1])
        folders = [settings.lake / Path(*table.split(".")) for table in TABLES]
        assert [read(spark, folder) for folder in folders] == [len(there) for there in rows[-1]]
        assert owner.verdicts() == {"ok"}
        with Picture(owner.catalog, settings.lake) as picture:
            assert check(picture, at_rest=True) == []
        if path == "spark":
            anew(spark, owner, tmp_path / "anew")
            assert [owner.rows(table) for table in TABLES] == rows[-1]
    assert rows[0] == rows[1] == rows[2]


def test_a_vacuum_by_spark_leaves_the_past_alone(spark: SparkSession, tmp_path: Path) -> None:
    """It deletes what no version has, and not what the versions of long ago are opened from."""
    owner, log, chance = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path), "web"), Log(), seeded()
    for number in range(50):
        log.send(random_views(chance, 3, first=10 * number))
        owner.take(log.batch())
        owner.flow.tend()
    path = owner.flow.inputs[VIEWS].table.path
    rows = {version: Held(VIEWS, path, version).rows() for version in (1, 15, 30)}
    owner.flow.commits_kept = 10
    owner.flow.settle()
    assert opens_from(path) == 0 < whole_from(path)
    stray = path / "part-stray.parquet"
    stray.write_bytes(b"")
    os.utime(stray, (10**9, 10**9))

    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # default: a task for each of 10,000 folders
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        spark.sql(f"vacuum delta.`{path}` retain 0 hours")
    finally:
        for name in settings:
            spark.conf.unset(name)

    assert not stray.exists()
    assert {version: Held(VIEWS, path, version).rows() for version in rows} == rows
    assert len(set(rows.values())) == len(rows)


def test_commits_without_rows_keep_no_log(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night of copies: no table above has anything to take, and each lets the log go nevertheless."""
    monkeypatch.setattr(writer, "COMMITS_PASSED", 20)
    tiny = Settings.load(with_views(tmp_path / "tiny").folder, environment={}, data=tmp_path / "of_tiny")
    notes = [note(number, number, 3) for number in range(3)]
    for owner, events, readers in (
        (Owner(spark, Shop(tmp_path / "shop").settings(tmp_path), "web"), [view(1), view(2)], set(TABLES[1:])),
        (Owner(spark, tiny, "tiny"), notes, {OF_TINY[0]}),
    ):
        log = Log()
        log.send(events)
        owner.take(log.batch())
        table = owner.flow.inputs[VIEWS if owner.app == "web" else "silver.notes"].table
        assert owner.flow.readers(table.name).keys() >= readers
        owner.flow.commits_kept = owner.flow.commits_opened = 30
        for _ in range(60):
            log.send(events)
            owner.take(log.batch())
            owner.flow.tend()
        rows = {name: owner.rows(name) for name in readers}
        owner.flow.settle()
        owner.flow.settle()  # the first has told how far each is

        assert all(rows.values())
        assert (whole_from(table.path) or 0) > 10
        log.send([view(3)] if owner.app == "web" else [note(3, 1, 4)])
        owner.take(log.batch())
        assert all(owner.rows(name) != rows[name] for name in readers)
        assert owner.verdicts() == {"ok"}


def test_events_that_are_expired_when_they_come_are_counted_above(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many commits have nothing else: no table above passes them by without a count."""
    monkeypatch.setattr(writer, "COMMITS_PASSED", 2)
    owner, log = Owner(spark, Shop(tmp_path / "shop").settings(tmp_path), "web"), Log()
    days = owner.catalog[VIEWS].table.keep_days
    assert days is not None
    log.send([view(1), view(2, at=START - timedelta(days=days + 9))])
    owner.take(log.batch())
    for table in reversed(TABLES):
        carry_out(owner, command("expire", table))
    for number in range(3, 8):
        log.send([view(number, at=START - timedelta(days=days + 9))])
        owner.take(log.batch())
        owner.flow.settle()
    log.send([view(40)])
    owner.take(log.batch())
    owner.flow.settle()

    expired = {name: owner.flow.inputs[name].table.entry.totals.expired for name in TABLES}
    assert expired[VIEWS] == 6
    assert [expired[name] for name in TABLES[1:]] == [5, 5]  # the first was there, and they have taken it
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def anew(spark: SparkSession, owner: Owner, scratch: Path) -> None:
    """Compute tables again beside the lake: to compare, and to be published."""
    lake, folder = owner.settings.lake, owner.settings.data / "staged" / "one"
    for one in (scratch, folder):
        one.mkdir(parents=True)
    proof = prove(
        TABLES[1], catalog=owner.catalog, lake=lake, spark=spark, anew=owner.settings.changed(data=scratch), keys_min=1
    )
    assert proof.verdict == "proved"
    stage(VIEWS, catalog=owner.catalog, lake=lake, spark=spark, anew=owner.settings.changed(data=folder))
    assert carry_out(owner, command("publish", VIEWS, folder="one")) == {"tables": len(TABLES)}
    owner.turn()
    assert owner.verdicts() == {"ok"}


def read(spark: SparkSession, path: Path, version: int | None = None) -> int:
    """How many rows Spark finds."""
    found = spark.read.format("delta")
    return (found if version is None else found.option("versionAsOf", version)).load(str(path)).count()
