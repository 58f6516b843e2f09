"""`prove`: a table that streamed is what a batch gives, and one changed row is found and named."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import deltalake
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.engine.prove import Proof, prove
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from tests.broken_rules import Shop, replay
from tests.chance import seeded
from tests.flows import START, Log, Owner
from tests.shop_rows import random_changes, random_views, view


def proved(owner: Owner, table: str, folder: Path, *, keys_min: int = 1) -> Proof:
    """Prove a table of this owner's lake."""
    settings: Settings = owner.settings
    anew = settings.changed(data=folder)
    folder.mkdir()
    return prove(
        table, catalog=owner.catalog, lake=settings.lake, spark=owner.spark, anew=anew, keys_min=keys_min
    )  # fmt: skip


@pytest.fixture(scope="module")
def web(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    """Events with copies, late and malformed ones in three batches; a wrong rule refused some, which was mended."""
    folder = tmp_path_factory.mktemp("web")
    project = Shop(folder / "project")
    chance = seeded()
    project.edit("silver/page_views.yml", "'^/'", "'^/c'")
    owner, log = Owner(spark, project.settings(folder / "data"), "web"), Log()
    log.send(random_views(chance, 40))
    owner.take(log.batch())
    log.send([view(900, at=START + timedelta(hours=2), page="/")])  # refused, and would have raised the mark
    owner.take(log.batch())
    log.send([view(901, at=START + timedelta(minutes=5), page="/cart"), *random_views(chance, 10, first=100)])
    owner.take(log.batch())
    project.edit("silver/page_views.yml", "'^/c'", "'^/'")
    owner.start()
    replay(owner, "silver.page_views")
    log.send(random_views(chance, 20, first=200))
    owner.take(log.batch())
    owner.flow.settle()
    yield owner


@pytest.mark.parametrize("table", ["silver.page_views", "gold.page_views_per_minute", "gold.user_sessions"])
def test_what_streamed_is_what_a_batch_gives(web: Owner, tmp_path: Path, table: str) -> None:
    """Also after rows were judged again: how late a row is was decided when it came."""
    proof = proved(web, table, tmp_path / "anew")

    assert (proof.verdict, proof.first) == ("proved", ())
    assert proof.keys == len(web.rows(table))
    assert proof.changed == ("silver.page_views",)  # the others are what they were


def test_one_row_changed_by_hand_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """With what it is, what it should be, and rows of the input that it was made of; few equal keys are no proof."""
    settings = Shop(tmp_path / "project").settings(tmp_path / "data")
    only = ("silver.page_views", "gold.page_views_per_minute")
    owner, log = Owner(spark, settings, "web", only=only), Log()
    log.send([view(number, page=f"/{number % 7}") for number in range(30)])
    owner.take(log.batch())
    owner.flow.settle()
    table = owner.flow.inputs["gold.page_views_per_minute"].table
    few = proved(owner, "gold.page_views_per_minute", tmp_path / "few", keys_min=8)
    table.delta.update(
        updates={"views": "views + 1"}, predicate="page = '/3'", commit_properties=table.properties(table.entry)
    )

    proof = proved(owner, "gold.page_views_per_minute", tmp_path / "anew")

    assert few.verdict == "too little to prove"
    assert (proof.verdict, proof.missing, proof.more, proof.other) == ("differs", 0, 0, 1)
    (named,) = proof.first
    assert named.key["page"] == "/3"
    assert named.streamed is not None
    assert named.recomputed is not None
    assert named.streamed["views"] == named.recomputed["views"] + 1
    assert {row["page"] for row in named.behind["silver.page_views"]} == {"/3"}


def test_row_that_is_there_twice_is_no_proof(spark: SparkSession, tmp_path: Path) -> None:
    """A copy is one too many, however equal it is."""
    settings = Shop(tmp_path / "project").settings(tmp_path / "data")
    owner, log = Owner(spark, settings, "web", only=("silver.page_views",)), Log()
    log.send([view(number) for number in range(5)])
    owner.take(log.batch())
    table = owner.flow.inputs["silver.page_views"].table
    copy = table.read(where=ds.field("event_id") == "e3")
    deltalake.write_deltalake(table.delta, copy, mode="append", commit_properties=table.properties(table.entry))

    proof = proved(owner, "silver.page_views", tmp_path / "anew")

    assert (proof.verdict, proof.missing, proof.more, proof.other) == ("differs", 0, 1, 0)


@pytest.mark.parametrize("table", ["silver.orders", "silver.customers", "gold.daily_orders"])
def test_changes_of_a_database_are_proved_while_bronze_is_ahead(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    """What the tables have not taken yet is left out of both sides."""
    chance = seeded()
    project = Shop(tmp_path / "project")
    only = ("silver.orders", "silver.customers", "gold.daily_orders")
    owner, log = Owner(spark, project.settings(tmp_path / "data"), "shop", only=only), Log()
    log.send(random_changes(chance, 40))
    owner.take(log.batch())
    writers, owner.flow.writers = owner.flow.writers, []
    log.send(random_changes(chance, 10))
    owner.flow.micro_batch(spark.createDataFrame(log.batch()))
    owner.flow.writers = writers

    proof = proved(owner, table, tmp_path / "anew")

    assert proof.verdict == "proved"
    assert proof.keys >= len(owner.rows(table)) > 0


def test_bronze_is_not_made_of_anything(tmp_path: Path) -> None:
    """It says where to look instead."""
    project = Shop(tmp_path / "project")
    settings = project.settings(tmp_path / "data")

    with pytest.raises(LakeError, match="computed from nothing"):
        prove("bronze.web_events", catalog=catalog.load(project.folder), lake=settings.lake, spark=None, anew=settings)  # type: ignore[arg-type]  # not asked for
