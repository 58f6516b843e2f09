"""A row that crashes the parser is found and refused; a bug that hits everything is told."""

from pathlib import Path
from traceback import format_exception

import pyarrow as pa
import pytest

from deltaworks.engine.parsing import json as parsing
from deltaworks.engine.parsing.bronze import Chunk
from deltaworks.engine.suspended import is_tables_own
from deltaworks.errors import DeltaworksError, LakeError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.flows import Log
from tests.shop_rows import view


@pytest.fixture
def _crashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the parser raise on each record that speaks of poison, with a text that quotes it."""
    sound = parsing.JsonParser.batch

    def batch(self: parsing.JsonParser, chunk: Chunk) -> pa.RecordBatch:
        for value in chunk.column("value"):
            if b"poison" in (value or b""):
                raise ZeroDivisionError(value.decode())
        return sound(self, chunk)

    monkeypatch.setattr(parsing.JsonParser, "batch", batch)


@pytest.mark.usefixtures("_crashing")
def test_rows_that_crash_the_parser_are_refused_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In one batch, with the error's name and where it was raised; what it says may quote the row, and is not told."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    log.send([view(number, page="/poison/secret" if number in (17, 18, 399) else "/") for number in range(400)])

    owner.take(log.batch())

    aside = owner.rows("silver.page_views__quarantine")
    rows = owner.flow.inputs["silver.page_views"].table.read(["event_id"])["event_id"].to_pylist()
    assert sorted(rows, key=lambda name: int(name[1:])) == [f"e{n}" for n in range(400) if n not in (17, 18, 399)]
    assert [row["reason"] for row in aside] == ["crashes the parser: ZeroDivisionError"] * 3
    assert all(b"poison" in row["value"] for row in aside)
    assert owner.verdicts() == {"ok"}
    told = [record.getMessage() for record in caplog.records if record.name == "deltaworks.poison"]
    assert len(told) == 3
    assert "page_views/1/" in told[0]
    assert "test_poison.py" in told[0]
    assert "secret" not in "".join(told)


@pytest.mark.usefixtures("_crashing")
def test_bug_that_hits_everything_is_the_tables_own(tmp_path: Path) -> None:
    """No row is set aside, bronze has them; who is told gets the error's name and place, and no row's text."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    log.send([view(number, page="/poison/secret") for number in range(40)])

    with pytest.raises(
        LakeError, match=r"page_views/.* crashes the parser: ZeroDivisionError in .*test_poison.py:"
    ) as told:
        owner.take(log.batch())

    assert is_tables_own(told.value, None)
    assert "secret" not in "".join(format_exception(told.value))
    assert owner.rows("silver.page_views__quarantine") == []


def test_crash_that_no_row_has_alone_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves that pass are taken."""
    sound = parsing.JsonParser.batch

    def batch(self: parsing.JsonParser, chunk: Chunk) -> pa.RecordBatch:
        if len(chunk) > 10:
            raise DeltaworksError("parser", "too many at once", "Take fewer")
        return sound(self, chunk)

    monkeypatch.setattr(parsing.JsonParser, "batch", batch)
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    log.send([view(number) for number in range(40)])

    owner.take(log.batch())

    assert owner.flow.inputs["silver.page_views"].table.rows() == 40
    assert owner.rows("silver.page_views__quarantine") == []
