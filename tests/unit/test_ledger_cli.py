"""`deltaworks ledger TABLE`: which names it takes."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from deltaworks.cli import ledger
from deltaworks.engine.broker import OpenTransaction
from deltaworks.errors import DeclarationError


@pytest.fixture(autouse=True)
def _empty_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAWORKS_DATA", str(tmp_path))


def call(*words: str) -> Result:
    """Run the command line in this process."""
    main = typer.Typer()
    ledger.register(main)
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize(
    "name", ["orders", "gold.nope", "gold.daily_order", "gold.nope__quarantine", "silver.orders__quarantin"]
)
def test_unknown_table_is_refused_with_the_next_step(name: str) -> None:
    """A name that is no table has no empty history."""
    refused = call(name).exception

    assert isinstance(refused, DeclarationError)
    assert "there is no such table" in str(refused)


@pytest.mark.parametrize("name", ["gold.daily_orders", "silver.orders__quarantine", "silver.orders__deleted"])
def test_table_without_commits_has_an_empty_history(name: str) -> None:
    """Declared, and nothing came yet; what was refused has a history of its own."""
    result = call(name)

    assert result.exit_code == 0, result.output
    assert f"Commits of {name}, newest first: nothing yet" in result.output


def test_a_topic_that_a_transaction_holds_up_is_not_ok() -> None:
    """To readers it ends there; what is worse than that stays as it is."""
    open_one = OpenTransaction(topic="t", partition="0", first=5, waiting=11, seconds=310.4)
    held_up = {("t", "0"): open_one}

    told = [ledger._held_up({"topic": "t", "partition": partition, "verdict": verdict}, held_up)["verdict"]
            for partition, verdict in ((0, "ok"), (1, "ok"), (0, "RED: 3 offsets were gone"))]  # fmt: skip

    assert told == [
        "behind a transaction, open for 310 s: 11 offsets wait", "ok", "RED: 3 offsets were gone"
    ]  # fmt: skip
