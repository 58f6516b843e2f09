"""The machine dies in a commit group: what the disk was not asked to hold is lost in part, and comes again."""

from pathlib import Path

import pytest

from tests.chance import seeded
from tests.power import made_in_order
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


def test_names_of_one_moment_are_in_the_order_in_which_an_owner_makes_them(tmp_path: Path) -> None:
    """A commit after what is in it, inputs first, what stands beside a table before it, the books last."""
    order = [
        "bronze/events/part-1.parquet", "gold/days/part-2.parquet", "bronze/events/_delta_log/1.json",
        "silver/views__quarantine/_delta_log/1.json", "silver/views/_delta_log/1.json", "gold/days/_delta_log/1.json",
        "ops/ledger_web/_delta_log/1.json",
    ]  # fmt: skip
    names = [tmp_path / name for name in order]

    drawn = seeded().sample(names, len(names))

    assert sorted(drawn, key=lambda file: made_in_order(file, tmp_path)) == names
    assert made_in_order(tmp_path / "torn.web.json", tmp_path) > made_in_order(names[0], tmp_path)
