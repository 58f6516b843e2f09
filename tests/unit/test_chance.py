"""What is drawn by chance is drawn again in the next run of the same commit."""

from pathlib import Path

import pytest

from tests import chance
from tests.chance import WITHOUT_GIT, Run, drawn_of, of_commit, seeded


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
    """Of three turns each name is drawn in about a third of all runs, none in all of them, in each the same again."""
    names = [f"tests/spark/test_{number}.py::test_one[spark]" for number in range(20)]
    turns: dict[str, list[int]] = {name: [] for name in names}
    for run.seed in range(1000, 1300):
        for name in names:
            turns[name].append(drawn_of(3, name))
            assert drawn_of(3, name) == turns[name][-1]

    assert all(60 < drawn.count(turn) < 140 for drawn in turns.values() for turn in range(3))


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
