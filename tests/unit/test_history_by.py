"""`history(..., by=...)` without a JVM: each state stands where its own time says, in whatever order they come."""

import dataclasses
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaworks import catalog
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.writers import states
from deltaworks.engine.writers.intervals import TIME, events_schema, fold
from deltaworks.engine.writers.intervals_by_time import by_time
from deltaworks.errors import LakeError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import replay
from tests.chance import seeded
from tests.flows import START, Log, Record
from tests.intruder import Intruder
from tests.patching import patch
from tests.states import (
    MEMBERS,
    changed,
    changes,
    counted,
    dated,
    held,
    held_by_definition,
    in_parts,
    member,
    moved,
    take,
    through_deaths,
)

TABLE = "tables/silver/members/table.py"
HISTORY = pa.schema(
    [
        ("member_id", pa.int64()),
        ("city", pa.string()),
        *((name, TIME) for name in ("valid_from", "valid_to")),
        ("is_current", pa.bool_()),
        ("_at", TIME),
        *((name, pa.int64()) for name in ("_offset", "_seq")),
        ("_source", pa.string()),
    ]
)


def owned(folder: Path, **how: str) -> ArrowOwner:
    """Open the tiny project with a history of its members, over a lake of its own."""
    return ArrowOwner(dated(folder, **how), "tiny")


def kept(owner: ArrowOwner) -> list[tuple[Any, ...]]:
    """Give all that the history has, places included, and all that is remembered beside it."""
    side = owner.flow.sides[MEMBERS]["deleted"]
    found = []
    for table in (owner.flow.inputs[MEMBERS].table, side):
        table.reopen()
        found.append(sorted((tuple(row.values()) for row in table.read().to_pylist()), key=str))
    return found[0] + found[1]


def sound(owner: ArrowOwner) -> bool:
    """Whether the checker finds nothing wrong with the history."""
    owner.flow.settle()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        return not [one for one in check(picture, at_rest=True) if one.place.startswith(MEMBERS)]


def test_states_stand_where_their_time_says(tmp_path: Path) -> None:
    """Late ones between their neighbours; old ones that come again change nothing, in whichever partition."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, changed(1, "Bath", 1, arrives=1), changed(1, "Linz", 9, arrives=9))
    take(owner, log, changed(1, "Cork", 5, arrives=10), changed(1, "Bath", 1, arrives=11, partition=1))
    owner.start()
    take(owner, log, changed(1, "Linz", 9, arrives=12), changed(1, "Cork", 5, arrives=13))

    assert held(owner) == {(1, "Bath", 1, 5), (1, "Cork", 5, 9), (1, "Linz", 9, None)}
    assert counted(owner) == (3, 3, 0)
    assert sound(owner)


BREAKS: dict[str, tuple[Callable[[Intruder], None], set[str]]] = {
    "nothing": (lambda _: None, set()),
    "a state is gone": (lambda on: on.delete("city = 'Bath'"), {"I1"}),
    "a time has two states": (
        lambda on: on.add(lambda row: row["city"] == "Cork", _source="by changed_at/9"), {"I1", "I2"}
    ),
    "a state ends too late": (lambda on: on.update("valid_to", "_at + interval '1 day'", "city = 'Bath'"), {"I2"}),
    "what never held holds": (lambda on: on.update("valid_to", "_at + interval '1 day'", "city = 'Wien'"), {"I2"}),
    "what never held is current": (lambda on: on.update("is_current", "true", "city = 'Wien'"), {"I2"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_the_checker_finds_a_broken_history(tmp_path: Path, name: str) -> None:
    """A state too few or too many, one that reaches into the next; one that never held stands in the time of others."""
    owner, log = owned(tmp_path), Log()
    take(owner, log, changed(1, "Bath", 1, arrives=1), changed(1, "Wien", 9, arrives=2), moved(1, None, 0, second=5))
    take(owner, log, changed(1, "Cork", 7, arrives=7), changed(1, "Linz", 12, arrives=12))
    owner.flow.settle()
    spoil, broken = BREAKS[name]

    spoil(Intruder(owner.settings, MEMBERS))

    with Picture(owner.catalog, owner.settings.lake) as picture:
        found = {one.invariant for one in check(picture, at_rest=False) if one.place == MEMBERS}
    assert found == broken


def test_of_equal_times_the_last_to_arrive_counts(tmp_path: Path) -> None:
    """A correction takes the place of what it corrects; in one batch, and in a later one."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, changed(1, "Bath", 1, arrives=1), changed(1, "Cork", 1, arrives=2))
    take(owner, log, changed(2, "Bath", 3, arrives=3))
    take(owner, log, changed(2, "Cork", 3, arrives=4), changed(2, "Linz", 5, arrives=5))

    assert held(owner) == {(1, "Cork", 1, None), (2, "Cork", 3, 5), (2, "Linz", 5, None)}
    assert counted(owner) == (3, 2, 0)
    assert sound(owner)


def test_a_deletion_counts_from_its_arrival_on(tmp_path: Path) -> None:
    """It ends what held then. What comes later and is older stands before it, what is newer begins anew."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, changed(1, "Bath", 1, arrives=1), moved(1, None, 0, second=6))
    assert held(owner) == {(1, "Bath", 1, 6)}
    take(owner, log, changed(1, "Cork", 4, arrives=7), changed(1, "Bath", 1, arrives=8))
    owner.start()
    assert held(owner) == {(1, "Bath", 1, 4), (1, "Cork", 4, 6)}
    take(owner, log, changed(1, "Linz", 9, arrives=9), moved(2, None, 0, second=9))

    assert held(owner) == {(1, "Bath", 1, 4), (1, "Cork", 4, 6), (1, "Linz", 9, None)}
    assert counted(owner) == (5, 1, 0)
    assert sound(owner)


def test_what_is_deleted_before_its_time_never_held(tmp_path: Path) -> None:
    """Its clock was ahead, or it was planned: it is not there for good, and is in nobody's way."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, changed(1, "Bath", 1, arrives=1), changed(1, "Cork", 9, arrives=2), moved(1, None, 0, second=5))
    assert held(owner) == {(1, "Bath", 1, 5), (1, "Cork", 9, 9)}
    take(owner, log, changed(1, "Linz", 7, arrives=7))
    assert held(owner) == {(1, "Bath", 1, 5), (1, "Cork", 9, 9), (1, "Linz", 7, None)}
    assert sound(owner)
    take(owner, log, changed(1, "Cork", 9, arrives=8))

    assert held(owner) == {(1, "Bath", 1, 5), (1, "Linz", 7, 9), (1, "Cork", 9, None)}
    assert counted(owner) == (4, 1, 0)
    assert sound(owner)


def test_what_says_no_time_that_can_be_is_refused(tmp_path: Path) -> None:
    """Null, left out, more than a day ahead of its arrival; a deletion that Kafka has no time of. The row stays."""
    owner, log = owned(tmp_path), Log()
    never = dataclasses.replace(member(1), at=START.replace(year=1969))

    take(owner, log, changed(1, "Bath", 1, arrives=1), member(1, "Cork", changed_at=None), member(1, "Cork"), never)
    take(owner, log, changed(1, "Linz", 86_401, arrives=0), changed(1, "Graz", 86_401, arrives=1))

    reasons = sorted(row["reason"] for row in owner.rows(f"{MEMBERS}__quarantine"))
    assert reasons == ["changed_at: future", "changed_at: missing", "changed_at: null", "no time of arrival"]
    assert held(owner) == {(1, "Bath", 1, 86_401), (1, "Graz", 86_401, None)}
    assert counted(owner) == (2, 0, 4)


def test_days_end_at_days(tmp_path: Path) -> None:
    """Where states say a day, a deletion counts from the beginning of its day; who comes back that day is there."""
    owner, log = owned(tmp_path, by="since", kind="date"), Log()

    def since(key: int, city: str, day: str, *, second: float) -> Record:
        return dataclasses.replace(member(key, city, since=day), at=START + timedelta(seconds=second))

    take(owner, log, since(1, "Bath", "2026-11-18", second=1), since(2, "Bath", "2026-11-20", second=1))
    take(owner, log, moved(1, None, 0, second=2), moved(2, None, 0, second=2), since(2, "Cork", "2026-11-20", second=3))

    day = 86_400
    midnight = -10 * 3_600
    assert held(owner) == {(1, "Bath", midnight - 2 * day, midnight), (2, "Cork", midnight, None)}
    assert sound(owner)


def test_the_time_of_arrival_can_be_what_a_state_holds_from(tmp_path: Path) -> None:
    """For states that say no time themselves."""
    settings = dated(tmp_path, by="arrived_at")
    table = settings.project / TABLE
    table.write_text(table.read_text().replace('"timestamp", null=False,', '"timestamp", null=False, wire="arrival",'))
    owner, log = ArrowOwner(settings, "tiny"), Log()

    for city, second in (("Bath", 5), (None, 7), ("Cork", 9), ("Linz", 6)):
        take(owner, log, moved(1, city, 0, second=second))

    assert held(owner) == {(1, "Bath", 5, 6), (1, "Linz", 6, 7), (1, "Cork", 9, None)}

    never = dataclasses.replace(member(1, "Graz"), at=START.replace(year=1969))
    take(owner, log, never)
    assert [row["reason"] for row in owner.rows(f"{MEMBERS}__quarantine")] == ["no time of arrival"]
    table.write_text(table.read_text().replace(' wire="arrival",', ""))  # the same name, and another time
    other = ArrowOwner(settings, "tiny")
    with pytest.raises(LakeError, match="placed by arrived_at, its arrival, declared is by arrived_at"):
        take(other, log, changed(1, "Oslo", 1, arrives=20))


@pytest.mark.parametrize("run", range(6))
def test_slices_make_no_difference(tmp_path: Path, run: int) -> None:
    """As by definition, batch by batch with a restart, and with all of bronze at once; places included."""
    del run
    chance = seeded()
    batches = in_parts(chance, changes(chance, 60))
    owner, log = owned(tmp_path), Log()
    for number, batch in enumerate(batches):
        take(owner, log, *batch)
        assert held(owner) == held_by_definition(batches[: number + 1])
        if number == 2:
            owner.start()
    streamed = kept(owner)
    assert sum(counted(owner)) == 60
    assert sound(owner)

    for folder in (owner.settings.lake / "silver").glob("members*"):
        shutil.rmtree(folder)
    owner.start()
    owner.take(Log().batch())

    assert kept(owner) == streamed
    assert sum(counted(owner)) == 60
    assert sound(owner)


@pytest.mark.parametrize("run", range(20))
def test_what_came_decides_and_not_when_it_is_taken(run: int) -> None:
    """In any order, in any cut, each now and then once more: also before what arrived earlier, as after a replay."""
    del run
    chance = seeded()
    came: list[dict[str, Any]] = [
        {"member_id": chance.randrange(2), "city": f"C{number}", "_at": chance.randrange(12), "_offset": number,
         "_seq": 1, "_source": f"{number:0{states.ARRIVAL}d}", "_kind": chance.choice(("row", "row", "delete"))}
        for number in chance.sample(range(100), 40)
    ]  # fmt: skip
    found = []
    for cuts in (1, 2, 9):
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        ends: list[dict[str, Any]] = []
        for part in in_parts(chance, chance.sample(came + chance.sample(came, 9), 49), cuts=cuts):
            ends += [one for one in part if one["_kind"] == "delete" and one not in ends]
            known = [{**row, "_kind": "row"} for row in rows.values()] + ends
            events = known + [one for one in part if one["_kind"] == "row"]
            taken = pa.Table.from_pylist(events, schema=events_schema(HISTORY))
            made = fold(taken, keys=("member_id",), table=HISTORY, of_key=by_time).to_pylist()
            for row in made:
                place = row["member_id"], row["valid_from"]
                assert row.pop("_new") == (place not in rows)
                assert row != rows.get(place), "a row that is as it was is not written"
                rows[place] = row
        found.append(sorted(rows.values(), key=str))

    assert found[0] == found[1] == found[2]
    assert found[0]


@pytest.mark.parametrize("run", range(4))
def test_who_is_late_by_how_much_makes_no_difference(tmp_path: Path, run: int) -> None:
    """States arrive after their time, by little or by much, some twice; deletions when they are. Cut, restarted."""
    del run
    chance = seeded()
    said = [(key, f"C{second}", second) for key in range(3) for second in chance.sample(range(40), 8)]
    ends = [moved(key, None, chance.randrange(2), second=chance.randrange(40) + 0.5) for key in range(3) for _ in "ab"]
    found = []
    for number, late in enumerate((0, 3, 60)):
        owner, log = owned(tmp_path / str(number)), Log()
        again = [(*one, chance.randrange(2)) for one in said + chance.sample(said, 8)]
        came = [
            changed(key, city, second, arrives=second + chance.uniform(0, late), partition=partition)
            for key, city, second, partition in again
        ]
        for part in in_parts(chance, sorted(came + ends, key=lambda one: one.at), cuts=number * 2 + 1):
            take(owner, log, *part)
            owner.start()
        found.append(held(owner))
        assert counted(owner) == (30, 8, 0)

    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 24


def test_a_death_before_any_commit_changes_nothing(tmp_path: Path) -> None:
    """Ends are remembered before the table is committed: what a crash leaves there comes again, once."""
    chance = seeded()
    batches = in_parts(chance, changes(chance, 24), cuts=2)
    died = 0
    for owner, calm, which in through_deaths(tmp_path, batches, owned):
        assert kept(owner) == kept(calm), which
        assert counted(owner) == counted(calm), which
        died += 1
    assert died >= 6


def test_times_of_another_column_are_not_gone_on_with(tmp_path: Path) -> None:
    """The rows that are there hold from what another column said."""
    settings = dated(tmp_path)
    table = settings.project / TABLE
    column = '        Column("told_at", "timestamp", null=False, wire="arrival", doc="When it was told."),\n'
    table.write_text(table.read_text().replace("    columns=(\n", f"    columns=(\n{column}"))
    by_change = table.read_text()
    owner, log = ArrowOwner(settings, "tiny"), Log()
    take(owner, log, changed(1, "Bath", 2, arrives=2), moved(2, None, 0, second=2))
    table.write_text(by_change.replace('by="changed_at"', 'by="told_at"'))
    owner.catalog = catalog.load(settings.project)
    owner.start()

    with pytest.raises(LakeError, match="placed by changed_at, declared is by told_at.*rebuild silver.members"):
        take(owner, log, changed(1, "Cork", 1, arrives=3))


def test_what_was_refused_comes_to_its_place(tmp_path: Path) -> None:
    """Patched states and a deletion, judged again when others have come: as if they had been right from the beginning.

    Of the states of one time the one that arrived first does not come back by it.
    """
    owner, log = owned(tmp_path), Log()
    broken = [changed(1, "Cork", 4, arrives=4), changed(2, "Cork", 2, arrives=5)]
    lost = dataclasses.replace(moved(3, None, 0, second=6), key=b"three")
    take(owner, log, *(dataclasses.replace(one, value=b"{}") for one in broken), lost, changed(3, "Linz", 9, arrives=5))
    take(owner, log, changed(1, "Bath", 1, arrives=11), changed(2, "Graz", 2, arrives=12), moved(1, None, 0, second=13))
    refused = sorted(owner.rows(f"{MEMBERS}__quarantine"), key=lambda row: int(row["offset"]))
    assert len(refused) == 3

    for number, (row, one) in enumerate(zip(refused, broken, strict=False)):
        patch(owner, MEMBERS, row, one.value or b"", number=number + 1)
    replay(owner, MEMBERS)

    assert held(owner) == {(1, "Bath", 1, 4), (1, "Cork", 4, 13), (2, "Graz", 2, None), (3, "Linz", 9, None)}
    assert counted(owner) == (5, 1, 1)
    assert sound(owner)
    streamed = kept(owner)
    for name in ("members", "members__quarantine", "members__deleted"):
        shutil.rmtree(owner.settings.lake / "silver" / name)
    owner.start()
    owner.take(Log().batch())
    assert [row[:-2] + row[-1:] for row in kept(owner)] == [row[:-2] + row[-1:] for row in streamed]
