"""Analysts ask what tables said at an earlier time."""

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks.analyst import Analyst, connect
from deltaworks.engine import maintenance
from deltaworks.errors import QueryError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.chance import seeded
from tests.flows import BY_ARROW, Log, between_commits
from tests.shop_rows import view
from tests.small_lake import NOON, dated, orders

MINUTE, TICK = dt.timedelta(minutes=1), dt.timedelta(milliseconds=1)
DAYS = "select day(day) from gold.daily_orders order by all"
COUNT = "select count(*) from silver.page_views"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Give a lake whose gold.daily_orders got a day at noon, one a minute later, and lost the first after another."""
    table = tmp_path / "lake/gold/daily_orders"
    write_deltalake(table, orders(20))
    write_deltalake(table, orders(21), mode="append")
    DeltaTable(table).delete("orders = 2000")
    dated(table, NOON, NOON + MINUTE, NOON + 2 * MINUTE)
    return tmp_path / "lake"


def days(analyst: Analyst, as_of: dt.datetime | None) -> list[object]:
    """Days of the month that the table has then."""
    return [row[0] for row in analyst.sql(DAYS, as_of=as_of).rows]


def first_told(error: QueryError) -> dt.datetime:
    """The time that a message says can be asked."""
    return dt.datetime.fromisoformat(error.next_step.split()[3])


@pytest.mark.parametrize(
    ("as_of", "held"),
    [
        (NOON, [20]),
        (NOON + MINUTE - TICK, [20]),
        (NOON + MINUTE, [20, 21]),
        (NOON + 2 * MINUTE - TICK, [20, 21]),
        (NOON + 2 * MINUTE, [21]),
        (NOON + 99 * MINUTE, [21]),
        (NOON.replace(tzinfo=None) + MINUTE, [20, 21]),
        ((NOON + MINUTE).astimezone(dt.timezone(5 * 60 * MINUTE)), [20, 21]),
    ],
)
def test_a_table_is_as_it_had_been_committed_by_then(lake: Path, as_of: dt.datetime, held: list[object]) -> None:
    """The commit's own time counts, to the millisecond, in any zone, UTC without one; times of files do not."""
    assert days(connect(lake), as_of) == held


def test_then_and_now_can_be_asked_in_turn(lake: Path) -> None:
    """An answer of then leaves nothing behind, whichever way it was asked for."""
    analyst = connect(lake)

    now = days(analyst, None)
    then = analyst.arrow(DAYS, as_of=NOON).to_pydict()
    again = days(analyst, None)
    with analyst.stream(DAYS, as_of=NOON + MINUTE) as (_, batches):
        streamed = [row for batch in batches for row in batch]
    write_deltalake(lake / "gold/daily_orders", orders(22), mode="append")
    newest = days(analyst, None)

    assert (now, again, newest) == ([21], [21], [21, 22])
    assert list(then.values()) == [[20]]
    assert streamed == [(20,), (21,)]


def test_the_columns_are_those_of_then(lake: Path) -> None:
    """A column that was added later is not there; system columns of gold stay hidden."""
    wider = orders(22).append_column("paid", pa.array([1], pa.int64()))
    write_deltalake(lake / "gold/daily_orders", wider, mode="append", schema_mode="merge")
    analyst = connect(lake)

    then = analyst.sql("select * from gold.daily_orders", as_of=NOON)
    now = analyst.sql("select * from gold.daily_orders")

    assert [column.name for column in then.columns] == ["day", "orders", "revenue"]
    assert [column.name for column in now.columns] == ["day", "orders", "revenue", "paid"]


def test_each_table_of_a_query_is_of_its_own_last_commit(lake: Path) -> None:
    """Tables are committed one after the other; a table with parts has its files in folders with odd names."""
    parts = lake / "silver/parts"
    for number, name in enumerate(("a b", "ü%", "x/y")):
        write_deltalake(parts, pa.table({"n": [number], "part": [name]}), mode="append", partition_by=["part"])
    dated(parts, NOON, NOON + 2 * MINUTE, NOON + 3 * MINUTE)
    sql = f"with days as ({DAYS}) select (select count(*) from days), list(part order by n) from silver.parts"

    found = [connect(lake).sql(sql, as_of=NOON + number * MINUTE).rows for number in range(4)]

    assert found == [[(1, ["a b"])], [(2, ["a b"])], [(1, ["a b", "ü%"])], [(1, ["a b", "ü%", "x/y"])]]


def test_a_time_to_come_is_refused(lake: Path) -> None:
    """What will be committed until then is not known."""
    with pytest.raises(QueryError) as raised:
        days(connect(lake), dt.datetime(2999, 1, 1, tzinfo=dt.UTC))

    said = r"gold\.daily_orders: cannot be asked as of 2999-01-01T00:00:00\.000Z: that is to come\. "
    assert re.fullmatch(said + r"Ask as of \S+Z or earlier\.", str(raised.value))


def test_a_time_before_the_table_names_the_first_that_can_be_asked(lake: Path) -> None:
    """The time in the message is one that is answered."""
    with pytest.raises(QueryError) as raised:
        days(connect(lake), NOON - TICK)

    assert str(raised.value) == (
        "gold.daily_orders: cannot be asked as of 2026-11-20T12:00:00.249Z: it was made later. "
        "Ask as of 2026-11-20T12:00:00.250Z or later."
    )
    assert days(connect(lake), first_told(raised.value)) == [20]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"timestamp"', '"stamp"'),
        lambda text: text[:-9],
        lambda _: "",
    ],
)
def test_a_log_that_does_not_tell_its_times_is_named(lake: Path, damage: Callable[[str], str]) -> None:
    """A commit of a program that writes no time, or a torn one, is no reason to guess."""
    for file in (lake / "gold/daily_orders/_delta_log").glob("*1.json"):
        file.write_text(damage(file.read_text()))

    with pytest.raises(QueryError, match=r"gold\.daily_orders: cannot be read \(.*\)\. Run"):
        days(connect(lake), NOON)


def test_a_file_that_no_vacuum_may_take_is_missed(lake: Path) -> None:
    """It is no matter of time: the newest version lacks it too."""
    for file in DeltaTable(lake / "gold/daily_orders").file_uris():
        Path(file).unlink()

    with pytest.raises(QueryError, match=r"cannot be read \(a file of its newest version is missing\)\. Run"):
        days(connect(lake), NOON + 2 * MINUTE)


def test_at_in_sql_points_to_the_option(lake: Path) -> None:
    """Versions are not for analysts: those of two tables say nothing of each other."""
    with pytest.raises(QueryError, match="use --as-of"):
        connect(lake).sql("select * from gold.daily_orders at (version => 0)")


@pytest.fixture
def owner(tmp_path: Path) -> ArrowOwner:
    """Give an owner of page views, whose logs are cut to the last ten commits."""
    owner = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web")
    owner.flow.commits_kept = owner.flow.commits_opened = 10
    return owner


def work(owner: ArrowOwner, batches: int) -> list[dt.datetime]:
    """So many batches of one view each, and a time after each of them; the logs get their checkpoints."""
    log, found = Log(), []
    for number in range(batches):
        log.send([view(number)])
        owner.take(log.batch())
        owner.flow.tend()
        found.append(between_commits())
    return found


def test_a_log_that_was_shortened_is_asked_from_where_it_begins(owner: ArrowOwner) -> None:
    """What can be asked is answered as before, what cannot names the first time that can."""
    times = work(owner, 50)
    with connect(owner.settings.lake) as analyst:
        before = [analyst.sql(COUNT, as_of=time).rows for time in times]

        owner.flow.settle()
        with pytest.raises(QueryError, match="what it was then is not kept any more") as raised:
            analyst.sql(COUNT, as_of=times[0])
        first = first_told(raised.value)
        told = [analyst.sql(COUNT, as_of=time).rows for time in times if time >= first]

        assert before == [[(number,)] for number in range(1, 51)]
        assert 1 < len(told) < 50
        assert told == before[-len(told) :]
        assert analyst.sql(COUNT, as_of=first).rows == [(50 - len(told) + 1,)]


def test_files_that_were_vacuumed_are_missed_before_the_answer_begins(owner: ArrowOwner) -> None:
    """Compaction takes nothing away, vacuum does: the message names the first time whose files are there."""
    times = work(owner, 8)
    table = owner.flow.inputs["silver.page_views"].table
    with connect(owner.settings.lake) as analyst:
        maintenance.compact(table, command=1, committer=BY_ARROW)
        compacted = [analyst.sql(COUNT, as_of=time).rows for time in times]
        maintenance.vacuum(table, readers={}, hours=0, command=2, committer=BY_ARROW)
        with pytest.raises(QueryError, match="what it was then is not kept any more") as raised:
            analyst.sql(COUNT, as_of=times[-1])

        assert compacted == [[(number,)] for number in range(1, 9)]
        assert first_told(raised.value) > times[-1]
        assert analyst.sql(COUNT, as_of=first_told(raised.value)).rows == [(8,)]


def test_the_ledger_tells_the_commits_that_were_made_by_then(owner: ArrowOwner) -> None:
    """Also those that were copied afterwards, and those whose log files are gone."""
    times = work(owner, 50)
    owner.flow.settle()
    sql = "select count(*) from ops.ledger where table_name = 'silver.page_views' and kind = 'batch'"

    with connect(owner.settings.lake) as analyst:
        told = [analyst.sql(sql, as_of=time).rows for time in times]
        with pytest.raises(QueryError, match="that is to come"):
            analyst.sql(sql, as_of=dt.datetime(2999, 1, 1, tzinfo=dt.UTC))

    assert told == [[(number,)] for number in range(1, 51)]


def test_every_version_answers_or_says_from_when_on_all_do(tmp_path: Path) -> None:
    """After commits, deletions, compactions, checkpoints and a vacuum in any order."""
    chance, folder = seeded(), tmp_path / "lake/silver/numbers"
    held: list[list[object]] = []  # of each version
    vacuumed = chance.randrange(10, 30)
    for number in range(35):
        write_deltalake(folder, pa.table({"n": [number]}), mode="append")
        record(folder, held)
        if chance.random() < 0.3:
            DeltaTable(folder).delete(f"n % {chance.randrange(5, 9)} = 0")
            record(folder, held)
        if chance.random() < 0.3:
            DeltaTable(folder).optimize.compact()
            record(folder, held)
        if chance.random() < 0.2:
            DeltaTable(folder).create_checkpoint()
        if number == vacuumed:
            DeltaTable(folder).optimize.compact()
            DeltaTable(folder).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            record(folder, held)
    dated(folder, *(NOON + version * MINUTE for version in range(len(held))))

    firsts, refused = set(), set()
    with connect(tmp_path / "lake") as analyst:
        for version, rows in enumerate(held):
            try:
                answer = analyst.sql("select n from silver.numbers order by n", as_of=NOON + version * MINUTE)
                assert [row[0] for row in answer.rows] == rows
            except QueryError as error:
                firsts.add(first_told(error))
                refused.add(version)

    (first,) = firsts  # the vacuum took something
    assert max(refused) == (first - NOON) // MINUTE - 1


def record(folder: Path, held: list[list[object]]) -> None:
    """Remember what the table holds, for each version since the last one."""
    table = DeltaTable(folder)
    rows = sorted(pa.table(table.to_pyarrow_table())["n"].to_pylist())
    held += [rows] * (table.version() + 1 - len(held))
