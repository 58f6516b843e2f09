"""The functions of the shop's tables that Spark computes, and rows for them: keys meet, times lie within an hour."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltaworks import catalog
from deltaworks.catalog import Catalog, Declared
from deltaworks.engine.schemas import arrow_schema, spark_schema
from deltaworks.engine.transforms import KeysFrom, by_short_name, load_keys_from, load_transform, several
from deltaworks.settings import ROOT
from deltaworks.words.keeping import Aggregate, Stateful, View

START = datetime(2026, 11, 22, 10, tzinfo=UTC)
_WORDS = {
    "status": ("placed", "paid", "cancelled"),
    "command": ("add", "remove", "change_quantity", "check_out", "dance"),
    "refused": (None, None, "the cart is empty"),
    "tier": ("free", "gold"),
    "category": ("toys", "tools", "books"),
}
"""Texts that transforms look for; of other columns they are of a few."""
_WHOLE = {"quantity": (0, 1, 2, 30), "status": (200, 404, 500)}
_NULLS = 0.08
"""This part of each column is null, if nothing else is asked for."""


Call = Callable[[Mapping[str, DataFrame]], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of a table's transform.py over its inputs."""

    name: str
    inputs: Mapping[str, pa.Schema]
    call: Call
    declared: Declared
    keys: bool = False
    """Whether it is a view's keys_from."""


def functions(spark: SparkSession, found: Catalog | None = None) -> Iterator[Function]:
    """Every transform, and each frame that a keys_from gives for an input."""
    found = catalog.load(ROOT) if found is None else found
    for declared in found.tables.values():
        if not isinstance(declared.table.kept_as, Aggregate | Stateful | View):
            continue
        inputs = {name: _seen(arrow_schema(found[name].columns)) for name in declared.inputs}
        transform = _by_name(load_transform(declared))
        yield Function(name=declared.name, inputs=inputs, declared=declared, call=transform)
        if not isinstance(declared.table.kept_as, View):
            continue
        keys_from = load_keys_from(declared)
        for name, schema in inputs.items():
            empty = {name: spark.createDataFrame([], spark_schema(schema))}
            for number in range(len(several(keys_from(**by_short_name(empty))))):
                place = f"{declared.name} keys_from {name} {number}"
                call = _nth(keys_from, number)
                yield Function(name=place, inputs={name: schema}, declared=declared, call=call, keys=True)


def _by_name(transform: Callable[..., DataFrame]) -> Call:
    return lambda frames: transform(**by_short_name(frames))


def _nth(keys_from: KeysFrom, number: int) -> Call:
    return lambda frames: several(keys_from(**by_short_name(frames)))[number]


def _seen(schema: pa.Schema) -> pa.Schema:
    """The columns that transforms see: all but the engine's."""
    return pa.schema([field for field in schema if not field.name.startswith("_")])


def rows(chance: Random, schema: pa.Schema, many: int, *, ids: int | None = None, nulls: float = _NULLS) -> pa.Table:
    """So many rows of an input; ids are of so many, which tables have in common. Some nulls make a transform raise."""
    ids = max(3, many // 3) if ids is None else ids
    return pa.table([_column(chance, field, many, ids, nulls) for field in schema], schema=schema)


def _column(chance: Random, field: pa.Field, many: int, ids: int, nulls: float) -> pa.Array:
    def maybe() -> Any:
        return None if chance.random() < nulls else _value(chance, field, ids)

    return pa.array([maybe() for _ in range(many)], field.type)


def _value(chance: Random, field: pa.Field, ids: int) -> Any:
    kind, number = field.type, chance.randrange(ids)
    if pa.types.is_boolean(kind):
        return chance.random() < 0.7
    if pa.types.is_timestamp(kind):
        began = field.name == "since" or chance.random() < 0.2  # a cart whose first event is known
        return START + timedelta(seconds=0 if began else chance.randrange(3_600))
    if pa.types.is_date(kind):
        return (START + timedelta(days=chance.randrange(3))).date()
    if pa.types.is_decimal(kind):
        return Decimal(chance.randrange(10**4)).scaleb(-kind.scale)
    if pa.types.is_integer(kind):
        return chance.choice(_WHOLE.get(field.name, (number,)))
    if pa.types.is_floating(kind):
        return chance.randrange(100) / 4
    if pa.types.is_list(kind):
        return []
    text = chance.choice(_WORDS.get(field.name, (f"{field.name[:1]}{number}",)))
    return None if text is None else text.encode() if pa.types.is_binary(kind) else text
