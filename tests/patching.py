"""Patches of refused rows, as their owner gets them."""

from collections.abc import Mapping
from typing import Any

from tests.broken_rules import command
from tests.flows import Owner, carry_out

Row = Mapping[str, Any]


def place(row: Row) -> dict[str, object]:
    """Where a refused row came from, as an order names it."""
    return {name: row[name] for name in ("topic", "partition", "offset")}


def patch(owner: Owner, table: str, row: Row, value: bytes, *, number: int = 5) -> dict[str, Any]:
    """Give a refused row another value."""
    folder = owner.settings.data / "staged" / f"patch-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "value").write_bytes(value)
    return carry_out(owner, command("patch_refused_row", table, number=number, folder=folder.name, **place(row)))


def withdraw(owner: Owner, table: str, row: Row, *, number: int = 6) -> dict[str, Any]:
    """Take the patch of a refused row back."""
    return carry_out(owner, command("withdraw_patch", table, number=number, **place(row)))
