"""Recomputations that are ordered one by one, and worked on together in a process beside the owner."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from deltaworks import processes
from deltaworks.control import Command, Lease, Store
from deltaworks.control.commands import RECOMPUTE
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.folders import folder_of
from deltaworks.engine.recompute_process import RecomputeProcess
from tests.broken_rules import Shop
from tests.flows import START, Log, Owner, carry_out
from tests.running_stack import wait_until
from tests.scratch_postgres import ScratchPostgres, scratch_postgres
from tests.spark.test_backfill import ABOVE, DAY, TABLE, days, shown
from tests.unit.launching import control_of

RIGHT, WRONG = "'^/'", "'^/c'"
Wrong = tuple[Owner, Store, Lease]


@pytest.fixture(scope="module")
def server() -> Iterator[ScratchPostgres]:
    """Give the server of the control store."""
    with scratch_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def wrong(spark: SparkSession, server: ScratchPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrong]:
    """Give the owner of a lake whose rule was wrong on all of three days, its store and its lease."""
    folder = tmp_path_factory.mktemp("wrong")
    project = Shop(folder / "project")
    settings = control_of(server.dsn, server.port, project.settings(folder / "data"))
    with Store(settings.control_dsn()) as store:
        lease = store.acquire("web", owner="stream", seconds=3600, pid=1, process_started="1")
        project.edit("silver/page_views.yml", RIGHT, WRONG)
        owner, log = Owner(spark, settings, "web"), Log()
        for part in days(3):
            log.send(part)
            owner.take(log.batch())
        project.edit("silver/page_views.yml", WRONG, RIGHT)
        owner.start()
        owner.flow.settle()
        yield owner, store, lease


def order(store: Store, day: int, *, plan_only: bool = False) -> int:
    """Order the range around one of the days."""
    since = START + day * 4 * DAY - 1.5 * DAY  # some of its rows are late by more than a day
    given = {"from": since.isoformat(), "to": (since + 3 * DAY).isoformat(), "plan_only": plan_only}
    return store.send(app="web", table=TABLE, kind=RECOMPUTE, arguments=given, by="ann", reason=f"day {day}")


def worked(
    wrong: Wrong, until: Callable[[], bool], *, process: RecomputeProcess | None = None, seconds_max: float = 240
) -> RecomputeProcess:
    """Do what the driver does, until something holds."""
    owner, store, lease = wrong
    process = process or RecomputeProcess(store, owner.settings, app="web", epoch=lease.epoch)

    def step() -> bool:
        if until():
            return True
        process.look()
        if (command := store.take("web", epoch=lease.epoch)) is not None:
            store.finish(command.id, carry_out(owner, command), epoch=lease.epoch)
            owner.turn()
            owner.flow.settle()
        return False

    wait_until(step, what="the process has done so", seconds_max=seconds_max)
    return process


def rebuild(store: Store) -> int:
    """Order all of the table, which is published whether or not it comes out as it was."""
    return store.send(app="web", table=TABLE, kind=RECOMPUTE, arguments={"what": "rebuild"}, by="ann", reason="mended")


def ended(store: Store, numbers: list[int]) -> list[Command]:
    """Give the orders, if all have ended."""
    found = [store.command(number) for number in numbers]
    return found if all(one.finished for one in found) else []


def test_orders_without_a_range_fail_alone(wrong: Wrong) -> None:
    """What somebody sent otherwise than Airflow does; an order of a table that is not there, too."""
    _, store, _ = wrong
    given: list[tuple[str | None, dict[str, object]]] = [
        (TABLE, {}),
        (TABLE, {"from": "2026-11-21T00:00:00+00:00", "to": "2026-11-20T00:00:00+00:00"}),
        (None, {"from": "2026-11-20T00:00:00+00:00", "to": "2026-11-21T00:00:00+00:00"}),
    ]
    numbers = [
        store.send(app="web", table=table, kind=RECOMPUTE, arguments=arguments, by="ann", reason="try")
        for table, arguments in given
    ]

    worked(wrong, lambda: bool(ended(store, numbers))).close()

    found = [store.command(number) for number in numbers]
    assert {one.state for one in found} == {"failed"}
    assert all("has no range" in (one.error or "") for one in found[:2])
    assert "there is no such table" in (found[2].error or "")


def test_days_that_wait_are_computed_together(wrong: Wrong) -> None:
    """First only seen, then done: each order is told its own rows; another order of the app is not held up."""
    owner, store, _ = wrong
    before = shown(owner)
    seen = [order(store, 1, plan_only=True)]
    process = worked(wrong, lambda: bool(ended(store, seen)))
    unchanged = shown(owner)

    numbers = [order(store, day) for day in (2, 1)]
    worked(wrong, lambda: bool(ended(store, numbers)), process=process)
    process.close()

    planned, *done = (store.command(number) for number in (*seen, *numbers))
    assert {one.state for one in (planned, *done)} == {"done"}
    assert unchanged == before
    results = [one.result or {} for one in (planned, *done)]
    assert all(one["rows_written"] > 0 for one in results)
    assert [one["together"] for one in results] == [1, 2, 2]
    assert results[0]["published"] is None
    assert results[1]["published"] == results[2]["published"] is not None
    assert results[0] | {"together": 2, "published": results[2]["published"]} == results[2]
    published = store.commands("web", kind="publish")
    assert [(one.requested_by, one.reason) for one in published] == [("ann", "day 2 and 1 more")]
    came = len(shown(owner)[TABLE]) - len(before[TABLE])
    assert came == sum(one["rows_written"] for one in results[1:])
    assert owner.verdicts() == {"ok"}
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_a_table_is_rebuilt_and_goes_back_alone(wrong: Wrong) -> None:
    """Each by itself: what it would do is seen first, and what was ordered since somebody looked is not undone."""
    owner, store, _ = wrong
    version = version_of(owner)

    def sent(**arguments: object) -> int:
        return store.send(app="web", table=TABLE, kind=RECOMPUTE, arguments=arguments, by="ann", reason="mended")

    numbers = [sent(what="rebuild", plan_only=True), sent(what="rebuild")]
    process = worked(wrong, lambda: bool(ended(store, numbers)))
    rebuilt, after = version_of(owner), shown(owner)
    refused = [
        sent(what="rewind", to=version, seen={"versions": {}, "undone": []}),
        sent(what="rewind"),
        sent(what="wind"),
    ]
    worked(wrong, lambda: bool(ended(store, refused)), process=process)
    back = sent(what="rewind", to=version)
    worked(wrong, lambda: bool(ended(store, [back])), process=process)
    process.close()

    planned, made = (store.command(number).result or {} for number in numbers)
    assert planned["tables"] == made["tables"]
    assert made["tables"][0] == TABLE
    assert (planned["published"], store.command(made["published"]).kind) == (None, "publish")
    assert rebuilt == version + 1
    assert len(after[TABLE]) > 0
    assert [store.command(number).state for number in refused] == ["failed"] * 3
    told = [store.command(number).error or "" for number in refused]
    assert f"more would be undone than was looked at: commands {made['published']}" in told[0]
    assert "does not say how far back" in told[1]
    assert "it is not known how to wind" in told[2]
    gone_back = store.command(back)
    assert gone_back.state == "done", gone_back.error
    assert (gone_back.result or {})["to_versions"][TABLE] == version
    assert (gone_back.result or {})["commands_undone"] == [made["published"]]
    assert store.commands("web", "running") == []


def test_a_process_that_is_killed_fails_its_orders(wrong: Wrong) -> None:
    """And nothing is left of it; ordered again, it is done."""
    _, store, _ = wrong
    number = order(store, 0)
    process = worked(wrong, lambda: store.command(number).progress.get("step") == "computing")
    assert process.pid is not None
    family = processes.family(process.pid)
    assert len(family) > 1  # its JVM

    os.kill(process.pid, signal.SIGKILL)  # as the system does for want of memory
    worked(wrong, lambda: bool(ended(store, [number])), process=process)

    found = store.command(number)
    assert found.state == "failed"
    assert "was killed, perhaps for want of memory" in (found.error or "")
    gone(family)


def test_what_is_withdrawn_before_its_owner_publishes_it_changes_nothing(wrong: Wrong) -> None:
    """What was to be published is cancelled with it, and nothing of it is left."""
    owner, store, lease = wrong
    before, number = version_of(owner), rebuild(store)
    process = RecomputeProcess(store, owner.settings, app="web", epoch=lease.epoch)

    def is_there(look: Callable[[], list[Command]]) -> bool:
        process.look()
        return bool(look())

    queued = partial(store.commands, "web", "queued", kind="publish")
    # the owner, which is not at work here, would publish it
    wait_until(partial(is_there, queued), what="it is to be published")
    (publish,) = queued()
    store.cancel(number, by="ben", reason="not now")
    wait_until(partial(is_there, partial(ended, store, [number])), what="its end")
    process.close()

    assert store.command(number).state == "cancelled"
    found = store.command(publish.id)
    assert (found.state, found.cancelled_by, found.cancel_reason) == ("cancelled", "ben", "not now")
    assert version_of(owner) == before
    assert list((owner.settings.data / "staged").iterdir()) == []


def test_work_goes_on_while_the_control_store_is_away(wrong: Wrong, server: ScratchPostgres) -> None:
    """It can neither tell how far it is nor have anything published; when the store is back it does both."""
    owner, store, _ = wrong
    before, number = version_of(owner), rebuild(store)
    process = worked(wrong, lambda: store.command(number).progress.get("step") == "computing")
    server.stop()
    try:
        wait_until(lambda: is_laid_out(owner), what="the tables above are computed too")
    finally:
        server.start()

    worked(wrong, lambda: bool(ended(store, [number])), process=process)
    process.close()

    found = store.command(number)
    assert found.state == "done", found.error
    assert version_of(owner) == before + 1


def test_what_is_withdrawn_ends_and_what_an_owner_leaves_waits(wrong: Wrong) -> None:
    """A withdrawn order ends within seconds; one whose owner leaves waits for the next one."""
    owner, store, lease = wrong
    number = order(store, 0)
    process = worked(wrong, lambda: store.command(number).progress.get("step") == "computing")
    assert process.pid is not None
    family = processes.family(process.pid)
    store.cancel(number, by="ben", reason="not now")
    worked(wrong, lambda: bool(ended(store, [number])), process=process, seconds_max=30)
    assert store.command(number).state == "cancelled"
    gone(family)

    waits = order(store, 0)
    worked(wrong, lambda: store.command(waits).progress.get("step") == "computing", process=process)
    assert process.pid is not None
    family = processes.family(process.pid)
    assert len(family) > 1
    process.close()

    gone(family)
    assert store.command(waits).state == "queued"
    assert list((owner.settings.data / "staged").iterdir()) == []
    assert len(store.take_recomputations("web", epoch=lease.epoch, many=9)) == 1


def is_laid_out(owner: Owner) -> bool:
    """Whether the last of the tables above has a commit beside the lake."""
    return any((owner.settings.data / "staged").glob(f"*/lake/{ABOVE[-1].replace('.', '/')}/_delta_log/*.json"))


def version_of(owner: Owner) -> int:
    """The newest version of the table."""
    return DeltaTable(folder_of(TABLE, owner.settings.lake)).version()


def gone(family: list[int]) -> None:
    """Wait until none of these processes lives."""
    wait_until(lambda: not any(map(processes.started, family)), what=f"{family} have ended")
