"""A driver that sleeps past its lease and wakes in the middle of a commit, at moments by chance; more by command."""

from collections.abc import Iterator

import pytest

from deltaworks.settings import Settings
from tests.chance import seeded
from tests.chaos.zombie import control_store, draw, wake


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    """Give a running control store."""
    with control_store() as settings:
        yield settings


@pytest.mark.parametrize("path", ["spark", "auto"])
def test_woken_driver_commits_nothing(settings: Settings, path: str) -> None:
    """Its successor's versions stay, it ends as not the owner, and the lake is as if nothing had happened."""
    chance = seeded()
    moment = next(one for one in draw(chance, 2) if one.path == path)

    woken = wake(settings, moment, seed=chance.randrange(2**32))

    assert not woken.findings, f"{moment}: {woken.findings}"
