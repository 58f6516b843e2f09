"""A table goes back to an earlier version, and takes again what came since: by the rules of now, whenever that dies."""

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deltaworks import catalog
from deltaworks.engine import maintenance
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.publish import Staged, behind_topics
from deltaworks.engine.rewind import Rewind, before, laid_out, plan, stage
from deltaworks.errors import CommandError, DeclarationError, LakeError
from deltaworks.settings import ROOT
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import WRONG_RULES, Shop, command
from tests.chance import seeded
from tests.flows import BY_ARROW, START, Crash, Log, carry_out
from tests.shop_rows import broken, random_changes, random_views, view


def staged(owner: ArrowOwner, table: str, to: int | datetime, *, name: str = "one") -> tuple[Rewind, ...]:
    """Lay it out as it was, in the folder that the order to publish it names."""
    past = plan(table, catalog=owner.catalog, lake=owner.settings.lake, to=to)
    folder = owner.settings.data / "staged" / name
    folder.mkdir(parents=True)
    made = stage(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
    assert made == Staged.read(folder)
    return past


def publish(owner: ArrowOwner, log: Log, table: str, *, crash_at: int) -> tuple[dict[str, int], bool]:
    """Publish by an owner that dies before a commit, and another that gets the order again; whether it died."""
    order, crashed = command("publish", table, folder="one", what="rewind", to_version=1), False
    owner.crash_at = owner.commits + crash_at
    try:
        done = carry_out(owner, order)
    except Crash:
        crashed, owner.crash_at = True, -1
        owner.start()
        owner.catch_up(log)
        done = carry_out(owner, order)
    owner.crash_at = -1
    return done, crashed


@pytest.mark.parametrize(("table", "suite", "right", "wrong"), WRONG_RULES)
def test_what_a_wrong_rule_has_done_since_is_undone(
    tmp_path: Path, table: str, suite: str, right: str, wrong: str
) -> None:
    """The owner dies before each commit in turn, then the order is given again."""
    records = random_changes(seeded(), 160)
    parts = [records[:40], records[40:80], records[80:120], records[120:]]
    project = Shop(tmp_path / "project").without_gold()
    calm, log = ArrowOwner(project.settings(tmp_path / "calm"), "shop"), Log()
    for part in parts:
        log.send(part)
        calm.take(log.batch())
    owner, log = ArrowOwner(project.settings(tmp_path / "wrong"), "shop"), Log()
    before, read, good = 0, 0, list[dict[str, object]]()
    for number, part in enumerate(parts[:3]):
        log.send(part)
        owner.take(log.batch())
        if number == 0:
            own = owner.flow.inputs[table].table
            before, read, good = own.version, own.entry.totals.read, owner.rows(table)
            project.edit(suite, right, wrong)
            owner.start()
    assert owner.rows(f"{table}__quarantine")
    project.edit(suite, wrong, right)
    owner.start()

    (past,) = staged(owner, table, before)
    assert (past.table, past.version) == (table, before)
    assert past.again == owner.flow.inputs[table].table.entry.totals.read - read
    log.send(parts[3])  # meanwhile
    owner.take(log.batch())

    lake, copy = owner.settings.lake, tmp_path / "copy"
    shutil.copytree(lake, copy)
    epoch, died = owner.epoch, 0
    while True:
        done, crashed = publish(owner, log, table, crash_at=died)
        if not crashed:
            assert owner.rows(table) == good  # as it was, until it takes its turn
        owner.take(Log().batch())
        assert done == {"tables": 1}
        assert owner.rows(table) == calm.rows(table)
        assert not owner.rows(f"{table}__quarantine")
        assert owner.verdicts() == {"ok"}
        with Picture(owner.catalog, owner.settings.lake) as picture:
            assert check(picture, at_rest=True) == []
        if not crashed:
            break
        died += 1
        shutil.rmtree(lake)
        shutil.copytree(copy, lake)
        owner.epoch = epoch
        owner.start()
    assert died >= 3  # quarantine, what it remembers of deletions, the table

    mine, other = (one.flow.inputs[table].table.entry.totals for one in (owner, calm))
    assert (mine.read, mine.refused, mine.not_mine) == (other.read, other.refused, other.not_mine)


def test_books_of_events_and_a_second_rewind(tmp_path: Path) -> None:
    """Copies, refused rows and rows of other topics are what they were; to a time is as good as to a version."""
    chance, project = seeded(), Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    for number in range(4):
        log.send([*random_views(chance, 10, first=10 * number), view(10 * number), view(10 * number), broken(b"{")])
        owner.take(log.batch())
    name = "silver.page_views"
    own = owner.flow.inputs[name].table
    rows, totals, mark = owner.rows(name), own.entry.totals, own.entry.position.mark
    (second,) = plan(name, catalog=owner.catalog, lake=owner.settings.lake, to=own.version - 2)
    assert second.at is not None

    places: tuple[int | datetime, ...] = (own.version - 1, second.at, 0)
    for number, to in enumerate(places):
        staged(owner, name, to, name=str(number))
        carry_out(owner, command("publish", name, number=number, folder=str(number)))
        assert own.entry.totals.read < totals.read
        owner.take(Log().batch())
        assert owner.rows(name) == rows
        assert (own.entry.totals, own.entry.position.mark) == (totals, mark)
        with Picture(owner.catalog, owner.settings.lake) as picture:
            assert check(picture, at_rest=True) == []
    assert owner.verdicts() == {"ok"}


def test_rows_that_were_discarded_stay_so(tmp_path: Path) -> None:
    """Those of them that were there at the version; what was refused later is refused as new."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    for number in range(3):
        log.send([view(number), broken(b"{"), view(10 + number, page="no path")])
        owner.take(log.batch())
    carry_out(owner, command("discard_refused_rows", "silver.page_views", number=3))
    name = "silver.page_views"
    staged(owner, name, owner.flow.inputs[name].table.version - 1)
    carry_out(owner, command("publish", name, folder="one"))
    owner.take(Log().batch())
    states = [(row["state"], row["command"]) for row in owner.rows(f"{name}__quarantine")]
    assert states.count(("discarded", 3)) == 4  # those that were there then
    assert states.count(("open", None)) == 2


def test_what_was_ordered_since_is_not_undone_in_silence(tmp_path: Path) -> None:
    """Of two that were staged from one version the second is refused; a plan names the orders that it undoes."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    for number in range(3):
        log.send([view(number), broken(b"{")])
        owner.take(log.batch())
    name = "silver.page_views"
    for folder in ("one", "two"):
        staged(owner, name, 2, name=folder)
    carry_out(owner, command("publish", name, number=1, folder="one"))
    owner.take(Log().batch())
    with pytest.raises(CommandError, match=f"command 1 has changed {name} since it was staged"):
        carry_out(owner, command("publish", name, number=2, folder="two"))
    assert carry_out(owner, command("publish", name, number=1, folder="one")) == {"tables": 1}  # once is enough
    assert len(owner.rows(name)) == 3
    carry_out(owner, command("discard_refused_rows", name, number=3))

    (past,) = plan(name, catalog=owner.catalog, lake=owner.settings.lake, to=1)
    assert past.undone == (1, 3)
    with pytest.raises(LakeError, match="was computed again in version"):
        before(name, catalog=owner.catalog, lake=owner.settings.lake, since=("page_views", 1, 1))


def test_a_side_that_ran_ahead_of_its_table_is_not_taken_along(tmp_path: Path) -> None:
    """The owner died between quarantine and table, and the next one fenced the table first."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    name = "silver.page_views"
    for number in range(2):
        log.send([view(number), broken(b"{")])
        rows = log.batch()
        owner.crash_at = owner.commits + 2 if number else -1  # bronze, quarantine, then the table
        if number:
            with pytest.raises(Crash):
                owner.take(rows)
            owner.crash_at = -1
            owner.start()
        else:
            owner.take(rows)
    fence = owner.flow.inputs[name].table
    assert fence.entry.kind == "fence"
    owner.catch_up(log)
    staged(owner, name, fence.version - 1)
    carry_out(owner, command("publish", name, folder="one"))
    owner.take(Log().batch())

    assert len(owner.rows(f"{name}__quarantine")) == 2
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def _commits(owner: ArrowOwner, pattern: str = "page_views*") -> list[Path]:
    return sorted(owner.settings.lake.glob(f"silver/{pattern}/_delta_log/*.json"))


def _change(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Have a commit say something else of itself."""
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            change(action["commitInfo"])
    file.write_text("\n".join(map(json.dumps, actions)))


def _by(hours: float) -> Callable[[dict[str, Any]], None]:
    """By a clock that goes so much ahead, or behind."""

    def change(info: dict[str, Any]) -> None:
        info["timestamp"] += round(hours * 3_600_000)

    return change


def _as_before(info: dict[str, Any]) -> None:
    """By an owner whose entries did not say yet where the table stood that they are beside."""
    entry = json.loads(info["userMetadata"])
    entry.pop("beside", None)
    info["userMetadata"] = json.dumps(entry)


OLD = pytest.mark.parametrize("old", [False, True], ids=["entries", "times"])
"""Whether entries of the tables beside say which came before which, or are from a time when they did not."""


@OLD
@pytest.mark.parametrize("bad", [2, 5])
def test_a_clock_that_was_set_back_takes_no_side_away(tmp_path: Path, bad: int, *, old: bool) -> None:
    """What was refused before that is there, whether more was refused since or not."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    name = "silver.page_views"
    own = owner.flow.inputs[name].table
    for number in range(5):
        log.send([view(number), *([broken(b"{")] if number < bad else ())])
        owner.take(log.batch())
        if number == 1:
            for file in _commits(owner):
                _change(file, _by(1))
    for file in _commits(owner, "page_views__*") if old else ():
        _change(file, _as_before)

    staged(owner, name, own.version - 1)
    carry_out(owner, command("publish", name, folder="one"))

    assert len(owner.rows(f"{name}__quarantine")) == min(bad, 4)
    owner.take(Log().batch())
    assert len(owner.rows(f"{name}__quarantine")) == bad
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def _held_at(owner: ArrowOwner, name: str, version: int) -> dict[str, tuple[int, int]]:
    """Version and rows of what was beside a table then."""
    found = laid_out(owner.settings.lake, name, version)
    return {one.name: (one.version, one.rows()) for one in found if one.name != name}


@pytest.mark.parametrize("beside", [-25, -1, 1, 25])
def test_what_lies_beside_a_table_is_told_by_no_clock(tmp_path: Path, beside: int) -> None:
    """Another host's clock, or one that was set: each version has beside it what it had, whatever the commits say."""
    project = Shop(tmp_path / "project").without_gold()
    chance, log = seeded(of=f"{beside}"), Log()
    owner = ArrowOwner(project.settings(tmp_path / "data"), "web")
    name, expected = "silver.page_views", dict[int, dict[str, tuple[int, int]]]()
    own = owner.flow.inputs[name].table
    for number in range(12):
        if chance.random() < 0.2:
            own = owner.start().inputs[name].table
        sides, aside = owner.flow.sides[name].values(), owner.flow.sides[name]["quarantine"]
        if chance.random() < 0.3:
            BY_ARROW.mark(aside, aside.entry.follow("compact"))
        log.send([view(number), *([broken(b"{")] * chance.randrange(3))])
        owner.take(log.batch())
        expected[own.version] = {side.name: (side.version, side.rows()) for side in sides}
    for file in _commits(owner, "page_views__*"):  # all, or one here and there
        if abs(beside) > 1 or chance.random() < 0.5:
            _change(file, _by(beside))

    found = {version: _held_at(owner, name, version) for version in expected}

    assert any(rows for there in expected.values() for _, rows in there.values())
    assert found == expected


@OLD
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("batches", [2, 4])
def test_an_order_of_an_hour_that_was_twice_is_not_taken_along_in_silence(
    tmp_path: Path, batches: int, *, compacted: bool, old: bool
) -> None:
    """A clock was set back: rows were discarded after a version, as the entry says; times alone do not tell."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    name = "silver.page_views"
    for number in range(batches):
        log.send([view(number), broken(b"{")])
        owner.take(log.batch())
        if number == 1:
            for file in _commits(owner):
                _change(file, _by(1))
    version = owner.flow.inputs[name].table.version
    there = owner.flow.sides[name]["quarantine"].version
    carry_out(owner, command("discard_refused_rows", name, number=3))
    side = owner.flow.sides[name]["quarantine"]
    if compacted:  # what was discarded lies behind it
        BY_ARROW.mark(side, side.entry.follow("compact", command=4))
    log.send([view(batches)])
    owner.take(log.batch())
    for file in _commits(owner, "page_views__*") if old else ():
        _change(file, _as_before)

    if old:
        with pytest.raises(LakeError, match=f"whether its version .* came before version {version} of {name}"):
            plan(name, catalog=owner.catalog, lake=owner.settings.lake, to=version)
    else:
        (past,) = plan(name, catalog=owner.catalog, lake=owner.settings.lake, to=version)
        assert past.undone == (3,)
        assert _held_at(owner, name, version)[side.name] == (there, batches)
        (past,) = plan(name, catalog=owner.catalog, lake=owner.settings.lake, to=version + 1)
        assert past.undone == ()
        assert _held_at(owner, name, version + 1)[side.name] == (side.version, batches)
    (past,) = plan(name, catalog=owner.catalog, lake=owner.settings.lake, to=version - 1)
    assert past.version == version - 1  # more was refused since: it is known which of the two came first


def test_a_table_that_cannot_be_opened_after_its_commit_is_set_aside(tmp_path: Path) -> None:
    """Its old place in memory must not be confirmed; the order given again finds it done."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    for number in range(3):
        log.send([view(number)])
        owner.take(log.batch())
    name = "silver.page_views"
    staged(owner, name, 1)
    suite = project.folder / "expectations/silver/page_views.yml"
    text = suite.read_text()
    suite.write_text("expectations: nonsense")
    with pytest.raises(DeclarationError, match="expectations is no list"):
        carry_out(owner, command("publish", name, folder="one"))
    assert name in owner.flow.suspended
    suite.write_text(text)
    owner.now += 60
    assert carry_out(owner, command("publish", name, folder="one")) == {"tables": 1}
    owner.flow.take_slice(name, None)

    assert name not in owner.flow.suspended
    assert len(owner.rows(name)) == 3
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_what_cannot_go_back_says_why(tmp_path: Path) -> None:
    """Bronze, a version that never was, files that are gone, a time before all."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    for number in range(3):
        log.send([view(number)])
        owner.take(log.batch())
    found, lake, name = owner.catalog, owner.settings.lake, "silver.page_views"
    own = owner.flow.inputs[name].table

    with pytest.raises(LakeError, match="is what came, and stays"):
        plan("bronze.web_events", catalog=found, lake=lake, to=1)
    with pytest.raises(LakeError, match="has no version 99"):
        plan(name, catalog=found, lake=lake, to=99)
    with pytest.raises(LakeError, match="was made after that time"):
        plan(name, catalog=found, lake=lake, to=datetime.fromisoformat("2020-01-01T00:00:00+00:00"))
    version = own.version - 1
    maintenance.compact(own, command=1, committer=BY_ARROW)
    maintenance.vacuum(own, readers={}, hours=0, command=2, committer=BY_ARROW)
    with pytest.raises(LakeError, match=f"files of its version {version} were deleted"):
        plan(name, catalog=found, lake=lake, to=version)


def test_tables_behind_a_topic_are_named() -> None:
    """Those that read what a table publishes, in whatever app, and what is made from them."""
    found = catalog.load(ROOT)

    assert behind_topics(found, ["silver.large_purchases"]) == ("silver.published_purchases", "gold.big_spenders")
    assert behind_topics(found, ["silver.products", "gold.product_search"]) == ()


def test_what_arrived_since_a_record_or_a_time_is_taken_again(tmp_path: Path) -> None:
    """The version is the newest that has nothing of it."""
    project = Shop(tmp_path / "project").without_gold()
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    for number in range(3):
        one = view(number, user=1)
        one.at = START + timedelta(hours=1 + number)
        log.send([one])
        owner.take(log.batch())
    found, lake, name = owner.catalog, owner.settings.lake, "silver.page_views"

    assert before(name, catalog=found, lake=lake, since=("page_views", 1, 1)) == 1
    assert before(name, catalog=found, lake=lake, since=("page_views", 1, 0)) == 0
    assert before(name, catalog=found, lake=lake, since=START + timedelta(hours=2, minutes=30)) == 2
    with pytest.raises(LakeError, match="has nothing since then"):
        before(name, catalog=found, lake=lake, since=("page_views", 1, 3))
    with pytest.raises(LakeError, match="does not read bronze itself"):
        before("bronze.web_events", catalog=found, lake=lake, since=START)
