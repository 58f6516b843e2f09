"""Death at the named steps of a micro-batch: restarted, the lake is as if nothing had happened, and the checker agrees.

A sample of what `make proof` walks in full, drawn anew in each run.
"""

from collections import defaultdict

import pytest

from tests.chance import seeded
from tests.proof.killed import kill
from tests.proof.walk import Death, Walks
from tests.proof.workloads import WORKLOADS

pytestmark = pytest.mark.xdist_group("walks")  # they share lakes that take long to make

PATHS = ("auto", "spark")
DEATHS = {"auto": 5, "spark": 1}  # a commit by Spark takes a second
ALWAYS = {
    *(f"{act}.{step}" for act in ("create", "fence", "batch") for step in ("before-commit", "after-commit")),
    *(f"checkpoint.{step}" for step in ("before-write", "after-write")),
    "compact.before-commit",
}
"""Points of every table, whatever it is."""
FURTHER = {"compact.after-commit", "settle.before-commit", "batch.before-empty-commit"}
"""Points that depend on the rows: whether there are files to put together, a position alone, a merge of nothing."""
KINDS = {"raw", "append", "latest", "history", "aggregate", "view", "stateful", "quarantine", "deleted", "late", "book"}


@pytest.mark.parametrize("path", PATHS)
def test_death_at_a_named_step_changes_nothing(walks: Walks, path: str) -> None:
    """Die there, restart, and end with the same rows as in peace; a roll-back of a table beside a table among them."""
    chance = seeded()
    for walk in (walk for (_, used), walk in walks.items() if used == path):
        every = list(walk.deaths(chance))
        drawn = chance.sample(every, DEATHS[path])
        if path == "auto":
            drawn.append(chance.choice([deaths for deaths in every if len(deaths) == 2]))

        for deaths in drawn:
            assert not walk.die(deaths), f"{walk.workload.app}: {', then '.join(map(str, deaths))}"


def test_process_that_is_killed_leaves_a_lake_that_goes_on(walks: Walks) -> None:
    """A real one, by signal 9, at a step of a batch; `make proof` does it for every kind of table on both paths."""
    chance = seeded()
    walk = walks[chance.choice(WORKLOADS).app, "auto"]
    midst = [deaths[0] for deaths in walk.deaths(chance) if len(deaths) == 1 and ".batch." in deaths[0].point]

    assert not kill(walk, chance.choice(midst))


def test_point_that_is_not_reached_is_told(walks: Walks) -> None:
    """A drill in which nobody died has shown nothing."""
    walk = walks["web", "auto"]

    found = walk.die([Death(step="open", point="silver.page_views.batch.after-commit", time=9)])

    assert [one.invariant for one in found] == ["drill"]


@pytest.mark.parametrize("path", PATHS)
def test_every_step_of_every_kind_of_table_is_a_point(walks: Walks, path: str) -> None:
    """What the workloads reach on a path is what is known of it: no name is dead, and none is missing."""
    reached: dict[str, set[str]] = defaultdict(set)
    for (_, used), walk in walks.items():
        for point in (point for counted in walk.reached.values() for point in counted if used == path):
            table, act, step = point.rsplit(".", 2)
            reached[walk.kind(table)].add(f"{act}.{step}")

    assert reached.keys() == KINDS if path == "auto" else reached.keys() < KINDS
    assert {kind: points - FURTHER for kind, points in reached.items()} == dict.fromkeys(reached, ALWAYS)
    assert path == "spark" or set().union(*reached.values()) >= FURTHER


def test_both_paths_leave_the_same_rows(walks: Walks) -> None:
    """One app, drawn anew in each run, through Arrow and through Spark; after each step."""
    (app,) = (name for name, path in walks if path == "spark")

    assert any(walks[app, "auto"].after["tend"].values())
    assert walks[app, "spark"].after == walks[app, "auto"].after
