"""Shapes of tables: what tells rows apart, what a change tells of the row of before, parts, generated columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from psycopg import sql

from tests.shapes.kinds import KEYS, KINDS, Kind

KeyedBy = Literal["primary key", "unique index", "nothing", "another column", "the connector"]
"""What a record's key is: the table's key, its only unique index, none, a number that the rows are not kept by, or what
`message.key.columns` says."""
VALUES = 6
"""Columns of a table besides its keys."""
ALL_KEYED: tuple[KeyedBy, ...] = ("primary key", "unique index", "nothing", "another column", "the connector")


@dataclass(frozen=True, kw_only=True)
class Of:
    """A column of a shape."""

    name: str
    kind: Kind
    null: bool
    default: str | None = None

    @property
    def ddl(self) -> str:
        """As it is created."""
        default = "" if self.default is None else f" default {sql.quote(self.default)}"
        return f"{self.name} {self.kind.sql}{default}{'' if self.null else ' not null'}"

    @property
    def declared(self) -> str:
        """As it is declared in the lake."""
        wire = "" if self.kind.wire is None else f'wire="{self.kind.wire}", '
        null = "" if self.null else "null=False, "
        return f'Column("{self.name}", "{self.kind.declared}", {wire}{null}doc="Of {self.kind.sql}."),'


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A table of the source, to be worked on by `tests.chaos.workload`, and how it is declared in the lake."""

    name: str
    kept_by: tuple[Of, ...]
    values_of: tuple[Of, ...]
    keyed: KeyedBy
    full: bool
    """Whether its replica identity is full."""
    parted: bool
    generated: bool
    moves: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that it is kept by."""
        return tuple(one.name for one in self.kept_by)

    @property
    def columns(self) -> tuple[Of, ...]:
        """All that are declared."""
        return (*self.kept_by, *self.values_of)

    @property
    def ident(self) -> sql.Composable:
        """Its name, quoted."""
        return sql.Identifier("public", self.name)

    @property
    def has_word(self) -> bool:
        """Whether its declaration must say that the replica identity is full."""
        return self.keyed == "another column"

    def key(self, number: int) -> tuple[object, ...]:
        """The key of this number; different ones are equal now and then."""
        found = []
        for one in self.kept_by:
            number, at = divmod(number, len(one.kind.texts))
            found.append(one.kind.texts[at])
        return tuple(found)

    def values(self, chance: Random) -> dict[str, object]:
        """Values for the other columns; one with a default is left out now and then, or null."""
        drawn: dict[str, object] = {}
        for one in self.values_of:
            roll = chance.random()
            if one.default is None or roll > 0.3:
                drawn[one.name] = None if one.null and roll < 0.5 else one.kind.value(chance)
        return drawn or {self.values_of[0].name: self.values_of[0].kind.value(chance)}

    def where(self) -> sql.Composable:
        """A condition on the whole key, with placeholders."""
        return sql.SQL(" and ").join(sql.SQL("{} = %s").format(sql.Identifier(key)) for key in self.keys)

    def ddl(self) -> Iterator[str]:
        """Statements that make it."""
        keys, name = ", ".join(self.keys), f"public.{self.name}"
        columns = [one.ddl for one in self.columns]
        columns += ["number bigint generated always as identity primary key"] if self.keyed == "another column" else []
        columns += ["twice integer generated always as (1 + 1) stored"] if self.generated else []
        columns += {
            "nothing": [f"exclude using btree ({', '.join(f'{key} with =' for key in self.keys)})"],
            "primary key": [f"primary key ({keys})"],
        }.get(self.keyed, [f"constraint {self.name}_kept unique ({keys})"])
        parts = f" partition by hash ({self.keys[0]})" if self.parted else ""
        yield f"create table {name} ({', '.join(columns)}){parts}"
        for part in range(2) if self.parted else ():
            yield f"create table {name}_{part} partition of {name} for values with (modulus 2, remainder {part})"
        if self.full:
            yield from (f"alter table {one} replica identity full" for one in self._relations())
        elif self.keyed == "unique index":
            yield f"alter table {name} replica identity using index {self.name}_kept"

    def _relations(self) -> Iterator[str]:
        yield f"public.{self.name}"
        yield from (f"public.{self.name}_{part}" for part in range(2) if self.parted)

    def shown(self) -> sql.Composed:
        """The query of what the lake's table must have."""
        columns = [sql.SQL(one.kind.shown.format(one.name) + " as " + one.name) for one in self.columns]
        return sql.SQL("select {} from {}").format(sql.SQL(", ").join(columns), self.ident)

    def declaration(self, kept: Literal["latest", "history"]) -> str:
        """The text of its `table.py`."""
        word = ', replica_identity="full"' if self.has_word else ""
        keys = "".join(f'"{key}", ' for key in self.keys)
        lines = "\n        ".join(one.declared for one in self.columns)
        return f'''"""Of {self.keyed}, replica identity {"full" if self.full else "default"}."""

from deltaworks.words import Column, Table, debezium, {kept}

TABLE = Table(
    app="changes",
    reads=debezium("bronze.changes", table="public.{self.name}"{word}),
    kept_as={kept}(keys=({keys})),
    columns=(
        {lines}
    ),
    owner="tests",
)
'''


def shapes(chance: Random, count: int) -> tuple[Shape, ...]:
    """So many shapes: of every way in which records are keyed, and all kinds of columns before one comes again."""
    kinds = chance.sample(KINDS, len(KINDS)) * (count * VALUES // len(KINDS) + 1)
    ways = chance.sample(ALL_KEYED, len(ALL_KEYED))
    return tuple(
        _shape(chance, f"shape_{at}", ways[at % len(ways)], kinds[VALUES * at : VALUES * (at + 1)])
        for at in range(count)
    )


def _shape(chance: Random, name: str, keyed: KeyedBy, kinds: Sequence[Kind]) -> Shape:
    keys = chance.sample(KEYS, chance.choice((1, 1, 2)))
    parted = keyed in ("primary key", "unique index", "the connector") and chance.random() < 0.3
    full = (
        chance.random() < 0.5
        or keyed in ("nothing", "another column", "the connector")
        or (parted and keyed != "primary key")
    )
    return Shape(
        name=name,
        kept_by=tuple(Of(name=f"k{at}", kind=kind, null=False) for at, kind in enumerate(keys)),
        values_of=tuple(_column(chance, f"v{at}", kind) for at, kind in enumerate(kinds)),
        keyed=keyed,
        full=full,
        parted=parted,
        generated=not full and chance.random() < 0.6,  # Postgres 18 lets no identity have one
    )


def _column(chance: Random, name: str, kind: Kind) -> Of:
    null = chance.random() < 0.7
    return Of(name=name, kind=kind, null=null, default=kind.value(chance) if chance.random() < 0.4 else None)
