"""Rows of the tiny project's members, for tests of what is judged over a table."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa

SECRET = "Zurich-of-Ada"


def members(*, last: str = SECRET) -> pa.Table:
    """Four members, one of them of a city that no text may name, and the engine's own column."""
    return pa.table(
        {
            "member_id": pa.array([1, 2, 3, 4]),
            "name": ["Ada", "Bo", None, SECRET],
            "city": ["Bern", "Bern", "Basel", last],
            "dues": pa.array([Decimal("1.50")] * 4, pa.decimal128(8, 2)),
            "joined": pa.array([dt.date(2026, 11, 20)] * 4),
            "_seq": pa.array([1, 1, 1, 1]),
        }
    )
