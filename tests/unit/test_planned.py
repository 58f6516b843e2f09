"""Plans that are made ahead of their turn, beside it."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from deltaworks.engine.spark.planned import Plans


def test_none_is_begun_while_all_wait_for_something_else() -> None:
    """It is begun after that, also where that fails."""
    plans, begun = Plans(), threading.Event()
    spark: Any = SimpleNamespace(sparkContext=object())

    with pytest.raises(OSError, match="gone"), plans.paused():
        plans.begin(begun.set, spark)
        assert not begun.wait(0.2)
        raise OSError("gone")

    assert begun.wait(10)
