"""A source table with replica identity full, whose records' keys are not what its rows are kept by.

Each change carries the row of before; an update leaves out a large value that it did not touch. `keyed`: its records
have a key, of another column; else they have none, as those of a table without a primary key.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from deltaworks.settings import Settings
from tests.flows import START, Record
from tests.source_table import PLACEHOLDER, people

KEPT = ("shelf", "place")
_DECLARED = '''"""Goods on shelves."""

from deltaworks.words import Column, Table, debezium, {kept}

TABLE = Table(
    app="tiny",
    reads=debezium("bronze.changes", table="public.goods", replica_identity="{identity}"),
    kept_as={kept}(keys=("shelf", "place")),
    columns=(
        Column("shelf", "string", null=False, doc="One half of the key."),
        Column("place", "decimal(6,2)", null=False, doc="The other half."),
        Column("count", "int", doc="How many lie there."),
        Column("note", "string", doc="Large."),
    ),
    owner="tests",
)
'''


@dataclass
class FullRows:
    """public.goods; rows by number."""

    keyed: bool
    lsn: int = 100
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[Record] = field(default_factory=list)
    numbers: int = 0

    def insert(self, shelf: str, place: str, count: int) -> None:
        """Carry every value."""
        self.numbers += 1
        row = {"number": self.numbers, "shelf": shelf, "place": place, "count": count, "note": f"first {count}"}
        self.rows[self.numbers] = row
        self._write("c", self.numbers, None, row)

    def update(self, number: int, **values: Any) -> None:
        """Carry the row of before, and of now; of that the note only if it is another one."""
        before = self.rows[number]
        self.rows[number] = before | values
        self._write("u", number, before, before | {"note": PLACEHOLDER} | values)

    def delete(self, number: int) -> None:
        """Carry the row of before, then a tombstone."""
        before = self.rows.pop(number)
        self._write("d", number, before, None)
        self.log.append(Record(topic="shop.changes", key=self.log[-1].key, value=None))

    def there(self) -> list[tuple[str, str, int, str]]:
        """What the table says."""
        rows = self.rows.values()
        return sorted((row["shelf"], f"{float(row['place']):.2f}", row["count"], row["note"]) for row in rows)

    def free(self, chance: Random) -> dict[str, str]:
        """Keys that no row has."""
        taken = {(row["shelf"], float(row["place"])) for row in self.rows.values()}
        all_keys = [(shelf, place) for shelf in "abc" for place in ("1", "1.50", "2.0")]
        found = [(shelf, place) for shelf, place in all_keys if (shelf, float(place)) not in taken]
        return dict(zip(KEPT, chance.choice(found), strict=True))

    def _write(self, op: str, number: int, before: Any, after: Any) -> None:
        self.lsn += 1
        told = json.dumps([str(self.lsn - 1), str(self.lsn)])
        at = (START + timedelta(seconds=self.lsn)).timestamp()
        source = {"name": "shop", "schema": "public", "table": "goods", "lsn": self.lsn, "sequence": told}
        source |= {"snapshot": "false", "ts_us": round(at * 1_000_000)}
        envelope = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}
        key = json.dumps({"number": number}).encode() if self.keyed else None
        self.log.append(Record(topic="shop.changes", key=key, value=json.dumps(envelope).encode()))


def lived(chance: Random, changes: int, *, keyed: bool) -> FullRows:
    """The table after some changes of few keys, which rows give to each other; it is not empty then."""
    table = FullRows(keyed=keyed)
    for count in range(changes):
        roll, number = chance.random(), chance.choice([*table.rows, 0])
        if number == 0 and len(table.rows) < 6:
            table.insert(**table.free(chance), count=count)
        elif number and roll < 0.2:
            table.delete(number)
        elif number and roll < 0.5:
            table.update(number, **table.free(chance), count=count)
        elif number and roll < 0.6:
            table.update(number, **table.free(chance), note=f"then {count}")
        elif number and roll < 0.7:  # the same key, written otherwise
            table.update(number, place=f"{float(table.rows[number]['place']):.2f}")
        elif number:
            table.update(number, count=count)
    if not table.rows:
        table.insert(**table.free(chance), count=changes)
    return table


def goods(folder: Path, *, keyed: bool) -> Settings:
    """A project with silver.goods, of now, and silver.goods_then, their history."""
    settings = people(folder)
    project = settings.project
    for name, kept in (("goods", "latest"), ("goods_then", "history")):
        declared = _DECLARED.format(kept=kept, identity="full" if keyed else "default")
        (project / "tables/silver" / name).mkdir()
        (project / "tables/silver" / name / "table.py").write_text(declared)
        (project / f"expectations/silver/{name}.yml").write_text("waived: a table of a test\n")
    return settings


def kept(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, int, str]]:
    """What rows of the lake's tables say, to be compared with `there`."""
    return sorted((row["shelf"], f"{row['place']:.2f}", row["count"], row["note"]) for row in rows)
