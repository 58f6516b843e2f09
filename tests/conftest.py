"""What every test process needs."""

import sys
from typing import Any

import pytest

from deltaworks.settings import Settings
from tests.chance import RUN, drawn_of, of_commit

# PySpark takes a main module without a file, which is what a process of pytest-xdist has, for a run of its doctests,
# and ends the process when gRPC is missing. Great Expectations imports that part of PySpark.
vars(sys.modules["__main__"]).setdefault("__file__", __file__)

LONG = (
    "spark/test_direct_plans.py", "spark/test_poison.py", "spark/test_walks.py", "spark/test_expiry.py",
    "spark/test_differential.py", "spark/test_stateful.py", "spark/test_latest.py", "spark/test_trim.py",
    "spark/test_history.py", "spark/test_late_apply.py", "stack/test_slice.py", "stack/test_shop_check.py",
    "stack/test_quarantine.py", "stack/test_topics.py", "stack/test_zombie.py", "stack/test_changes.py",
    "stack/test_local_stack.py", "stack/test_notify.py", "stack/test_compute_again.py",
)  # fmt: skip
"""Files that take minutes: they begin first, so that the processes of a group end together."""
IN_TURN = 3
"""So many commits take turns with what is slow because Spark commits in it, one second each time: a test that has a
sister on the other commit path, and the walk by Spark. `--whole` runs all of it."""
WALK = "walk_by_spark"
"""A fixture that takes a minute: all that needs it has the same turn."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the run's seed be given."""
    parser.addoption("--seed", type=int, help="what is drawn by chance follows from it; default: the commit's")
    parser.addoption("--ordinary", action="store_true", help="with direct_plans off, where a test does not say")
    parser.addoption("--whole", action="store_true", help=f"also what runs for one in {IN_TURN} commits")


def pytest_configure(config: pytest.Config) -> None:
    """Say what chance follows from."""
    given = config.getoption("--seed")
    RUN.seed = of_commit() if given is None else given
    if config.getoption("--ordinary"):
        _without_direct_plans()


def _without_direct_plans() -> None:
    """Have every project that is loaded compute in Spark's ordinary way, and the programs that are started for it."""
    load = Settings.load.__func__  # type: ignore[attr-defined]  # of a class method there is one

    def ordinary(cls: type[Settings], *arguments: Any, **given: Any) -> Settings:
        return load(cls, *arguments, **{"direct_plans": False, **given})  # type: ignore[no-any-return]  # the same

    Settings.load = classmethod(ordinary)  # type: ignore[assignment,method-assign]  # the same


def pytest_report_header() -> str:
    """Print the seed."""
    return f"seed {RUN.seed}: --seed {RUN.seed} draws the same again"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have each test draw by its name."""
    RUN.begin(item.nodeid)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another commit draws, where no test is named; put the long files first."""
    named = any("::" in one for one in config.args)
    if not (named or config.option.keyword or config.getoption("--whole")):
        left_out = [item for item in items if (name := _in_turn(item)) and drawn_of(IN_TURN, name)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)

    def place(item: pytest.Item) -> int:
        name = f"{item.path.parent.name}/{item.path.name}"
        return LONG.index(name) if name in LONG else len(LONG)

    items.sort(key=place)


def _in_turn(item: pytest.Item) -> str:
    """What decides whose turn it is; empty for what always runs."""
    if not isinstance(item, pytest.Function):
        return ""
    if WALK in item.fixturenames:
        return WALK
    return item.nodeid if hasattr(item, "callspec") and item.callspec.params.get("path") == "spark" else ""
