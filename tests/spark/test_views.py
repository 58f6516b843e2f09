"""Views whose `keys_from` says only a part of the key, or several: they are what a computation of all rows gives."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.lake import TooMuchError
from deltaworks.engine.needed import Wanted, needed
from deltaworks.engine.poison import FOUND_MAX
from deltaworks.engine.snapshot import Snapshot
from deltaworks.engine.spark.planned import Plans
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from tests.chance import seeded
from tests.flows import Log, Owner, Record
from tests.tiny_project import Project

NOTES_TABLE = '''"""Notes with their writer as she is now. One row per note of somebody who is known or not."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads=("silver.notes", "silver.members"),
    kept_as=view(keys=("member_id", "note_id")),
    columns=(
        Column("member_id", "bigint", doc="Who wrote it, if known."),
        Column("note_id", "string", null=False, doc="The note."),
        Column("city", "string", doc="Where she lives now."),
        Column("share", "double", doc="Words per euro of her dues: not to be computed where she pays none."),
    ),
    owner="tests",
)
'''
NOTES_TRANSFORM = '''"""Notes joined with members."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame, members: DataFrame) -> DataFrame:
    """Put the writer beside each note."""
    joined = notes.join(members.select("member_id", "city", "dues"), "member_id", "left")
    return joined.select("member_id", "note_id", "city", (F.col("words") / F.col("dues").cast("double")).alias("share"))


def keys_from(notes: DataFrame | None = None, members: DataFrame | None = None) -> DataFrame:
    """A note touches itself, a member all her notes."""
    if notes is not None:
        return notes.select("member_id", "note_id")
    assert members is not None
    return members.select("member_id")
'''
PAIRS_TABLE = '''"""Members who live in the same city. One row per member and other member."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.members",
    kept_as=view(keys=("member_id", "other_id")),
    columns=(
        Column("member_id", "bigint", null=False, doc="One ..."),
        Column("other_id", "bigint", null=False, doc="... and the other."),
        Column("city", "string", null=False, doc="Where both live."),
    ),
    owner="tests",
)
'''
PAIRS_TRANSFORM = '''"""Members to pairs."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(members: DataFrame) -> DataFrame:
    """Join members with those of the same city."""
    others = members.select(F.col("member_id").alias("other_id"), "city")
    return members.join(others, "city").where("member_id <> other_id").select("member_id", "other_id", "city")


def keys_from(members: DataFrame) -> tuple[DataFrame, DataFrame]:
    """All pairs with a changed member, on either side."""
    touched = members.select("member_id")
    return touched, touched.select(F.col("member_id").alias("other_id"))
'''
SITTINGS_TABLE = '''"""Notes of a member written one after the other. One row per sitting."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=view(keys=("member_id", "began")),
    columns=(
        Column("member_id", "bigint", doc="Who wrote."),
        Column("began", "timestamp", null=False, doc="Time of the first note, UTC."),
        Column("notes", "bigint", null=False, doc="How many."),
    ),
    owner="tests",
)
'''
SITTINGS_TRANSFORM = '''"""Notes to sittings."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame) -> DataFrame:
    """Put the notes of a member together while they are no more than ten minutes apart."""
    sitting = F.session_window("written_at", "10 minutes").alias("w")
    made = notes.groupBy("member_id", sitting).agg(F.count("*").alias("notes"))
    return made.select("member_id", F.col("w.start").alias("began"), "notes")


def keys_from(notes: DataFrame) -> DataFrame:
    """All sittings of its writer."""
    return notes.select("member_id")
'''
DAYS_TABLE = '''"""Notes of a day. One row per day."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=view(keys=("day",)),
    columns=(
        Column("day", "date", null=False, doc="The day, UTC."),
        Column("notes", "bigint", null=False, doc="How many."),
    ),
    owner="tests",
)
'''
DAYS_TRANSFORM = '''"""Notes to days."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

DAY = F.date_trunc("day", "written_at").alias("day")


def transform(notes: DataFrame) -> DataFrame:
    """Count; the day is a time here, which the table declares a date."""
    return notes.groupBy(DAY).agg(F.count("*").alias("notes"))


def keys_from(notes: DataFrame) -> DataFrame:
    """The day of each note."""
    return notes.select(DAY)
'''
ROOMS_TABLE = '''"""Members by the room that they live in, where it has a number. One row per room."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.members",
    kept_as=view(keys=("room",)),
    columns=(
        Column("room", "int", doc="Its number."),
        Column("members", "bigint", null=False, doc="How many."),
    ),
    owner="tests",
)
'''
ROOMS_TRANSFORM = '''"""Members to rooms."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def _rooms(members: DataFrame) -> DataFrame:
    numbered = members.where("city rlike '^R[0-9]+$'")
    return numbered.select(F.substring("city", 2, 9).cast("int").alias("room"))


def transform(members: DataFrame) -> DataFrame:
    """Count those whose room has a number."""
    return _rooms(members).groupBy("room").agg(F.count("*").alias("members"))


def keys_from(members: DataFrame) -> DataFrame:
    """The room of each."""
    return _rooms(members)
'''
ARRIVALS_TABLE = '''"""Members by the time that stands for where they live. One row per window of ninety minutes."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.members",
    kept_as=view(keys=("began",)),
    columns=(
        Column("began", "timestamp", doc="Where the window begins, each hour."),
        Column("members", "bigint", null=False, doc="How many."),
    ),
    owner="tests",
)
'''
ARRIVALS_TRANSFORM = '''"""Members to windows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def _windows(members: DataFrame) -> DataFrame:
    timed = members.where("city like 'T%'")
    windows = timed.select(F.window(F.to_timestamp(F.substring("city", 2, 19)), "90 minutes", "1 hour").alias("w"))
    return windows.select(F.col("w.start").alias("began"))


def transform(members: DataFrame) -> DataFrame:
    """Count those that have a time."""
    return _windows(members).groupBy("began").agg(F.count("*").alias("members"))


def keys_from(members: DataFrame) -> DataFrame:
    """The windows of each."""
    return _windows(members)
'''
PAYERS_TABLE = '''"""Members by what they pay. One row per sum and member."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.members",
    kept_as=view(keys=("dues", "member_id")),
    columns=(
        Column("dues", "decimal(20,0)", null=False, doc="Paid per year, in euros."),
        Column("member_id", "bigint", null=False, doc="Who pays it."),
    ),
    owner="tests",
)
'''
PAYERS_TRANSFORM = '''"""Members to payers."""

from pyspark.sql import DataFrame


def transform(members: DataFrame) -> DataFrame:
    """Say who pays what."""
    return members.select("dues", "member_id")


def keys_from(members: DataFrame) -> DataFrame:
    """All who pay the same."""
    return members.select("dues")
'''
VIEWS = ("gold.notes_with_members", "gold.neighbours")
CITIES, MEMBERS = ("Rome", "Oslo", "Bonn"), 6
NOTES = FOUND_MAX  # where more raise at once, the table is set aside
Member = tuple[str, int]


def with_views(folder: Path) -> Project:
    """A project with both views, over members that a database reports."""
    copy = Project(folder)
    declaration = "tables/silver/members/table.py"
    copy.edit(
        declaration, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="public.members")'
    )
    copy.edit(declaration, "Table, json, latest", "Table, debezium, latest")
    made = {"notes_with_members": (NOTES_TABLE, NOTES_TRANSFORM), "neighbours": (PAIRS_TABLE, PAIRS_TRANSFORM)}
    for name, (table, transform) in made.items():
        copy.write(f"tables/gold/{name}/table.py", table)
        copy.write(f"tables/gold/{name}/transform.py", transform)
        copy.write(f"tables/gold/{name}/cases/none.yml", "doc: None.\ngiven: {silver.members: []}\nthen: {rows: []}\n")
        copy.write(f"expectations/gold/{name}.yml", "waived: made by a test\n")
    for silver in ("members", "notes"):
        copy.delete(f"tables/silver/{silver}/cases")
        copy.write(
            f"tables/silver/{silver}/cases/none.yml", "doc: None.\ngiven: {bronze.letters: []}\nthen: {rows: []}\n"
        )
    return copy


def change(number: int, member: Member | None, sequence: int) -> Record:
    """A change of a member: what she is now, or that she left."""
    source = {"schema": "public", "table": "members", "lsn": sequence, "snapshot": "false", "ts_us": 10**15 + sequence}
    key = {"member_id": number}
    after = None if member is None else {**key, "name": "A", "city": member[0], "dues": f"{member[1]}", "joined": None}
    value = {"before": None, "after": after, "source": source, "op": "d" if member is None else "u"}
    return Record(topic="members", key=json.dumps(key).encode(), value=json.dumps(value).encode())


def note(number: int, writer: int | None, words: int, minute: int = 0) -> Record:
    """A note, whoever wrote it."""
    at = 1_795_168_800_000 + 60_000 * minute
    event = {"note_id": f"n{number}", "written_at": at, "member_id": writer, "words": words}
    return Record(topic="notes", value=json.dumps(event).encode())


def random_records(chance: Random) -> tuple[list[Record], dict[int, Member], list[tuple[str, int | None, int]]]:
    """Records of both topics in some order, and what they come to."""
    records, members, notes = list[Record](), dict[int, Member](), list[tuple[str, int | None, int]]()
    for at in range(NOTES):
        # the first can be computed: where nothing can, the table is set aside
        writer, words = chance.choice([None, *range(MEMBERS + 1)]) if at else None, chance.randint(1, 9)
        notes.append((f"n{at}", writer, words))
        records.append(note(at, writer, words))
        number = chance.randrange(MEMBERS)
        gone = number in members and chance.random() < 0.3
        member = None if gone else (chance.choice(CITIES), chance.choice((0, 1, 2)))
        records.append(change(number, member, at + 1))
        if member is None:
            del members[number]
        else:
            members[number] = member
    return records, members, notes


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_parts_of_keys_touch_all_rows_that_have_them(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Whatever the order, the cuts and the restarts: notes of members who pay nothing are left out until they pay."""
    chance, folder = seeded(), with_views(tmp_path / "project").folder
    settings = Settings.load(folder, environment={}, data=tmp_path / "data")
    read = {"bronze.letters", "silver.members", "silver.notes", *VIEWS}
    owner = Owner(spark, settings, "tiny", only=read, path="auto")
    records, members, notes = random_records(chance)
    log, cuts = Log(), sorted(chance.sample(range(1, len(records)), 4 if path == "auto" else 1))
    for at, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(records)], strict=True)):
        log.send(records[low:high])
        owner.take(log.batch())
        if at == 0:  # from here on: a table that is made by Spark from the start tells little of what changes it
            owner.path = path
        if chance.random() < 0.5 or at == 0:
            owner.start()
    owner.turn()

    nobody: tuple[None, None] = (None, None)
    joined = [
        (writer, name, *(nobody if writer is None else members.get(writer, nobody)), words)
        for name, writer, words in notes
    ]
    expected = {
        (writer, name, city, None if dues is None else words / dues)
        for writer, name, city, dues, words in joined
        if dues != 0
    }
    assert {(r["member_id"], r["note_id"], r["city"], r["share"]) for r in owner.rows(VIEWS[0])} == expected
    pairs = {(a, b, members[a][0]) for a in members for b in members if a != b and members[a][0] == members[b][0]}
    assert {(r["member_id"], r["other_id"], r["city"]) for r in owner.rows(VIEWS[1])} == pairs
    left_out = owner.flow.inputs[VIEWS[0]].table.entry.position.unfit
    assert len(left_out) == sum(dues == 0 for *_, dues, _ in joined)
    assert owner.verdicts() == {"ok"}


def test_a_part_touches_keys_that_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """What cannot be computed is known by its whole key: it raises no more when the filter it fails in runs again."""
    copy = with_views(tmp_path / "project")
    path = "tables/gold/notes_with_members/transform.py"
    copy.edit(path, '.alias("share"))\n', '.alias("share")).where("share is null or share > 0")\n')
    settings = Settings.load(copy.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny", only={"silver.members", "silver.notes", VIEWS[0]})
    log, rows = Log(), []
    for batch in (
        [change(1, ("Rome", 0), 1), change(2, ("Rome", 1), 2)],
        [note(1, 1, 4), note(2, 2, 4)],  # the first of them divides by zero
        [change(1, ("Oslo", 0), 3), change(2, ("Oslo", 1), 4)],
        [change(1, ("Bonn", 2), 5)],
    ):
        log.send(batch)
        owner.take(log.batch())
        rows.append([(r["note_id"], r["city"], r["share"]) for r in owner.rows(VIEWS[0])])

    assert rows == [[], [("n2", "Rome", 4.0)], [("n2", "Oslo", 4.0)], [("n1", "Bonn", 2.0), ("n2", "Oslo", 4.0)]]
    assert owner.verdicts() == {"ok"}


def test_a_part_touches_keys_in_a_file_whose_statistics_miss_its_decimal(spark: SparkSession, tmp_path: Path) -> None:
    """Those of a long decimal are a double, below the only value of its file or above it."""
    copy = with_views(tmp_path / "project")
    copy.edit("tables/silver/members/table.py", "decimal(8,2)", "decimal(20,0)")
    copy.write("tables/gold/payers/table.py", PAYERS_TABLE)
    copy.write("tables/gold/payers/transform.py", PAYERS_TRANSFORM)
    copy.write("tables/gold/payers/cases/none.yml", "doc: None.\ngiven: {silver.members: []}\nthen: {rows: []}\n")
    copy.write("expectations/gold/payers.yml", "waived: made by a test\n")
    settings = Settings.load(copy.folder, environment={}, data=tmp_path / "data")
    owner = Owner(spark, settings, "tiny", only={"bronze.letters", "silver.members", "gold.payers"}, path="auto")
    log, much, more = Log(), 12345678901234567891, 12345678901234567893
    for at, dues in enumerate((much, more)):
        log.send([change(1, ("Rome", dues), at + 1)])
        owner.take(log.batch())
    owner.turn()

    assert [(row["dues"], row["member_id"]) for row in owner.rows("gold.payers")] == [(more, 1)]


def test_parts_of_more_keys_than_can_be_read_let_all_be_computed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was computed of the parts alone is not taken for all that there is."""
    monkeypatch.setattr(Plans, "begin", lambda _plans, task, _spark: task())
    monkeypatch.setattr("deltaworks.engine.writers.view.WHOLE_BYTES_MAX", 0)
    settings = Settings.load(with_views(tmp_path / "project").folder, environment={}, data=tmp_path / "data")
    owner, log = Owner(spark, settings, "tiny", only={"silver.members", VIEWS[1]}), Log()
    cities = dict(enumerate(["Rome", "Rome", "Bonn", "Bonn", "Oslo", "Oslo"]))
    log.send(change(number, (city, 1), number + 1) for number, city in cities.items())
    owner.take(log.batch())
    table = owner.flow.inputs[VIEWS[1]].table
    read = table.read

    def refused(*given: Any, bytes_max: int | None = None, **named: Any) -> pa.Table:
        if bytes_max is not None:
            raise TooMuchError(bytes_max)
        return read(*given, **named)

    for sequence, (number, city) in enumerate([(0, "Bonn"), (1, "Oslo"), (2, "Oslo")], start=10):
        log.send([change(number, (city, 1), sequence)])
        cities[number] = city
        owner.take(log.batch())

        pairs = {(one, other) for one in cities for other in cities if one != other and cities[one] == cities[other]}
        assert {(row["member_id"], row["other_id"]) for row in owner.rows(VIEWS[1])} == pairs
        monkeypatch.setattr(table, "read", refused)

    ways = {way for name, way, _ in owner.flow.turns._sums if name == VIEWS[1]}
    assert ways == {"direct" if settings.direct_plans else "ordinary"}


def test_inputs_that_are_too_much_together_go_within_a_turn(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only after it: when an app starts, each of its views reads its inputs in the same turn."""
    monkeypatch.setattr("deltaworks.engine.feed.SNAPSHOTS_TIMES", 0)
    folder = with_views(tmp_path / "project").folder
    settings = Settings.load(folder, environment={}, data=tmp_path / "data", direct_plans=True)
    owner, log = Owner(spark, settings, "tiny", only={"silver.members", "silver.notes", *VIEWS}), Log()
    log.send([change(1, ("Rome", 1), 1), change(2, ("Rome", 1), 2), note(1, 1, 4)])
    owner.take(log.batch())

    ways = Counter(way for name, way, _ in owner.flow.turns._sums if name in VIEWS)
    assert ways == {"direct": 1, "ordinary": 1}
    assert [len(owner.rows(name)) for name in VIEWS] == [1, 2]


@contextmanager
def given_to(monkeypatch: pytest.MonkeyPatch, owner: Owner) -> Iterator[list[int]]:
    """How many members a view of them is given in a turn, whose inputs are cut however small they are."""
    given = list[int]()

    def spy(whole: Mapping[str, Snapshot], wanted: Sequence[Wanted]) -> dict[str, pa.Table]:
        found = needed(whole, wanted)
        given.append(found["silver.members"].num_rows)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Plans, "begin", lambda _plans, task, _spark: task())
        patched.setattr("deltaworks.engine.writers.view.WHOLE_BYTES_MAX", 0)
        patched.setattr("deltaworks.engine.writers.view.needed", spy)
        yield given
    assert owner.verdicts() == {"ok"}


def test_keys_that_are_computed_cut_a_views_inputs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the engine: what decides the keys is found out, computed of each row, and just their rows are given.

    Also where it cannot be computed of a row that the transform leaves out.
    """
    owner = of_members(spark, tmp_path, "rooms", ROOMS_TABLE, ROOMS_TRANSFORM)
    log, rooms = Log(), {number: f"R{number % 4}" for number in range(12)}
    log.send(change(number, (room, 1), number + 1) for number, room in rooms.items())
    owner.take(log.batch())
    moves = [(0, "R1"), (1, "R2"), (2, None), (5, "None"), (3, "R0"), (5, "R1"), (4, "R3")]
    with given_to(monkeypatch, owner) as given:
        for sequence, (number, room) in enumerate(moves, start=100):
            given.clear()
            touched = {rooms.pop(number), room}
            if room is not None:
                rooms[number] = room
            log.send([change(number, None if room is None else (room, 1), sequence)])
            owner.take(log.batch())

            many = Counter(int(one[1:]) for one in rooms.values() if one != "None")
            assert given == [sum(one in touched for one in rooms.values() if one != "None")]
            assert {(row["room"], row["members"]) for row in owner.rows("gold.rooms")} == set(many.items())


def test_windows_over_what_is_computed_cut_a_views_inputs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They overlap, so each row has several; a text that is no time raises, and the transform leaves it out."""
    owner = of_members(spark, tmp_path, "arrivals", ARRIVALS_TABLE, ARRIVALS_TRANSFORM)
    log, hour, day = Log(), timedelta(hours=1), datetime(2026, 1, 1, tzinfo=UTC)
    times = dict[int, datetime | None]()

    def come(number: int, at: datetime | None, sequence: int) -> Record:
        times[number] = at
        return change(number, ("None" if at is None else f"T{at:%F %T}", 1), sequence)

    log.send(come(number, day + 50 * number * timedelta(minutes=1), number + 1) for number in range(24))
    owner.take(log.batch())
    with given_to(monkeypatch, owner) as given:
        for sequence, (number, at) in enumerate([(0, day + 9 * hour), (5, None), (7, day), (5, day), (0, None)]):
            given.clear()
            log.send([come(number, at, sequence + 100)])
            owner.take(log.batch())

            came = [one for one in times.values() if one is not None]
            hours = [(one, day + (one - day) // hour * hour - earlier * hour) for one in came for earlier in (0, 1)]
            many = Counter(begin for one, begin in hours if one < begin + 1.5 * hour)
            assert 0 < max(given) < len(came) / 2
            found = {(row["began"].replace(tzinfo=UTC), row["members"]) for row in owner.rows("gold.arrivals")}
            assert found == set(many.items())


def of_members(spark: SparkSession, folder: Path, name: str, table: str, transform: str) -> Owner:
    """An owner of the members that a database reports, and of a view of them, which is declared so."""
    project = with_views(folder / "project")
    return _of_view(spark, project, "silver.members", name, table, transform, direct=True)


def of_notes(spark: SparkSession, folder: Path, name: str, table: str, transform: str, *, direct: bool) -> Owner:
    """An owner of the notes and of a view of them, which is declared so."""
    return _of_view(spark, Project(folder / "project"), "silver.notes", name, table, transform, direct=direct)


def _of_view(
    spark: SparkSession, project: Project, source: str, name: str, table: str, transform: str, *, direct: bool
) -> Owner:
    project.write(f"tables/gold/{name}/table.py", table)
    project.write(f"tables/gold/{name}/transform.py", transform)
    project.write(f"expectations/gold/{name}.yml", "waived: made by a test\n")
    data = project.folder.parent / "data"
    settings = Settings.load(project.folder, environment={}, data=data, direct_plans=direct)
    return Owner(spark, settings, "tiny", only=(source, f"gold.{name}"))


@pytest.mark.parametrize("direct", [True, False])
def test_a_key_may_be_given_as_another_type_than_is_declared(
    spark: SparkSession, tmp_path: Path, *, direct: bool
) -> None:
    """It is what the table declares before keys are told apart."""
    owner, log = of_notes(spark, tmp_path, "days", DAYS_TABLE, DAYS_TRANSFORM, direct=direct), Log()
    found = []

    for number, minute in enumerate([0, 1, 24 * 60, 2]):
        log.send([note(number, 1, 1, minute)])
        owner.take(log.batch())
        found.append(sorted(row["notes"] for row in owner.rows("gold.days")))

    assert found == [[1], [2], [1, 2], [1, 3]]


def test_keys_that_are_none_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A misspelt column would touch nothing, and nobody would notice."""
    copy = with_views(tmp_path / "project")
    path = "tables/gold/notes_with_members/transform.py"
    copy.edit(path, 'members.select("member_id")', 'members.select(F.col("member_id").alias("membr_id"))')
    settings = Settings.load(copy.folder, environment={}, data=tmp_path / "data")
    owner, log = Owner(spark, settings, "tiny", only={"silver.members", VIEWS[0]}), Log()
    owner.turn()

    log.send([change(1, ("Rome", 1), 1)])
    with pytest.raises(LakeError, match="membr_id, which is no key"):
        owner.take(log.batch())


@pytest.mark.parametrize("direct", [True, False])
def test_sessions_in_a_view_are_whole(spark: SparkSession, tmp_path: Path, *, direct: bool) -> None:
    """Spark applies a condition on few sessions to each row alone: none is asked for."""
    owner, log = of_notes(spark, tmp_path, "sittings", SITTINGS_TABLE, SITTINGS_TRANSFORM, direct=direct), Log()
    turns = [[(0, 0), (0, 5), (0, 20), (1, 3)], [(0, 9), (1, 40)], [(0, 28), (1, 45), (1, 46)]]

    for turn, sent in enumerate(turns):
        log.send(note(10 * turn + at, writer, 1, minute) for at, (writer, minute) in enumerate(sent))
        owner.take(log.batch())
        minutes = [one for part in turns[: turn + 1] for one in part]
        wanted = [(one, many) for one in (0, 1) for many in _sittings([at for who, at in minutes if who == one])]

        assert sorted((row["member_id"], row["notes"]) for row in owner.rows("gold.sittings")) == sorted(wanted)


def _sittings(minutes: list[int]) -> list[int]:
    """How many notes each has: one begins more than ten minutes after the last note."""
    found, before = list[int](), None
    for minute in sorted(minutes):
        if before is None or minute - before > 10:
            found.append(0)
        found[-1] += 1
        before = minute
    return found
