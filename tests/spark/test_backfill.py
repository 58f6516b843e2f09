"""A range of events taken again from bronze: the same as if the rules had always been right, whatever goes on."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from traceback import format_exception
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.catalog import Catalog
from deltaworks.engine import backfill
from deltaworks.engine.backfill import Backfilled, joined
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.event_range import EventRange, Part
from deltaworks.errors import LakeError
from deltaworks.settings import ROOT
from tests.broken_rules import Shop, command
from tests.chance import seeded
from tests.flows import START, Crash, Log, Owner, Record, carry_out
from tests.shop_rows import broken, view
from tests.spark.test_stateful import answered, have, same, spells
from tests.spells import MOMENT, project, record, records
from tests.tiny_project import Project

WRITERS = '''"""Notes of each member."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=view(keys=("member_id",)),
    columns=(
        Column("member_id", "bigint", doc="Who wrote."),
        Column("notes", "bigint", null=False, doc="How many there are."),
    ),
    owner="tests",
)
'''
WRITERS_TRANSFORM = '''"""Notes to writers."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame) -> DataFrame:
    """Count."""
    return notes.groupBy("member_id").agg(F.count("*").alias("notes"))


def keys_from(notes: DataFrame) -> DataFrame:
    """Who wrote."""
    return notes.select("member_id")
'''
HOURS = (
    WRITERS.replace("member_id", "hour")
    .replace('"hour", "bigint", doc', '"hour", "timestamp", null=False, doc')
    .replace("    owner=", '    event_time="hour",\n    owner=')
)
HOURS_TRANSFORM = WRITERS_TRANSFORM.replace('"member_id"', 'F.date_trunc("hour", "written_at").alias("hour")')
LAST = WRITERS.replace(
    "    columns=(\n", '    columns=(\n        Column("last_at", "timestamp", doc="Of the last."),\n'
).replace("    owner=", '    event_time="last_at",\n    owner=')
LAST_TRANSFORM = WRITERS_TRANSFORM.replace("agg(", 'agg(F.max("written_at").alias("last_at"), ')
TABLE, AT = "silver.page_views", "event_time"
ABOVE = ("gold.page_views_per_minute", "gold.user_sessions")
DAY = timedelta(days=1)
Made = Callable[[str], tuple[Owner, Owner, Log, list[Record]]]


def days(count: int, *, each: int = 9) -> list[list[Record]]:
    """Views of several days, four apart, a batch each; most arrive when they happen, some hours late, some twice."""
    chance = seeded()
    found = []
    for day in range(count):
        records = []
        for number in range(each):
            at = START + 4 * day * DAY + timedelta(minutes=7 * number)
            late = timedelta(hours=chance.randrange(1, 30)) if chance.random() < 0.15 else timedelta(0)
            # of random pages one may be missing
            page = chance.choice(["/", "/cart", "/products/1"]) if number > 1 else ("/", "/cart")[number]
            record = view(1000 * day + number, at=at - late, page=page, user=chance.randrange(3))
            record.at = at
            records += [record] * chance.choice([1, 1, 1, 2])
        bad = broken(b"{")
        bad.at = START + 4 * day * DAY
        found.append([*records, bad])
    return found


def staged(owner: Owner, *given: datetime | Part, name: str = "one", table: str = TABLE) -> Backfilled:
    """Take one range again, of two times, or several, in the folder that the order to publish them names."""
    times, ranges = (
        [one for one in given if isinstance(one, datetime)],
        [one for one in given if isinstance(one, tuple)],
    )
    if times:
        ranges.append((times[0], times[1]))
    folder = owner.settings.data / "staged" / name
    folder.mkdir(parents=True)
    return backfill.stage(
        table, ranges=ranges, catalog=owner.catalog, lake=owner.settings.lake, spark=owner.spark,
        anew=owner.settings.changed(data=folder),
    )  # fmt: skip


def shown(owner: Owner) -> dict[str, list[dict[str, object]]]:
    """All tables' rows, without what says that they are complete: marks are those of then."""
    return {
        table: [{name: value for name, value in row.items() if name != "complete"} for row in owner.rows(table)]
        for table in (TABLE, *ABOVE)
    }


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A lake as it should be, one whose rule was wrong on the second and third of four days, and the fourth day."""

    def make(name: str) -> tuple[Owner, Owner, Log, list[Record]]:
        folder = tmp_path_factory.mktemp(name)
        project = Shop(folder / "project")
        *parts, last = days(4)
        calm, log = Owner(spark, project.settings(folder / "calm"), "web"), Log()
        for part in (*parts, last):
            log.send(part)
            calm.take(log.batch())
        owner, log = Owner(spark, project.settings(folder / "wrong"), "web"), Log()
        log.send(parts[0])
        owner.take(log.batch())
        project.edit("silver/page_views.yml", "'^/'", "'^/c'")
        owner.start()
        for part in parts[1:]:
            log.send(part)
            owner.take(log.batch())
        project.edit("silver/page_views.yml", "'^/c'", "'^/'")
        owner.start()
        owner.flow.settle()
        return calm, owner, log, last

    return make


def test_two_days_one_after_the_other_and_again(made: Made) -> None:
    """The later one first; the owner dies within one publication; a third time nothing changes."""
    calm, owner, log, last = made("twice")
    second, third = START + 2 * DAY, START + 6 * DAY

    later = staged(owner, third, third + 3 * DAY)
    log.send(last)
    owner.take(log.batch())  # meanwhile
    carry_out(owner, command("publish", TABLE, number=1, folder="one"))
    owner.turn()
    owner.flow.settle()
    earlier = staged(owner, second, second + 3 * DAY, name="two")
    order = command("publish", TABLE, number=2, folder="two")
    owner.crash_at = owner.commits + 2
    with pytest.raises(Crash):
        carry_out(owner, order)
    owner.crash_at = -1
    owner.start()
    carry_out(owner, order)
    owner.turn()
    owner.flow.settle()

    assert later.come > 0
    assert earlier.come > 0
    assert later.gone == earlier.gone == 0
    assert shown(owner) == shown(calm)
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []
    mine, other = (one.flow.inputs[TABLE].table.entry.totals for one in (owner, calm))
    assert replace(mine, warned=0) == replace(other, warned=0)
    again = staged(owner, START - 2 * DAY, START + 20 * DAY, name="three")
    assert (again.gone, again.come) == (0, 0)
    assert again.batches == 4


def test_several_days_at_once(made: Made) -> None:
    """Both wrong days in one go, and a right one: each is told its own rows, the tables are as they should be."""
    calm, owner, log, last = made("several")
    log.send(last)
    owner.take(log.batch())
    days = [(START + (4 * number - 1.5) * DAY, START + (4 * number + 1.5) * DAY) for number in (2, 0, 1)]

    found = staged(owner, *days)
    carry_out(owner, command("publish", TABLE, number=1, folder="one"))
    owner.turn()
    owner.flow.settle()

    assert [(one.since, one.until) for one in found.ranges] == days
    assert all(one.come > 0 for one in (found.ranges[0], found.ranges[2]))
    assert found.ranges[1].come == 0
    assert sum(one.come for one in found.ranges) == found.come
    assert found.gone == 0
    for one in found.ranges:
        now = happened(shown(owner)[TABLE], AT, one.since, one.until)
        assert len(now) == one.come + one.unchanged
        assert 0 < len(now) <= one.read
    assert set(found.above) == set(ABOVE)
    assert shown(owner) == shown(calm)


def test_a_range_of_views(spark: SparkSession, tmp_path: Path) -> None:
    """Keys with rows of a range, before or now, become right, and no others; a key may move into the range."""
    settings, log = project(tmp_path, "correct"), Log()
    copy = Project.at(settings.project)
    given = {"hours": (HOURS, HOURS_TRANSFORM), "last": (LAST, LAST_TRANSFORM)}
    for name, (table, transform) in given.items():
        copy.write(f"tables/gold/{name}/table.py", table)
        copy.write(f"tables/gold/{name}/transform.py", transform.replace('F.count("*")', '(2 * F.count("*"))'))
        copy.write(f"expectations/gold/{name}.yml", "waived: judged here\n")
        copy.write(f"tables/gold/{name}/cases/none.yml", "doc: None.\ngiven: {silver.notes: []}\nthen: {rows: []}\n")
    copy.edit("tables/gold/last/transform.py", 'F.max("written_at")', "F.lit(None)")
    owner = Owner(spark, settings, "tiny", only=("silver.notes", "gold.hours", "gold.last"))
    for part in records(4, 12):
        log.send(part)
        owner.take(log.batch())
    for name, (_, transform) in given.items():
        copy.write(f"tables/gold/{name}/transform.py", transform)
    owner.start()
    owner.flow.settle()
    notes, wrong = have(owner, "silver.notes"), have(owner, "gold.hours")
    hours = Counter(row["written_at"].replace(minute=0, second=0, microsecond=0) for row in notes)
    first, *others = sorted(hours)
    assert others
    since = first.replace(tzinfo=UTC)

    found = staged(owner, since, since + timedelta(hours=1), table="gold.hours")
    assert carry_out(owner, command("publish", "gold.hours", folder="one")) == {"tables": 1}

    assert (found.gone, found.come) == (1, 1)
    assert [(one.gone, one.come, one.unchanged) for one in found.ranges] == [(1, 1, 0)]
    assert found.ranges[0].read == len(notes)
    was = {row["hour"]: row["notes"] for row in wrong}
    assert was == {hour: 2 * many for hour, many in hours.items()}
    assert {row["hour"]: row["notes"] for row in have(owner, "gold.hours")} == was | {first: hours[first]}

    last: dict[int | None, datetime] = {}
    for row in notes:
        last[row["member_id"]] = max(last.get(row["member_id"], row["written_at"]), row["written_at"])
    latest = max(last.values()).replace(tzinfo=UTC)
    staged(owner, latest, latest + MOMENT, table="gold.last", name="two")  # they had no time until now
    carry_out(owner, command("publish", "gold.last", folder="two", number=2))
    many = Counter(row["member_id"] for row in notes)
    moved = {member for member, at in last.items() if at.replace(tzinfo=UTC) == latest}
    assert 0 < len(moved) < len(last)
    assert {row["member_id"]: (row["last_at"], row["notes"]) for row in have(owner, "gold.last")} == {
        member: (last[member], many[member]) if member in moved else (None, 2 * many[member]) for member in last
    }
    log.send(next(records(1, 12)))
    owner.take(log.batch())
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        found_out = map(str, check(picture, at_rest=True))
        assert {one.split(":")[0] for one in found_out} == {
            f"I6 {name}" for name in ("gold.answered", "gold.spells", "silver.replies")
        }


def test_a_range_of_a_view_leaves_out_what_it_leaves_out(spark: SparkSession, tmp_path: Path) -> None:
    """A key that was left out waits for its replay, though it could be computed now; one that raises is an error."""
    settings, log = project(tmp_path, "correct"), Log()
    copy, bound = Project.at(settings.project), START.replace(minute=0, second=0, microsecond=0)
    many, raises = (
        'F.count("*")',
        'F.sum(F.when(F.col("written_at") {}, F.raise_error("no").cast("bigint")).otherwise(1))',
    )
    before, after = (raises.format(f"{sign} F.expr(\"timestamp'{bound.isoformat()}'\")") for sign in ("<", ">="))
    copy.write("tables/gold/hours/table.py", HOURS)
    copy.write("tables/gold/hours/transform.py", HOURS_TRANSFORM.replace(many, before))
    copy.write("expectations/gold/hours.yml", "waived: judged here\n")
    copy.write("tables/gold/hours/cases/none.yml", "doc: None.\ngiven: {silver.notes: []}\nthen: {rows: []}\n")
    owner = Owner(spark, settings, "tiny", only=("silver.notes", "gold.hours"))
    for part in records(3, 12):
        log.send(part)
        owner.take(log.batch())
    left_out = owner.flow.inputs["gold.hours"].table.entry.position.unfit
    assert left_out
    there = [row["hour"].replace(tzinfo=UTC) for row in have(owner, "gold.hours")]
    assert there == [bound]
    whole = (bound - DAY, bound + DAY)

    copy.edit("tables/gold/hours/transform.py", before, after)
    owner.start()
    owner.flow.settle()
    with pytest.raises(LakeError, match="cannot compute some row: USER_RAISED_EXCEPTION.*rebuild gold.hours"):
        staged(owner, whole, table="gold.hours")
    copy.edit("tables/gold/hours/transform.py", after, f"(2 * {many})")
    owner.start()
    owner.flow.settle()
    found = staged(owner, whole, table="gold.hours", name="two")
    carry_out(owner, command("publish", "gold.hours", folder="two"))

    assert (found.gone, found.come) == (1, 1)
    assert owner.flow.inputs["gold.hours"].table.entry.position.unfit == left_out
    carry_out(owner, command("replay_refused_rows", "gold.hours", number=8))
    hours = Counter(row["written_at"].replace(minute=0, second=0, microsecond=0) for row in have(owner, "silver.notes"))
    assert {row["hour"]: row["notes"] for row in have(owner, "gold.hours")} == {
        hour: 2 * count for hour, count in hours.items()
    }


def test_rows_that_should_never_have_come_go(made: Made) -> None:
    """A rule that is stricter now takes rows out of all tables; a session with none left goes."""
    _, owner, _, _ = made("stricter")
    project = Shop.__new__(Shop)
    project.folder = owner.settings.project
    before = shown(owner)
    project.edit("silver/page_views.yml", "'^/'", "'^/c'")
    owner.start()
    found = staged(owner, START - 2 * DAY, START + 20 * DAY)
    carry_out(owner, command("publish", TABLE, folder="one"))
    owner.turn()
    owner.flow.settle()

    assert found.gone > 0
    assert found.come == 0
    after = shown(owner)
    assert {row["page"] for row in after[TABLE]} == {"/cart"}
    assert len(before[TABLE]) - len(after[TABLE]) == found.gone
    assert sum(int(str(row["views"])) for row in after["gold.user_sessions"]) == len(after[TABLE])
    assert {row["page"] for row in after["gold.page_views_per_minute"]} == {"/cart"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_joins_stretches_late_rows_and_views_follow(spark: SparkSession, tmp_path: Path) -> None:
    """Rows come that a wrong rule refused, then a stricter one takes them away: each table is as by brute force."""
    settings, log = project(tmp_path, "side_output"), Log()
    copy = Project.at(settings.project)
    copy.write("tables/gold/writers/table.py", WRITERS)
    copy.write("tables/gold/writers/transform.py", WRITERS_TRANSFORM)
    copy.write("expectations/gold/writers.yml", "waived: judged here\n")
    copy.write("tables/gold/writers/cases/none.yml", "doc: None.\ngiven: {silver.notes: []}\nthen: {rows: []}\n")
    right, wrong = "min_value: 0}", "min_value: 0, max_value: 3}"
    owner = Owner(spark, settings, "tiny")
    *parts, last = records(4, 12)
    for number, part in enumerate(parts):
        log.send(part)
        owner.take(log.batch())
        if number == 1:
            copy.edit("expectations/silver/notes.yml", right, wrong)
            owner.start()
    copy.edit("expectations/silver/notes.yml", wrong, right)
    owner.start()

    for number, name in enumerate(("come", "go")):
        if name == "go":  # rows that were used after all are among those that go
            assert carry_out(owner, command("apply_late_rows", "gold.spells", number=9))["used"] > 0
        owner.flow.settle()
        found = staged(owner, START - DAY, START + DAY, name=name, table="silver.notes")
        if name == "come":
            log.send(last)
            owner.take(log.batch())
        done = carry_out(owner, command("publish", "silver.notes", number=number, folder=name))
        owner.turn()
        owner.flow.settle()

        assert done == {"tables": 4}
        assert (found.come > 0, found.gone > 0) == (name == "come", name == "go")
        assert same(have(owner, "gold.spells"), spells(owner, "side_output" if name == "come" else "correct"))
        assert same(have(owner, "gold.answered"), answered(owner))
        notes = Counter(row["member_id"] for row in have(owner, "silver.notes"))
        assert {row["member_id"]: row["notes"] for row in have(owner, "gold.writers")} == notes
        assert owner.verdicts() == {"ok"}
        with Picture(owner.catalog, owner.settings.lake) as picture:
            assert check(picture, at_rest=True) == []
        copy.edit("expectations/silver/notes.yml", *((right, wrong) if name == "come" else (wrong, right)))
        owner.start()


def test_ranges_of_what_is_computed(spark: SparkSession, tmp_path: Path) -> None:
    """Transforms put minutes and visits together wrongly; mended, each range becomes right, and nothing beside it."""
    project = Shop(tmp_path / "project")
    settings = {name: project.settings(tmp_path / name) for name in ("calm", "wrong")}
    *parts, last = days(3)
    calm, log = Owner(spark, settings["calm"], "web"), Log()
    for part in (*parts, last):
        log.send(part)
        calm.take(log.batch())
    sound = spoil(project.folder)
    owner, log = Owner(spark, settings["wrong"], "web"), Log()
    for part in parts:
        log.send(part)
        owner.take(log.batch())
    for file, text in sound.items():
        file.write_text(text)
    owner.start()
    owner.flow.settle()
    wrong, right = shown(owner), shown(calm)
    first, middle, end = START - 9 * DAY, START + 2 * DAY, START + 6 * DAY

    for number, name in enumerate(ABOVE):
        found = staged(owner, middle, end, name=name, table=name)
        if number:
            log.send(last)
            owner.take(log.batch())  # meanwhile
        assert carry_out(owner, command("publish", name, number=number, folder=name)) == {"tables": 1}
        owner.turn()
        owner.flow.settle()
        assert found.gone > 0
        assert found.come > 0
        at = str(owner.catalog[name].table.event_time)
        now = shown(owner)[name]
        assert happened(now, at, middle, end) == happened(right[name], at, middle, end)
        assert happened(wrong[name], at, middle, end) != happened(right[name], at, middle, end)
        assert happened(now, at, first, middle) == happened(wrong[name], at, first, middle)
        assert happened(wrong[name], at, first, middle) != happened(right[name], at, first, middle)
    again = staged(owner, middle, end, name="again", table=ABOVE[0])
    assert (again.gone, again.come) == (0, 0)
    for name in ABOVE:
        staged(owner, first, middle, name=f"{name}-2", table=name)
        carry_out(owner, command("publish", name, number=9, folder=f"{name}-2"))
    owner.turn()
    owner.flow.settle()
    assert shown(owner) == right
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def happened(rows: list[dict[str, Any]], at: str, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Give the rows of a range; Spark's times are naive."""
    return [row for row in rows if since <= row[at].replace(tzinfo=UTC) < until]


def spoil(project: Path) -> dict[Path, str]:
    """Have transforms put other views together; gives what they were."""
    texts = {"page_views_per_minute": ('"1 minute"', '"2 hours"'), "user_sessions": ('"10 minutes"', '"5 minutes"')}
    files = {project / "tables" / "gold" / name / "transform.py": text for name, text in texts.items()}
    sound = {file: file.read_text() for file in files}
    for file, (right, wrong) in files.items():
        assert sound[file].count(right) == 1
        file.write_text(sound[file].replace(right, wrong))
    return sound


def test_range_that_cannot_be_computed_publishes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A row that raises, by the error's name alone; and columns that the rows of the table do not have."""
    settings, log = project(tmp_path, "correct"), Log()
    copy = Project.at(settings.project)
    owner = Owner(spark, settings, "tiny")
    for part in records(2, 12):
        log.send(part)
        owner.take(log.batch())
    words = 'F.sum("words").alias'
    copy.edit("tables/gold/spells/transform.py", words, 'F.sum(F.raise_error("secret").cast("bigint")).alias')
    owner.start()
    owner.flow.settle()

    with pytest.raises(LakeError, match="cannot compute some row: USER_RAISED_EXCEPTION.*rebuild gold.spells") as told:
        staged(owner, START - DAY, START + DAY, table="gold.spells")
    assert "secret" not in "".join(format_exception(told.value))
    assert not list((owner.settings.data / "staged").glob("*/staged.json"))

    column = '        Column("words", "bigint", null=False, doc="Their words."),\n'
    copy.edit("tables/gold/spells/table.py", column, column + column.replace("words", "more"))
    found = catalog.load(settings.project)
    with pytest.raises(LakeError, match="gold.spells.*more"):
        backfill.stage(
            "gold.spells", ranges=[(START - DAY, START + DAY)], catalog=found, lake=owner.settings.lake, spark=spark,
            anew=owner.settings.changed(data=tmp_path / "anew"),
        )  # fmt: skip


def test_rows_that_are_used_no_more_go_from_a_range(spark: SparkSession, tmp_path: Path) -> None:
    """Also a stretch that only late ones had made; a policy is no rule of one range, but nothing wrong stays in it."""
    settings, log = project(tmp_path, "correct"), Log()
    owner = Owner(spark, settings, "tiny")
    late = record("notes", 999, 9, START - DAY / 2)
    for part in (*records(4, 12), [late]):
        log.send(part)
        owner.take(log.batch())
    before = spells(owner, "correct")
    Project.at(settings.project).edit("tables/gold/spells/table.py", "late=correct", "late=drop")
    Project.at(settings.project).edit("tables/gold/spells/table.py", "Table, correct", "Table, drop")
    owner.catalog = catalog.load(settings.project)
    owner.start()
    owner.flow.settle()

    staged(owner, START - DAY, START + DAY, table="gold.spells")
    carry_out(owner, command("publish", "gold.spells", folder="one"))
    owner.turn()

    after = spells(owner, "drop")
    assert same(have(owner, "gold.spells"), after)
    assert [sum(row["member_id"] == 9 for row in some) for some in (before, after)] == [1, 0]


def test_a_range_of_dates_begins_at_their_midnight(spark: SparkSession) -> None:
    """For Arrow and for Spark alike; one without a date is in none."""
    days_of = [date(2026, 11, 20), date(2026, 11, 21), date(2026, 11, 22), None]
    wanted = EventRange.of((datetime(2026, 11, 20, 5, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)))
    rows = pa.table({"day": pa.array(days_of, pa.date32())})

    by_arrow = rows.filter(wanted.holds("day"))["day"].to_pylist()
    by_spark = [row["day"] for row in spark.createDataFrame(rows).where(wanted.holds_spark("day")).collect()]

    assert by_arrow == by_spark == [date(2026, 11, 21)]


def test_views_follow_a_range_of_what_is_computed(spark: SparkSession, tmp_path: Path) -> None:
    """Late rows that were used stay in it; a join has its other side."""
    settings, log = project(tmp_path, "side_output"), Log()
    copy = Project.at(settings.project)
    copy.write("tables/gold/writers/table.py", WRITERS.replace("silver.notes", "gold.spells"))
    of_spells = WRITERS_TRANSFORM.replace("notes: DataFrame", "spells: DataFrame").replace("notes.", "spells.")
    copy.write("tables/gold/writers/transform.py", of_spells.replace('F.count("*")', 'F.sum("words")'))
    copy.write("expectations/gold/writers.yml", "waived: judged here\n")
    copy.write("tables/gold/writers/cases/none.yml", "doc: None.\ngiven: {gold.spells: []}\nthen: {rows: []}\n")
    words, twice = 'F.sum("words").alias', '(2 * F.sum("words")).alias'
    copy.edit("tables/gold/spells/transform.py", words, twice)
    joins, joined = "DataFrame:", 'DataFrame:\n    replies = replies.where("false")'
    copy.edit("tables/gold/answered/transform.py", joins, joined)
    owner = Owner(spark, settings, "tiny")
    answer = [record("notes", 901, 7, START), record("replies", 902, 7, START + MOMENT)]
    for part in (answer, *records(4, 12)):
        log.send(part)
        owner.take(log.batch())
    assert carry_out(owner, command("apply_late_rows", "gold.spells", number=9))["used"] > 0
    copy.edit("tables/gold/spells/transform.py", twice, words)
    copy.edit("tables/gold/answered/transform.py", joined, joins)
    owner.start()
    owner.flow.settle()

    for number, (table, above) in enumerate({"gold.spells": 2, "gold.answered": 1}.items()):
        found = staged(owner, START - DAY, START + DAY, name=table, table=table)
        assert found.come > 0
        done = carry_out(owner, command("publish", table, number=number, folder=table))
        assert done == {"tables": above}
        owner.turn()
        owner.flow.settle()

    spell = have(owner, "gold.spells")
    assert same(spell, spells(owner, "correct"))
    assert same(have(owner, "gold.answered"), answered(owner))
    words_of: Counter[int | None] = Counter()
    for row in spell:
        words_of[row["member_id"]] += row["words"]
    assert {row["member_id"]: row["notes"] for row in have(owner, "gold.writers")} == dict(words_of)
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_what_has_no_range_says_so() -> None:
    """Changes of a database are folded by key; a view may have no time."""
    found = catalog.load(ROOT)
    for table in ("silver.orders", "gold.product_sales"):
        with pytest.raises(LakeError, match=f'has no range of event time.*Run "deltaworks rebuild {table}"'):
            backfill.refuse(table, found)
    with pytest.raises(LakeError, match="cannot be computed again.*Name a table above it"):
        backfill.refuse("bronze.shop_changes", found)


def test_a_table_above_names_those_that_it_follows() -> None:
    """Its own code may be at fault, or only what it reads."""
    found = catalog.load(ROOT)

    assert refusal(found, "gold.customer_profiles") == (
        'Run "deltaworks rebuild gold.customer_profiles"; where only what it reads was wrong,'
        ' "deltaworks backfill silver.product_clicks --from ... --to ..."'
        ' or "deltaworks backfill gold.order_items --from ... --to ...", and gold.customer_profiles follows'
    )


def refusal(found: Catalog, table: str) -> str:
    """What to do instead."""
    with pytest.raises(LakeError, match="has no range of event time") as refused:
        backfill.refuse(table, found)
    return refused.value.next_step


def test_many_batches_become_few_ranges() -> None:
    """Only the smallest gaps are closed."""
    assert joined([]) == []
    assert joined([3, 1, 2, 9]) == [(1, 3), (9, 9)]
    many = joined([10 * number + (1000 if number > 150 else 0) for number in range(300)])
    assert many[0][0] == 0
    assert many[-1][1] == 3990
    assert len(many) <= backfill.RANGES_MAX
    assert (1500, 2510) in zip([last for _, last in many], [first for first, _ in many[1:]], strict=False)
