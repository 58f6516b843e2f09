"""Changes of the shop's customers as Debezium sends them, and what their history says: for tests on both paths."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks.engine.lake import OwnedTable
from deltaworks.settings import Settings
from tests.flows import START, Crash, Log, Owner, Record
from tests.shop_rows import change, customer

TABLE = "silver.customers"
State = tuple[int, str, float, float | None, bool]
"""Number, name, begin and end in seconds after the start, whether it is current."""


def alone(spark: SparkSession, settings: Settings, *, path: str = "auto") -> Owner:
    """Own the shop's tables; only the history takes rows."""
    return Owner(spark, settings, "shop", path=path, only=(TABLE,))


def moved(
    op: str, number: int, lsn: int, *, second: float, life: int = 0, last: str | None = None, after: int | None = None
) -> Record:
    """A change of a customer, committed so many seconds after the start; r, c, u, d, or t for all customers.

    `life`: how often the source was read anew before; `last`: what a snapshot says of its last row; `after`: the last
    commit before it.
    """
    row, at = customer(number, f"n{lsn}"), START + timedelta(seconds=second)
    record = change("d" if op == "t" else op, row, lsn=lsn, table="customers", snapshot=op == "r", at=at)
    envelope = json.loads(record.value or b"{}")
    envelope["op"] = op
    envelope["source"] |= {"name": f"shop-{life}"} if life else {}
    envelope["source"] |= {"snapshot": last} if last else {}
    envelope["source"] |= {"sequence": f'["{after}","{lsn}"]'} if after else {}
    return replace(record, key=None if op == "t" else record.key, value=json.dumps(envelope).encode())


def read(number: int, lsn: int, *, second: float, life: int = 0) -> Record:
    """A row of an incremental snapshot, sent so many seconds after the start, as of the commit of a change."""
    record = moved("r", number, lsn, second=second, life=life, last="incremental", after=lsn)
    envelope = json.loads(record.value or b"{}")
    envelope["source"] |= {"lsn": None, "txId": None}
    return replace(record, value=json.dumps(envelope).encode())


def a_source(chance: Random, count: int) -> list[Record]:
    """Customers who come, change, take another number, leave and come back; now and then all go.

    The clock runs as it likes, and now and then some rows are read while changes go on. In the end the source is read
    anew: its log begins again, and some customers have gone.
    """
    records = [moved("r", number, 1, second=0) for number in range(3)]
    there = set(range(3))
    for lsn in range(2, count):
        number, second, roll = chance.randrange(6), chance.randrange(count), chance.random()
        if chance.random() < 0.1:
            records += [read(one, lsn - 1, second=second) for one in chance.sample(range(6), 2)]
        if roll < 0.05:
            records.append(moved("t", 0, lsn, second=second, after=lsn - 1))
            there.clear()
        elif number in there and roll < 0.3:
            records.append(moved("d", number, lsn, second=second, after=lsn - 1))
            there.discard(number)
            if roll < 0.15 and number + 10 not in there:  # another number: both changes have one sequence
                records.append(moved("c", number + 10, lsn, second=second, after=lsn - 1))
                there.add(number + 10)
        else:
            records.append(moved("u" if number in there else "c", number, lsn, second=second, after=lsn - 1))
            there.add(number)
    kept = [*chance.sample(sorted(there), len(there) // 2), 20]
    anew = [moved("r", number, 7, second=count, life=1) for number in kept[:-1]]
    anew += [moved("r", kept[-1], 7, second=count, life=1, last="last_in_data_collection")]
    changed = [moved("u", chance.choice(kept), lsn, second=chance.randrange(2 * count), life=1) for lsn in (8, 9)]
    changed += [read(chance.choice(kept), 8, second=chance.randrange(2 * count), life=1)]
    return [*records, *anew, *changed]


def shuffled(chance: Random, records: Sequence[Record], *, cuts: int) -> list[list[Record]]:
    """The same changes in any order, some of them twice, in so many batches."""
    wild = chance.sample(list(records), len(records)) + chance.sample(list(records), len(records) // 5)
    size = len(wild) // cuts + 1
    return [wild[start : start + size] for start in range(0, len(wild), size)]


def in_batches(owner: Owner, parts: Sequence[Sequence[Record]]) -> None:
    """All batches; after a crash a restart, once."""
    log = Log()
    for part in parts:
        log.send(part)
        rows = log.batch()
        try:
            owner.take(rows)
        except Crash:
            owner.crash_at = -1
            owner.start()
            owner.catch_up(log)


def states(owner: Owner, table: str = TABLE) -> list[State]:
    """What the history says, in its order, by key."""
    layer, name = table.split(".")
    stored: OwnedTable = owner.flow.inputs[table].table
    assert stored.path == owner.settings.lake / layer / name
    stored.reopen()
    names = ["customer_id", "name", "valid_from", "valid_to", "is_current", "_source"]
    rows = stored.read(names).sort_by([("customer_id", "ascending"), ("_source", "ascending")])
    found: pa.Table = rows.drop_columns(["_source"])
    return [
        (number, name, _seconds(start) or 0.0, _seconds(end), current)
        for number, name, start, end, current in zip(*(column.to_pylist() for column in found), strict=True)
    ]


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else (moment - START).total_seconds()
