"""`keep_days`: what is long past goes day by day, the ledger counts it, and what is left is as right as before."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine import backfill, rebuild
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.replay import replay
from deltaworks.engine.points import listening
from deltaworks.engine.prove import prove
from deltaworks.engine.rewind import plan
from deltaworks.engine.rewind import stage as rewind
from deltaworks.errors import CommandError
from tests.broken_rules import Shop, command
from tests.chance import seeded
from tests.flows import START, Crash, Log, Owner, Record, carry_out
from tests.shop_rows import view

DAY = timedelta(days=1)
SILVER, MINUTES, VISITS, PAGES, DATES = (
    "silver.page_views", "gold.page_views_per_minute", "gold.user_sessions", "gold.views_of_page", "gold.views_of_day",
)  # fmt: skip
KEPT = {SILVER: 6, MINUTES: 4, VISITS: 3, DATES: 4}
FEW = {SILVER: 3, MINUTES: 2, VISITS: 1, DATES: 2}
"""By Spark each commit takes a second."""
OVER_PAGES = '''"""Views of each page that are there."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="web",
    reads="silver.page_views",
    kept_as=view(keys=("page",)),
    columns=(
        Column("page", "string", null=False, doc="Path of the page."),
        Column("views", "bigint", null=False, doc="How many."),
    ),
    owner="tests",
)
'''
OVER_PAGES_TRANSFORM = '''"""Views to pages."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(page_views: DataFrame) -> DataFrame:
    """Count."""
    return page_views.groupBy("page").agg(F.count("*").alias("views"))


def keys_from(page_views: DataFrame) -> DataFrame:
    """Its page."""
    return page_views.select("page")
'''
OVER_DATES = '''"""Views of each day."""

from deltaworks.words import Column, Table, add, aggregate

TABLE = Table(
    app="web",
    reads="silver.page_views",
    kept_as=aggregate(keys=("day",), combine={"views": add}),
    columns=(
        Column("day", "date", null=False, doc="The day."),
        Column("views", "bigint", null=False, doc="How many."),
    ),
    event_time="day",
    owner="tests",
    keep_days=DAYS,
)
'''
OVER_DATES_TRANSFORM = '''"""Views to days."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(page_views: DataFrame) -> DataFrame:
    """Count."""
    return page_views.groupBy(F.to_date("event_time").alias("day")).agg(F.count("*").alias("views"))
'''
SUITE = """expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: COLUMN}
    severity: critical
"""


@dataclass(frozen=True)
class View:
    """A view that is sent, and when it arrives."""

    number: int
    at: datetime
    arrives: datetime
    page: str
    user: int

    def record(self) -> Record:
        """As Kafka has it."""
        record = view(self.number, at=self.at, page=self.page, user=self.user)
        record.at = self.arrives
        return record


def project(folder: Path, *, late: str = "correct", after: int = 10, kept: Mapping[str, int] = KEPT) -> Shop:
    """The shop, which keeps page views for a few days, with a view over them."""
    shop = Shop(folder)
    for name in (SILVER, MINUTES, VISITS):
        days = kept[name]
        path = shop.folder / "tables" / name.replace(".", "/", 1) / "table.py"
        before = "keep_days=760" if name == SILVER else "keep_days=730"
        text = path.read_text()
        assert before in text
        text = text.replace(before, f"keep_days={days}").replace("after=minutes(10)", f"after=minutes({after})")
        path.write_text(text.replace("correct", late))
    for name, key, texts in (
        (PAGES, "page", (OVER_PAGES, OVER_PAGES_TRANSFORM)),
        (DATES, "day", (OVER_DATES, OVER_DATES_TRANSFORM)),
    ):
        over = shop.folder / "tables" / name.replace(".", "/", 1)
        over.mkdir()
        for file, text in zip(("table.py", "transform.py"), texts, strict=True):
            (over / file).write_text(text.replace("keep_days=DAYS", f"keep_days={kept[DATES]}"))
        suite = shop.folder / "expectations" / name.replace(".", "/", 1)
        suite.with_suffix(".yml").write_text(SUITE.replace("COLUMN", key))
    return shop


def days(chance: Random, count: int, *, each: int = 12) -> list[list[View]]:
    """Views of some days, a batch each; some of them come days later, some of these when their day has gone."""
    found = []
    for day in range(count):
        begin = START + day * DAY
        views = []
        for number in range(each):
            # no visit goes on over midnight: one that begins before the bound goes with all that it has
            arrives = begin + timedelta(minutes=5 + 4 * number)
            late = chance.random() < 0.4
            at = arrives - timedelta(hours=chance.randrange(1, 24 * 9)) if late else arrives
            views.append(View(1000 * day + number, at, arrives, chance.choice(["/", "/cart"]), chance.randrange(3)))
        found.append(views)
    return found


def bound(owner: Owner, table: str) -> datetime:
    """From when on a table's rows are kept."""
    kept = owner.flow.inputs[table].table.entry.position.kept_from
    assert kept is not None
    return datetime.fromtimestamp(kept / 1_000_000, UTC)


def check_rows(owner: Owner, sent: list[View]) -> None:
    """Silver has what is not too old; above is what all that was sent gives, within its own bounds."""
    there = [one for one in sent if one.at >= bound(owner, SILVER)]
    assert len(there) < len(sent)
    assert sorted(row["event_id"] for row in owner.rows(SILVER)) == sorted(f"e{one.number}" for one in there)
    minutes = Counter(
        (one.page, one.at.replace(second=0, microsecond=0, tzinfo=None))
        for one in sent
        if one.at >= bound(owner, MINUTES)
    )
    assert {(row["page"], row["minute"]): row["views"] for row in owner.rows(MINUTES)} == minutes
    dates = Counter(one.at.date() for one in sent if one.at >= bound(owner, DATES))
    assert {row["day"]: row["views"] for row in owner.rows(DATES)} == dates
    visits = owner.rows(VISITS)
    assert all(row["session_start"] >= bound(owner, VISITS).replace(tzinfo=None) for row in visits)
    assert sum(row["views"] for row in visits) == sum(one.at >= bound(owner, VISITS) for one in sent)
    assert {row["page"]: row["views"] for row in owner.rows(PAGES)} == Counter(one.page for one in there)


def expire(owner: Owner) -> int:
    """Have all tables delete what is old, what is computed first; how many events went."""
    gone = {table: carry_out(owner, command("expire", table))["expired"] for table in (MINUTES, VISITS, DATES, SILVER)}
    owner.turn()
    return int(gone[SILVER])


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_what_is_long_past_goes_and_the_rest_stays_right(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Through deaths in the midst of it; prove, rebuild, backfill and a replay of all agree."""
    chance = seeded()
    kept, count = (KEPT, 11) if path == "auto" else (FEW, 5)
    owner = Owner(spark, project(tmp_path / "project", kept=kept).settings(tmp_path / "data"), "web", path=path)
    log, sent = Log(), list[View]()
    points = {f"{table}.expire.{when}-commit" for table in (SILVER, MINUTES) for when in ("before", "after")}

    def die(point: str) -> None:
        if point in points:
            points.remove(point)
            raise Crash(point)

    for number, views in enumerate(days(chance, count)):
        sent += views
        log.send(one.record() for one in views)
        owner.take(log.batch())
        with listening(die if number >= count - 2 else lambda _: None):
            while True:
                try:
                    expire(owner)
                    break
                except Crash:
                    owner.start()
                    owner.turn()

    assert not points
    assert owner.flow.inputs[SILVER].table.entry.totals.expired == len(sent) - len(owner.rows(SILVER)) > 0
    check_rows(owner, sent)
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []
        (tmp_path / "anew").mkdir()
        assert replay(picture, spark, owner.settings.changed(data=tmp_path / "anew")) == []
    for number, table in enumerate((SILVER, MINUTES, VISITS, PAGES, DATES) if path == "auto" else (VISITS,)):
        anew = tmp_path / f"proof{number}"
        anew.mkdir()
        found = prove(
            table, catalog=owner.catalog, lake=owner.settings.lake, spark=spark, anew=owner.settings.changed(data=anew),
            keys_min=1,
        )  # fmt: skip
        assert found.verdict == "proved", found


@pytest.mark.parametrize("how", ["rebuild", "backfill", "replay", "above"])
def test_what_has_gone_does_not_come_back(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Bronze has it still: who takes it from there leaves it out, also rows that a wrong rule had refused."""
    chance = seeded()
    shop = project(tmp_path / "project")
    settings = shop.settings(tmp_path / "data")
    shop.edit("silver/page_views.yml", "'^/'", "'^/c'")
    owner, log, sent = Owner(spark, settings, "web"), Log(), list[View]()
    for views in days(chance, 10):
        sent += views
        log.send(one.record() for one in views)
        owner.take(log.batch())
    expire(owner)
    owner.flow.settle()
    shop.edit("silver/page_views.yml", "'^/c'", "'^/'")
    owner.start()
    for number, table in enumerate({"above": (MINUTES, VISITS, DATES)}.get(how, (SILVER,))):
        if how in ("replay", "above") and not number:
            carry_out(owner, command("replay_refused_rows", SILVER))
            owner.turn()
            owner.flow.settle()
        folder = settings.data / "staged" / str(number)
        folder.mkdir(parents=True)
        anew = settings.changed(data=folder)
        if how in ("rebuild", "above"):
            rebuild.stage(table, catalog=owner.catalog, lake=settings.lake, spark=spark, anew=anew)
        elif how == "backfill":
            backfill.stage(
                table, ranges=[(START - 20 * DAY, START + 20 * DAY)], catalog=owner.catalog, lake=settings.lake,
                spark=spark, anew=anew,
            )  # fmt: skip
        if how != "replay":
            carry_out(owner, command("publish", table, folder=str(number)))
        owner.turn()

    check_rows(owner, sent)
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, settings.lake) as picture:
        assert check(picture, at_rest=True) == []


@pytest.mark.parametrize("late", ["side_output", "drop"])
def test_late_rows_are_counted_when_their_days_have_gone(spark: SparkSession, tmp_path: Path, late: str) -> None:
    """Those that were set aside may be used then: they are in no row any more."""
    chance = seeded()
    shop = project(tmp_path / "project", late=late, after=60)
    owner, log = Owner(spark, shop.settings(tmp_path / "data"), "web"), Log()
    for views in days(chance, 9):
        log.send(one.record() for one in views)
        owner.take(log.batch())
    gone = expire(owner)
    if late == "side_output":
        before = owner.rows(MINUTES)
        used = carry_out(owner, command("apply_late_rows", MINUTES))["used"]
        owner.turn()
        after = owner.rows(MINUTES)
        assert used > sum(row["views"] for row in after) - sum(row["views"] for row in before) >= 0

    assert gone > 0
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_a_table_that_comes_later_takes_what_is_left(spark: SparkSession, tmp_path: Path) -> None:
    """It counts what had gone before."""
    chance = seeded()
    shop = project(tmp_path / "project")
    owner, log = Owner(spark, shop.settings(tmp_path / "data"), "web", only=(SILVER, MINUTES)), Log()
    for views in days(chance, 9):
        log.send(one.record() for one in views)
        owner.take(log.batch())
    for table in (MINUTES, SILVER):
        carry_out(owner, command("expire", table))
    owner.turn()
    owner.flow.settle()  # what a reader has not taken stays
    carry_out(owner, command("vacuum", SILVER, hours=0))

    later = Owner(spark, owner.settings, "web", epoch=owner.epoch)
    later.turn()

    counts = later.flow.inputs[VISITS].table.entry.totals
    assert counts.expired == later.flow.inputs[SILVER].table.entry.totals.expired > 0
    assert counts.taken == len(later.rows(SILVER))
    assert later.verdicts() == {"ok"}
    with Picture(later.catalog, later.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_a_table_without_keep_days_is_not_touched(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever orders it is told."""
    owner = Owner(spark, project(tmp_path / "project").settings(tmp_path / "data"), "web", only=(SILVER,))

    with pytest.raises(CommandError, match="keeps its rows for ever"):
        carry_out(owner, command("expire", PAGES))
    assert carry_out(owner, command("expire", SILVER)) == {"expired": 0}


@pytest.mark.parametrize("how", ["rebuild", "rewind"])
def test_an_order_from_before_does_not_bring_old_rows_back(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """What was staged, or was there once, is published without what has gone since."""
    chance = seeded()
    settings = project(tmp_path / "project").settings(tmp_path / "data")
    owner, log, sent = Owner(spark, settings, "web"), Log(), list[View]()
    for views in days(chance, 9, each=5):
        sent += views
        log.send(one.record() for one in views)
        owner.take(log.batch())
    owner.flow.settle()
    folder, before = settings.data / "staged" / "one", owner.flow.inputs[MINUTES].table.version
    folder.mkdir(parents=True)
    anew = settings.changed(data=folder)
    if how == "rebuild":
        rebuild.stage(SILVER, catalog=owner.catalog, lake=settings.lake, spark=spark, anew=anew)
    assert expire(owner) > 0
    if how == "rewind":
        past = plan(MINUTES, catalog=owner.catalog, lake=settings.lake, to=before)
        rewind(past, catalog=owner.catalog, lake=settings.lake, folder=folder)

    carry_out(owner, command("publish", SILVER if how == "rebuild" else MINUTES, folder="one"))
    owner.turn()

    check_rows(owner, sent)
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_rows_that_somebody_has_to_decide_about_hold_their_day(spark: SparkSession, tmp_path: Path) -> None:
    """A table above could not compute them."""
    shop = project(tmp_path / "project")
    transform = shop.folder / "tables" / MINUTES.replace(".", "/", 1) / "transform.py"
    right = transform.read_text()
    raising = "page_views.where(F.expr(\"if(event_id = 'e3', raise_error('no'), true)\")).groupBy("
    transform.write_text(right.replace("page_views.groupBy(", raising))
    owner, log = Owner(spark, shop.settings(tmp_path / "data"), "web", only=(SILVER, MINUTES)), Log()
    for day in range(10):
        views = [View(10 * day + number, START + day * DAY, START + day * DAY, "/", 1) for number in (3, 4)]
        log.send(one.record() for one in views)
        owner.take(log.batch())
    owner.flow.writers = [one for one in owner.flow.writers if one.declared.name in (SILVER, MINUTES)]
    for table in (MINUTES, SILVER):
        carry_out(owner, command("expire", table))

    assert owner.flow.inputs[SILVER].table.entry.position.kept_from in (
        None,
        (START.timestamp() // 86_400) * 86_400_000_000,
    )
    transform.write_text(right)
    owner.start()
    carry_out(owner, command("replay_refused_rows", MINUTES))
    owner.turn()
    assert carry_out(owner, command("expire", SILVER))["expired"] == 2 * (10 - KEPT[SILVER] - 1)
    owner.turn()  # gold sees that what went brings nothing
    assert owner.verdicts() == {"ok"}


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_a_visit_that_goes_on_over_the_bound_has_gone_whole(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """A late row of it finds the rest of it in silver still: no part of it comes back as a visit of its own."""
    settings = project(tmp_path / "project", late="correct", kept=FEW).settings(tmp_path / "data")
    owner, log = Owner(spark, settings, "web", only=(SILVER, VISITS), path=path), Log()
    midnight = (START + DAY).replace(hour=0, minute=0, second=0, microsecond=0)

    def send(*views: tuple[int, timedelta, timedelta]) -> None:
        """Number, when it was and when it comes, both from midnight."""
        log.send(View(number, midnight + at, midnight + comes, "/", 1).record() for number, at, comes in views)
        owner.take(log.batch())

    minute = timedelta(minutes=1)
    send(*((number, number * 10 * minute, number * 10 * minute) for number in (-2, -1, 0, 1, 2)), (9, DAY, DAY))
    assert sorted(row["views"] for row in owner.rows(VISITS)) == [1, 5]
    assert carry_out(owner, command("expire", VISITS))["expired"] == 1
    assert bound(owner, VISITS) == midnight

    send((3, 25 * minute, DAY + minute))

    assert sorted(row["views"] for row in owner.rows(VISITS)) == [1]
    assert len(owner.rows(SILVER)) == 7
    assert owner.verdicts() == {"ok"}
