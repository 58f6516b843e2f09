"""A small lake of real Delta tables, written by delta-rs, for tests of what reads it."""

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

NOON = dt.datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=dt.UTC)


def orders(*days: int) -> pa.Table:
    """Rows of gold.daily_orders, one for each day of November 2026; a day's revenue is its number and ten cents."""
    return pa.table(
        {
            "day": pa.array([dt.date(2026, 11, day) for day in days], pa.date32()),
            "orders": pa.array([day * 100 for day in days], pa.int64()),
            "revenue": pa.array([Decimal(day) + Decimal("0.10") for day in days], pa.decimal128(18, 2)),
            "_seq": pa.array(list(days), pa.int64()),
        }
    )


def everything() -> pa.Table:
    """One row of each type that a table can have, and one row of nulls."""
    address = pa.struct([("city", pa.string()), ("since", pa.date32())])
    row = {
        "flag": (pa.bool_(), True),
        "small": (pa.int32(), -7),
        "big": (pa.int64(), 9_007_199_254_740_993),  # one more than a double can hold
        "ratio": (pa.float64(), 0.1),
        "price": (pa.decimal128(12, 2), Decimal("19.90")),
        "name": (pa.string(), 'Zoë "Z", twice\nand a \x1b[31mcolour'),
        "raw": (pa.binary(), b'{"a"}\x00\xff'),
        "day": (pa.date32(), dt.date(2026, 11, 20)),
        "seen": (pa.timestamp("us", "UTC"), NOON),
        "local": (pa.timestamp("us"), NOON.replace(tzinfo=None)),
        "tags": (pa.list_(pa.string()), ["a", None]),
        "address": (address, {"city": "Łódź", "since": dt.date(2020, 1, 1)}),
        "counts": (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
        "_source": (pa.string(), "page_views/0/12"),
    }
    return pa.table({name: pa.array([value, None], kind) for name, (kind, value) in row.items()})


def build_lake(lake: Path) -> Path:
    """Write gold.daily_orders, its late rows, silver.everything, silver.page_views__quarantine and ops.ledger."""
    write_deltalake(lake / "gold/daily_orders", orders(20, 21))
    write_deltalake(lake / "gold/daily_orders__late", orders(19))
    write_deltalake(lake / "silver/everything", everything())
    refused = {"_reason": ["event_time: not a timestamp"], "_topic": ["page_views"]}
    write_deltalake(lake / "silver/page_views__quarantine", pa.table(refused))
    write_deltalake(lake / "ops/ledger", pa.table({"entry": pa.array([1, 2, 3], pa.int64())}))
    return lake


def dated(table: Path, *times: dt.datetime) -> None:
    """Let the commits of a table, oldest first, say that they were made at these times; their files say 2001."""
    for file, at in zip(sorted((table / "_delta_log").glob("*.json")), times, strict=True):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = round(at.timestamp() * 1000)
        file.write_text("\n".join(map(json.dumps, actions)))
        os.utime(file, (10**9, 10**9))
