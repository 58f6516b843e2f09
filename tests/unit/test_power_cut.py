"""The machine dies in a commit group: what the disk was not asked to hold is lost in part, and comes again."""

import os
from pathlib import Path

import pytest

from tests.chance import seeded
from tests.power import LOG, Power
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


def test_names_are_lost_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    """The last ones, however their letters and the clock have them; a commit never stays without what is in it."""
    chance, order = seeded(), ["silver/views__quarantine", "silver/views", "silver/views__quarantine", "bronze/events"]
    for number in range(60):
        lake = tmp_path / str(number) / "lake"
        lake.mkdir(parents=True)
        power, made = Power(lake), list[Path]()
        for version, table in enumerate(order):
            group = [lake / table / f"part-{version}.parquet", lake / table / LOG / f"{version}.json"]
            for file in group:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"x" * 8192)
                os.utime(file)
            for file in group:  # of one tick
                file.chmod(0o600)
            power.look()
            made += group

        power.cut(chance)

        left = [file for file in made if file.exists()]
        assert left == made[: len(left)]
