"""Partial changes through the flow: what waits for a value lies beside the table, and shares its fate."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from deltaworks import catalog
from deltaworks.engine.ledger import Ledger
from deltaworks.errors import LakeError
from tests.arrow_flow import ArrowOwner
from tests.flows import Crash
from tests.source_table import SourceTable, people


@pytest.fixture
def source() -> SourceTable:
    """Give a row and an update that leaves its large values out."""
    table = SourceTable()
    table.insert(1, city="Graz", bio="b", cv="v")
    table.update(1, city="Linz")
    return table


def take(owner: ArrowOwner, *records: Any) -> None:
    """One batch."""
    owner.log.send(records)
    owner.bronze()
    owner.silver()


def rows(owner: ArrowOwner) -> list[dict[str, Any]]:
    """What the table says."""
    found: list[dict[str, Any]] = owner.flow.inputs["silver.people"].table.read(["id", "city", "bio", "cv"]).to_pylist()
    return found


def verdicts(owner: ArrowOwner) -> set[str]:
    """What the books say."""
    owner.flow.settle()
    return {sheet.verdict for sheet in Ledger(owner.catalog, owner.settings.lake).sheets()}


def test_a_table_without_partial_changes_has_nothing_beside_it(tmp_path: Path, source: SourceTable) -> None:
    """No table for what waits, no sequence in the position."""
    owner = ArrowOwner(people(tmp_path), "tiny")

    take(owner, source.log[0])

    assert not (owner.settings.lake / "silver/people__waiting").exists()
    assert owner.flow.inputs["silver.people"].table.entry.position.newest is None


def test_what_waits_appears_with_its_value_after_a_restart(tmp_path: Path, source: SourceTable) -> None:
    """The change is in quarantine, and the row comes when an older change brings what it lacks."""
    owner = ArrowOwner(people(tmp_path), "tiny")
    take(owner, source.log[1])
    before = rows(owner)
    owner.start()

    take(owner, source.log[0])

    assert before == []
    assert rows(owner) == list(source.rows.values())
    assert verdicts(owner) == {"ok"}


def test_death_between_what_waits_and_the_table(
    tmp_path: Path, source: SourceTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that began to wait too early goes at the restart, and comes again with its batch."""
    owner = ArrowOwner(people(tmp_path), "tiny")
    table, commits = owner.flow.inputs["silver.people"].table, owner.committer.commit

    def dies(to: Any, *args: Any, **given: Any) -> None:
        if to is table:
            raise Crash("before the table's own commit")
        commits(to, *args, **given)

    monkeypatch.setattr(owner.committer, "commit", dies)
    with pytest.raises(Crash):
        take(owner, source.log[1])
    assert owner.flow.sides["silver.people"]["waiting"].rows() == 1

    monkeypatch.undo()
    owner.start()
    waiting = owner.flow.sides["silver.people"]["waiting"].rows()
    owner.silver()
    take(owner, source.log[0])

    assert waiting == 0
    assert rows(owner) == list(source.rows.values())
    assert verdicts(owner) == {"ok"}


def test_what_waits_is_not_made_anew(tmp_path: Path, source: SourceTable) -> None:
    """Once it may hold something the app does not start without it."""
    owner = ArrowOwner(people(tmp_path), "tiny")
    take(owner, *source.log)
    shutil.rmtree(owner.settings.lake / "silver/people__waiting")

    with pytest.raises(LakeError, match=r"silver\.people__waiting: is gone, and silver\.people is not"):
        owner.start()


def test_a_declared_column_more_needs_no_rebuild(tmp_path: Path, source: SourceTable) -> None:
    """The table and what waits beside it gain the column at the next start; the books go on."""
    settings = people(tmp_path)
    owner = ArrowOwner(settings, "tiny")
    take(owner, *source.log)
    declaration = settings.project / "tables/silver/people/table.py"
    column = 'Column("city", "string", doc="Small."),'
    declaration.write_text(declaration.read_text().replace(column, f'Column("born", "date", doc="A day."), {column}'))

    owner.catalog = catalog.load(settings.project)
    owner.start()

    found = owner.flow.inputs["silver.people"].table
    assert found.read(["id", "born", "city"]).to_pylist() == [{"id": 1, "born": None, "city": "Linz"}]
    assert verdicts(owner) == {"ok"}
