"""What every test process needs."""

import sys
from typing import Any

import pytest

from deltaworks.settings import Settings
from tests.chance import RUN, Share, of_commit, turn_of

# PySpark takes a main module without a file, which is what a process of pytest-xdist has, for a run of its doctests,
# and ends the process when gRPC is missing. Great Expectations imports that part of PySpark.
vars(sys.modules["__main__"]).setdefault("__file__", __file__)

LONG = (
    "spark/test_direct_plans.py", "spark/test_poison.py", "spark/test_walks.py", "spark/test_expiry.py",
    "spark/test_differential.py", "spark/test_stateful.py", "spark/test_latest.py", "spark/test_trim.py",
    "spark/test_history.py", "spark/test_late_apply.py", "stack/test_in_airflow.py", "stack/test_slice.py",
    "stack/test_shop_check.py", "stack/test_quarantine.py", "stack/test_topics.py", "stack/test_zombie.py",
    "stack/test_changes.py", "stack/test_local_stack.py", "stack/test_notify.py", "stack/test_compute_again.py",
)  # fmt: skip
"""Files that take minutes: they begin first, so that the processes of a group end together."""
TURNS = 3
"""In one run of so many it is the turn of what is slow because Spark writes tables in it, a second each time: of each
test by Spark that has a sister on the other commit path (a parameter `path`, or the mark `by_spark`), and of the walk
by Spark; of many cases of one test it is the turn of one of so many. `--whole` runs all of it."""
WALK = "walk_by_spark"
"""A fixture that takes a minute: all that needs it has the same turn."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what a run can be told."""
    parser.addoption("--seed", type=int, help="what is drawn by chance follows from it; default: the commit's")
    parser.addoption("--ordinary", action="store_true", help="with direct_plans off, where a test does not say")
    parser.addoption("--whole", action="store_true", help="also the tests whose turn it is not")


def pytest_configure(config: pytest.Config) -> None:
    """Say what chance follows from."""
    given = config.getoption("--seed")
    RUN.seed = of_commit() if given is None else given
    config.option.seed = RUN.seed  # pytest-xdist hands it on: all processes have one, whatever is checked out meanwhile
    if config.getoption("--ordinary"):
        _without_direct_plans()


def _without_direct_plans() -> None:
    """Have every project that is loaded compute in Spark's ordinary way, and the programs that are started for it."""
    load = Settings.load.__func__  # type: ignore[attr-defined]  # of a class method there is one

    def ordinary(cls: type[Settings], *arguments: Any, **given: Any) -> Settings:
        return load(cls, *arguments, **{"direct_plans": False, **given})  # type: ignore[no-any-return]  # the same

    Settings.load = classmethod(ordinary)  # type: ignore[assignment,method-assign]  # the same


def pytest_report_header(config: pytest.Config) -> str:
    """Print the seed, and whether all tests run."""
    again = f"--seed {RUN.seed}{' --whole' if config.getoption('--whole') else ''}"
    left = "" if _wants_all(config) else f"; of tests in which Spark writes one in {TURNS}, --whole runs all"
    return f"seed {RUN.seed}: {again} draws the same again{left}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have each test draw by its name."""
    RUN.begin(item.nodeid)


@pytest.fixture
def share(request: pytest.FixtureRequest) -> Share:
    """Give what takes from many cases the share of this run, drawn by its seed; all where all tests are wanted."""
    whole = _wants_all(request.config)
    first = 0 if whole else turn_of(request.node.nodeid, turns=TURNS)
    return lambda cases: cases[first :: 1 if whole else TURNS]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out those whose turn it is not, unless all are wanted; put the long files first."""
    if not _wants_all(config):
        mine, others = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            name = _in_turn(item)
            (others if name and turn_of(name, turns=TURNS) else mine).append(item)
        items[:] = mine
        config.hook.pytest_deselected(items=others)

    def place(item: pytest.Item) -> int:
        name = f"{item.path.parent.name}/{item.path.name}"
        return LONG.index(name) if name in LONG else len(LONG)

    items.sort(key=place)


def _wants_all(config: pytest.Config) -> bool:
    """Whether somebody says which tests: by name, or those that failed."""
    said = config.option.keyword or config.getoption("lf", default=False) or config.getoption("--whole")
    return bool(said) or any("::" in one for one in config.args)


def _in_turn(item: pytest.Item) -> str:
    """By which name a test has its turn; empty for what always runs."""
    if not isinstance(item, pytest.Function):
        return ""
    if WALK in item.fixturenames:
        return WALK
    of_path = hasattr(item, "callspec") and item.callspec.params.get("path") == "spark"
    return item.nodeid if of_path or item.get_closest_marker("by_spark") else ""
