"""A source table whose large values are TOASTed, and its changes as the connector writes them under default identity.

An update leaves out the large values that it did not touch; a delete has its key and nothing else to be trusted;
another key is a delete, a tombstone and an insert of one LSN, with headers that name each other's key.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from deltaworks.settings import Settings
from tests.flows import Record
from tests.tiny_project import Project

CHANGES = '''"""Changes, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="tiny", reads=kafka("shop.changes"), kept_as=raw(), owner="tests")
'''
PEOPLE = '''"""Members with their large values."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="tiny",
    reads=debezium("bronze.changes", table="public.members"),
    kept_as=latest(keys=("id",)),
    columns=(
        Column("id", "bigint", null=False, doc="The key."),
        Column("city", "string", doc="Small."),
        Column("bio", "string", doc="Large."),
        Column("cv", "string", doc="Large."),
    ),
    owner="tests",
)
'''
KEPT = '''"""Members; their large values are kept as they come."""

from deltaworks.words import Column, Table, debezium, keep, latest

TABLE = Table(
    app="tiny",
    reads=debezium("bronze.changes", table="public.members", unknown_fields=keep("rest")),
    kept_as=latest(keys=("id",)),
    columns=(
        Column("id", "bigint", null=False, doc="The key."),
        Column("city", "string", doc="Small."),
        Column("rest", "string", doc="What is not declared."),
    ),
    owner="tests",
)
'''
PLACEHOLDER = "__debezium_unavailable_value"
LARGE = ("bio", "cv")


@dataclass
class SourceTable:
    """public.members: `id` is the key, `city` is small, the others are large."""

    lsn: int = 100
    prefix: str = "shop"
    committed: int | None = None
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[Record] = field(default_factory=list)

    def insert(self, key: int, **values: str | None) -> None:
        """Carry every value."""
        self.rows[key] = {"id": key, "city": None, "bio": None, "cv": None, **values}
        self._write("c", key, self.rows[key])

    def update(self, key: int, **values: str | None) -> None:
        """Carry what changed, and what is small."""
        self.rows[key] = {**self.rows[key], **values}
        self._write("u", key, self._shown(self.rows[key], values))

    def delete(self, key: int) -> None:
        """Invent a `before`, and send a tombstone."""
        del self.rows[key]
        self._write("d", key, None)
        self.log.append(Record(topic="shop.changes", key=_json({"id": key}), value=None))

    def rekey(self, old: int, new: int, **values: str | None) -> None:
        """Change a row's key; large values that are not given again are left out of the new row."""
        row = {**self.rows.pop(old), "id": new, **values}
        self.rows[new] = row
        self._write("d", old, None, ends=False)
        self.log.append(Record(topic="shop.changes", key=_json({"id": old}), value=None))
        self.lsn -= 1
        self._write("c", new, self._shown(row, values))

    def truncate(self) -> None:
        """One record without a key."""
        self.rows.clear()
        self._write("t", None, None)

    def snapshot(self, *, upto: int | None = None) -> None:
        """Read every row at one LSN; `upto`: the connector dies after so many."""
        self.lsn += 1
        self.committed = None
        rows = list(self.rows.values())
        for number, row in enumerate(rows[:upto]):
            marker = "last" if number == len(rows) - 1 else "first" if number == 0 else "true"
            self._write("r", row["id"], row, snapshot=marker, step=0)

    def read(self) -> dict[int, dict[str, Any]]:
        """What a chunk of an incremental snapshot would see now."""
        return {key: dict(row) for key, row in self.rows.items()}

    def place(self) -> list[str | None]:
        """How far the connector has read the log: the last commit, the last LSN."""
        return [None if self.committed is None else str(self.committed), str(self.lsn)]

    def send(self, chunk: dict[int, dict[str, Any]], *, at: list[str | None] | None = None) -> None:
        """Send the rows of a chunk that nobody has changed since it was read.

        `at`: the connector had read the log up to there only; it sends all rows, and what was changed comes after them.
        """
        for key, row in chunk.items():
            if at is not None or self.rows.get(key) == row:
                self._write("r", key, row, snapshot="incremental", step=0, at=at or self.place())

    def _shown(self, row: dict[str, Any], touched: dict[str, Any]) -> dict[str, Any]:
        kept = [name for name in LARGE if name not in touched and row[name] is not None]
        return row | dict.fromkeys(kept, PLACEHOLDER)

    def _write(
        self,
        op: str,
        key: int | None,
        after: dict[str, Any] | None,
        *,
        snapshot: str = "false",
        step: int = 1,
        ends: bool = True,
        at: list[str | None] | None = None,
    ) -> None:
        """`ends`: its transaction does. `at`: the place of a row that has no LSN."""
        self.lsn += step
        told = json.dumps(at or self.place(), separators=(",", ":"))
        lsn = self.lsn if at is None else None
        source = {"name": self.prefix, "schema": "public", "table": "members", "lsn": lsn, "sequence": told}
        source["snapshot"] = snapshot
        if snapshot == "false" and ends:
            self.committed = self.lsn
        before = {"id": key, "city": "", "bio": None, "cv": None} if op == "d" else None
        envelope = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1, "transaction": None}
        sent = None if key is None else _json({"id": key})
        self.log.append(Record(topic="shop.changes", key=sent, value=_json(envelope)))


def lived(chance: Random, changes: int, *, keys: int = 3) -> SourceTable:
    """A table after some changes of few keys."""
    table = SourceTable()
    for number in range(changes):
        key, roll = chance.randrange(keys), chance.random()
        free = [other for other in range(keys) if other not in table.rows]
        large = {name: f"{name}{number}" for name in LARGE if chance.random() < 0.3}
        if key not in table.rows:
            table.insert(key, city=f"c{number}", **{name: f"{name}{number}" for name in LARGE if chance.random() < 0.8})
        elif roll < 0.12:
            table.delete(key)
        elif roll < 0.16:
            table.truncate()
        elif roll < 0.22 and free:
            table.rekey(key, chance.choice(free), **{name: f"{name}{number}" for name in LARGE})
        else:
            table.update(key, city=f"c{number}", **large)
    return table


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def people(folder: Path, declared: str = PEOPLE) -> Settings:
    """A project with one table, silver.people, over the changes of public.members."""
    project = Project(folder / "project")
    project.delete("tables/gold")
    project.delete("tables/silver")
    project.delete("expectations/gold")
    project.delete("expectations/silver")
    for table in ("bronze/changes", "silver/people"):
        project.write(f"expectations/{table}.yml", "waived: a table of a test\n")
    names = ("notes", "members", "shop.changes")
    project.write("topics.toml", "".join(f'["{name}"]\nkey = "none"\n\n' for name in names))
    project.write("tables/bronze/changes/table.py", CHANGES)
    project.write("tables/silver/people/table.py", declared)
    return Settings.load(project.folder, environment={}, data=folder / "data")
