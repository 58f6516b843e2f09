"""`ledger` and `wait` on a lake that has something in it."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from deltaworks.cli import ledger, show, wait
from deltaworks.errors import DeclarationError
from deltaworks.settings import Settings
from shop.part import FIRST, part_of_shop
from tests.arrow_flow import ArrowOwner
from tests.shop_rows import broken, view

WIDTH = 80
pytestmark = pytest.mark.usefixtures("_web")


@pytest.fixture
def _web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the app web read five records, of them a copy and a malformed one."""
    monkeypatch.setenv("DELTAWORKS_DATA", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_PORT_KAFKA", "9")  # nobody is there
    monkeypatch.setenv("DELTAWORKS_PORT_CONTROL", "9")
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(part_of_shop(tmp_path / "project", *FIRST)))
    owner = ArrowOwner(Settings.load(), "web")
    owner.log.send([*(view(number) for number in (1, 2, 1)), broken(b"{"), view(3)])
    owner.bronze()
    owner.silver()
    owner.flow.settle()


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as on a terminal of 80 columns."""
    monkeypatch.setattr(show, "out", Console(width=WIDTH, highlight=False))


def call(*words: str) -> Result:
    """Run the command line in this process."""
    main = typer.Typer()
    main.callback()(lambda: None)
    for module in (ledger, wait):
        module.register(main)
    return CliRunner().invoke(main, words)


def answer(*words: str) -> dict[str, Any]:
    """The one object that a command prints for programs."""
    result = call(*words, "--json")
    found: list[dict[str, Any]] = json.loads(result.stdout)
    assert len(found) == 1
    return found[0]


def test_ledger_of_a_table_says_what_stands_behind_it() -> None:
    """Numbers with their commands, what the newest version contains, and the commits with their rows."""
    shown = answer("ledger", "silver.page_views")

    assert {one["number"]: one["count"] for one in shown["numbers"]} == {
        "rows": 3, "read": 5, "taken": 3, "refused": 1, "duplicate": 1
    }  # fmt: skip
    assert all(one["command"].startswith("deltaworks ") for one in shown["numbers"])
    assert shown["processed_through"]["offsets"] == {"page_views": {"0": 0, "1": 5}}
    assert [(one["kind"], one["rows_added"]) for one in shown["commits"]] == [("batch", 3), ("create", 0)]


@pytest.mark.usefixtures("_narrow")
def test_ledger_of_a_table_fits_a_terminal() -> None:
    """Everything that a person reads stands in 80 columns."""
    shown = call("ledger", "silver.page_views").stdout

    assert "Version 1 contains" in shown
    assert "deltaworks quarantine show silver.page_views" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH


@pytest.mark.usefixtures("_narrow")
def test_ledger_without_a_broker_stands_by_itself() -> None:
    """The end offsets are missing, and said to be; the rest is there, in 80 columns."""
    result = call("ledger")

    assert result.exit_code == 0, result.output
    assert "page_views" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= WIDTH


def test_gaps_of_a_topic_that_nobody_reads_are_refused() -> None:
    """With the names that there are."""
    refused = call("ledger", "--gaps", "page_view")

    assert refused.exit_code == 2
    assert "page_views" in refused.stderr


def test_record_that_is_there_is_not_waited_for() -> None:
    """Exit code 0, and the version that has it."""
    there = ("--topic", "page_views", "--partition", "1", "--offset", "4")

    shown = answer("wait", "--table", "silver.page_views", *there)

    assert (shown["arrived"], shown["version"]) == (True, 1)
    assert call("wait", "--table", "silver.page_views", *there).exit_code == 0


def test_record_that_does_not_come_has_a_reason() -> None:
    """Exit code 1: who lacks it, and that nothing is known of the driver."""
    place = ("--topic", "page_views", "--partition", "1")

    late = call("wait", "--table", "gold.page_views_per_minute", *place, "--offset", "4", "--timeout", "0")
    refused = call("wait", "--table", "silver.page_views", *place, "--offset", "3")

    assert (late.exit_code, refused.exit_code) == (1, 1)
    assert "not there after 0 s" in late.stderr
    assert "What app web does is not known" in late.stderr
    assert "read, but refused by silver.page_views" in refused.stderr


def test_topic_that_does_not_lead_to_the_table_is_refused() -> None:
    """Nobody waits for what cannot come."""
    other = call("wait", "--table", "silver.page_views", "--topic", "shop.changes", "--partition", "0", "--offset", "0")
    unknown = call("wait", "--table", "silver.page_view", "--topic", "page_views", "--partition", "0", "--offset", "0")

    assert other.exit_code == 2
    assert "silver.page_views is made from page_views" in other.stderr
    assert isinstance(unknown.exception, DeclarationError)
