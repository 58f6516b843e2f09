"""Projects made by chance: all ways of keeping tables, columns and keys of all types, in parts or not; and their rows.

A way of keeping that is new joins with one line of `TABLES`.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from tests.flows import START, Record
from tests.predicate_corpus import written

LONG = "ж" * 20_000
COLUMNS: dict[str, tuple[str, tuple[Any, ...]]] = {
    # names that an SQL reader could take for something else
    "Flag": ("boolean", (True, False)),
    "order": ("int", (0, -1, 2**31 - 1, -(2**31))),
    "select": ("bigint", (0, -1, 2**63 - 1, -(2**63), 2**53 + 1)),
    "ratio": ("double", (0.0, -0.0, 5e-324, -1.7976931348623157e308, 1e15 + 0.3, 0.1)),
    "digit": ("decimal(1,0)", (Decimal(9), Decimal(-9), Decimal(0))),
    "price": ("decimal(18,2)", (Decimal("0.05"), Decimal("-9999999999999999.99"), Decimal("1234567890123456.78"))),
    "wide": ("decimal(38,10)", (Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal(1))),
    "Text": (
        "string",
        ("", " ", "a", "A", "a\x00b", "ä", "a\u0308", "\N{GRINNING FACE}", "it's", "\\", "%_", "null", LONG),
    ),
    "bytes": ("binary", (b"", b"\x00", b"\xff\xfe", b"a" * 3_000)),
    "day": ("date", (date(1, 1, 1), date(1582, 10, 10), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31))),
    "at": (
        "timestamp",
        (
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(1582, 10, 10, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(2024, 2, 29, 12, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ),
    ),
}
PARTED = ("order", "select", "Text", "day", "at")
"""The columns that parts can be made of."""
WORDS = (
    "Column, Table, add, aggregate, append, day_of, debezium, greatest, history, json, kafka, latest, least, minutes, "
    "raw, side_output, view"
)


@dataclass(frozen=True)
class Choice:
    """What chance has decided for one project."""

    dedupe: tuple[str, ...]
    keys: tuple[str, ...]
    groups: tuple[str, ...]
    seen: tuple[str, ...]
    parted: tuple[str | None, ...]
    only: str

    @classmethod
    def by(cls, chance: Random) -> "Choice":
        """Choose keys of one or two columns each, and for each table whether and how it is in parts."""
        names = list(COLUMNS)

        def some() -> tuple[str, ...]:
            return tuple(chance.sample(names, chance.choice((1, 2))))

        groups = some()
        in_groups = [name for name in groups if name in PARTED]
        free = [chance.choice((None, *PARTED)) for _ in range(3)]
        parted = (
            chance.choice((None, "timestamp")),
            *free,
            chance.choice((None, *in_groups)),
            chance.choice((None, *PARTED)),
        )
        one = chance.choice([name for name, (kind, _) in COLUMNS.items() if kind != "binary"])
        values = [value for value in COLUMNS[one][1] if value != "\\"]  # conditions have no backslashes
        only = f"`{one}` {chance.choice(('=', '<>'))} {written(chance.choice(values))}"
        dedupe = ("id", *(name for name in some() if COLUMNS[name][0] != "double"))
        return cls(dedupe, some(), groups, some(), parted, only)


def project(folder: Path, chance: Random) -> Choice:
    """Write a project into a folder that does not exist."""
    choice = Choice.by(chance)
    folder.mkdir(parents=True)
    (folder / "deltaworks.toml").write_text("[apps.made]\n")
    (folder / "topics.toml").write_text('[events]\npartitions = 2\nkey = "none"\n[changes]\nkey = "none"\n')
    for name, write in TABLES.items():
        place = folder / "tables" / Path(*name.split("."))
        place.mkdir(parents=True)
        for file, text in write(choice).items():
            (place / file).write_text(text)
        suite = folder / "expectations" / Path(*name.split(".")).with_suffix(".yml")
        suite.parent.mkdir(parents=True, exist_ok=True)
        suite.write_text("waived: made by chance\n")
    return choice


def _columns(names: Sequence[str], required: Sequence[str]) -> list[tuple[str, str, bool]]:
    return [(name, COLUMNS[name][0], name not in required) for name in names]


def _table(doc: str, fields: Sequence[str], columns: Sequence[tuple[str, str, bool]], parted: str | None) -> str:
    shown = "".join(f'Column("{name}", "{kind}", null={null}, doc="Made."), ' for name, kind, null in columns)
    kinds = {name: kind for name, kind, _ in columns}
    by_day = kinds.get(parted or "", "timestamp") == "timestamp"
    part = [] if parted is None else [f"partition_by={f'day_of({parted!r})' if by_day else repr(parted)}"]
    given = ", ".join(['app="made"', 'owner="tests"', *fields, *part, *([f"columns=({shown})"] if columns else [])])
    return f'"""{doc}"""\n\nfrom deltaworks.words import {WORDS}\n\nTABLE = Table({given})\n'


def _raw(choice: Choice) -> dict[str, str]:
    fields = ['reads=kafka("events", "changes")', "kept_as=raw()"]
    return {"table.py": _table("All that came.", fields, (), choice.parted[0])}


def _chosen(choice: Choice) -> dict[str, str]:
    """The same events, filtered."""
    return _append(choice, only=[f"only={choice.only!r}"])


def _append(choice: Choice, only: Sequence[str] = ()) -> dict[str, str]:
    fields = [
        'reads=json("bronze.wire", topic="events")',
        f"kept_as=append(dedupe_by={choice.dedupe!r}, within=minutes(10))",
        'event_time="happened"',
        *only,
    ]
    columns = [("id", "string", False), ("happened", "timestamp", False), *_columns(list(COLUMNS), choice.dedupe)]
    return {"table.py": _table("Events.", fields, columns, choice.parted[1])}


def _latest(choice: Choice) -> dict[str, str]:
    fields = ['reads=debezium("bronze.wire", table="public.things")', f"kept_as=latest(keys={choice.keys!r})"]
    return {"table.py": _table("Things.", fields, _columns(list(COLUMNS), choice.keys), choice.parted[2])}


def _history(choice: Choice) -> dict[str, str]:
    fields = ['reads=debezium("bronze.wire", table="public.things")', f"kept_as=history(keys={choice.keys!r})"]
    return {"table.py": _table("What things were.", fields, _columns(list(COLUMNS), choice.keys), choice.parted[2])}


def _told(choice: Choice) -> dict[str, str]:
    """The events taken for states: which of them are the same thing is chance's."""
    fields = ['reads=json("bronze.wire", topic="events")', f'kept_as=history(keys={choice.keys!r}, by="happened")']
    columns = [("id", "string", False), ("happened", "timestamp", False), *_columns(list(COLUMNS), choice.keys)]
    return {"table.py": _table("What was told.", fields, columns, choice.parted[2])}


def _mirror(choice: Choice) -> dict[str, str]:
    """Rows one to one, so that one that moves to another part does so in a view too."""
    fields = ['reads="silver.things"', f"kept_as=view(keys={choice.keys!r})"]
    body = "    return things"
    keys_from = f"\n\ndef keys_from(things):\n    return things.select({_listed(choice.keys)})\n"
    return {
        "table.py": _table("Things again.", fields, _columns(list(COLUMNS), choice.keys), choice.parted[3]),
        "transform.py": f"def transform(things):\n{body}\n{keys_from}",
    }


def _aggregate(choice: Choice) -> dict[str, str]:
    values = [name for name in COLUMNS if name not in choice.groups]
    combine = {"n": "add", "total": "add", "paid": "add", "odd": "greatest", "zero": "least"}
    combine |= {f"lo_{name}": "least" for name in values} | {f"hi_{name}": "greatest" for name in values}
    ways = ", ".join(f"{name!r}: {how}" for name, how in combine.items())
    fields = [
        'reads="silver.events"',
        f"kept_as=aggregate(keys={choice.groups!r}, combine={{{ways}}})",
        "late=side_output(after=minutes(30))",
    ]
    columns = [
        *_columns(choice.groups, ()),
        ("n", "bigint", False), ("total", "bigint", True), ("paid", "decimal(37,2)", True),
        ("odd", "double", True), ("zero", "double", True),
        *((f"{end}_{name}", COLUMNS[name][0], True) for name in values for end in ("lo", "hi")),
    ]  # fmt: skip
    made = [
        'F.count("*").alias("n")',
        'F.sum("order").alias("total")',
        'F.sum("price").cast("decimal(37,2)").alias("paid")',
        'F.max(F.when(F.col("Flag"), F.lit(float("nan"))).otherwise(F.col("ratio"))).alias("odd")',
        'F.min(F.lit(-0.0)).alias("zero")',
        *(f'F.min("{name}").alias("lo_{name}"), F.max("{name}").alias("hi_{name}")' for name in values),
    ]
    body = f"    return events.groupBy({_listed(choice.groups)}).agg({', '.join(made)})"
    return {
        "table.py": _table("Groups.", fields, columns, choice.parted[4]),
        "transform.py": f"from pyspark.sql import functions as F\n\n\ndef transform(events):\n{body}\n",
    }


def _view(choice: Choice) -> dict[str, str]:
    fields = ['reads=("silver.things", "silver.events")', f"kept_as=view(keys={choice.seen!r})"]
    values = [name for name in COLUMNS if name not in choice.seen]
    part = choice.parted[5]
    parted = f"hi_{part}" if part is not None and part not in choice.seen else part
    columns = [
        *_columns(choice.seen, ()),
        ("n", "bigint", False), ("odd", "double", True),
        *((f"hi_{name}", COLUMNS[name][0], True) for name in values),
    ]  # fmt: skip
    made = [
        'F.count("*").alias("n")',
        'F.when(F.count("*") > 1, F.lit(float("nan"))).otherwise(F.lit(-0.0)).alias("odd")',
        *(f'F.max("{name}").alias("hi_{name}")' for name in values),
    ]
    by = _listed(choice.seen)
    return {
        "table.py": _table("Things and events together.", fields, columns, parted),
        "transform.py": (
            "from pyspark.sql import functions as F\n\n\ndef transform(things, events):\n"
            f"    both = things.unionByName(events.drop('id', 'happened'))\n"
            f"    return both.groupBy({by}).agg({', '.join(made)})\n\n\n"
            f"def keys_from(things=None, events=None):\n"
            f"    return (events if things is None else things).select({by})\n"
        ),
    }


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


TABLES: dict[str, Callable[[Choice], dict[str, str]]] = {
    "bronze.wire": _raw,
    "silver.events": _append,
    "silver.chosen": _chosen,
    "silver.things": _latest,
    "silver.past": _history,
    "silver.told": _told,
    "gold.mirror": _mirror,
    "gold.groups": _aggregate,
    "gold.picture": _view,
}


def batches(choice: Choice, chance: Random, count: int, size: int) -> list[list[Record]]:
    """Events and changes, mixed: copies, late ones, older changes, deletes, truncations, bytes that are neither.

    A record of the events that has no value is refused by tables of events, and deletes a row where they are states.
    """
    events = _events(choice, chance, count * size)
    changes = _changes(choice, chance, count * size)
    mixed = [[*events[n::count], *changes[n::count]] for n in range(count)]
    for one in mixed:
        chance.shuffle(one)
    return mixed


def _values(chance: Random, names: Sequence[str], required: Sequence[str] = ()) -> dict[str, Any]:
    """A row; keys are of a few values each, so that rows meet."""
    return {
        name: None if name not in required and chance.random() < 0.2 else chance.choice(COLUMNS[name][1])
        for name in names
    }


def _events(choice: Choice, chance: Random, count: int) -> list[Record]:
    made: list[Record] = []
    for number in range(count):
        roll = chance.random()
        if roll < 0.1 and made:
            made.append(chance.choice(made))
        elif roll < 0.15:
            made.append(Record(topic="events", value=chance.choice([None, b"", b"{", b"\xff", b'{"id": 1}'])))
        elif roll < 0.2:
            of = {name: _json(value, days=False) for name, value in _values(chance, choice.keys, choice.keys).items()}
            at = START - timedelta(minutes=chance.randrange(count))  # the clock of a producer
            made.append(Record(topic="events", value=None, key=json.dumps(of).encode(), at=at, partition=number % 2))
        else:
            happened = START - timedelta(minutes=count - number) - timedelta(minutes=90 if roll < 0.3 else 0)
            row = {"id": f"e{number}", "happened": happened.isoformat()}
            row |= {n: _json(v, days=False) for n, v in _values(chance, list(COLUMNS), choice.dedupe).items()}
            made.append(Record(topic="events", value=json.dumps(row).encode(), partition=number % 2))
    return made


def _changes(choice: Choice, chance: Random, count: int) -> list[Record]:
    made = []
    pool = [_values(chance, choice.keys, choice.keys) for _ in range(12)]
    for lsn in range(1, count + 1):
        key = chance.choice(pool)
        row = {**_values(chance, list(COLUMNS), choice.keys), **key}
        op = chance.choice("ccuuuudr" if lsn != count // 2 else "t")
        made.append(_change(op, row, choice.keys, lsn, second=chance.randrange(count)))
    made[3], made[-1] = made[-1], made[3]  # a newer change comes long before the others
    return made


def _change(op: str, row: dict[str, Any], keys: Sequence[str], lsn: int, second: int) -> Record:
    at = round((START + timedelta(seconds=second)).timestamp()) * 1_000_000  # a clock that runs as it likes
    sent = {name: _json(value, days=True) for name, value in row.items()}
    source = {"schema": "public", "table": "things", "lsn": lsn, "snapshot": "false", "ts_us": at}
    source["sequence"] = json.dumps([str(lsn - 1), str(lsn)])
    if op == "r":  # of an incremental snapshot, which has read the log up to the change before
        source |= {"lsn": None, "snapshot": "incremental", "sequence": json.dumps([str(lsn - 1)] * 2)}
    envelope = {"before": None, "after": sent if op in "cur" else None, "source": source, "op": op}
    key = None if op == "t" else json.dumps({name: sent[name] for name in keys}).encode()
    return Record(topic="changes", value=json.dumps(envelope).encode(), key=key)


def _json(value: Any, *, days: bool) -> Any:
    """A value on the wire; Debezium sends dates as days."""
    match value:
        case Decimal():
            return str(value)
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case date():
            return value.toordinal() - date(1970, 1, 1).toordinal() if days else value.isoformat()
    return value
