"""The checker: it finds nothing in a lake as its owner left it, and each way of breaking one."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from deltaworks import catalog
from deltaworks.catalog import Catalog
from deltaworks.cli import stack
from deltaworks.engine.broker import Edge
from deltaworks.engine.checker import Finding, Picture, check, constant
from deltaworks.engine.checker.source import equals
from deltaworks.engine.flow import Flow
from deltaworks.settings import Settings
from tests.flows import Log, Record, take_arrow
from tests.intruder import Intruder
from tests.tiny_project import Project

BRONZE, NOTES, MEMBERS = "bronze.letters", "silver.notes", "silver.members"
QUARANTINE = "silver.notes__quarantine"


def note(name: str, minute: int) -> Record:
    """A note on the wire."""
    value = {"note_id": name, "written_at": 1_763_632_800_000 + 60_000 * minute, "member_id": 1, "words": 3}
    return Record(topic="notes", value=json.dumps(value).encode())


def member(number: int, dues: int) -> Record:
    """A member on the wire."""
    value = {"member_id": number, "name": "Ada", "city": "A", "dues": f"{dues}.00", "joined": None}
    return Record(topic="members", value=json.dumps(value).encode())


BATCHES = [
    [note("a", 0), note("b", 1), Record(topic="notes", value=b"{"), member(1, 10), member(2, 20)],
    [note("a", 0), note("c", 2), Record(topic="notes", value=b"["), member(1, 12), member(2, 18)],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Give a lake that its owner has left at rest: the tables of the tiny project that need no Spark."""
    project = Project(tmp_path_factory.mktemp("whole") / "project")
    project.delete("tables/gold")
    project.delete("expectations/gold")
    settings = Settings.load(project.folder, environment={})
    log, flow = Log(), opened(settings)
    for records in BATCHES:
        log.send(records)
        take_arrow(flow, log.batch())
    return settings


@pytest.fixture
def settings(whole: Settings, tmp_path: Path) -> Settings:
    """Give a copy of that lake, to be broken."""
    shutil.copytree(whole.lake, tmp_path / "lake")
    return whole.changed(data=tmp_path)


def opened(settings: Settings) -> Flow:
    """Open the lake as its next owner."""
    known = catalog.load(settings.project)
    flow = Flow(app="tiny", epoch=1, catalog=known, settings=settings, guard=lambda: None)
    flow.begin({topic: {"0": Edge(0, 10**9)} for topic in flow.topics}, broker=None)
    return flow


def found(settings: Settings, *, at_rest: bool = True) -> set[tuple[str, str]]:
    """Which promises are broken, and where."""
    with Picture(catalog.load(settings.project), settings.lake) as picture:
        return {(one.invariant, one.place) for one in check(picture, at_rest=at_rest)}


def test_nothing_is_found_in_a_lake_as_its_owner_left_it(settings: Settings) -> None:
    """It was looked at: two tables beside, rows refused, a copy, an older state replaced."""
    with Picture(catalog.load(settings.project), settings.lake) as picture:
        assert set(picture.tables) >= {BRONZE, NOTES, MEMBERS, QUARANTINE}
        assert picture.tables[NOTES].entry.totals.duplicate == 1
        assert picture.tables[QUARANTINE].rows() == 2

        assert not check(picture, at_rest=True)


def _of(offset: int) -> Callable[[dict[str, Any]], bool]:
    return lambda row: bool(row["topic"] == "notes" and row["offset"] == offset)


BREAKS: dict[str, tuple[str, Callable[[Intruder], None], set[tuple[str, str]]]] = {
    "a row of bronze is gone": (
        BRONZE,
        lambda on: on.delete("topic = 'notes' and \"offset\" = 1"),
        {("I1", BRONZE), ("I1", f"{BRONZE} notes/0"), ("I1", NOTES), ("I1", MEMBERS), ("I7", NOTES)},
    ),
    "a refused row of bronze is gone": (
        BRONZE,
        lambda on: on.delete("topic = 'notes' and \"offset\" = 2"),
        {
            ("I1", BRONZE),
            ("I1", f"{BRONZE} notes/0"),
            ("I1", NOTES),
            ("I1", MEMBERS),
            ("I7", NOTES),
            ("I7", QUARANTINE),
        },
    ),
    "a row of bronze is there twice": (
        BRONZE,
        lambda on: on.add(_of(0)),
        {("I2", BRONZE), ("I1", BRONZE), ("I1", f"{BRONZE} notes/0"), ("I1", NOTES), ("I1", MEMBERS), ("I7", NOTES)},
    ),
    "a row of bronze that was never read": (
        BRONZE,
        lambda on: on.add(_of(0), offset=99),
        {("I1", BRONZE), ("I1", f"{BRONZE} notes/0"), ("I1", NOTES), ("I1", MEMBERS), ("I7", NOTES)},
    ),
    "an event is gone": (NOTES, lambda on: on.delete("note_id = 'b'"), {("I1", NOTES), ("I7", NOTES)}),
    "an event is there twice": (
        NOTES,
        lambda on: on.add(lambda row: row["note_id"] == "b"),
        {("I1", NOTES), ("I2", NOTES)},
    ),
    "a copy of an event was taken": (
        NOTES,
        lambda on: on.add(lambda row: row["note_id"] == "b", _source="notes/00000/00000000000000000003"),
        {("I1", NOTES), ("I2", NOTES), ("I7", NOTES)},
    ),
    "an event came from nowhere": (
        NOTES,
        lambda on: on.add(lambda row: row["note_id"] == "b", note_id="z", _source="notes/00000/00000000000000000099"),
        {("I1", NOTES), ("I7", NOTES)},
    ),
    "a key is there twice": (MEMBERS, lambda on: on.add(lambda row: row["member_id"] == 1), {("I2", MEMBERS)}),
    "a refused row is not in quarantine": (
        QUARANTINE,
        lambda on: on.delete('"offset" = 2'),
        {("I7", NOTES)},
    ),
    "a row is in quarantine twice": (QUARANTINE, lambda on: on.add(_of(2)), {("I2", QUARANTINE), ("I7", NOTES)}),
    "a taken row is in quarantine too": (
        QUARANTINE,
        lambda on: on.add(_of(2), offset=1),
        {("I7", NOTES), ("I7", QUARANTINE)},
    ),
    "a row in quarantine has other bytes": (
        QUARANTINE,
        lambda on: on.update("value", "cast('x' as bytea)", '"offset" = 2'),
        {("I7", QUARANTINE)},
    ),
    "more was refused than was counted": (
        NOTES,
        lambda on: on.rewrite(replace(on.entry, totals=replace(on.entry.totals, refused=1, not_mine=6))),
        {("I1", NOTES), ("I7", NOTES)},
    ),
    "a commit is not balanced": (
        NOTES,
        lambda on: on.rewrite(replace(on.entry, counts=replace(on.entry.counts, taken=5))),
        {("I1", NOTES)},
    ),
    "a total is not the sum": (
        BRONZE,
        lambda on: on.rewrite(replace(on.entry, totals=replace(on.entry.totals, read=99))),
        {("I1", BRONZE)},
    ),
    "a position fell": (
        MEMBERS,
        lambda on: on.rewrite(replace(on.entry, position=replace(on.entry.position, batches={BRONZE: 0}))),
        {("I1", MEMBERS), ("I6", MEMBERS)},
    ),
    "an older owner committed": (
        MEMBERS,
        lambda on: on.rewrite(replace(on.entry, epoch=0)),
        {("I1", MEMBERS)},
    ),
    "somebody who leaves no entry committed": (
        MEMBERS,
        lambda on: on.delta.alter.add_columns([deltalake.Field("x", deltalake.schema.PrimitiveType("string"))]),
        {("I1", MEMBERS)},
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_found(settings: Settings, name: str) -> None:
    """Each finding at its place, under its promise, and no other."""
    table, break_it, expected = BREAKS[name]

    break_it(Intruder(settings, table))

    assert found(settings) == expected


def test_a_table_that_is_behind_is_found_at_rest_only(settings: Settings) -> None:
    """While drivers work, tables are behind now and then, and what lies beyond their positions is not compared."""
    log, flow = Log(), opened(settings)
    for records in BATCHES:
        log.send(records)
        log.batch()
    log.send([note("d", 3), Record(topic="notes", value=b"")])
    take_arrow(flow, log.batch(), above=False)

    assert found(settings) == {("I6", NOTES), ("I6", MEMBERS)}
    assert not found(settings, at_rest=False)


def test_a_sum_that_stays_is_followed_through_all_versions(settings: Settings) -> None:
    """Members hand dues to each other: 30 in each version; one euro more in one version is found, and so is silence."""

    def look(table: str, expression: str) -> list[Finding]:
        with Picture(catalog.load(settings.project), settings.lake) as picture:
            return constant(picture, table, expression)

    assert not look(MEMBERS, "sum(dues)")
    assert look(MEMBERS, "max(dues)")
    assert look("silver.nothing", "sum(dues)")

    Intruder(settings, MEMBERS).update("dues", "dues + 1", "member_id = 1")
    Intruder(settings, MEMBERS).update("dues", "dues - 1", "member_id = 1")

    assert [one.invariant for one in look(MEMBERS, "sum(dues)")] == ["I4"]


def test_a_row_that_is_not_as_in_the_source_is_found(settings: Settings) -> None:
    """Missing, additional and other rows alike."""
    known = catalog.load(settings.project)

    def look(*expected: pa.Table) -> list[str]:
        with Picture(known, settings.lake) as picture:
            return [one.finding for one in equals(picture, known[MEMBERS], iter(expected))]

    rows = members(settings, known)

    assert rows.num_rows == 2
    assert not look(rows.slice(0, 1), rows.slice(1))
    assert look(rows.slice(0, 1)) == ["0 rows missing or other, 1 too many or other"]
    assert look(rows, rows.slice(1)) == ["1 rows missing or other, 0 too many or other"]
    assert look(rows.slice(0, 0), rows.slice(1), rows.slice(1)) == ["1 rows missing or other, 1 too many or other"]


def test_doctor_looks_deep(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds is said, promise by promise; what does not is a finding with its next step, and exit code 1."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def look() -> tuple[int, dict[str, str]]:
        main = typer.Typer()
        stack.register(main)
        done = CliRunner().invoke(main, ["doctor", "--deep", "--json"])
        rows = json.loads(done.stdout)
        assert all(row["next step"] for row in rows if row["verdict"] == "fail")
        return done.exit_code, {row["check"]: row["verdict"] for row in rows if row["check"].startswith("I")}

    _, kept = look()  # the exit code is the machine's too: ports that are taken, a full disk
    Intruder(settings, MEMBERS).add(lambda row: row["member_id"] == 1)
    code, broken = look()

    assert kept == dict.fromkeys(("I1", "I2", "I6", "I7"), "ok")
    assert (code, broken) == (1, {"I1": "ok", f"I2 {MEMBERS}": "fail", "I6": "ok", "I7": "ok"})


def members(settings: Settings, known: Catalog) -> pa.Table:
    """The declared columns of the members."""
    table = deltalake.DeltaTable(str(settings.lake / "silver/members")).to_pyarrow_table()
    return table.select([column.name for column in known[MEMBERS].table.columns])
