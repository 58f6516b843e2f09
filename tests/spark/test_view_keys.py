"""Inputs of a view that are cut to what some keys need give the keys' rows: `python -m tests.direct --views 500`."""

from functools import partial

import pytest
from pyspark.sql import SparkSession

from tests.chance import seeded
from tests.direct.both import Room
from tests.direct.shop_views import shop_views
from tests.direct.views import INPUTS, SCHEMA, changed, held, made_rows, sessions, views

SEED = 20_261_125
"""The same views in each run; `python -m tests.direct --views` tries others."""
MADE = 50


@pytest.fixture(scope="module")
def room(spark: SparkSession) -> Room:
    """Give sessions to plan in."""
    return Room(spark)


def test_views_of_the_shop_lose_no_row_by_inputs_that_are_cut(room: Room) -> None:
    """As rows change, keys move, come and go; most views read less than all of their inputs."""
    found = list(shop_views(room, seeded(SEED), rows=40, turns=5))

    assert len(found) > 10
    assert [f"{one.told}: {line}" for one in found for line in one.differences] == []
    assert sum(one.cut["given"] < one.cut["there"] for one in found) > len(found) / 2


def test_views_made_by_chance_lose_no_row_by_inputs_that_are_cut(room: Room) -> None:
    """Joins of all kinds with keys from either side, constants of branches, cases, ranks, limits, sets, null keys."""
    assert list(views(room, range(SEED, SEED + MADE), turns=4)) == []


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_views_over_sessions_are_given_all_rows(room: Room, seed: int) -> None:
    """What Spark pushes down of a condition on a session would take sessions for single rows."""
    chance = seeded(seed)
    view = sessions(chance)
    start = {name: made_rows(chance, 25) for name in INPUTS}

    found = held(room, view, dict.fromkeys(INPUTS, SCHEMA), start, partial(changed, chance), turns=3)

    assert found.differences == []
    assert found.cut["given"] == found.cut["there"] > 0
