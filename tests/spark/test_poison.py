"""Rows that a transform cannot compute: left out, named, tried again; the rest is in gold. All else stops loudly."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.engine import backfill, poison, rebuild, rewind
from deltaworks.engine.case_run import run_case
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.replay import replay as replay_bronze
from deltaworks.engine.entry import Unfit
from deltaworks.engine.prove import prove
from deltaworks.engine.writers import fitting
from deltaworks.errors import CommandError, LakeError
from deltaworks.settings import Settings
from tests.broken_rules import command, replay
from tests.flows import START, Crash, Log, Owner, Record, carry_out
from tests.tiny_project import Project

DAYS, CITIES, SITTINGS = "gold.notes_per_day", "gold.members_per_city", "gold.sittings"
DAYS_FILE, CITIES_FILE, SITTINGS_FILE = (
    f"tables/{name.replace('.', '/')}/transform.py" for name in (DAYS, CITIES, SITTINGS)
)
WORDS = 'F.sum("words").alias("words")'
DIVIDES = 'F.sum(F.expr("words * (13 - words) div (13 - words)")).cast("bigint").alias("words")'
DUES = 'F.sum("dues").cast("decimal(18,2)")'
CASTS = 'F.sum(F.expr("if(name rlike \'^[0-9]\', cast(name as int), dues)")).cast("decimal(18,2)")'
SUM = 'F.sum("words").alias("words")'
REFUSES = 'F.sum(F.expr("if(words = 13, raise_error(\'no\'), words)")).cast("bigint").alias("words")'
FUNCTION = 'F.sum(F.udf(lambda words: words * (13 // (13 - words)) ** 0, "int")("words")).alias("words")'
GROUPED = "return notes.groupBy("
SENT_TO_ALL = """words = F.expr("words * (13 - words) div (13 - words)").alias("words")
    notes = notes.drop("words").join(F.broadcast(notes.select("note_id", words)), "note_id")
    return notes.groupBy("""
TABLE = '''"""Notes of a member written one after the other."""

from deltaworks.words import Column, Table, correct, minutes, stateful

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=stateful(keys=("member_id", "began"), part=("member_id",), gap=minutes(10), closes="over"),
    late=correct(after=minutes(10)),
    columns=(
        Column("member_id", "bigint", doc="Who wrote."),
        Column("began", "timestamp", null=False, doc="Time of the first note, UTC."),
        Column("over", "timestamp", null=False, doc="Ten minutes after the last note, UTC."),
        Column("words", "bigint", null=False, doc="Words of all notes."),
        Column("complete", "boolean", null=False, doc="Whether all notes that are in time have been counted."),
    ),
    event_time="began",
    subject="member_id",
    owner="tests",
)
'''
TRANSFORM = '''"""Notes to sittings."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame) -> DataFrame:
    """Put the notes of a member together while they are no more than ten minutes apart."""
    sittings = notes.groupBy("member_id", F.session_window("written_at", "10 minutes").alias("w")).agg(
        F.sum("words").alias("words")
    )
    return sittings.select("member_id", F.col("w.start").alias("began"), F.col("w.end").alias("over"), "words")
'''
SPOILT = {
    DAYS: (DAYS_FILE, WORDS, DIVIDES),
    CITIES: (CITIES_FILE, DUES, CASTS),
    SITTINGS: (SITTINGS_FILE, SUM, REFUSES),
}
"""Per table its transform as it is, and as one that cannot compute some rows."""
ERRORS = {DAYS: "DIVIDE_BY_ZERO", CITIES: "CAST_INVALID_INPUT", SITTINGS: "USER_RAISED_EXCEPTION"}


@dataclass
class Fault:
    """A project one of whose tables cannot compute some rows."""

    project: Project
    table: str
    settings: Settings
    log: Log = field(default_factory=Log)

    def mend(self) -> None:
        """Have its transform as it should be."""
        path, sound, spoilt = SPOILT[self.table]
        self.project.edit(path, spoilt, sound)

    def only(self) -> tuple[str, ...]:
        """The table and its input."""
        return ("silver.members" if self.table == CITIES else "silver.notes", self.table)


def tiny(folder: Path) -> Project:
    """The tiny project with a table of sittings."""
    project = Project(folder)
    project.write("tables/gold/sittings/table.py", TABLE)
    project.write(SITTINGS_FILE, TRANSFORM)
    suite = (project.folder / "expectations/gold/notes_per_day.yml").read_text()
    project.write("expectations/gold/sittings.yml", suite.replace("column: notes", "column: words"))
    return project


@pytest.fixture(params=[DAYS, CITIES, SITTINGS])
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Fault:
    """Give each way to compute a table, with a transform that cannot compute some rows."""
    return spoilt(request.param, tmp_path)


def spoilt(table: str, folder: Path) -> Fault:
    """The project with this table spoilt."""
    project = tiny(folder / "project")
    project.edit(*SPOILT[table])
    settings = Settings.load(project.folder, environment={}, data=folder / "data")
    return Fault(project=project, table=table, settings=settings)


def note(number: int, *, words: int = 5) -> Record:
    """A note of one of three members; thirteen words are too many for a spoilt transform."""
    at = START + timedelta(minutes=number)
    value = {"note_id": f"n{number}", "written_at": int(at.timestamp() * 1000), "member_id": number % 3, "words": words}
    return Record(topic="notes", value=json.dumps(value).encode(), partition=number % 2)


def member(number: int, *, name: str = "Ada") -> Record:
    """A member in one of ten cities; a spoilt transform takes a name for a number that begins like one."""
    value = {"member_id": number, "name": name, "city": f"C{number % 10}", "dues": "1.00", "joined": None}
    return Record(topic="members", value=json.dumps(value).encode())


def records(numbers: Sequence[int], *, bad: Sequence[int] = ()) -> list[Record]:
    """Notes and members with these numbers; those in `bad` cannot be computed."""
    notes = [note(number, words=13 if number in bad else 5) for number in numbers]
    return [*notes, *(member(number, name="4 Ever" if number in bad else "Ada") for number in numbers)]


def take(owner: Owner, log: Log, sent: Sequence[Record]) -> None:
    """One micro-batch of these records."""
    log.send(sent)
    owner.take(log.batch())


def unfit(owner: Owner, table: str) -> tuple[Unfit, ...]:
    """What a table leaves out."""
    found = owner.flow.inputs[table].table
    found.reopen()
    return found.entry.position.unfit


def calm(spark: SparkSession, folder: Path, fault: Fault, sent: Sequence[Sequence[Record]]) -> list[dict[str, object]]:
    """A table's rows where the transform never had a fault, and all that was sent came at once."""
    project = tiny(folder / "calm")
    settings = Settings.load(project.folder, environment={}, data=folder / "calm-data")
    owner = Owner(spark, settings, "tiny", only=fault.only())
    take(owner, Log(), [record for some in sent for record in some])
    return owner.rows(fault.table)


def sound(owner: Owner) -> None:
    """Nothing is found, and the books are even."""
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=not owner.only) == []


@pytest.mark.parametrize(
    ("table", "path"),
    [(DAYS, "auto"), (DAYS, "spark"), (SITTINGS, "auto"), (SITTINGS, "spark"), (CITIES, "auto")],
)
def test_rows_that_cannot_be_computed_are_left_out_and_come_in_when_the_transform_is_mended(
    spark: SparkSession, tmp_path: Path, table: str, path: str
) -> None:
    """In the batch that brings them the rest is in gold; after the order the table is as if there had been no fault."""
    fault = spoilt(table, tmp_path)
    first, second, third = records(range(30)), records(range(30, 38), bad=[33, 36]), records(range(38, 50))
    owner = Owner(spark, fault.settings, "tiny", path=path, only=fault.only())
    take(owner, fault.log, first)
    take(owner, fault.log, second)
    found = unfit(owner, fault.table)
    held = owner.rows(fault.table)
    owner.start()
    take(owner, fault.log, third)  # beside what was left out, and where it would be read again
    sound(owner)
    still = unfit(owner, fault.table)
    fault.mend()

    done = replay(owner, fault.table)

    assert held
    assert [one.error for one in found] == [ERRORS[fault.table]] * 2
    assert still == found
    assert done == {"moved": 2, "still_refused": 0}
    assert unfit(owner, fault.table) == ()
    assert owner.rows(fault.table) == calm(spark, tmp_path, fault, [first, second, third])
    sound(owner)
    assert replay(owner, fault.table, number=8) == {"moved": 0, "still_refused": 0}


@pytest.mark.parametrize(
    ("sound", "spoilt", "error"),
    [(WORDS, FUNCTION, "PYTHON_EXCEPTION"), (GROUPED, SENT_TO_ALL, "DIVIDE_BY_ZERO")],
    ids=["Python raises it in a process of its own", "a thread raises it that another one waits for"],
)
def test_row_that_raises_elsewhere_is_left_out(
    spark: SparkSession, tmp_path: Path, sound: str, spoilt: str, error: str
) -> None:
    """As one that an expression raises for in the one task."""
    project = tiny(tmp_path / "project")
    project.edit(DAYS_FILE, sound, spoilt)
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny", only=("silver.notes", DAYS))

    take(owner, Log(), records(range(8), bad=[3]))

    assert [one.error for one in unfit(owner, DAYS)] == [error]
    assert owner.rows(DAYS)[0]["notes"] == 7


def test_owner_that_dies_anywhere_leaves_the_same_rows_out_and_brings_each_in_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before each commit of the batch and of the order: both are done again."""
    fault = spoilt(DAYS, tmp_path)
    owner = Owner(spark, fault.settings, "tiny", only=fault.only())
    take(owner, fault.log, records(range(9)))
    fault.log.send(records(range(9, 20), bad=[12]))
    rows, begun, deaths = fault.log.batch(), owner.commits, 0
    while True:
        owner.crash_at = begun + deaths
        owner.commits = begun
        try:
            owner.catch_up(fault.log)
            if deaths == 0:
                owner.take(rows)
            break
        except Crash:
            deaths += 1
            owner.crash_at = -1
            owner.start()
            begun = owner.commits
    assert deaths
    fault.mend()
    owner.commits, owner.crash_at = 0, 0
    with pytest.raises(Crash):
        carry_out(owner, command("replay_refused_rows", DAYS))
    owner.crash_at = -1
    owner.start()
    before = unfit(owner, DAYS)

    done = replay(owner, DAYS)

    assert len(before) == 1
    assert done == replay(owner, DAYS) == {"moved": 1, "still_refused": 0}  # given again, it tells all of it
    assert owner.rows(DAYS)[0]["notes"] == 20
    sound(owner)


def test_only_row_of_a_slice_is_left_out_where_rows_of_before_can_be_computed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A topic on which little comes waits for nobody; where nothing can be computed any more, it is a bug."""
    fault = spoilt(DAYS, tmp_path)
    owner = Owner(spark, fault.settings, "tiny", suspends=True, only=fault.only())
    take(owner, fault.log, [note(1)])
    take(owner, fault.log, [note(2, words=13)])
    one = unfit(owner, DAYS)
    path_of, _, divides = SPOILT[DAYS]
    fault.project.edit(path_of, divides, 'F.sum(F.expr("words div (words - words)")).alias("words")')
    owner.start()
    take(owner, fault.log, [note(3)])

    assert [(each.of, each.error) for each in one] == [("silver.notes", "DIVIDE_BY_ZERO")]
    assert list(owner.flow.suspended.tables) == [DAYS]
    assert unfit(owner, DAYS) == one


def test_row_of_before_that_bears_witness_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    """In a stateful table it may be near the row that cannot be computed, and is read beside it."""
    fault = spoilt(SITTINGS, tmp_path)
    path, _, spoilt_sum = SPOILT[SITTINGS]
    once = "if(max(words) = 13 or count(*) > count(distinct written_at), raise_error('no'), sum(words))"
    fault.project.edit(path, spoilt_sum, f'F.expr("{once}").cast("bigint").alias("words")')
    owner = Owner(spark, fault.settings, "tiny", only=fault.only())
    take(owner, fault.log, [note(0), note(3)])

    take(owner, fault.log, [note(6, words=13)])

    assert [one.error for one in unfit(owner, SITTINGS)] == ["USER_RAISED_EXCEPTION"]


@pytest.mark.parametrize("table", [DAYS, CITIES])
def test_too_many_rows_set_the_table_aside(spark: SparkSession, tmp_path: Path, table: str) -> None:
    """That is a bug; nothing is left out, and once it is mended all is there."""
    fault = spoilt(table, tmp_path)
    owner = Owner(spark, fault.settings, "tiny", suspends=True, only=fault.only())
    some, many = records(range(90, 95)), records(range(60), bad=range(0, 60, 2))
    if fault.table == CITIES:  # its keys are what is left out, and there are ten of them
        many = [member(n, name="4 Ever") for n in range(60)]
        some = []
    take(owner, fault.log, some)
    take(owner, fault.log, many)
    aside, out = list(owner.flow.suspended.tables), unfit(owner, fault.table)
    fault.mend()
    owner.now += 1_000
    owner.turn()

    assert aside == [fault.table]
    assert out == ()
    assert not owner.flow.suspended.tables
    assert owner.rows(fault.table) == calm(spark, tmp_path, fault, [[*some, *many]])
    sound(owner)


def test_rows_that_fail_together_only_are_not_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody can say which of them is to go."""
    fault = spoilt(DAYS, tmp_path)
    together = "F.expr(\"if(sum(words) < 30, sum(words), raise_error('too many'))\").cast('bigint').alias('words')"
    path, _, divides = SPOILT[DAYS]
    fault.project.edit(path, divides, together)
    owner = Owner(spark, fault.settings, "tiny", only=fault.only())
    take(owner, fault.log, records(range(4)))

    with pytest.raises(PySparkException, match="too many"):
        take(owner, fault.log, records(range(4, 16)))

    assert unfit(owner, DAYS) == ()


def test_a_table_leaves_out_so_many_rows_in_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stands in every entry; beyond the bound somebody has to look."""
    monkeypatch.setattr(fitting, "UNFIT_MAX", 2)
    fault = spoilt(DAYS, tmp_path)
    owner = Owner(spark, fault.settings, "tiny", only=fault.only())
    take(owner, fault.log, records(range(8), bad=[3, 5]))

    with pytest.raises(LakeError, match=r"cannot compute more than 2 rows.*quarantine replay gold\.notes_per_day"):
        take(owner, fault.log, records(range(8, 16), bad=[9]))

    assert len(unfit(owner, DAYS)) == 2


def test_recomputation_and_proof_leave_the_same_out(spark: SparkSession, fault: Fault) -> None:
    """They compare, and say what both lack."""
    owner = Owner(spark, fault.settings, "tiny")
    take(owner, fault.log, records(range(20), bad=[7]))
    take(owner, fault.log, records(range(20, 40), bad=[24]))
    owner.flow.settle()
    lake, data = owner.settings.lake, owner.settings.data

    with Picture(owner.catalog, lake) as picture:
        found = replay_bronze(picture, spark, owner.settings.changed(data=data / "anew"))
    anew = owner.settings.changed(data=data / "proof")
    proof = prove(fault.table, catalog=owner.catalog, lake=lake, spark=spark, anew=anew, keys_min=1)

    assert found == []
    assert proof.verdict == "proved"
    assert proof.left_out == {fault.table: 2}


def test_order_that_fails_with_rows_tells_no_value_of_them(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What Spark says of a cast quotes the value; each row is computed alone, and all of them are not."""
    fault = spoilt(DAYS, tmp_path)
    owner = Owner(spark, fault.settings, "tiny", only=fault.only())
    take(owner, fault.log, records(range(8), bad=[3, 5]))
    path, _, divides = SPOILT[DAYS]
    casts = "F.expr(\"cast(if(count(*) > 1, concat('ann@', 'home.org', sum(words)), '7') as bigint)\").alias('words')"
    fault.project.edit(path, divides, casts)
    owner.start()

    with pytest.raises(CommandError, match="cannot be computed with what it left out: CAST_INVALID_INPUT"):
        carry_out(owner, command("replay_refused_rows", DAYS))

    assert owner.flow.suspended.tables[DAYS].error.startswith("CAST_INVALID_INPUT in transform.py:")
    assert "is suspended" in caplog.text
    assert "ann@home" not in caplog.text


def test_order_for_what_is_not_left_out_says_what_is(spark: SparkSession, tmp_path: Path) -> None:
    """A cause is named as it is listed; what still fails stays, and the order says so."""
    fault = spoilt(DAYS, tmp_path)
    owner = Owner(spark, fault.settings, "tiny", only=fault.only())
    take(owner, fault.log, records(range(8), bad=[3]))

    with pytest.raises(CommandError, match="left out nothing for 'OVERFLOW'.*DIVIDE_BY_ZERO"):
        carry_out(owner, command("replay_refused_rows", DAYS, cause="OVERFLOW"))

    assert replay(owner, DAYS, cause="DIVIDE_BY_ZERO") == {"moved": 0, "still_refused": 1}
    assert len(unfit(owner, DAYS)) == 1


def test_case_says_which_given_row_cannot_be_computed(spark: SparkSession, tmp_path: Path) -> None:
    """Before it comes in a stream."""
    fault = spoilt(DAYS, tmp_path)
    case = "tables/gold/notes_per_day/cases/days_add_up.yml"
    fault.project.edit(case, "words: 12}", "words: 13}")
    known = catalog.load(fault.project.folder)
    (given,) = known.cases(DAYS)

    found = run_case(given, "stream", catalog=known, settings=fault.settings, spark=spark)

    where = "transform.py:11, words * (13 - words) div (13 - words)"
    assert f"cannot be computed: row 1 given: DIVIDE_BY_ZERO in {where}" in found


def staged(owner: Owner, name: str) -> Settings:
    """Where a table is computed again, for the order to publish it."""
    folder = owner.settings.data / "staged" / name
    folder.mkdir(parents=True)
    return owner.settings.changed(data=folder)


def test_rebuild_finds_its_own_and_a_rewind_brings_back_those_of_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """By the code of now: mended, nothing is left out. More rows than are looked for were left out one by one."""
    monkeypatch.setattr(poison, "FOUND_MAX", 2)
    first, second = records(range(8), bad=[6, 7]), records(range(8, 14), bad=[10])
    owner = Owner(spark, fault.settings, "tiny", only=fault.only())
    take(owner, fault.log, first)
    owner.flow.settle()
    then, one = owner.flow.inputs[fault.table].table.version, unfit(owner, fault.table)
    take(owner, fault.log, second)
    owner.flow.settle()
    two, lake = unfit(owner, fault.table), owner.settings.lake
    past = rewind.plan(fault.table, catalog=owner.catalog, lake=lake, to=then)

    rewind.stage(past, catalog=owner.catalog, lake=lake, folder=staged(owner, "back").data)
    carry_out(owner, command("publish", fault.table, number=1, folder="back"))
    back = unfit(owner, fault.table)
    owner.turn()
    again = unfit(owner, fault.table)
    rebuild.stage(fault.table, catalog=owner.catalog, lake=lake, spark=spark, anew=staged(owner, "same"))
    carry_out(owner, command("publish", fault.table, number=2, folder="same"))
    same = unfit(owner, fault.table)
    fault.mend()
    owner.start()
    rebuild.stage(fault.table, catalog=owner.catalog, lake=lake, spark=spark, anew=staged(owner, "mended"))
    carry_out(owner, command("publish", fault.table, number=3, folder="mended"))

    assert len(one) == 2
    assert len(two) == 3
    assert back == one
    assert again == same == two
    assert unfit(owner, fault.table) == ()
    assert owner.rows(fault.table) == calm(spark, tmp_path, fault, [first, second])
    sound(owner)


@pytest.mark.parametrize("table", [DAYS, SITTINGS])
def test_row_that_a_backfill_takes_away_is_left_out_no_more(spark: SparkSession, tmp_path: Path, table: str) -> None:
    """A rule refuses it now; the books are even, and the rows beside it are as they were."""
    fault = spoilt(table, tmp_path)
    for name in {DAYS, CITIES, SITTINGS} - {table}:  # a backfill computes all that is above its table
        fault.project.delete(f"tables/{name.replace('.', '/')}")
        fault.project.delete(f"expectations/{name.replace('.', '/')}.yml")
    owner = Owner(spark, fault.settings, "tiny")
    second = records(range(20, 40), bad=[24])
    for record in second:
        record.at = START + timedelta(days=1)  # what arrives in the range is taken again too
    take(owner, fault.log, records(range(20), bad=[7]))
    take(owner, fault.log, second)
    owner.flow.settle()
    before = owner.rows(table)
    fault.project.edit("expectations/silver/notes.yml", "min_value: 0}", "min_value: 0, max_value: 12}")
    owner.start()

    backfill.stage(
        "silver.notes", ranges=[(START, START + timedelta(minutes=15))], catalog=owner.catalog,
        lake=owner.settings.lake, spark=spark, anew=staged(owner, "one"),
    )  # fmt: skip
    carry_out(owner, command("publish", "silver.notes", folder="one"))
    owner.turn()

    assert len(owner.rows("silver.notes__quarantine")) == 1
    assert len(unfit(owner, table)) == 1
    assert owner.rows(table) == before
    sound(owner)
