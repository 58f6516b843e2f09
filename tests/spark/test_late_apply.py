"""Rows that came too late and were set aside are used after all: the table is then as if they had been corrected."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine import commands
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.flow import Steps
from deltaworks.engine.prove import prove
from deltaworks.engine.writers.aggregate import AggregateWriter
from deltaworks.errors import CommandError, LakeError
from deltaworks.settings import Settings
from tests.broken_rules import command
from tests.flows import START, Crash, Log, Owner, carry_out
from tests.spells import GAP, project, record, records
from tests.tiny_project import Project

ONLY = {"gold.spells": ("silver.notes", "gold.spells"), "gold.notes_per_day": ("silver.notes", "gold.notes_per_day")}


def days(folder: Path, policy: str) -> Settings:
    """Give the tiny project with another policy for its notes per day."""
    copy = Project(folder / "project")
    declared = "tables/gold/notes_per_day/table.py"
    copy.edit(declared, "late=correct(after=hours(1))", f"late={policy}(after=minutes(5))")
    copy.edit(declared, "aggregate, correct, greatest, hours, least", f"aggregate, {policy}, greatest, minutes, least")
    return Settings.load(copy.folder, environment={}, data=folder / "data")


def test_rows_that_come_between_two_uses_are_counted_too(spark: SparkSession, tmp_path: Path) -> None:
    """The stream goes on between two steps of an order; the result tells all of it."""
    table = "gold.notes_per_day"
    owner = Owner(spark, days(tmp_path, "side_output"), "tiny", only=ONLY[table])
    log, parts = Log(), list(records(4, 30))
    for part in parts[:2]:
        log.send(part)
        owner.take(log.batch())
    steps = commands.carry_out(command("apply_late_rows", table), owner.flow, spark)
    first = next(steps)["done"]
    for part in parts[2:]:
        log.send(part)
        owner.take(log.batch())
    used = ended(steps)["used"]

    applied = owner.flow.inputs[table].table.entry.position.applied
    assert applied is not None
    assert used == applied[1]
    assert used > first > 0


def ended(steps: Steps) -> dict[str, int]:
    """The result of an order whose other steps are done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return dict(done.value)


def apply(owner: Owner, table: str, number: int) -> dict[str, int]:
    """Order it, and carry it out."""
    return carry_out(owner, command("apply_late_rows", table, number=number))


@pytest.mark.parametrize(
    ("table", "path"), [("gold.notes_per_day", "auto"), ("gold.spells", "auto"), ("gold.spells", "spark")]
)
def test_late_rows_that_are_used_make_what_a_correction_makes(
    spark: SparkSession, tmp_path: Path, table: str, path: str
) -> None:
    """Once each, whenever the owner dies; rows that come later find them among their neighbours."""
    made = project if table == "gold.spells" else days
    correct, aside = (
        Owner(spark, made(tmp_path / policy, policy), "tiny", path=path, only=ONLY[table])
        for policy in ("correct", "side_output")
    )
    log, parts = Log(), list(records(4, 30))  # of so many some are late, whatever the seed
    for part in parts[:3] if path == "auto" else parts[1:3]:  # by Spark each commit takes a second
        log.send(part)
        rows = log.batch()
        correct.take(rows)
        aside.take(rows)
    before = aside.rows(table)
    late = aside.flow.inputs[table].table.entry.totals.late

    for commit in range(2) if path == "auto" else (1,):  # claimed, then in the table
        aside.crash_at = aside.commits + commit
        with pytest.raises(Crash):
            apply(aside, table, 7)
        aside.crash_at = -1
        aside.start()
        assert aside.rows(table) == before
    done = apply(aside, table, 7)

    assert done == {"used": late}
    assert late > 0
    assert before != aside.rows(table) == correct.rows(table)
    if path == "spark":
        return
    assert apply(aside, table, 8) == {"used": 0}
    log.send(parts[3])
    rows = log.batch()
    correct.take(rows)
    aside.take(rows)
    apply(aside, table, 9)
    assert aside.rows(table) == correct.rows(table)
    assert aside.verdicts() == {"ok"}
    aside.flow.settle()
    with Picture(aside.catalog, aside.settings.lake) as picture:
        assert [one for one in check(picture, at_rest=False) if one.place.startswith(table)] == []
    lake, anew = aside.settings.lake, aside.settings.changed(data=tmp_path / "anew")
    proof = prove(table, catalog=aside.catalog, lake=lake, spark=spark, anew=anew, keys_min=1)
    assert proof.verdict == "proved"


def test_table_that_sets_nothing_aside_has_nothing_to_apply(spark: SparkSession, tmp_path: Path) -> None:
    """It is refused with the next step."""
    owner = Owner(spark, days(tmp_path, "correct"), "tiny", only=ONLY["gold.notes_per_day"])

    with pytest.raises(CommandError, match="sets no late rows aside"):
        apply(owner, "gold.notes_per_day", 7)


def test_table_that_failed_on_the_way_is_opened_anew_though_nothing_comes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order fails with the reason; given again once the transform is mended, it is carried out."""
    table = "gold.notes_per_day"
    owner, log = Owner(spark, days(tmp_path, "side_output"), "tiny", only=ONLY[table], suspends=True), Log()
    for part in (*records(2, 12), [record("notes", 1_000, 1, START - 12 * GAP)]):
        log.send(part)
        owner.take(log.batch())
    late = owner.flow.inputs[table].table.entry.totals.late

    def fails(*_: object, **__: object) -> None:
        raise LakeError(table, "the transform gave null", "Mend it")

    monkeypatch.setattr(AggregateWriter, "use_late", fails)
    with pytest.raises(LakeError, match="the transform gave null"):
        apply(owner, table, 7)
    with pytest.raises(CommandError, match="is suspended"):
        apply(owner, table, 8)
    monkeypatch.undo()
    owner.now += 10
    assert owner.flow.behind()
    owner.turn()

    assert not owner.flow.behind()
    assert apply(owner, table, 9) == {"used": late}
    assert late > 0
