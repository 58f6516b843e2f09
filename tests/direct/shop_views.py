"""The shop's views over inputs that are cut to the rows that some keys need, as rows change."""

from collections.abc import Iterator
from functools import partial
from random import Random

import pyarrow as pa
from bench import functions

from deltaworks.words.keeping import View as KeptAsView
from tests.direct.both import Room
from tests.direct.views import Found, Rows, View, held


def shop_views(room: Room, chance: Random, *, rows: int, turns: int) -> Iterator[Found]:
    """Each view of the shop, over so many rows of each input that change in so many turns."""
    for function in functions.functions(room.ordinary):
        if function.keys or not isinstance(function.declared.table.kept_as, KeptAsView):
            continue
        start = {name: functions.rows(chance, schema, rows, ids=8) for name, schema in function.inputs.items()}
        view = View(told=function.name, call=function.call, keys=function.declared.keys)
        yield held(room, view, function.inputs, start, partial(_changed, chance), turns=turns)


def _changed(chance: Random, rows: Rows) -> Rows:
    return {name: _other(chance, table) for name, table in rows.items()}


def _other(chance: Random, table: pa.Table) -> pa.Table:
    """Some rows with another value of a column, keys too; some gone, some come."""
    new = functions.rows(chance, table.schema, 4, ids=8).to_pylist()
    listed = table.to_pylist()
    for row in new[: chance.randint(0, 4)]:
        at, roll = chance.randrange(len(listed)), chance.random()
        if roll < 0.7:
            name = chance.choice(table.schema.names)
            listed[at] = {**listed[at], name: row[name]}
        elif roll < 0.85:
            listed.append(row)
        elif len(listed) > 1:
            del listed[at]
    return pa.Table.from_pylist(listed, schema=table.schema)
