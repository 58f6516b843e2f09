"""One wrong clock, of a sender, a broker or a machine: nobody else is late by it, and nothing is deleted by it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.engine.clocks import APART_MAX, BY_PRODUCER, Clocks, believed, disbelieved
from deltaworks.engine.entry import Counts
from deltaworks.engine.flow import Flow
from deltaworks.engine.log import read_log
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command
from tests.clocks import Clock
from tests.flows import KAFKA, START, Log, Record, carry_out
from tests.shop_rows import view

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
VIEWS = "silver.page_views"
LONG_AFTER = datetime(2099, 1, 1, tzinfo=UTC)


def sent(number: int, *, happened: datetime, arrives: datetime) -> Record:
    """A view on its way."""
    record = view(number, at=happened)
    record.at = arrives
    return record


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def told_by_producers(rows: pa.Table) -> pa.Table:
    """The records as a topic that is not LogAppendTime hands them on."""
    return rows.append_column(BY_PRODUCER, pa.array([True] * rows.num_rows))


def owner_of_views(folder: Path) -> ArrowOwner:
    """An owner of the views and of nothing that is computed from them."""
    owner = ArrowOwner(Shop(folder / "project").settings(folder / "data"), "web")
    owner.flow.writers = [one for one in owner.flow.writers if one.declared.name == VIEWS]
    return owner


def silver(owner: ArrowOwner) -> pa.Table:
    """All that the table of views has."""
    table = owner.flow.inputs[VIEWS].table
    return table.read(table.schema.names).sort_by("_source")


def test_a_sender_that_is_hours_ahead_makes_nobody_late(tmp_path: Path) -> None:
    """For a minute each second view is 20 hours ahead; those that are right are in time, then and for hours after."""
    owner, log, honest = owner_of_views(tmp_path), Log(), []
    for number in range(40):
        arrives = START + (number * 2 * SECOND if number < 30 else number * HOUR)
        wrong = number < 30 and number % 2 == 0
        log.send([sent(number, happened=arrives + 20 * HOUR if wrong else arrives - SECOND, arrives=arrives)])
        honest += [] if wrong else [f"e{number}"]
        owner.take(log.batch())

    rows = silver(owner).select(["event_id", "_late_by"]).to_pylist()
    late = {row["event_id"]: row["_late_by"] for row in rows}
    assert len(late) == 40
    assert len(honest) == 25
    assert max(late[one] for one in honest) <= 2_000_000  # so far it had come by the arrival of the one before
    assert owner.flow.inputs[VIEWS].table.entry.totals.ahead == 15
    assert next(sheet.ahead for sheet in owner.ledger().sheets() if sheet.table == VIEWS) == 15


def test_a_producer_that_stamps_its_records_in_2099_is_not_believed(tmp_path: Path) -> None:
    """Its event is refused as one of the future, and bronze says how many arrived at another time than they said."""
    owner, log = owner_of_views(tmp_path), Log()
    until = Clocks(wall=(START + MINUTE).timestamp).believed_until()
    log.send([sent(1, happened=START, arrives=START)])
    log.send([sent(2, happened=LONG_AFTER, arrives=LONG_AFTER)])
    log.send([sent(3, happened=START + 3 * HOUR, arrives=START + 3 * HOUR)])

    owner.take(believed(told_by_producers(log.batch()), until))
    log.send([sent(4, happened=START + SECOND, arrives=START + MINUTE)])
    owner.take(believed(told_by_producers(log.batch()), until))

    table = owner.flow.inputs[VIEWS].table
    assert silver(owner)["event_id"].to_pylist() == ["e1", "e3", "e4"]
    assert table.entry.totals == Counts(read=4, taken=3, refused=1, ahead=1)
    assert table.entry.position.mark == until
    assert silver(owner)["_late_by"].to_pylist()[-1] < (2 * MINUTE) / timedelta(microseconds=1)
    assert owner.flow.inputs["bronze.web_events"].table.entry.totals.ahead == 2
    assert owner.flow.sides[VIEWS]["quarantine"].read(["reason"])["reason"].to_pylist() == ["event_time: future"]


def test_records_are_kept_as_they_are_where_the_broker_says_when_they_came() -> None:
    """Its clock is another one than the sender's; and so are all where this machine's clock was set back."""
    rows = pa.Table.from_pylist(
        [{"topic": "t", "partition": 0, "offset": at, "timestamp": LONG_AFTER} for at in range(2)], schema=KAFKA
    )
    mixed = rows.append_column(BY_PRODUCER, pa.array([False, True]))
    micros = int((START + MINUTE).timestamp()) * 10**6 + 1

    bounded = believed(mixed, micros)

    assert bounded.schema == KAFKA
    assert bounded["timestamp"].cast(pa.int64()).to_pylist() == [int(LONG_AFTER.timestamp()) * 10**6, micros]
    assert disbelieved(bounded["timestamp"]).to_pylist() == [False, True]
    assert believed(mixed, None) == rows


def test_times_of_2099_let_nothing_expire(tmp_path: Path) -> None:
    """Events that were believed, as sender and broker agreed: the clock of the owner says what is long past."""
    owner, log = owner_of_views(tmp_path), Log()
    owner.clocks.wall = (START + timedelta(days=800)).timestamp
    log.send([sent(1, happened=START, arrives=START)])
    log.send([sent(2, happened=START + timedelta(days=300), arrives=START + timedelta(days=300))])
    log.send([sent(3, happened=LONG_AFTER, arrives=LONG_AFTER)])
    owner.take(log.batch())

    done = carry_out(owner, command("expire", VIEWS))

    assert done == {"expired": 1, "days_ahead": (LONG_AFTER - START).days - 800}
    assert silver(owner)["event_id"].to_pylist() == ["e2", "e3"]
    owner.clocks.wall = (START + timedelta(days=700)).timestamp
    assert carry_out(owner, command("expire", VIEWS, number=8))["expired"] == 0


@pytest.mark.parametrize("wrong", ["machine", "store", "lake"])
def test_what_expires_is_bounded_by_the_clock_that_is_furthest_behind(wrong: str) -> None:
    """One that is in 2099 lets nothing expire, whichever it is."""
    says = dict.fromkeys(("machine", "store", "lake"), START) | {wrong: LONG_AFTER}
    steady = Clock()
    clocks = Clocks(wall=says["machine"].timestamp, steady=steady)

    clocks.store_says(says["store"])
    clocks.lake_says(says["lake"])

    assert clocks.earliest() == int(START.timestamp()) * 10**6


def test_a_machine_that_begins_in_2099_has_the_time_of_the_last_commit() -> None:
    """Its store is on it too; from there time goes on by what passes, which nobody sets."""
    steady = Clock()
    clocks = Clocks(wall=LONG_AFTER.timestamp, steady=steady)
    clocks.store_says(LONG_AFTER)
    clocks.lake_says(START)

    steady.pass_by(3600.0)

    assert clocks.earliest() == int((START + HOUR).timestamp()) * 10**6


def test_producers_are_believed_up_to_the_clock_that_is_furthest_ahead() -> None:
    """A machine that is behind must not take those for wrong who are right."""
    clocks = Clocks(wall=START.timestamp, steady=Clock())
    alone = clocks.believed_until()
    clocks.store_says(START + HOUR)
    with_store = clocks.believed_until()

    assert alone == int(START.timestamp()) * 10**6 + APART_MAX + 1
    assert with_store == alone + int(HOUR.total_seconds()) * 10**6


def test_a_machine_that_was_set_back_believes_producers_up_to_its_stores_time(caplog: pytest.LogCaptureFixture) -> None:
    """The store is not behind the last commit of bronze, so those who are right are not beyond it."""
    clocks = Clocks(wall=START.timestamp, steady=Clock())
    clocks.store_says(START + HOUR)
    clocks.lake_says(START + HOUR - MINUTE)

    assert clocks.believed_until() == int((START + HOUR).timestamp()) * 10**6 + APART_MAX + 1
    assert caplog.text == ""


@pytest.mark.parametrize("store", [None, START])
def test_nobody_is_disbelieved_by_clocks_that_were_all_set_back(
    caplog: pytest.LogCaptureFixture, store: datetime | None
) -> None:
    """It is told once, and again only if it happens again; once a clock is set right it bounds."""
    clocks = Clocks(wall=START.timestamp, steady=Clock())
    if store is not None:
        clocks.store_says(store)
    clocks.lake_says(START + MINUTE + SECOND)

    assert [clocks.believed_until() for _ in range(3)] == [None] * 3
    assert caplog.text.count("are 61 s behind the last commit") == 1
    clocks.wall = (START + MINUTE).timestamp
    assert clocks.believed_until() == int((START + MINUTE).timestamp()) * 10**6 + APART_MAX + 1
    clocks.wall = START.timestamp
    assert clocks.believed_until() is None
    assert caplog.text.count("behind the last commit") == 2


def test_a_day_has_begun_when_the_clocks_of_owner_and_store_say_so() -> None:
    """Not by when the last owner worked: that may be long ago."""
    clocks = Clocks(wall=(START + timedelta(days=2)).timestamp, steady=Clock())
    clocks.lake_says(START - timedelta(days=9))
    alone = clocks.today()
    clocks.store_says(START + timedelta(days=1))

    assert (alone, clocks.today()) == ((START + timedelta(days=2)).date(), (START + timedelta(days=1)).date())


def test_an_owner_knows_when_the_one_before_it_committed_last(tmp_path: Path) -> None:
    """By the log of bronze; of a lake that nobody owned before there is nothing to know."""
    owner, log = owner_of_views(tmp_path), Log()
    first = owner.flow.last_commit()
    log.send([view(1)])
    owner.take(log.batch())
    bronze = owner.flow.inputs["bronze.web_events"].table
    logged = read_log(bronze.path, bronze.version)

    later = Flow(
        app="web", epoch=owner.epoch + 1, catalog=owner.catalog, settings=owner.settings, guard=lambda: None
    ).last_commit()

    assert first is None
    assert logged is not None
    assert later == logged.at is not None
