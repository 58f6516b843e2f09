"""What the documentation tells people to type is taken, and names what is there."""

import re
from datetime import UTC, datetime

import pytest

from deltaworks import catalog
from deltaworks.analyst import connect
from deltaworks.engine.turns import Turns
from deltaworks.errors import QueryError
from deltaworks.quality.verdict import Outcome
from deltaworks.settings import ROOT, Settings
from deltaworks.validation import ops_quality
from tests.documented import Shown, shown, understood
from tests.empty_shop import empty_shop

SHOWN = tuple(shown())
MADE_THERE = {"gold.referrers_per_day"}
"""A table that the reader makes: `tests/unit/test_table_new.py` makes it."""
_TABLE = re.compile(r"\b((?:bronze|silver|gold)\.[a-z0-9_]+?)(?:__[a-z]+)?\b(?!\.)")


@pytest.mark.parametrize("command", SHOWN, ids=lambda command: command.place)
def test_commands_are_taken(command: Shown) -> None:
    """By their names, options and arguments; tables that they name are declared."""
    understood(command.words)

    named = set(_TABLE.findall(" ".join(command.words)))
    assert named - set(catalog.load(ROOT).tables) - MADE_THERE == set()


def test_there_are_commands() -> None:
    """Else the blocks are not found any more."""
    assert len(SHOWN) > 70
    assert len([one for one in SHOWN if one.words[0] == "sql"]) > 20


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Give a lake with all tables of the shop, as they begin, in which one turn was told, and a suite was judged."""
    settings = empty_shop(tmp_path_factory.mktemp("data"))
    turns = Turns(app="shop", epoch=1, lake=settings.lake, guard=lambda: None)
    with turns.measure("gold.daily_orders") as watch:
        watch.rows = 0
    turns.tell()
    judged = Outcome(
        run_id="r",
        judged_at=datetime(2026, 11, 20, tzinfo=UTC),
        table="gold.daily_orders",
        version=0,
        days=(),
        judged=(),
    )
    ops_quality.tell(settings.lake, judged)
    return settings


def test_queries_run(lake: Settings) -> None:
    """Over tables with all their columns, and no rows. What is asked of the serving database is tested with one."""
    asked = [one for one in SHOWN if one.words[0] == "sql" and "--served" not in one.words]
    connection = connect(lake.lake)
    wrong = []
    for one in asked:
        query = understood(one.words)["query"]
        if not any(name in query for name in MADE_THERE):
            try:
                connection.sql(query)
            except QueryError as error:
                wrong.append(f"{one.place}: {error}")
    assert wrong == []
