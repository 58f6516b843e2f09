"""A copy of a part of the shop whose suites can be broken and mended, and orders about what they refused."""

import shutil
from pathlib import Path
from typing import Any

from deltaworks.control.commands import Command
from deltaworks.settings import ROOT, Settings
from shop.part import FIRST, part_of_shop
from tests.flows import START, Log, Owner, carry_out

WRONG_RULES = [
    ("silver.orders", "silver/orders.yml", "[placed, paid, cancelled]", "[placed]"),
    ("silver.customers", "silver/customers.yml", "{column: country, regex: '^[A-Z]{2}$'}\n    severity: warning",
     "{column: name, regex: '[02468]$'}\n    severity: critical"),
]  # fmt: skip
"""A table of a database's changes, its suite, and a text of that: as it is, and as a rule that refuses good rows."""


class Shop:
    """A copy of a part of the shop whose suites can be broken and mended."""

    def __init__(self, folder: Path) -> None:
        """Copy what a project is made of."""
        self.folder = part_of_shop(folder, *FIRST)
        shutil.copytree(ROOT / "shop", folder / "shop", ignore=shutil.ignore_patterns("__pycache__"))

    def without_gold(self) -> "Shop":
        """Take out what is computed from other tables: it needs a transform, and so Spark."""
        for name in ("tables", "expectations"):
            shutil.rmtree(self.folder / name / "gold")
        return self

    def edit(self, suite: str, old: str, new: str) -> None:
        """Replace a text of a suite that is there once."""
        path = self.folder / "expectations" / suite
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def settings(self, data: Path) -> Settings:
        """Give its settings, with a lake of their own."""
        return Settings.load(self.folder, environment={}, data=data)


def command(kind: str, table: str, *, number: int = 7, **arguments: object) -> Command:
    """An order as the owner gets it."""
    return Command(
        id=number, app="any", table_name=table, kind=kind, arguments=arguments, state="running", epoch=1, progress={},
        result=None, error=None, requested_by="tests", reason="tried", requested_at=START, started_at=START,
        finished_at=None,
    )  # fmt: skip


def replay(owner: Owner, table: str, *, number: int = 7, **arguments: object) -> dict[str, Any]:
    """Have refused rows judged again; the tables above take what comes of it."""
    done = carry_out(owner, command("replay_refused_rows", table, number=number, **arguments))
    owner.take(Log().batch())
    return done
