"""What is drawn by chance is drawn again in the next run of the same commit."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import chance
from tests.chance import ROOT, WITHOUT_GIT, Run, of_commit, seeded, turn_of


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Give a run with a seed of its own."""
    run = Run(seed=7)
    monkeypatch.setattr(chance, "RUN", run)
    return run


def drawn(run: Run, test: str, times: int) -> list[float]:
    """Give what a test draws."""
    run.begin(test)
    return [seeded().random() for _ in range(times)]


def test_same_test_draws_the_same_in_each_run_of_a_seed(run: Run) -> None:
    """Whatever ran before it; each source of chance in it is another one."""
    first = drawn(run, "one", 3)
    drawn(run, "other", 5)

    assert drawn(run, "one", 3) == first
    assert len({*first}) == 3


def test_tests_and_seeds_differ(run: Run) -> None:
    """No two tests draw alike, nor does one test of two seeds."""
    one, other = drawn(run, "one", 1), drawn(run, "other", 1)
    run.seed = 8

    assert len({*one, *other, *drawn(run, "one", 1)}) == 3


def test_what_tests_share_is_the_same_whoever_asks_first(run: Run) -> None:
    """A fixture of a whole session does not depend on the test that needs it first, and takes nothing from it."""
    run.begin("one")
    shared, first = seeded(of="walks").random(), seeded().random()
    run.begin("other")

    assert seeded(of="walks").random() == shared
    assert drawn(run, "one", 1) == [first]


def test_everything_has_its_turn(run: Run) -> None:
    """Each of three turns is a name's in about a third of all runs, and the same again in one run."""
    names = [f"tests/spark/test_{number}.py::test_one[spark]" for number in range(20)]
    turns: dict[str, list[int]] = {name: [] for name in names}
    for run.seed in range(1000, 1300):
        for name in names:
            turns[name].append(turn_of(name, turns=3))
            assert turn_of(name, turns=3) == turns[name][-1]

    assert all(60 < drawn.count(turn) < 140 for drawn in turns.values() for turn in range(3))


def test_tests_by_spark_run_when_it_is_their_turn_or_they_are_wanted(run: Run) -> None:
    """Their sisters always; of the walk by Spark all tests or none."""
    closing, walks = "tests/spark/test_closing.py", "tests/spark/test_walks.py"
    by_spark = f"{closing}::test_every_day_that_a_batch_passes_is_closed[spark]"
    seeds: dict[tuple[bool, bool], int] = {}
    for run.seed in range(100):
        mine = tuple(not turn_of(name, turns=3) for name in (by_spark, "walk_by_spark"))
        seeds.setdefault((mine[0], mine[1]), run.seed)

    for (has_turn, walk_has), seed in seeds.items():
        found = collected(closing, walks, "--seed", str(seed))
        assert (by_spark in found) == has_turn
        assert by_spark.replace("[spark]", "[auto]") in found
        assert {name for name in found if "spark" in name.partition("::")[2].partition("[")[0]} == (
            {name for name in collected(walks, "--whole") if "spark" in name.partition("::")[2]} if walk_has else set()
        )
    other = str(seeds[False, False])
    assert by_spark in collected(closing, "--seed", other, "--whole")
    assert by_spark in collected(by_spark, "--seed", other)
    assert by_spark in collected(closing, "--seed", other, "-k", "closed")


def collected(*arguments: str) -> set[str]:
    """Give the tests that a run has."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in asked.stdout.splitlines() if "::" in line}


def test_seed_that_was_printed_draws_the_same(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """What a failed test shows is what is handed in."""
    (number,) = drawn(run, "one", 1)
    printed = capsys.readouterr().out.removeprefix("seed ")

    assert seeded(int(printed)).random() == number


def test_seed_is_that_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same whenever it is asked for; one that is written down where no commit is known."""
    asked_once, asked_again = of_commit(), of_commit.__wrapped__()

    monkeypatch.setattr(chance, "ROOT", tmp_path)

    assert asked_again == asked_once
    assert of_commit.__wrapped__() == WITHOUT_GIT
