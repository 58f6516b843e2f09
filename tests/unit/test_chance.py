"""What is drawn by chance is drawn again in the next run of the same commit."""

import json
import subprocess
import sys
from collections.abc import Sequence
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


MARKED = "test_rows_that_leave_their_keys_are_there_once_on_both_paths"


def test_tests_by_spark_run_when_it_is_their_turn_or_they_are_wanted(run: Run) -> None:
    """Their sisters always; of the walk by Spark all tests or none. So do those that are marked."""
    closing, walks, marked = (f"tests/spark/test_{name}.py" for name in ("closing", "walks", "full_rows"))
    by_spark = f"{closing}::test_every_day_that_a_batch_passes_is_closed[spark]"
    seeds: dict[tuple[bool, ...], int] = {}
    for run.seed in range(100):
        names_of_turns = (by_spark, "walk_by_spark", f"{marked}::{MARKED}")
        seeds.setdefault(tuple(not turn_of(name, turns=3) for name in names_of_turns), run.seed)

    other = ["--seed", str(seeds[False, False, False])]
    every, whole, named, *found = collected(
        [walks, "--whole"],
        [closing, *other, "--whole"],
        [by_spark, *other],
        [closing, *other, "-k", "closed"],
        *([closing, walks, marked, "--seed", str(seed)] for seed in seeds.values()),
    )
    chosen, *drawn_ones = found

    walked = {name for name in every if "spark" in name.partition("::")[2]}
    for (has_turn, walk_has, mark_has), names in zip(seeds, drawn_ones, strict=True):
        assert (by_spark in names) == has_turn
        assert (f"{marked}::{MARKED}" in names) == mark_has
        assert by_spark.replace("[spark]", "[auto]") in names
        assert {name for name in names if "spark" in name.partition("::")[2].partition("[")[0]} == (
            walked if walk_has else set()
        )
    assert all(by_spark in names for names in (whole, named, chosen))


COLLECTS = """
import contextlib, io, json, sys
import pytest
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        pytest.main(["--collect-only", "-q", *arguments])
    print(json.dumps([line for line in said.getvalue().splitlines() if "::" in line]))
"""
"""Several runs in one process: what tests import takes most of the time."""


def collected(*runs: Sequence[str]) -> list[set[str]]:
    """Give the tests that each run has, by its arguments."""
    command = [sys.executable, "-c", COLLECTS, json.dumps(runs)]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [set(json.loads(line)) for line in asked.stdout.splitlines()]


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
