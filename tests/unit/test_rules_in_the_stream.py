"""The suite of a table judges its rows in the stream; too many bad ones stop the app, and nothing is lost."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deltaworks.cli.main import main
from deltaworks.control.commands import Command
from deltaworks.errors import BadRowsError, CommandError
from deltaworks.settings import ROOT, Settings
from tests.arrow_flows import ArrowOwner
from tests.flows import Log, Record, carry_out
from tests.shop_rows import broken, view
from tests.tiny_project import Project

_RULE = "rule: expect_column_values_to_match_regex(page)"


@pytest.fixture
def shop(tmp_path: Path) -> Settings:
    """Give the shop's settings with an empty lake of this test's own."""
    return Settings.load(ROOT, environment={}, data=tmp_path)


def test_what_is_set_aside_can_be_looked_into(shop: Settings) -> None:
    """By table and cause, and row by row with the bytes as they came; as text where they are text."""
    owner, log = ArrowOwner(shop, "web"), Log()
    log.send([view(1), view(2, page="x"), view(3, page="y"), broken(b"\xff\x1b[31m"), broken(b"{")])
    owner.take(log.batch())

    listed = _asked(shop, "list", "--json")
    shown = _asked(shop, "show", "silver.page_views", "--cause", "not UTF-8", "--json")
    ruled = _asked(shop, "show", "silver.page_views", "--cause", _RULE, "--limit", "1", "--json")

    assert [(row["table"], row["reason"], row["rows"]) for row in listed] == [
        ("silver.page_views", _RULE, 2), ("silver.page_views", "not JSON", 1), ("silver.page_views", "not UTF-8", 1),
    ]  # fmt: skip
    assert listed[0]["sample"]["topic"] == "page_views"
    assert listed[0]["first_seen"] < listed[0]["last_seen"]
    assert [(row["value"], row["key"], row["partition"]) for row in shown] == [(repr(b"\xff\x1b[31m"), "1", 1)]
    assert [json.loads(row["value"])["page"] for row in ruled] == ["y"]
    assert "\x1b" not in _said(shop, "show", "silver.page_views")
    assert "no row is set aside" in _said(shop, "list", "silver.orders")


def test_a_table_that_refuses_most_rows_stops_until_somebody_mends_or_accepts(tmp_path: Path) -> None:
    """It stops before anything is set aside, also after a restart; bronze is complete; the books meet in the end."""
    owner, log = _notes(tmp_path)
    log.send(_note(number, words=1) for number in range(6))
    owner.take(log.batch())
    log.send(_note(number, words=-1) for number in range(6, 12))
    owner.take(log.batch())  # 6 of 12 rows: not above half
    log.send([_note(12, words=-1)])
    with pytest.raises(BadRowsError, match="silver.notes: 7 of its last 13 rows were refused, above 50 %"):
        owner.take(log.batch())

    owner.start()
    with pytest.raises(BadRowsError, match="7 of its last 13 rows"):
        owner.catch_up(log)
    refused_before = len(owner.rows("silver.notes__quarantine"))
    bronze = len(owner.rows("bronze.letters"))
    owner.start()
    done = carry_out(owner, _accept("silver.notes"))
    owner.catch_up(log)

    accepted = owner.flow.inputs["silver.notes"].table.entry.accepted
    assert (refused_before, bronze) == (6, 13)
    assert len(owner.rows("silver.notes__quarantine")) == 7
    assert accepted == owner.flow.inputs["bronze.letters"].table.entry.ingest_seq == done["batches_up_to"]
    assert owner.verdicts() == {"ok"}

    log.send(_note(number, words=-1) for number in range(13, 23))  # what comes after is judged anew
    with pytest.raises(BadRowsError, match="10 of its last 10 rows"):
        owner.take(log.batch())


def test_a_mended_suite_lets_the_rows_through(tmp_path: Path) -> None:
    """Rows judged by another suite are not held against the new one; what was never set aside is taken."""
    owner, log = _notes(tmp_path)
    log.send(_note(number, words=-1) for number in range(10))
    with pytest.raises(BadRowsError, match='run "deltaworks quarantine accept silver.notes"'):
        owner.take(log.batch())

    suite = owner.settings.project / "expectations/silver/notes.yml"
    suite.write_text(suite.read_text().replace("min_value: 0", "min_value: -1"))
    owner.start()
    owner.catch_up(log)

    assert len(owner.rows("silver.notes")) == 10
    assert not owner.rows("silver.notes__quarantine")


def test_a_batch_without_rows_of_the_table_does_not_stop_it(tmp_path: Path) -> None:
    """The last rows that were let through are mostly bad; only a further row is a reason to stop."""
    owner, log = _notes(tmp_path)
    log.send(_note(number, words=1) for number in range(10))
    owner.take(log.batch())
    log.send(_note(number, words=-1 if number > 10 else 1) for number in range(10, 20))
    owner.take(log.batch())  # 9 of 20 rows

    log.send([Record(topic="members", value=b"{}")])
    owner.take(log.batch())

    log.send([_note(20, words=-1)])
    with pytest.raises(BadRowsError, match="10 of its last 11 rows"):
        owner.take(log.batch())


def test_only_tables_that_parse_can_be_let_through(tmp_path: Path) -> None:
    """A table over tables, and one that is not there, are refused with the next step."""
    owner, _ = _notes(tmp_path)

    for name, why in (("gold.notes_per_day", "sets no rows aside"), ("silver.note", "app tiny has no table")):
        with pytest.raises(CommandError, match=why):
            carry_out(owner, _accept(name))


def _accept(table: str) -> Command:
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    return Command(
        id=7, app="tiny", table_name=table, kind="accept_bad_rows", arguments={}, state="running", epoch=1, progress={},
        result=None, error=None, requested_by="tests", reason="tried", requested_at=moment, started_at=moment,
        finished_at=None,
    )  # fmt: skip


def _notes(folder: Path) -> tuple[ArrowOwner, Log]:
    """The tiny project, whose notes stop at more than half of ten rows."""
    project = Project(folder / "project")
    path = "tables/silver/notes/table.py"
    project.edit(path, 'owner="tests",', 'owner="tests",\n    bad_rows_max=share(0.5, of=10),')
    project.edit(path, "minutes, refuse", "minutes, refuse, share")
    settings = Settings.load(project.folder, environment={}, data=folder / "data")
    return ArrowOwner(settings, "tiny"), Log()


def _note(number: int, *, words: int) -> Record:
    document = {"note_id": f"n{number}", "written_at": 1763719200000, "words": words}
    return Record(topic="notes", value=json.dumps(document).encode())


def _said(settings: Settings, *words: str) -> str:
    environment = {"DELTAWORKS_PROJECT": str(settings.project), "DELTAWORKS_DATA": str(settings.data)}
    ran = CliRunner().invoke(main, ["quarantine", *words], env=environment)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def _asked(settings: Settings, *words: str) -> Any:
    return json.loads(_said(settings, *words))
