import subprocess

import pytest

from deltaworks.cli import demo
from deltaworks.errors import StackError


def test_simulator_that_does_not_end_is_told_with_its_log() -> None:
    """An expected end: one line with the next step, and no trace."""
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE, text=True) as simulator:
        with pytest.raises(StackError, match='simulator: has not ended after 0 s. Run "deltaworks logs simulator"'):
            demo._ended(simulator, demo.Clock(), seconds_max=0.1)
        simulator.kill()


@pytest.mark.parametrize(("views", "orders"), [(1, 1), (100_000, 60), (1_500, 10_000)])
def test_simulator_has_the_time_that_its_rates_take(views: int, orders: int) -> None:
    """Whoever asks for more waits longer, and is not cut off half way."""
    takes = max(views / demo.VIEWS_PER_SECOND, orders / demo.ORDERS_PER_SECOND)

    assert demo.sending_seconds_max(views, orders) > 1.5 * takes
