"""`history` on the Spark path, and both in turn: the same intervals as by Arrow (tests/unit/test_history.py).

And what reads a history: a view of its current rows.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.checker import Picture, check
from deltaworks.settings import Settings
from tests.chance import seeded
from tests.customers import TABLE, a_source, alone, in_batches, moved, shuffled, states
from tests.flows import START, Log, Owner, Record
from tests.states import MEMBERS, changes, dated, held, held_by_definition, in_parts
from tests.tiny_project import Project


@pytest.mark.by_spark
def test_order_cuts_and_commit_paths_make_no_difference(spark: SparkSession, shop: Settings) -> None:
    """In order and at once on the Arrow path; shuffled with copies, twice by Spark and once by Arrow."""
    chance = seeded()
    records = a_source(chance, 60)
    calm, mixed = (alone(spark, shop.changed(data=shop.data / name)) for name in ("calm", "mixed"))
    in_batches(calm, [records])
    log = Log()
    for path, part in zip(chance.sample(("spark", "spark", "auto"), 3), shuffled(chance, records, cuts=3), strict=True):
        mixed.path = path
        mixed.start()
        log.send(part)
        mixed.take(log.batch())

    assert any(row[4] for row in states(calm))
    assert any(not row[4] for row in states(calm))
    assert states(mixed) == states(calm)
    assert calm.verdicts() == mixed.verdicts() == {"ok"}
    taken = {sheet.taken for owner in (calm, mixed) for sheet in owner.ledger().sheets() if sheet.table == TABLE}
    assert len(taken) == 1


@pytest.mark.by_spark
def test_states_stand_where_their_time_says_on_both_paths(spark: SparkSession, tmp_path: Path) -> None:
    """As by definition, by Spark and by Arrow in turn; corrections, copies, ends that come before a state's time."""
    chance = seeded()
    batches = in_parts(chance, changes(chance, 60), cuts=3)
    owner, log = Owner(spark, dated(tmp_path), "tiny", only=(MEMBERS,)), Log()
    for number, (path, batch) in enumerate(zip(("spark", "auto", "spark", "spark"), batches, strict=True)):
        owner.path = path
        owner.start()
        log.send(batch)
        owner.take(log.batch())
        assert held(owner) == held_by_definition(batches[: number + 1])

    assert owner.verdicts() == {"ok"}
    (sheet,) = (one for one in owner.ledger().sheets() if one.table == MEMBERS)
    assert sheet.taken + sheet.superseded == 60
    assert sheet.superseded > 5
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert not [one for one in check(picture, at_rest=True) if one.place.startswith(MEMBERS)]


@pytest.mark.by_spark
def test_a_truncation_on_the_spark_path(spark: SparkSession, shop: Settings) -> None:
    """It ends what is older, also what comes later, and nothing that is newer; twice it is one."""
    owner, cut = alone(spark, shop, path="spark"), moved("t", 0, 5, second=5)

    in_batches(
        owner,
        [
            [moved("c", 1, 1, second=1), moved("c", 2, 7, second=7), moved("d", 4, 4, second=4)],
            [cut],
            [cut, moved("c", 3, 3, second=3), moved("c", 1, 9, second=9), moved("c", 4, 2, second=2)],
        ],
    )

    assert states(owner) == [
        (1, "n1", 1, 5, False),
        (1, "n9", 9, None, True),
        (2, "n7", 7, None, True),
        (3, "n3", 3, 5, False),
        (4, "n2", 2, 4, False),
    ]
    assert owner.verdicts() == {"ok"}


CITIES = '''"""Members to the cities that they live in now."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(members: DataFrame) -> DataFrame:
    """Count who lives there."""
    living = members.where("is_current")
    return living.groupBy("city").agg(F.count("*").alias("members"), F.sum("dues").cast("decimal(18,2)").alias("dues"))


def keys_from(members: DataFrame) -> DataFrame:
    """The city of a changed row."""
    return members.select("city")
'''


def lives(op: str, number: int, city: str | None, second: int) -> Record:
    """A change of a member, in the second that is its sequence too."""
    key = {"member_id": str(10**19 + number)}
    at = (START - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) + second * 1_000_000
    source = {"schema": "public", "table": "members", "lsn": second, "snapshot": "false", "ts_us": at}
    after = None if city is None else {**key, "name": "Ada", "city": city, "dues": "1.50", "joined": None}
    value = {"before": None, "after": after, "source": source, "op": op}
    return Record(topic="members", key=json.dumps(key).encode(), value=json.dumps(value).encode())


def test_a_view_follows_a_history(spark: SparkSession, tmp_path: Path) -> None:
    """Every row that gets another interval touches its key: the state that ends as well as the one that begins.

    The members' numbers are decimals of 20 digits: files are not left out by their statistics.
    """
    copy = Project(tmp_path / "project")
    declaration = "tables/silver/members/table.py"
    copy.edit(
        declaration, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="public.members")'
    )
    copy.edit(declaration, "kept_as=latest(", "kept_as=history(")
    copy.edit(declaration, "Table, json, latest", "Table, debezium, history")
    copy.edit(declaration, 'Column("member_id", "bigint"', 'Column("member_id", "decimal(20,0)"')
    copy.write("tables/gold/members_per_city/transform.py", CITIES)
    owner = Owner(spark, Settings.load(copy.folder, environment={}, data=tmp_path / "data"), "tiny")
    lived, log = [], Log()
    for part in (
        [lives("c", 1, "Rome", 1), lives("c", 2, "Rome", 2)],
        [lives("u", 1, "Oslo", 5)],
        [lives("u", 1, "Bonn", 4)],  # late: she has moved on already
        [lives("d", 2, None, 6)],
    ):
        log.send(part)
        owner.take(log.batch())
        lived.append({row["city"]: row["members"] for row in owner.rows("gold.members_per_city")})

    assert lived == [{"Rome": 2}, {"Rome": 1, "Oslo": 1}, {"Rome": 1, "Oslo": 1}, {"Oslo": 1}]
    assert len(owner.rows("silver.members")) == 4
    assert owner.verdicts() == {"ok"}
