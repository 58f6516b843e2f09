"""One bad value in a view's other input costs its own row: it is named, the rest is there, and mended it comes back."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine import rebuild
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.replay import replay as replay_bronze
from deltaworks.engine.prove import prove
from deltaworks.errors import UnfitError
from deltaworks.settings import Settings
from tests.broken_rules import command, replay
from tests.flows import START, Log, Owner, Record, carry_out
from tests.tiny_project import Project

VIEW, FILE = "gold.mentions", "tables/gold/mentions/transform.py"
TABLE = '''"""Each note with the city of the member whose name is its writer's number. One row per note."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads=("silver.notes", "silver.members"),
    kept_as=view(keys=("member_id", "note_id")),
    columns=(
        Column("member_id", "bigint", doc="Who wrote it."),
        Column("note_id", "string", null=False, doc="The note."),
        Column("city", "string", doc="Where the one so named lives."),
    ),
    owner="tests",
)
'''
OF_MEMBERS = '''"""Notes beside members."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame, members: DataFrame) -> DataFrame:
    """Join a number with a text: Spark converts the text."""
    joined = notes.alias("n").join(members.alias("m"), F.col("n.member_id") == F.col("m.name"), "left")
    return joined.groupBy("n.member_id", "n.note_id").agg(F.min("m.city").alias("city"))


def keys_from(notes: DataFrame | None = None, members: DataFrame | None = None) -> DataFrame:
    """A note touches itself, a member all notes of the number that she is named by."""
    if notes is not None:
        return notes.select("member_id", "note_id")
    assert members is not None
    return members.select(F.col("name").try_cast("bigint").alias("member_id")).where("member_id is not null")
'''
CASTS = OF_MEMBERS.replace("try_cast", "cast")
"""What most would write: the row raises there as well."""
OF_NOTES = '''"""Members beside notes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame, members: DataFrame) -> DataFrame:
    """Join a number with a part of a text: Spark converts the text."""
    about = F.expr("substring(n.note_id, 2)")
    joined = members.alias("m").join(notes.alias("n"), F.col("m.member_id") == about, "left")
    return joined.select("m.member_id", F.coalesce("n.note_id", F.lit("none")).alias("note_id"), "m.city")


def keys_from(notes: DataFrame | None = None, members: DataFrame | None = None) -> DataFrame:
    """A member touches all her rows, a note those of the member whom it is about."""
    if members is not None:
        return members.select("member_id")
    assert notes is not None
    about = F.expr("substring(note_id, 2)").try_cast("bigint").alias("member_id")
    return notes.select(about).where("member_id is not null")
'''

ALONE = '''"""Notes alone."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame) -> DataFrame:
    """Nobody lives anywhere."""
    return notes.select("member_id", "note_id", F.lit(None).cast("string").alias("city"))


def keys_from(notes: DataFrame) -> DataFrame:
    """A note touches itself."""
    return notes.select("member_id", "note_id")
'''


@dataclass
class Shop:
    """The tiny project with such a view, and what was sent to it."""

    owner: Owner
    log: Log
    project: Project

    @classmethod
    def of(
        cls, spark: SparkSession, folder: Path, transform: str, *, path: str = "auto", whole: bool = False
    ) -> "Shop":
        """Begin with an empty lake; `whole`: all tables of the project take rows."""
        project = Project(folder / "project")
        project.write("tables/gold/mentions/table.py", TABLE)
        project.write(FILE, transform)
        project.write("expectations/gold/mentions.yml", "waived: the join is the point\n")
        settings = Settings.load(project.folder, environment={}, data=folder / "data")
        only = () if whole else ("silver.notes", "silver.members", VIEW)
        return cls(Owner(spark, settings, "tiny", path=path, only=only), Log(), project)

    def take(self, *sent: Record) -> None:
        """One micro-batch of these."""
        self.log.send(sent)
        self.owner.take(self.log.batch())

    def out(self) -> list[tuple[str, str, str]]:
        """What the view leaves out."""
        table = self.owner.flow.inputs[VIEW].table
        table.reopen()
        return [(one.of, one.place, one.error) for one in table.entry.position.unfit]

    def cities(self) -> dict[str, str | None]:
        """The view's rows: city by note."""
        return {f"{row['member_id']} {row['note_id']}": row["city"] for row in self.owner.rows(VIEW)}

    def sound(self) -> None:
        """Nothing is found, and the books are even."""
        assert self.owner.verdicts() == {"ok"}
        with Picture(self.owner.catalog, self.owner.settings.lake) as picture:
            assert check(picture, at_rest=False) == []


def note(name: str, writer: int = 1) -> Record:
    """A note."""
    value = {"note_id": name, "written_at": int(START.timestamp() * 1000), "member_id": writer, "words": 5}
    return Record(topic="notes", value=json.dumps(value).encode())


def member(number: int, name: str | None = None) -> Record:
    """A member, named by a number unless somebody mistyped it; her city says who she is."""
    name = str(number) if name is None else name
    value = {"member_id": number, "name": name, "city": f"C{number}", "dues": "1.00", "joined": None}
    return Record(topic="members", key=b"%d" % number, value=json.dumps(value).encode())


BAD = ("silver.members", '["3"]', "CAST_INVALID_INPUT")


@pytest.mark.parametrize("transform", [OF_MEMBERS, CASTS], ids=["keys_from tries", "keys_from raises too"])
def test_one_bad_value_in_another_input_costs_its_own_row(spark: SparkSession, tmp_path: Path, transform: str) -> None:
    """It is named by its key; other rows come and go as ever; the mended one is there, and named no more."""
    shop = Shop.of(spark, tmp_path, transform)
    shop.take(note("n1", 1), note("n2", 2), note("n3", 3), member(1), member(2))
    shop.take(member(3, "n/a"), note("n4", 1))
    first, named = shop.cities(), shop.out()
    shop.owner.start()
    shop.take(member(2, "1"), note("n5", 2))
    second, still = shop.cities(), shop.out()
    shop.sound()
    shop.take(member(3, "n.a."))
    changed = shop.out()
    shop.take(member(3))

    assert first == {"1 n1": "C1", "1 n4": "C1", "2 n2": "C2", "3 n3": None}
    assert named == still == changed == [BAD]
    assert second == {"1 n1": "C1", "1 n4": "C1", "2 n2": None, "2 n5": None, "3 n3": None}
    assert shop.cities() == {"1 n1": "C1", "1 n4": "C1", "2 n2": None, "2 n5": None, "3 n3": "C3"}
    assert shop.out() == []
    shop.sound()


@pytest.mark.by_spark
def test_bad_row_of_an_input_that_is_sparks_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Also where no row goes to the driver but those that name it."""
    shop = Shop.of(spark, tmp_path, OF_MEMBERS, path="spark")
    shop.take(note("n1", 1), note("n2", 2), member(1), member(2), member(3, "n/a"))

    assert shop.cities() == {"1 n1": "C1", "2 n2": "C2"}
    assert shop.out() == [BAD]


def test_bad_event_of_another_input_is_left_out_by_its_coordinates(spark: SparkSession, tmp_path: Path) -> None:
    """An event has no key; what comes after it is computed without it."""
    shop = Shop.of(spark, tmp_path, OF_NOTES)
    shop.take(member(1), member(2), note("n1"), note("n2"))
    shop.take(note("n/a"), member(3))
    ((of, place, error),) = shop.out()
    shop.owner.start()
    shop.take(note("n3"), member(4))

    assert (of, error) == ("silver.notes", "CAST_INVALID_INPUT")
    assert place == "notes/00000/00000000000000000002"
    assert shop.cities() == {"1 n1": "C1", "2 n2": "C2", "3 n3": "C3", "4 none": "C4"}
    assert len(shop.out()) == 1
    shop.sound()


def test_bad_row_that_goes_is_left_out_no_more(spark: SparkSession, tmp_path: Path) -> None:
    """Its deletion touches no key that could be told."""
    shop = Shop.of(spark, tmp_path, OF_MEMBERS)
    shop.take(note("n1"), member(1), member(2))
    shop.take(member(3, "n/a"), note("n2"))
    named = shop.out()
    shop.take(Record(topic="members", key=b'{"member_id":3}', value=None))

    assert named == [BAD]
    assert shop.out() == []
    shop.sound()


def test_bad_row_of_what_is_no_input_any_more_is_left_out_no_more(spark: SparkSession, tmp_path: Path) -> None:
    """The declaration names other inputs than before."""
    shop = Shop.of(spark, tmp_path, OF_MEMBERS)
    shop.take(note("n1"), member(1), member(2))
    shop.take(member(3, "n/a"), note("n2"))
    named = shop.out()
    shop.project.edit("tables/gold/mentions/table.py", '("silver.notes", "silver.members")', '"silver.notes"')
    shop.project.write(FILE, ALONE)
    again = Owner(spark, shop.owner.settings, "tiny", epoch=shop.owner.epoch, only=shop.owner.only)
    again.take(Log().batch())
    shop.log.send([note("n3")])
    again.take(shop.log.batch())
    shop.owner = again

    assert named == [BAD]
    assert shop.out() == []
    assert "1 n3" in shop.cities()


def test_bad_row_comes_in_by_order_once_the_transform_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    """With the keys that it touches."""
    shop = Shop.of(spark, tmp_path, OF_MEMBERS)
    shop.take(note("n1"), note("n3", 3), member(1), member(2))
    shop.take(member(3, "3 "), member(4, "3x"), note("n2"))
    named, before = shop.out(), shop.cities()
    path, digits = FILE, "F.regexp_extract(F.col('m.name'), '[0-9]+', 0)"
    shop.project.edit(path, 'F.col("m.name")', digits)
    shop.project.edit(path, 'F.col("name").try_cast("bigint")', "F.regexp_extract('name', '[0-9]+', 0).cast('bigint')")

    done = replay(shop.owner, VIEW)

    assert named == [("silver.members", '["4"]', "CAST_INVALID_INPUT")]  # a blank is no mistake
    assert before["3 n3"] == "C3"
    assert done == {"moved": 1, "still_refused": 0}
    assert shop.out() == []
    assert shop.cities()["3 n3"] == "C3"
    shop.sound()


def test_recomputations_and_proofs_leave_the_same_row_out(spark: SparkSession, tmp_path: Path) -> None:
    """Stream, replay of bronze, proof and rebuild have the same rows, and name the same."""
    shop = Shop.of(spark, tmp_path, OF_MEMBERS, whole=True)
    shop.take(note("n1"), note("n2", 2), member(1), member(2))
    shop.take(member(3, "n/a"), note("n3", 3))
    shop.owner.flow.settle()
    rows, named = shop.cities(), shop.out()
    owner, lake, data = shop.owner, shop.owner.settings.lake, shop.owner.settings.data

    with Picture(owner.catalog, lake) as picture:
        replayed = replay_bronze(picture, spark, owner.settings.changed(data=data / "anew"))
    anew = owner.settings.changed(data=data / "proof")
    proof = prove(VIEW, catalog=owner.catalog, lake=lake, spark=spark, anew=anew, keys_min=1)
    folder = data / "staged" / "again"
    folder.mkdir(parents=True)
    rebuild.stage(VIEW, catalog=owner.catalog, lake=lake, spark=spark, anew=owner.settings.changed(data=folder))
    carry_out(owner, command("publish", VIEW, folder="again"))
    owner.turn()

    assert named == [BAD]
    assert replayed == []
    assert (proof.verdict, proof.left_out) == ("proved", {VIEW: 1})
    assert shop.cities() == rows
    assert shop.out() == named
    shop.sound()


def test_a_value_that_most_rows_have_is_a_bug(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is left out where no row of the input can be computed: somebody has to look."""
    shop = Shop.of(spark, tmp_path, OF_MEMBERS)
    shop.take(note("n1"), note("n2", 2))

    with pytest.raises(UnfitError, match=r"cannot compute keys \(1 that were tried\): CAST_INVALID_INPUT"):
        shop.take(*(member(number, "n/a") for number in range(3)), note("n3"))

    assert shop.out() == []
