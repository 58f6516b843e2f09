"""A mark that a wrong clock has raised is revised: who comes after that is in time again."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control.commands import Command
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import OwnedTable, read_commit
from deltaworks.engine.marks import in_order, looked_up, walk_as_recorded
from deltaworks.engine.points import listening
from deltaworks.engine.rewind import plan
from deltaworks.errors import CommandError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import command
from tests.flows import START, Crash, Log, carry_out
from tests.shop_rows import broken
from tests.unit.test_wrong_clocks import DAY, HOUR, VIEWS, micros, owner_of_views, sent, silver

TO = START + HOUR


def a_day_ahead(folder: Path) -> tuple[ArrowOwner, Log]:
    """A lake to which a sender and the broker have said for an hour that it is tomorrow."""
    owner, log = owner_of_views(folder), Log()
    for number in range(3):
        at = START + DAY + number * HOUR / 3
        log.send([sent(number, happened=at, arrives=at)])
        owner.take(log.batch())
    return owner, log


def late(owner: ArrowOwner) -> dict[str, int]:
    """How late each view is, in hours."""
    rows = silver(owner).select(["event_id", "_late_by"]).to_pylist()
    return {row["event_id"]: row["_late_by"] // (3600 * 10**6) for row in rows}


def honest(owner: ArrowOwner, log: Log, number: int) -> None:
    """A view by right clocks, an hour after the other."""
    at = START + number * HOUR
    log.send([sent(number, happened=at, arrives=at)])
    owner.take(log.batch())


def revise() -> Command:
    """The order."""
    return command("revise_mark", VIEWS, number=7, to_micros=micros(TO))


def test_who_comes_after_a_revision_is_in_time(tmp_path: Path) -> None:
    """What has come keeps its lateness, of hours and hours; the next ones are late by what comes from now on."""
    owner, log = a_day_ahead(tmp_path)
    honest(owner, log, 4)
    done = carry_out(owner, revise())
    honest(owner, log, 5)
    honest(owner, log, 6)
    honest(owner, log, 5)

    assert done == {"was": "2026-11-21T10:40:00.000000Z", "is": "2026-11-20T11:00:00.000000Z"}
    assert late(owner) == {"e0": 0, "e1": 0, "e2": 0, "e4": 20, "e5": 0, "e6": 0}
    entry = owner.flow.inputs[VIEWS].table.entry
    assert entry.position.mark == micros(START + 6 * HOUR)
    assert entry.passed == micros(START + DAY + HOUR * 2 / 3)
    assert owner.verdicts() == {"ok"}


def test_the_same_lateness_is_found_again_by_whoever_walks_the_marks(tmp_path: Path) -> None:
    """Cut anywhere, from the log alone, and of single rows."""
    owner, log = a_day_ahead(tmp_path)
    honest(owner, log, 4)
    carry_out(owner, revise())
    for number in (6, 5, 7):
        honest(owner, log, number)
    table = owner.flow.inputs[VIEWS].table
    marks = in_order(table.told_backwards())
    stored = table.read(["_seq", "_late_by", "event_time"]).sort_by("_seq").to_pylist()

    for cut in range(1, len(stored)):
        first = walk_as_recorded([row["_seq"] for row in stored[:cut]], None, marks)
        second = walk_as_recorded([row["_seq"] for row in stored[cut:]], first.mark, marks)
        before = {**first.before, **second.before}
        late_by = [max(0, (before[row["_seq"]] or 0) - micros(row["event_time"])) for row in stored]
        assert late_by == [row["_late_by"] for row in stored]
        assert (second.mark, second.closed) == (table.entry.position.mark, table.entry.position.closed)
        assert looked_up(table.told_backwards(), before) == before
    assert [row["_late_by"] > 0 for row in stored] == [False, False, False, True, False, True, False]


def test_a_revision_is_exact_whenever_its_owner_dies(tmp_path: Path) -> None:
    """At each point, and after it was done before that was told; then the order is given again."""
    reached = list[str]()
    owner, log = a_day_ahead(tmp_path / "peace")
    with listening(reached.append):
        carry_out(owner, revise())
    honest(owner, log, 5)
    expected = late(owner)
    assert [point for point in reached if "revise" in point]

    for number, point in enumerate([*dict.fromkeys(reached), "told"]):
        owner, log = a_day_ahead(tmp_path / str(number))

        def die(there: str, point: str = point) -> None:
            if there == point:
                raise Crash

        with listening(die), suppress(Crash):
            carry_out(owner, revise())
        restarted(owner)
        done = carry_out(owner, revise())
        honest(owner, log, 5)

        assert late(owner) == expected
        assert kinds(owner).count("revise") == 1
        assert done["is"] == "2026-11-20T11:00:00.000000Z"
        assert owner.verdicts() == {"ok"}


def test_an_order_that_is_given_again_after_another_one_says_what_it_did(tmp_path: Path) -> None:
    """From where to where: what came before it, and not how far time had ever come."""
    owner, _ = a_day_ahead(tmp_path)
    first = carry_out(owner, command("revise_mark", VIEWS, to_micros=micros(START + 20 * HOUR)))
    second = carry_out(owner, replace(revise(), id=8))

    assert second["was"] == first["is"] == "2026-11-21T06:00:00.000000Z"
    assert carry_out(owner, replace(revise(), id=8)) == second
    assert carry_out(owner, command("revise_mark", VIEWS, to_micros=micros(START + 20 * HOUR))) == first


def restarted(owner: ArrowOwner) -> None:
    """The next owner of the views."""
    owner.start()
    owner.flow.writers = [one for one in owner.flow.writers if one.declared.name == VIEWS]


def kinds(owner: ArrowOwner) -> list[str]:
    """What the table's commits were, newest first."""
    return [entry.kind for entry in owner.flow.inputs[VIEWS].table.entries_backwards()]


def test_only_what_makes_nobody_later_is_a_revision(tmp_path: Path) -> None:
    """A time beyond the mark, a table without events, one that has none yet."""
    owner, _ = a_day_ahead(tmp_path)
    beyond = micros(START + 2 * DAY)

    with pytest.raises(CommandError, match="have come to 2026-11-21T10:40:00.000000Z, which is not beyond 2026-11-22"):
        carry_out(owner, command("revise_mark", VIEWS, to_micros=beyond))
    with pytest.raises(CommandError, match="has no events"):
        carry_out(owner, command("revise_mark", "bronze.web_events", to_micros=beyond))
    with pytest.raises(CommandError, match="have come nowhere"):
        carry_out(owner_of_views(tmp_path / "empty"), revise())
    assert "revise" not in kinds(owner)


def test_a_rewind_to_before_a_revision_undoes_it_and_names_the_order(tmp_path: Path) -> None:
    """And the marks in its log are then those that it stands on."""
    owner, log = a_day_ahead(tmp_path)
    table = owner.flow.inputs[VIEWS].table
    version = table.version
    carry_out(owner, revise())
    honest(owner, log, 5)

    planned = plan(VIEWS, catalog=owner.catalog, lake=owner.settings.lake, to=version)[0]
    position = read_version(table, version).position
    goes_back = table.entry.follow("publish", position=position, ingest_seq=3, back_to=version)
    marks = in_order([(table.version + 1, goes_back), *table.told_backwards()])

    assert planned.undone == (7,)
    assert marks[-1] == (3, micros(START + DAY + HOUR * 2 / 3))
    assert walk_as_recorded([4], None, marks).before == {4: marks[-1][1]}


def test_the_checker_finds_a_mark_that_fell_without_an_order(tmp_path: Path) -> None:
    """One that was revised is no finding, nor the refused rows beside it, which say where the table stands."""
    owner, log = a_day_ahead(tmp_path)
    carry_out(owner, revise())
    log.send([broken(b"{"), sent(5, happened=START + 5 * HOUR, arrives=START + 5 * HOUR)])
    owner.take(log.batch())
    assert owner.flow.sides[VIEWS]["quarantine"].entry.position.mark == micros(TO)
    assert found(owner) == []

    entry = owner.flow.inputs[VIEWS].table.entry
    fallen = replace(entry.position, mark=micros(START))
    owner.flow._committer(None).mark(owner.flow.inputs[VIEWS].table, entry.follow("gaps", position=fallen))

    assert found(owner) == [f"version {owner.flow.inputs[VIEWS].table.version}: position mark fell"]


def found(owner: ArrowOwner) -> list[str]:
    """What the checker says of the views' commits, up to the numbers."""
    with Picture(owner.catalog, owner.settings.lake) as picture:
        findings = check(picture, at_rest=False)
    return [one.finding.split(" from ")[0] for one in findings if one.place.startswith(VIEWS)]


def read_version(table: OwnedTable, version: int) -> Entry:
    """What a version says about itself."""
    entry = read_commit(table.path, version).entry
    assert entry is not None
    return entry
