"""`only=`: the same rows of events by Arrow and by Spark, and each other one counted, also by a later filter."""

import json
import os
import shlex
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltaworks import catalog
from deltaworks.engine import backfill
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.entry import Counts
from deltaworks.quality.judging import holds
from deltaworks.quality.predicate import read
from deltaworks.settings import ROOT, Settings
from shop.part import part_of_shop
from tests import predicate_corpus, rule_corpus
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import command
from tests.chance import seeded
from tests.flows import START, Log, Owner, Record, carry_out

LARGE = "silver.large_purchases"
_COUNT = int(os.environ.get("DELTAWORKS_TEST_PREDICATES", "60"))
_PER_QUERY = 60


def purchase(number: int, amount: str, *, after: timedelta = timedelta(0)) -> Record:
    """A purchase on the wire."""
    at = START + after
    document = {"purchase_id": f"p{number}", "bought_at": at.isoformat(), "user_id": 1, "amount": amount}
    return Record(topic="purchases", value=json.dumps(document).encode(), partition=number % 2, at=at)


@pytest.fixture
def shop(tmp_path: Path) -> Settings:
    """Give the part of the shop that large purchases are made of, and a table of the other app; the lake is empty."""
    return Settings.load(part_of_shop(tmp_path / "project", LARGE, "silver.orders"), environment={}, data=tmp_path)


def test_every_condition_says_of_each_row_what_spark_says(spark: SparkSession) -> None:
    """True, false or neither, for random conditions over rows with nulls, NaN, line ends and the ends of all types."""
    chance = seeded()
    rows = rule_corpus.rows(chance, 160).combine_chunks()
    wanted = predicate_corpus.predicates(chance, rows, _COUNT)
    frame, (batch,) = spark.createDataFrame(rows).cache(), rows.to_batches()

    other, told = {}, set[bool | None]()
    for begin in range(0, len(wanted), _PER_QUERY):
        some = wanted[begin : begin + _PER_QUERY]
        asked = frame.select("id", *(F.expr(text).alias(f"c{at}") for at, text in enumerate(some)))
        theirs = asked.toArrow().sort_by("id")
        for at, text in enumerate(some):
            mine, found = holds(read(text, rule_corpus.COLUMNS), batch).to_pylist(), theirs[f"c{at}"].to_pylist()
            told |= {*mine}
            if mine != found:
                other[text] = [row for row, (one, two) in enumerate(zip(mine, found, strict=True)) if one != two]
    frame.unpersist()

    assert told == {True, False, None}
    assert not other


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_both_paths_filter_after_refusing_and_before_copies(spark: SparkSession, shop: Settings, path: str) -> None:
    """Rows, counts, marks and books are the same; a restart between, and a batch that brings nothing."""
    owner, log = Owner(spark, shop, "web", path=path), Log()
    odd = Record(topic="purchases", value=b"{")
    parts = [
        [purchase(1, "150"), purchase(1, "150"), purchase(2, "100.00"), purchase(3, "-1"), purchase(4, "1e6"), odd],
        [purchase(5, "20", after=timedelta(hours=2)), purchase(6, "99.99")],
        [purchase(1, "150"), purchase(7, "100.01"), purchase(8, "5", after=timedelta(hours=5))],
    ]

    for part in parts:
        log.send(part)
        owner.take(log.batch())
        owner.start()

    owner.flow.settle()
    table = owner.flow.inputs[LARGE].table
    rows = {(row["purchase_id"], row["amount"]) for row in owner.rows(LARGE)}
    assert rows == {("p1", Decimal("150.00")), ("p4", Decimal("1000000.00")), ("p7", Decimal("100.01"))}
    assert table.entry.totals == Counts(read=11, taken=3, refused=2, duplicate=2, filtered=4, warned=1)
    assert table.entry.position.mark == round(START.timestamp()) * 1_000_000  # what was filtered moves none
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, shop.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_a_backfill_by_another_filter_takes_what_was_left_out(spark: SparkSession, shop: Settings) -> None:
    """Of the range alone; the books meet, and no number of them is below nothing."""
    owner, log, apart = Owner(spark, shop, "web"), Log(), timedelta(days=4)  # more than a clock may be ahead
    for number in range(3):
        small, copy = (
            purchase(3 * number + 1, "60", after=number * apart),
            purchase(3 * number + 2, "70", after=number * apart),
        )
        log.send([purchase(3 * number, "150", after=number * apart), small, copy, copy])
        owner.take(log.batch())
    owner.flow.settle()
    before = owner.flow.inputs[LARGE].table.entry.totals
    declaration = shop.project / "tables" / "silver" / "large_purchases" / "table.py"
    declaration.write_text(declaration.read_text().replace("amount > 100", "amount > 50"))
    owner.catalog = catalog.load(shop.project)
    owner.start()
    owner.flow.settle()

    (shop.data / "staged" / "one").mkdir(parents=True)
    backfill.stage(
        LARGE, ranges=[(START + apart, START + apart + timedelta(hours=1))], catalog=owner.catalog, lake=shop.lake,
        spark=spark, anew=shop.changed(data=shop.data / "staged" / "one"),
    )  # fmt: skip
    carry_out(owner, command("publish", LARGE, folder="one"))
    owner.flow.settle()

    totals = owner.flow.inputs[LARGE].table.entry.totals
    assert before == Counts(read=12, taken=3, filtered=9)
    assert [row["purchase_id"] for row in owner.rows(LARGE)] == ["p0", "p3", "p4", "p5", "p6"]
    assert (totals.read, totals.taken, totals.duplicate + totals.filtered) == (12, 5, 7)
    assert min(totals.duplicate, totals.filtered) >= 0
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, shop.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_commands_of_the_how_to_do_what_it_says(shop: Settings) -> None:
    """The filter stands in the declaration as it is shown there, and each command runs."""
    text = (ROOT / "docs" / "how-to" / "add-a-table.md").read_text()
    section = text.partition("\n## A filter\n")[2].partition("\n## ")[0]
    _, shown, _, commands, _ = section.split("```")
    owner, log = ArrowOwner(shop, "web"), Log()
    log.send([purchase(1, "150"), purchase(2, "100.01"), purchase(3, "99")])
    owner.take(log.batch())
    owner.flow.settle()

    said = [_said(shop, line) for line in commands.strip().splitlines()]

    declared = (ROOT / "tables" / "silver" / "large_purchases" / "table.py").read_text()
    assert shown.removeprefix("python").strip() == 'only = "amount > 100"'
    assert 'only="amount > 100",' in declared
    cases, books, answer = said
    there = (ROOT / "tables" / "silver" / "large_purchases" / "cases").glob("*.yml")
    assert f"{len(list(there))} cases, 0 failed" in cases
    assert "filtered 1: every row" in books
    assert "100.01" in answer


def _said(settings: Settings, line: str) -> str:
    program, *words = shlex.split(line)
    assert program == "bin/deltaworks"
    given = {"DELTAWORKS_PROJECT": str(settings.project), "DELTAWORKS_DATA": str(settings.data)}
    ran = subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", *words],
        cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
