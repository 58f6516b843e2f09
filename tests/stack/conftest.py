"""One local stack for all tests here; its parts start when the first test asks for them."""

from collections.abc import Callable, Collection, Iterator

import pytest

from deltaworks.local import stack as local_stack
from deltaworks.settings import Settings
from tests.running_stack import START_SECONDS_MAX, running_stack, scratch_settings

StartParts = Callable[..., Settings]


@pytest.fixture(scope="session")
def _shared() -> Iterator[Settings]:
    with running_stack(parts=("source",)) as settings:
        yield settings


@pytest.fixture
def stack(_shared: Settings) -> StartParts:
    """Give a function that makes sure that parts are ready, as in `settings = start(parts=("kafka", "control"))`."""

    def start(*, parts: Collection[str]) -> Settings:
        local_stack.up(_shared, parts=parts, seconds_max=START_SECONDS_MAX)
        return _shared

    return start


@pytest.fixture
def settings() -> Iterator[Settings]:
    """Give settings of a stack that was never started, on free ports."""
    with scratch_settings() as settings:
        yield settings
