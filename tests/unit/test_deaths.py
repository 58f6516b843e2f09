"""Death at the named steps of tables that need no Spark: restarted, the lake is as if nothing had happened.

Drawn anew for each commit; `make proof` walks all points of all tables, on both commit paths.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.settings import ROOT, Settings
from tests.chance import seeded
from tests.flows import Owner, take_arrow
from tests.proof import walk as walking
from tests.proof.walk import Death, Walk
from tests.proof.workloads import WORKLOADS, Workload

DEATHS = 4


class ArrowOwner(Owner):
    """An owner whose batches never meet Spark."""

    def take(self, rows: pa.Table) -> None:
        """One micro-batch."""
        take_arrow(self.flow, rows, above=False)
        while self.flow.behind():
            self.flow.turn(self.spark)


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "Owner", ArrowOwner)


def walked(workload: Workload, folder: Path) -> Walk:
    """A workload without the tables over tables, run in peace."""

    def settings(to: Path) -> Settings:
        project = workload.settings(to / "whole").project
        made = to / "project"
        if not made.exists():
            for name in ("tables", "expectations"):
                shutil.copytree(project / name, made / name, ignore=shutil.ignore_patterns("gold"))
            for name in ("deltaworks.toml", "topics.toml"):
                if (project / name).exists():
                    shutil.copy(project / name, made / name)
            if project == ROOT:
                shutil.copytree(project / "shop", made / "shop", ignore=shutil.ignore_patterns("__pycache__"))
        return Settings.load(made, environment={}, data=to)

    seed = seeded().randrange(2**32)
    chosen = replace(workload, settings=settings, constants=())
    walk = Walk(workload=chosen, path="auto", seed=seed, folder=folder, spark=None)  # type: ignore[arg-type]  # not met
    assert not walk.begin()
    return walk


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.app)
def test_death_at_a_named_step_changes_nothing(tmp_path: Path, workload: Workload) -> None:
    """Die there, restart, end with the same rows; a roll-back of a table beside a table among them."""
    chance, walk = seeded(), walked(workload, tmp_path)
    every = list(walk.deaths(chance))
    drawn = [*chance.sample(every, DEATHS), chance.choice([deaths for deaths in every if len(deaths) == 2])]

    for deaths in drawn:
        assert not walk.die(deaths), f"seed {walk.seed}: {', then '.join(map(str, deaths))}"


def test_point_that_is_not_reached_is_told(tmp_path: Path) -> None:
    """A drill in which nobody died has shown nothing."""
    walk = walked(WORKLOADS[0], tmp_path)

    found = walk.die([Death(step="open", point="silver.page_views.batch.after-commit", time=9)])

    assert [one.invariant for one in found] == ["drill"]
