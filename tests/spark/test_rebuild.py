"""A table that is computed again while its stream goes on: afterwards all is as if it had always been right."""

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine import maintenance
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.points import listening
from deltaworks.engine.prove import prove
from deltaworks.engine.publish import Staged
from deltaworks.engine.rebuild import stage
from deltaworks.engine.rewind import plan
from deltaworks.engine.rewind import stage as rewind
from deltaworks.errors import CommandError, LakeError
from deltaworks.settings import Settings
from tests.broken_rules import Shop, command
from tests.chance import seeded
from tests.flows import BY_ARROW, Crash, Log, Owner, Record, carry_out
from tests.shop_rows import random_changes, random_views, view
from tests.states import (
    MEMBERS,
    changes,
    dated,
    held,
    held_by_definition,
    highest_by_definition,
    in_parts,
    ordered,
    revisions,
)
from tests.tiny_project import Project
from tests.unit.test_same_input import member, note


def staged(owner: Owner, table: str) -> Staged:
    """Compute a table again, in the folder that the order to publish it names."""
    folder = owner.settings.data / "staged" / "one"
    folder.mkdir(parents=True)
    anew = owner.settings.changed(data=folder)
    return stage(table, catalog=owner.catalog, lake=owner.settings.lake, spark=owner.spark, anew=anew)


def fed(owner: Owner, log: Log, parts: list[list[Record]]) -> None:
    """Let an owner take batch after batch."""
    for part in parts:
        log.send(part)
        owner.take(log.batch())


def shown(owner: Owner, table: str) -> list[dict[str, object]]:
    """A table's rows, without what says that they are complete: marks are those of then."""
    return [{name: value for name, value in row.items() if name != "complete"} for row in owner.rows(table)]


@pytest.mark.parametrize("crash_at", [None, 2])
def test_events_that_a_wrong_rule_refused_are_there_in_all_tables(
    spark: SparkSession, tmp_path: Path, crash_at: int | None
) -> None:
    """What came between staging and publishing is in too; the owner may die before any commit of it."""
    chance = seeded()
    project = Shop(tmp_path / "project")
    parts = [random_views(chance, 20, first=100 * number) for number in range(3)]
    calm = Owner(spark, project.settings(tmp_path / "calm"), "web")
    fed(calm, Log(), parts)
    project.edit("silver/page_views.yml", "'^/'", "'^/c'")
    owner, log = Owner(spark, project.settings(tmp_path / "wrong"), "web"), Log()
    fed(owner, log, parts[:2])
    project.edit("silver/page_views.yml", "'^/c'", "'^/'")
    owner.start()
    tables = ("silver.page_views", "gold.page_views_per_minute", "gold.user_sessions")

    made = staged(owner, "silver.page_views")
    log.send(parts[2])
    owner.take(log.batch())
    order = command("publish", "silver.page_views", folder="one")
    if crash_at is not None:
        owner.crash_at = owner.commits + crash_at
        with pytest.raises(Crash):
            carry_out(owner, order)
        owner.crash_at = -1
        owner.start()
    done = carry_out(owner, order)
    owner.turn()
    owner.flow.settle()

    assert made.tables == tables
    assert done == {"tables": 3}
    for table in tables:
        assert shown(owner, table) == shown(calm, table)
    assert {row["reason"][:4] for row in owner.rows("silver.page_views__quarantine")}.isdisjoint({"rule"})
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []
    if crash_at is None:
        lake, anew = owner.settings.lake, owner.settings.changed(data=tmp_path / "anew")
        for table in tables[1:]:
            folder = anew.changed(data=anew.data / table)
            folder.data.mkdir(parents=True)
            proof = prove(table, catalog=owner.catalog, lake=lake, spark=spark, anew=folder, keys_min=1)
            assert (proof.verdict, proof.changed) == ("proved", ())


def test_changes_of_a_database_and_a_view_over_them(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing was wrong: rows and books are what they were, and changes that come later find their places."""
    chance = seeded()
    only = ("silver.orders", "gold.daily_orders")
    project = Shop(tmp_path / "project")
    records = random_changes(chance, 60)
    calm, owner = (Owner(spark, project.settings(tmp_path / name), "shop", only=only) for name in ("calm", "rebuilt"))
    log = Log()
    for at in (0, 20):
        log.send(records[at : at + 20])
        rows = log.batch()
        calm.take(rows)
        owner.take(rows)

    staged(owner, "silver.orders")
    done = carry_out(owner, command("publish", "silver.orders", folder="one"))
    log.send(records[40:])
    rows = log.batch()
    calm.take(rows)
    owner.take(rows)

    assert done == {"tables": 2}
    assert all(owner.flow.inputs[table].table.entry.replaced_at for table in only)
    for table in only:
        assert owner.rows(table) == calm.rows(table)
    mine, other = (one.flow.inputs["silver.orders"].table.entry.totals for one in (owner, calm))
    assert (mine.read, mine.refused, mine.not_mine) == (other.read, other.refused, other.not_mine)
    assert owner.verdicts() == {"ok"}


def test_tables_above_go_back_with_it(spark: SparkSession, tmp_path: Path) -> None:
    """Each to where it had taken just that version; one that never did is computed anew."""
    chance = seeded()
    project = Shop(tmp_path / "project")
    parts = [random_views(chance, 15, first=100 * number) for number in range(4)]
    calm = Owner(spark, project.settings(tmp_path / "calm"), "web")
    fed(calm, Log(), parts)
    owner, log = Owner(spark, project.settings(tmp_path / "wrong"), "web"), Log()
    log.send(parts[0])
    owner.take(log.batch())
    owner.flow.settle()
    table = "silver.page_views"
    before = owner.flow.inputs[table].table.version
    project.edit("silver/page_views.yml", "'^/'", "'^/c'")
    owner.start()
    fed(owner, log, parts[1:3])
    project.edit("silver/page_views.yml", "'^/c'", "'^/'")
    owner.start()

    past = plan(table, catalog=owner.catalog, lake=owner.settings.lake, to=before)
    folder = owner.settings.data / "staged" / "one"
    folder.mkdir(parents=True)
    rewind(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
    log.send(parts[3])
    owner.take(log.batch())
    done = carry_out(owner, command("publish", table, folder="one"))
    owner.turn()
    owner.flow.settle()

    assert [one.table for one in past] == [table, "gold.page_views_per_minute", "gold.user_sessions"]
    assert min(one.version for one in past) > 0
    assert done == {"tables": 3}
    for one in past:
        assert shown(owner, one.table) == shown(calm, one.table)
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []
    (again, *above) = plan(table, catalog=owner.catalog, lake=owner.settings.lake, to=before - 1)
    assert again.version == before - 1
    assert {one.version for one in above} <= {0, 1, 2}


def test_a_view_waits_for_the_order_that_takes_it_back_too(spark: SparkSession, tmp_path: Path) -> None:
    """Its owner died when only the input had gone back: nobody computes the view on a way of its own."""
    chance = seeded()
    only = ("silver.orders", "gold.daily_orders")
    project = Shop(tmp_path / "project")
    records = random_changes(chance, 60)
    calm, owner = (
        Owner(spark, project.settings(tmp_path / name), "shop", only=only, suspends=True) for name in ("calm", "back")
    )
    log, versions = Log(), []
    for at in (0, 20, 40):
        log.send(records[at : at + 20])
        rows = log.batch()
        calm.take(rows)
        owner.take(rows)
        owner.flow.settle()
        versions.append(owner.flow.inputs["silver.orders"].table.version)
    past = plan("silver.orders", catalog=owner.catalog, lake=owner.settings.lake, to=versions[0])
    folder = owner.settings.data / "staged" / "one"
    folder.mkdir(parents=True)
    rewind(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
    order = command("publish", "silver.orders", folder="one")

    def crash(point: str) -> None:
        if point == "silver.orders.publish.after-commit":
            raise Crash(point)

    with listening(crash), pytest.raises(Crash):
        carry_out(owner, order)
    owner.start()
    owner.turn()
    aside = {name: str(one.error) for name, one in owner.flow.suspended.tables.items()}
    carry_out(owner, order)
    owner.turn()
    owner.flow.settle()

    assert [*aside] == ["gold.daily_orders"]
    assert "gave way to other rows" in aside["gold.daily_orders"]
    assert not owner.flow.suspended.tables
    for table in only:
        assert owner.rows(table) == calm.rows(table)
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert [one for one in check(picture, at_rest=True) if one.place in only] == []


def test_an_order_without_a_table_that_has_come_since_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """What that table had taken would be of rows that are there no more."""
    project = Shop(tmp_path / "project")
    for name in ("tables", "expectations"):
        (project.folder / name / "gold").rename(tmp_path / name)
    table, chance = "silver.page_views", seeded()
    owner, log = Owner(spark, project.settings(tmp_path / "data"), "web"), Log()
    fed(owner, log, [random_views(chance, 12)])
    staged(owner, table)
    for name in ("tables", "expectations"):
        (tmp_path / name).rename(project.folder / name / "gold")
    later = Owner(spark, owner.settings, "web", epoch=owner.epoch)
    fed(later, log, [random_views(chance, 12, first=100)])

    with pytest.raises(CommandError, match=r"gold\.\w+ has taken rows of silver\.page_views since it was staged"):
        carry_out(later, command("publish", table, folder="one"))

    assert sum(row["views"] for row in later.rows("gold.page_views_per_minute")) == len(later.rows(table)) > 0


def test_a_new_table_takes_the_rows_that_are_there(spark: SparkSession, tmp_path: Path) -> None:
    """Not those that gave way, nor those whose files were compacted and deleted."""
    project = Shop(tmp_path / "project")
    for name in ("tables", "expectations"):
        (project.folder / name / "gold").rename(tmp_path / name)
    table = "silver.page_views"
    chance = seeded()
    owner, log = Owner(spark, project.settings(tmp_path / "data"), "web"), Log()
    for number in range(3):
        log.send(random_views(chance, 12, first=100 * number))
        owner.take(log.batch())
    staged(owner, table)
    carry_out(owner, command("publish", table, folder="one"))
    own = owner.flow.inputs[table].table
    maintenance.compact(own, command=8, committer=BY_ARROW)
    maintenance.vacuum(own, readers={}, hours=0, command=9, committer=BY_ARROW)

    for name in ("tables", "expectations"):
        (tmp_path / name).rename(project.folder / name / "gold")
    later = Owner(spark, owner.settings, "web", epoch=owner.epoch)
    log.send(random_views(chance, 12, first=300))
    later.take(log.batch())
    for gold in ("gold.page_views_per_minute", "gold.user_sessions"):
        assert sum(row["views"] for row in later.rows(gold)) == len(later.rows(table)) > 0
    assert later.verdicts() == {"ok"}


def test_a_table_whose_columns_were_changed_is_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    """Until then it is suspended, and those above it; the others go on."""
    chance = seeded()
    only = ("silver.orders", "gold.daily_orders", "silver.customers")
    project = Shop(tmp_path / "project")
    records = random_changes(chance, 60)
    owner, log = Owner(spark, project.settings(tmp_path / "data"), "shop", only=only), Log()
    log.send(records[:30])
    owner.take(log.batch())
    declared = project.folder / "tables/silver/orders/table.py"
    text = declared.read_text().replace('"decimal(12,2)"', '"decimal(14,4)"')
    declared.write_text(re.sub(r".*updated_at.*\n", "", text))

    owner = Owner(spark, owner.settings, "shop", only=only, epoch=owner.epoch, suspends=True)
    log.send(records[30:])
    owner.flow.micro_batch(spark.createDataFrame(log.batch()))
    aside = dict(owner.flow.suspended.tables)
    folder = owner.settings.data / "staged" / "one"
    staged(owner, "silver.orders")
    done = carry_out(owner, command("publish", "silver.orders", folder=folder.name))
    owner.turn()
    calm = Owner(spark, project.settings(tmp_path / "calm"), "shop", only=only)
    log.cut = 0
    calm.take(log.batch())

    assert sorted(aside) == ["gold.daily_orders", "silver.orders"]
    assert "amount: declared decimal128(14, 4), the table has decimal128(12, 2)" in aside["silver.orders"].error
    assert done == {"tables": 2}
    assert not owner.flow.suspended.tables
    for table in only:
        assert owner.rows(table) == calm.rows(table)
    assert "updated_at" not in owner.rows("silver.orders")[0]
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert {one.place for one in check(picture, at_rest=True)} <= {
            "silver.products",
            "silver.stock",
            "silver.order_lines",
        }


def suspended_then_rebuilt(
    before: Owner, log: Log, batches: list[list[Record]], only: tuple[str, ...]
) -> tuple[Owner, str]:
    """The next owner, which has suspended the members, taken these batches and published a rebuild; and why it had."""
    owner = Owner(before.spark, before.settings, "tiny", only=only, epoch=before.epoch, suspends=True)
    for batch in batches:
        log.send(batch)
        owner.flow.micro_batch(before.spark.createDataFrame(log.batch()))
    aside = dict(owner.flow.suspended.tables)
    staged(owner, MEMBERS)
    carry_out(owner, command("publish", MEMBERS, folder="one"))
    owner.turn()
    assert list(aside) == [MEMBERS]
    assert not owner.flow.suspended.tables
    return owner, aside[MEMBERS].error


def test_states_that_are_to_be_placed_otherwise_are_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    """`by=` came later: until then the table is suspended and says so; then it is as if it had always been there."""
    chance = seeded()
    batches = in_parts(chance, revisions(chance, 40), cuts=3)
    settings, only = ordered(tmp_path), (MEMBERS, "gold.members_per_city")
    declared = settings.project / "tables/silver/members/table.py"
    text = declared.read_text()
    calm, log = Owner(spark, settings.changed(data=tmp_path / "calm"), "tiny", only=only), Log()
    fed(calm, log, batches)
    declared.write_text(text.replace(', by="revision"', ""))
    owner, log = Owner(spark, settings, "tiny", only=only), Log()
    fed(owner, log, batches[:2])
    declared.write_text(text)

    owner, error = suspended_then_rebuilt(owner, log, batches[2:], only)

    assert "its rows are placed by its arrival, declared is by revision" in error
    for table in only:
        assert owner.rows(table) == calm.rows(table)
    assert {row["member_id"]: row["city"] for row in owner.rows(MEMBERS)} == highest_by_definition(batches)
    assert owner.verdicts() == {"ok"}
    anew = settings.changed(data=tmp_path / "anew")
    anew.data.mkdir()
    proof = prove(MEMBERS, catalog=owner.catalog, lake=settings.lake, spark=spark, anew=anew, keys_min=1)
    assert proof.verdict == "proved"


def test_states_that_hold_from_another_time_are_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    """A history's `by=` names another column: until it is rebuilt it is suspended, then it is as if it always had."""
    chance = seeded()
    batches = in_parts(chance, changes(chance, 40), cuts=3)
    settings, only = dated(tmp_path), (MEMBERS, "gold.members_per_city")
    declared = settings.project / "tables/silver/members/table.py"
    arrives = '        Column("told_at", "timestamp", null=False, wire="arrival", doc="When it was told."),\n'
    text = declared.read_text().replace("    columns=(\n", f"    columns=(\n{arrives}")
    declared.write_text(text.replace('by="changed_at"', 'by="told_at"'))
    owner, log = Owner(spark, settings, "tiny", only=only), Log()
    fed(owner, log, batches[:2])
    declared.write_text(text)

    owner, error = suspended_then_rebuilt(owner, log, batches[2:], only)

    assert "its rows are placed by told_at, its arrival, declared is by changed_at" in error
    assert held(owner) == held_by_definition(batches)
    assert owner.verdicts() == {"ok"}
    anew = settings.changed(data=tmp_path / "anew")
    anew.data.mkdir()
    proof = prove(MEMBERS, catalog=owner.catalog, lake=settings.lake, spark=spark, anew=anew, keys_min=1)
    assert proof.verdict == "proved"


def test_what_other_code_made_is_not_published(spark: SparkSession, tmp_path: Path) -> None:
    """The stream would go on with rows that its code does not make."""
    project = Shop(tmp_path / "project")
    owner, log = Owner(spark, project.settings(tmp_path / "data"), "web"), Log()
    log.send([view(1), *random_views(seeded(), 5)])  # of the others all may be refused
    owner.take(log.batch())
    path = project.folder / "tables/gold/page_views_per_minute/table.py"
    path.write_text(path.read_text() + "\n# changed\n")
    staged(owner, "gold.page_views_per_minute")

    with pytest.raises(CommandError, match="was staged by other code or rules than the app runs with"):
        carry_out(owner, command("publish", "gold.page_views_per_minute", folder="one"))
    with pytest.raises(LakeError, match="nothing was staged there"):
        carry_out(owner, command("publish", "gold.page_views_per_minute", folder="two"))


@pytest.mark.parametrize("lost", ["put back", "made anew"])
def test_what_is_computed_from_a_table_that_went_back_is_rebuilt(
    spark: SparkSession, tmp_path: Path, lost: str
) -> None:
    """It is suspended, as its input passes what it has taken with other commits; then it is as if nothing had been."""
    settings = Settings.load(Project(tmp_path / "project").folder, environment={}, data=tmp_path / "data")
    owner, log, silver = Owner(spark, settings, "tiny", suspends=True), Log(), settings.lake / "silver"
    for number in range(3):
        fed(owner, log, [[note(number), member(number)]])
        if number == 0:
            shutil.copytree(silver, tmp_path / "copy")
    tables = ("gold.members_per_city", "gold.notes_per_day")
    before = {table: owner.rows(table) for table in tables}
    shutil.rmtree(silver)
    if lost == "put back":
        shutil.copytree(tmp_path / "copy", silver)

    owner.start()
    owner.turn()
    fed(owner, log, [[note(number), member(number)] for number in range(3, 9)])
    aside = {name: one.error for name, one in owner.flow.suspended.tables.items()}
    stayed = {table: owner.rows(table) for table in tables}
    for table in tables:
        folder = settings.data / "staged" / table
        folder.mkdir(parents=True)
        anew = settings.changed(data=folder)
        stage(table, catalog=owner.catalog, lake=settings.lake, spark=spark, anew=anew)
        carry_out(owner, command("publish", table, folder=table))
    owner.start()
    fed(owner, log, [[note(9), member(9)]])

    assert sorted(aside) == sorted(tables)
    assert all("has taken silver." in error and "deltaworks rebuild" in error for error in aside.values())
    assert stayed == before
    assert not owner.flow.suspended.tables
    assert [row["members"] for row in owner.rows(tables[0])] == [10]
    assert [row["notes"] for row in owner.rows(tables[1])] == [10]
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, settings.lake) as picture:
        assert check(picture, at_rest=True) == []
