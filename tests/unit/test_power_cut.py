"""The machine dies in a commit group: what the disk was not asked to hold is lost in part, and comes again."""

from pathlib import Path

import pytest

from tests.chance import seeded
from tests.proof import walk as walking
from tests.proof.workloads import WORKLOADS, Workload
from tests.unit.test_deaths import ArrowOwner, walked

CUTS = 8


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "Owner", ArrowOwner)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.app)
def test_power_cut_behind_any_write_loses_nothing(tmp_path: Path, workload: Workload) -> None:
    """The next owner balances, the rows are as in peace, and what the disk was asked to hold is there."""
    chance, walk = seeded(), walked(workload, tmp_path)
    every = list(walk.cuts(chance))
    assert every

    for death in chance.sample(every, min(CUTS, len(every))):
        assert not walk.die([death], power_cut=chance), f"seed {walk.seed}: {death}"

    assert walk.lost
