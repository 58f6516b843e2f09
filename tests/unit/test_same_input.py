"""An input that went back, or is another table of its name, is taken no further; the way out is tried."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine import prove, rebuild, rewind
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.flow import Flow
from deltaworks.engine.publish import publish
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from tests.arrow_flow import ArrowOwner as WithGold
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import command
from tests.flows import Log, Record, carry_out
from tests.tiny_project import Project

BRONZE, NOTES, MEMBERS, DAYS = "bronze.letters", "silver.notes", "silver.members", "gold.notes_per_day"
NOBODY: Any = None
"""A session: for what does not fit into memory."""


def tiny(folder: Path, *, gold: bool = False) -> Settings:
    """Give the tiny project, without what needs Spark unless asked for."""
    project = Project(folder / "project")
    for name in () if gold else ("tables/gold", "expectations/gold"):
        project.delete(name)
    return Settings.load(project.folder, environment={}, data=folder / "data")


def note(number: int) -> Record:
    """A note on the wire."""
    value = {"note_id": f"n{number}", "written_at": 1_763_632_800_000 + 60_000 * number, "member_id": 1, "words": 3}
    return Record(topic="notes", value=json.dumps(value).encode())


def member(number: int) -> Record:
    """A member on the wire."""
    value = {"member_id": number, "name": "Ada", "city": "A", "dues": "1.00", "joined": None}
    return Record(topic="members", value=json.dumps(value).encode())


class Stream(ArrowOwner):
    """An owner whose tables are suspended where they cannot go on, with a broker that has all that was ever sent."""

    def __init__(self, settings: Settings) -> None:
        """Open the first flow."""
        super().__init__(settings, "tiny")
        self.suspends, self.log, self.sent = True, Log(), 0
        self.start()

    def batch(self, *more: Record) -> None:
        """One more batch of a note and a member, and every table's turn."""
        self.sent += 1
        self.log.send([note(self.sent), member(self.sent), *more])
        self._on(self.log.batch())

    def restart(self) -> Flow:
        """A new owner, which reads again what its bronze lacks."""
        flow = self.start()
        self._on(self.log.beyond(self.starts))
        return flow

    def _on(self, rows: Any) -> None:
        for raw in self.flow.bronze:
            raw.take_arrow(rows, self.flow._committer(None))  # as in a micro-batch, without Spark
        self.now += 1_000  # what is suspended is tried again
        for writer in self.flow.writers:
            self.flow.take_slice(writer.declared.name, None)

    def aside(self) -> dict[str, str]:
        """Why tables are suspended."""
        return {name: one.error for name, one in self.flow.suspended.tables.items()}

    def notes(self) -> list[str]:
        """Which notes are in silver."""
        return sorted(row["note_id"] for row in self.rows(NOTES))

    def sheets(self) -> dict[str, str]:
        """What the ledger says of each table."""
        return {sheet.table: sheet.verdict for sheet in self.ledger().sheets()}

    def folder(self, table: str) -> Path:
        """Where a table lies."""
        return self.settings.lake / table.replace(".", "/", 1)


def put_back(folder: Path, copy: Path) -> None:
    """Have a table's folder be as it was when it was copied."""
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def from_before(folder: Path) -> None:
    """Have a table's entries be of a time when they did not say which tables its inputs are."""
    for file in (folder / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "userMetadata" in action.get("commitInfo", {}):
                entry = json.loads(action["commitInfo"]["userMetadata"])
                for name in ("inputs", "epochs"):
                    entry.get("position", {}).pop(name, None)
                action["commitInfo"]["userMetadata"] = json.dumps(entry)
        file.write_text("\n".join(map(json.dumps, actions)))


def rebuilt(owner: Stream, table: str) -> None:
    """Carry out `deltaworks rebuild`, without Spark."""
    folder = owner.settings.data / "staged" / f"{owner.epoch}-{table}"
    folder.mkdir(parents=True)
    rebuild.stage(
        table, catalog=owner.catalog, lake=owner.settings.lake, spark=NOBODY, anew=owner.settings.changed(data=folder)
    )
    carry_out(owner, command("publish", table, folder=folder.name))


@pytest.mark.parametrize("old", [False, True], ids=["entries", "entries of before"])
@pytest.mark.parametrize("starts", [1, 4])
@pytest.mark.parametrize("more", [0, 1, 3], ids=["behind", "as far", "further"])
def test_bronze_that_was_put_back_is_taken_no_further(tmp_path: Path, more: int, starts: int, *, old: bool) -> None:
    """What it reads again has the numbers of what silver has taken, and other rows: suspended until silver is rebuilt.

    However many owners have come since, and however far bronze has come under them.
    """
    owner, copy = Stream(tiny(tmp_path)), tmp_path / "copy"
    for number in range(4):
        owner.batch(Record(topic="notes", value=b"{"))
        if number == 1:
            shutil.copytree(owner.folder(BRONZE), copy)
    if old:
        from_before(owner.folder(NOTES))
    before, taken = owner.notes(), owner.flow.inputs[NOTES].table.entry.position
    put_back(owner.folder(BRONZE), copy)

    for _ in range(starts):
        owner.restart()  # all that bronze lacks is one batch
    for _ in range(more):
        owner.batch()

    assert set(owner.aside()) == {NOTES, MEMBERS}
    assert f"{NOTES}: has taken {BRONZE} up to ingest batch 4" in owner.aside()[NOTES]
    assert f'"deltaworks rebuild {NOTES}"' in owner.aside()[NOTES]
    assert owner.notes() == before
    assert owner.flow.inputs[NOTES].table.entry.position.batches == taken.batches
    assert f"RED: has taken {BRONZE} up to ingest batch 4" in owner.sheets()[NOTES]
    for ask in (
        lambda: prove.prove(NOTES, catalog=owner.catalog, lake=owner.settings.lake, spark=NOBODY, anew=owner.settings),
        lambda: rewind.even(NOTES, catalog=owner.catalog, lake=owner.settings.lake),
    ):
        with pytest.raises(LakeError, match=f"{NOTES}: has taken {BRONZE} up to ingest batch 4"):
            ask()
    for name in (NOTES, MEMBERS):
        rebuilt(owner, name)
    owner.batch()
    owner.restart()
    owner.batch()
    assert owner.aside() == {}
    assert owner.notes() == sorted(f"n{number}" for number in range(1, owner.sent + 1))
    assert set(owner.sheets().values()) == {"ok"}
    assert all(row["_late_by"] == 0 for row in owner.flow.inputs[NOTES].table.read(["_late_by"]).to_pylist())
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_bronze_that_was_made_anew_is_another_table(tmp_path: Path) -> None:
    """One table of silver was left where it was: it is suspended alone, and is made from the new bronze if told to."""
    owner = Stream(tiny(tmp_path))
    for _ in range(3):
        owner.batch()
    made = owner.flow.inputs[BRONZE].table.made
    for folder in (owner.folder(BRONZE), *owner.folder(MEMBERS).parent.glob("members*")):
        shutil.rmtree(folder)

    owner.restart()
    for _ in range(4):
        owner.batch()

    assert owner.flow.inputs[BRONZE].table.made != made
    assert list(owner.aside()) == [NOTES]
    assert f"has taken {BRONZE} up to ingest batch 3, and that was made anew since" in owner.aside()[NOTES]
    assert owner.sheets()[NOTES].startswith("RED: has taken")
    assert owner.sheets()[MEMBERS] == "ok"
    rebuilt(owner, NOTES)
    owner.batch()
    assert owner.aside() == {}
    assert owner.notes() == sorted(f"n{number}" for number in range(1, owner.sent + 1))
    assert all(row["_late_by"] == 0 for row in owner.flow.inputs[NOTES].table.read(["_late_by"]).to_pylist())
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


@pytest.mark.parametrize("more", [0, 3])
def test_bronze_that_is_brought_back_as_it_was_is_taken_on(tmp_path: Path, more: int) -> None:
    """The copy was put there by mistake: with the right folder in its place the app goes on as if nothing had been."""
    owner, copy = Stream(tiny(tmp_path)), tmp_path / "copy"
    owner.batch()
    shutil.copytree(owner.folder(BRONZE), copy)
    for _ in range(2):
        owner.batch()
    right = tmp_path / "right"
    shutil.copytree(owner.folder(BRONZE), right)
    put_back(owner.folder(BRONZE), copy)
    owner.restart()
    for _ in range(more):
        owner.batch()
    wrong = set(owner.aside())

    put_back(owner.folder(BRONZE), right)
    owner.restart()
    owner.batch()

    assert wrong == {NOTES, MEMBERS}
    assert owner.aside() == {}
    assert owner.notes() == sorted(f"n{number}" for number in range(1, owner.sent + 1))
    with Picture(owner.catalog, owner.settings.lake) as picture:
        assert check(picture, at_rest=True) == []


def test_a_table_goes_back_to_where_it_stood_when_bronze_was_copied(tmp_path: Path) -> None:
    """The other way out, which computes nothing. A place that bronze does not have is none to go back to."""
    owner, copy, there = Stream(tiny(tmp_path)), tmp_path / "copy", 0
    for number in range(4):
        owner.batch()
        if number == 1:
            shutil.copytree(owner.folder(BRONZE), copy)
            there = owner.flow.inputs[NOTES].table.version
    put_back(owner.folder(BRONZE), copy)
    owner.restart()
    owner.batch()

    with pytest.raises(LakeError, match=f"{NOTES}: has taken {BRONZE} up to ingest batch 3"):
        rewind.plan(NOTES, catalog=owner.catalog, lake=owner.settings.lake, to=there + 1)
    past = rewind.plan(NOTES, catalog=owner.catalog, lake=owner.settings.lake, to=there)
    folder = owner.settings.data / "staged" / "one"
    folder.mkdir(parents=True)
    rewind.stage(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
    carry_out(owner, command("publish", NOTES, folder="one"))
    owner.restart()
    owner.batch()

    assert list(owner.aside()) == [MEMBERS]
    assert owner.notes() == sorted(f"n{number}" for number in range(1, owner.sent + 1))
    assert owner.sheets()[NOTES] == "ok"


@pytest.mark.parametrize("old", [False, True], ids=["entries", "entries of before"])
@pytest.mark.parametrize("starts", [1, 6])
@pytest.mark.parametrize("lost", ["put back", "made anew"])
def test_table_whose_input_went_back_is_set_aside(tmp_path: Path, lost: str, starts: int, *, old: bool) -> None:
    """Of a table over tables too, though each start commits to its input, and takes that to the same version again."""
    owner, copy, there = WithGold(tiny(tmp_path, gold=True), "tiny"), tmp_path / "copy", 0
    silver = owner.settings.lake / "silver"
    for number in range(1, 5):
        owner.log.send([note(number)])
        owner.bronze()
        owner.silver()
        owner.gold(DAYS)
        if number == 2:
            there = owner.flow.inputs[DAYS].table.version
            shutil.copytree(silver, copy)
    taken = owner.flow.inputs[DAYS].table.entry.position.versions[NOTES]
    if old:
        from_before(owner.settings.lake / "gold/notes_per_day")
    if lost == "put back":
        put_back(silver, copy)
    else:
        shutil.rmtree(silver)

    for _ in range(starts):
        owner.start()
        owner.silver()

    aside = owner.flow.suspended.tables
    assert list(aside) == [DAYS]
    assert f"{DAYS}: has taken {NOTES} up to version {taken}" in aside[DAYS].error
    assert owner.flow.inputs[DAYS].table.entry.position.versions == {NOTES: taken}
    if lost == "put back":
        past = rewind.plan(DAYS, catalog=owner.catalog, lake=owner.settings.lake, to=there)
        folder = owner.settings.data / "staged" / "one"
        folder.mkdir(parents=True)
        rewind.stage(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
        for _ in publish(owner.flow, folder, command=7):
            pass
        owner.start()
        assert not owner.flow.suspended.tables


def test_inputs_of_before_are_known_from_the_next_commit_on(tmp_path: Path) -> None:
    """Entries that do not say which tables their inputs are go on, and say it."""
    owner = Stream(tiny(tmp_path))
    owner.batch()
    for name in (NOTES, MEMBERS):
        from_before(owner.folder(name))

    flow = owner.restart()

    bronze, entry = flow.inputs[BRONZE].table, flow.inputs[NOTES].table.entry
    assert owner.aside() == {}
    assert entry.kind == "fence"
    assert entry.position.inputs == {BRONZE: bronze.made}
    assert entry.position.epochs == {BRONZE: 2}
    owner.batch()
    assert flow.inputs[NOTES].table.entry.position.epochs == {BRONZE: 3}


def test_an_input_that_went_on_while_the_ledger_was_read_is_not_older(tmp_path: Path) -> None:
    """Inputs are read before their readers: a batch may come between the two."""
    owner = Stream(tiny(tmp_path))
    owner.batch()
    books = owner.ledger()
    owner.batch()

    books._standing[NOTES] = owner.ledger()._standing[NOTES]

    assert {sheet.table: sheet.verdict for sheet in books.sheets()}[NOTES] == "ok"
