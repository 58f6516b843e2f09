"""The tables that are drawn for the workload through Debezium: Postgres makes them, and the catalog finds nothing."""

import itertools
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from deltaworks import catalog
from tests.chance import seeded
from tests.chaos.changes import PROJECT
from tests.chaos.workload import OF_ROWS, PLAIN, Session, Workload
from tests.scratch_postgres import ScratchPostgres
from tests.shapes.drawn import drawn
from tests.shapes.kinds import KINDS
from tests.shapes.shape import ALL_KEYED, Shape, shapes
from tests.shapes.worked import compared, leave_rows


def test_forty_shapes_are_tables_and_declarations(tmp_path: Path, source_server: ScratchPostgres) -> None:
    """Of each kind of column and each way of keys some; the schema may be carried out twice, as each `up` does.

    In the end each has a row, and one of them a change, so that something is compared.
    """
    chance = seeded()
    made = shapes(chance, 40)
    project = Path(shutil.copytree(PROJECT, tmp_path / "project"))
    drawn(made)(project)
    schema = (project / "schema.sql").read_text()
    dsn = source_server.database("shapes")

    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(2):
            connection.execute(schema)
        leave_rows(dsn, made, chance)
        first = versions(connection, made)
        leave_rows(dsn, made, chance)
        then = versions(connection, made)
        assert all(len(connection.execute(shape.shown()).fetchall()) == 1 for shape in made)

    assert [len(rows) for rows in (*first.values(), *then.values())] == [1] * 2 * len(made)
    assert len([name for name in first if first[name] != then[name]]) == 1
    assert len(catalog.load(project).tables) == 1 + 2 * len(made)
    assert {one.kind for shape in made for one in shape.values_of} == {*KINDS}
    assert {shape.keyed for shape in made} == {*ALL_KEYED}


def versions(connection: "psycopg.Connection[Any]", made: Sequence[Shape]) -> dict[str, list[Any]]:
    """By table which transactions its rows are of."""
    query = sql.SQL("select xmin::text from {}")
    return {shape.name: connection.execute(query.format(shape.ident)).fetchall() for shape in made}


def test_nothing_beside_nothing_is_a_finding() -> None:
    """Where no row came there is no difference either."""
    (given,) = shapes(seeded(), 1)
    shape = replace(given, keyed="nothing", full=True, parted=False)
    row = {one.name: one.kind.texts[0] for one in shape.columns}
    state = row | {"is_current": True, "_source": "1", "valid_from": 1, "valid_to": None}

    assert [*compared(shape, there=[row], now=[row], then=[state], ends=[])] == []
    assert [*compared(shape, there=[], now=[], then=[], ends=[])] == [
        f"{shape.name} (nothing, full): no row {place}"
        for place in ("in the source", "in the lake", "current in its history")
    ]


@pytest.mark.parametrize(("committed", "too_slow"), [(1, False), (0, True)])
def test_more_transactions_may_take_longer(monkeypatch: pytest.MonkeyPatch, committed: int, *, too_slow: bool) -> None:
    """A busy machine makes two in a second; one that makes none is not waited for."""
    going, seconds = Workload("", chance=seeded(), tables=(), pause=0, sessions=0), itertools.count(step=0.5)

    def pass_time(_: float) -> None:
        going.done["committed"] += committed

    monkeypatch.setattr("tests.chaos.workload.time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=pass_time))

    with pytest.raises(AssertionError, match="too slow") if too_slow else nullcontext():
        going.wait(1_000)
    assert going.done["committed"] == (0 if too_slow else 1_000)


class Noted:
    """Instead of a connection: carries nothing out, and notes the values that statements are given."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def execute(self, _statement: sql.Composable, values: Any) -> None:
        """As a connection's."""
        self.values.append(values)


def test_a_seed_repeats_the_keys_that_are_swapped() -> None:
    """In whatever thread; sessions have keys between of their own."""
    (swap,) = (step for step in OF_ROWS if step.__name__ == "_swap")

    def swapped(number: int) -> list[Any]:
        connection, chance = Noted(), Random(7)
        session = Session(
            "", number=number, chance=chance, tables=(PLAIN,), pause=0, stop=Event(), done=Counter(), steps=OF_ROWS
        )
        swap(session, connection, PLAIN)  # type: ignore[arg-type]  # see Noted
        return connection.values

    with ThreadPoolExecutor(1) as other:
        elsewhere = other.submit(swapped, 0).result()

    assert len(elsewhere) == 3
    assert swapped(0) == elsewhere != swapped(1)
