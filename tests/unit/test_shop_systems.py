"""A line per system of the shop: one without its numbers is not passed over."""

import pytest
from bench import queries

from deltaworks.cli import demo
from deltaworks.settings import Settings
from shop.systems import lines, silent
from tests.empty_shop import empty_shop


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Give a lake with all tables of the shop, as they begin."""
    return empty_shop(tmp_path_factory.mktemp("data"))


def test_line_without_its_numbers_is_found(lake: Settings) -> None:
    """Of no rows the count is 0, but the mean is null, and so is all that it is put together with."""
    told = lines(lake)

    found = {line["system"] for line in silent(told)}

    assert "analytics" in found
    assert "cache and search" in found  # no database is there to ask
    assert "told to somebody" in found
    assert "change data capture" not in found


def test_demo_says_which_line_has_no_numbers(lake: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """And that it has not gone well."""
    assert not demo._systems(lake)

    assert "analytics: a number is null" in capsys.readouterr().err


def test_questions_of_the_benchmark_are_answered(lake: Settings) -> None:
    """Twenty, of tables and columns that there are."""
    found = queries.seconds(lake.lake)

    assert len(found) == 20
    assert min(found.values()) > 0
