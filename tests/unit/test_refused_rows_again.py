"""Quarantine is emptied: refused rows are judged again and go where they would have gone, once, whenever that dies."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import deltalake
import pytest

from deltaworks import catalog
from deltaworks.engine.arrival import wait_for
from deltaworks.engine.entry import Position
from deltaworks.engine.points import listening
from deltaworks.engine.writers import history, quarantine
from deltaworks.engine.writers.latest import LatestWriter
from deltaworks.engine.writers.quarantine import DECIDED, QUARANTINE
from deltaworks.errors import CommandError, LakeError, NotArrivedError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import WRONG_RULES, Shop, command, replay
from tests.chance import seeded
from tests.flows import START, Crash, Log, carry_out
from tests.shop_rows import broken, change, customer, order, random_changes, view

STATUS = "rule: expect_column_values_to_be_in_set(status)"
PAGE = "rule: expect_column_values_to_match_regex(page)"
HOUR = timedelta(hours=1)


def replay_dying(owner: ArrowOwner, log: Log, table: str, crash_at: int) -> bool:
    """The same by an owner that dies before a commit, and another that gets the order again; whether it died."""
    aside = len(owner.rows(f"{table}__quarantine"))
    owner.crash_at = owner.commits + crash_at
    died = False
    try:
        done = replay(owner, table)
    except Crash:
        died = True
        owner.crash_at = -1
        owner.start()
        owner.catch_up(log)
        done = replay(owner, table)
    owner.crash_at = -1
    assert done["moved"] == aside > 0
    assert done["still_refused"] == 0
    return died


@pytest.mark.parametrize(("table", "suite", "right", "wrong"), WRONG_RULES)
def test_changes_that_a_wrong_rule_refused_come_to_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, suite: str, right: str, wrong: str
) -> None:
    """Overtaken ones too; the owner dies before each commit in turn, then the order is given again."""
    monkeypatch.setattr(quarantine, "ROWS_PER_BATCH", 8)
    chance = seeded()
    records = random_changes(chance, 45)
    parts = [records[at : at + 15] for at in range(0, len(records), 15)]
    project = Shop(tmp_path / "project")
    calm, log = ArrowOwner(project.settings(tmp_path / "calm"), "shop"), Log()
    for part in parts:
        log.send(part)
        calm.take(log.batch())
    project.edit(suite, right, wrong)
    owner, log = ArrowOwner(project.settings(tmp_path / "wrong"), "shop"), Log()
    for part in parts:
        log.send(part)
        owner.take(log.batch())
    was = owner.rows(table)
    project.edit(suite, wrong, right)
    owner.start()
    assert was != calm.rows(table)

    died = 0
    lake, copy = owner.settings.lake, tmp_path / "copy"
    shutil.copytree(lake, copy)
    epoch = owner.epoch
    while True:
        if not replay_dying(owner, log, table, died):
            break
        died += 1
        assert owner.rows(table) == calm.rows(table), f"died before commit {died}"
        assert not owner.rows(f"{table}__quarantine")
        assert owner.verdicts() == {"ok"}
        shutil.rmtree(lake)
        shutil.copytree(copy, lake)
        owner.epoch = epoch
        owner.start()

    assert died >= 4  # bronze, the marks, the table, and the rows that leave
    assert owner.rows(table) == calm.rows(table)
    assert not owner.rows(f"{table}__quarantine")
    entry = owner.flow.inputs[table].table.entry
    assert (entry.kind, entry.command, entry.totals.refused) == ("replay", 7, 0)
    assert entry.totals.balanced


def test_events_keep_when_they_came_and_how_late_they_were(tmp_path: Path) -> None:
    """A copy is one still; what was late is late by as much, whatever has come meanwhile, and moves no mark."""
    project = Shop(tmp_path / "project")
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    bad = view(3, at=START - HOUR, page="no path")
    for part in (
        [view(1)],
        [bad, bad, view(4, page="no path"), broken(b"{")],
        [view(4), view(2, at=START + 5 * HOUR)],
        [view(9, at=START + 9 * HOUR, page="no path")],
    ):
        log.send(part)
        owner.take(log.batch())
    project.edit("silver/page_views.yml", "'^/'", "'^(/|no)'")
    owner.start()
    mark = owner.flow.inputs["silver.page_views"].table.entry.position.mark

    result = replay(owner, "silver.page_views")

    stored = owner.flow.inputs["silver.page_views"].table
    rows = {row["event_id"]: row for row in stored.read().to_pylist()}
    assert result == {"moved": 4, "taken": 2, "superseded": 0, "duplicate": 2, "not_mine": 0,
                      "filtered": 0, "still_refused": 1}  # fmt: skip
    assert (rows["e3"]["_late_by"], rows["e3"]["_seq"]) == (3600 * 10**6, 2)
    assert (rows["e9"]["_late_by"], rows["e4"]["_seq"]) == (0, 3)
    assert stored.entry.position.mark == mark
    assert [row["reason"] for row in owner.rows("silver.page_views__quarantine")] == ["not JSON"]
    assert owner.verdicts() == {"ok"}
    log.send([bad, view(5, at=START)])  # the stream goes on: a copy of what was replayed, and an event that is late now
    owner.take(log.batch())
    rows = {row["event_id"]: row for row in stored.read().to_pylist()}
    assert (len(rows), rows["e5"]["_late_by"]) == (6, 5 * 3600 * 10**6)


def test_what_is_replayed_is_new_to_the_tables_above(tmp_path: Path) -> None:
    """Those find it among the rows that were added."""
    project = Shop(tmp_path / "project")
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    log.send([view(1), view(2, page="no path")])
    owner.take(log.batch())
    project.edit("silver/page_views.yml", "'^/'", "'^(/|no)'")
    owner.start()
    stored = owner.flow.inputs["silver.page_views"].table
    before = stored.version

    replay(owner, "silver.page_views")

    assert stored.read_added(before, stored.version)["event_id"].to_pylist() == ["e2"]


def test_only_one_cause_is_replayed_or_discarded(tmp_path: Path) -> None:
    """What is discarded stays, is counted as refused, and is never judged again."""
    project = Shop(tmp_path / "project")
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "shop"), Log()
    log.send([change("c", order(1, status="lost"), lsn=1), change("c", order(2, amount="-1.00"), lsn=2)])
    owner.take(log.batch())
    amount = "rule: expect_column_values_to_be_between(amount)"

    assert replay(owner, "silver.orders", number=1, cause=STATUS)["still_refused"] == 1
    done = carry_out(owner, command("discard_refused_rows", "silver.orders", cause=amount))
    project.edit("silver/orders.yml", "min_value: 0", "min_value: -5")
    project.edit("silver/orders.yml", "[placed, paid, cancelled]", "[placed, paid, cancelled, lost]")
    owner.start()
    with pytest.raises(CommandError, match="Causes are: "):
        replay(owner, "silver.orders", number=2, cause=amount)
    assert replay(owner, "silver.orders", number=3)["moved"] == 1

    aside = owner.rows("silver.orders__quarantine")
    assert done == {"discarded": 1}
    assert [(row["reason"], row["state"], row["command"]) for row in aside] == [(amount, "discarded", 7)]
    assert [row["order_id"] for row in owner.rows("silver.orders")] == [1]
    assert owner.verdicts() == {"ok"}


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("replay_refused_rows", "which an owner without Spark cannot run"),
        ("discard_refused_rows", "sets no rows aside"),
    ],
)
def test_table_over_tables_replays_with_spark_and_discards_nothing(tmp_path: Path, kind: str, finding: str) -> None:
    """What its transform could not compute is computed by it, or stays out."""
    owner = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "shop")

    with pytest.raises(CommandError, match=finding):
        carry_out(owner, command(kind, "gold.daily_orders"))


def bad_orders(folder: Path, *, numbers: int = 3) -> tuple[Shop, ArrowOwner]:
    """Orders whose status a rule refuses that was mended since, each of an ingest batch of its own."""
    project = Shop(folder / "project")
    owner, log = ArrowOwner(project.settings(folder / "data"), "shop"), Log()
    for number in range(1, numbers + 1):
        log.send([change("c", order(number, status="lost"), lsn=number)])
        owner.take(log.batch())
    project.edit("silver/orders.yml", "[placed, paid, cancelled]", "[placed, paid, cancelled, lost]")
    owner.start()
    return project, owner


def test_rules_that_change_between_death_and_restart_decide(tmp_path: Path) -> None:
    """Rows were claimed, the owner died, the rule is as it was: they are undecided, and pass once it is mended."""
    project, owner = bad_orders(tmp_path)
    with listening(dying_at("silver.orders.replay.before-commit")), pytest.raises(Crash):
        replay(owner, "silver.orders")
    project.edit("silver/orders.yml", ", lost]", "]")

    owner.start()
    owner.take(Log().batch())
    refused = owner.rows("silver.orders")
    project.edit("silver/orders.yml", "cancelled]", "cancelled, lost]")
    owner.start()
    done = replay(owner, "silver.orders", number=8)

    assert refused == []
    assert (done["moved"], done["still_refused"], len(owner.rows("silver.orders"))) == (3, 0, 3)
    assert owner.verdicts() == {"ok"}


def dying_at(point: str) -> Callable[[str], None]:
    """What kills the process at a point."""

    def listen(reached: str) -> None:
        if reached == point:
            raise Crash(point)

    return listen


def test_table_that_is_set_aside_on_the_way_goes_on_with_what_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order fails with the reason; what it had begun is done when the table is tried again, and counted once."""
    _, owner = bad_orders(tmp_path)
    owner.suspends = True
    owner.start()
    writer = next(one for one in owner.flow.writers if one.declared.name == "silver.orders")
    assert isinstance(writer, LatestWriter)

    def fails(*_: object) -> None:
        raise LakeError("silver.orders", "disk full", "Make room")

    monkeypatch.setattr(writer, "_keep", fails)
    with pytest.raises(CommandError, match="silver.orders is suspended: silver.orders: disk full"):
        replay(owner, "silver.orders")
    owner.now += 10
    owner.flow.take_slice("silver.orders", None)
    alone = owner.rows("silver.orders")
    done = replay(owner, "silver.orders")

    assert len(alone) == 3
    assert (done["moved"], done["taken"], done["still_refused"]) == (3, 3, 0)
    assert owner.rows("silver.orders__quarantine") == []
    assert owner.verdicts() == {"ok"}


def test_quarantine_of_an_older_version_is_replayed_too(tmp_path: Path) -> None:
    """Its files know nothing of claims and commands."""
    project, owner = bad_orders(tmp_path)
    del project
    side = owner.flow.sides["silver.orders"]["quarantine"]
    side.reopen()
    older = side.read([name for name in QUARANTINE.names if name not in DECIDED])
    deltalake.write_deltalake(
        str(side.path), older, mode="overwrite", schema_mode="overwrite", commit_properties=side.properties(side.entry)
    )
    owner.start()

    done = replay(owner, "silver.orders")

    assert (done["moved"], done["still_refused"], len(owner.rows("silver.orders"))) == (3, 0, 3)


def test_replay_of_one_table_does_not_need_those_of_tables_that_are_gone(tmp_path: Path) -> None:
    """What a table was ordered that is declared no more is forgotten."""
    project, owner = bad_orders(tmp_path)
    replay(owner, "silver.orders", number=1)
    for layer, name in (("gold", "daily_orders"), ("silver", "orders")):
        shutil.rmtree(project.folder / "tables" / layer / name)
        (project.folder / "expectations" / layer / f"{name}.yml").unlink()
    owner.catalog = catalog.load(project.folder)
    owner.start()
    log = Log()
    log.send([change("c", {"customer_id": 1}, lsn=9, table="customers") for _ in range(9)])
    owner.take(log.batch())

    done = replay(owner, "silver.customers", number=2)

    assert (done["moved"], done["still_refused"]) == (0, 6)
    assert [one.table for one in owner.flow.bronze[0].table.entry.position.replays] == ["silver.customers"]


@pytest.mark.parametrize("what", ["bytes", "rows"])
def test_history_that_is_too_large_for_arrow_wants_a_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Said before anything is begun; few bytes may hold very many rows."""
    project = Shop(tmp_path / "project")
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "shop"), Log()
    log.send([change("c", customer(1, "Ann"), lsn=1, table="customers")])
    owner.take(log.batch())
    before = owner.flow.bronze[0].table.version
    if what == "bytes":
        owner.flow.settings = owner.settings.changed(arrow_bytes_max=1)
    else:
        monkeypatch.setattr(history, "ROWS_FOLDED_MAX", 0)

    with pytest.raises(CommandError, match="too large for an owner without Spark"):
        replay(owner, "silver.customers")

    assert owner.flow.bronze[0].table.version == before


def test_who_waits_for_a_record_is_told_how_to_mend_and_sees_it_replayed(tmp_path: Path) -> None:
    """A refused record has not arrived; one that was judged again has."""
    _, owner = bad_orders(tmp_path, numbers=1)
    record = {"table": "silver.orders", "topic": "shop.changes", "partition": 0, "offset": 0, "timeout_seconds": 0.0}

    with pytest.raises(NotArrivedError, match='run "deltaworks quarantine replay"'):
        wait_for(owner.settings.lake, **record)  # type: ignore[arg-type]  # as named
    replay(owner, "silver.orders")

    assert wait_for(owner.settings.lake, **record).offset == 0  # type: ignore[arg-type]  # as named


def test_who_waits_is_not_held_up_by_a_replay_of_nothing(tmp_path: Path) -> None:
    """It brought no row, so tables above have nothing to take of it."""
    project = Shop(tmp_path / "project")
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    log.send([view(1), view(2, page="no path")])
    owner.take(log.batch())
    source, gold = (owner.flow.inputs[name].table for name in ("silver.page_views", "gold.page_views_per_minute"))
    position = Position(versions={"silver.page_views": source.version})
    owner.flow._committer(None).mark(gold, gold.entry.follow("batch", position=position))

    done = replay(owner, "silver.page_views")

    record = {"topic": "page_views", "partition": 1, "offset": 0, "timeout_seconds": 0.0}
    assert (done["moved"], done["still_refused"]) == (0, 1)
    assert wait_for(owner.settings.lake, table=gold.name, **record).offset == 0  # type: ignore[arg-type]  # as named
