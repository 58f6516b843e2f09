"""Chance in tests: what is drawn follows from the run's seed and the test, so that a commit's tests do the same again.

The run's seed is the commit's, which each run prints first. `--seed 7` gives another one, to pytest and to bin/test,
which takes `--seed random` too.
"""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from zlib import crc32

ROOT = Path(__file__).resolve().parents[1]
Share = Callable[[Sequence[int]], Sequence[int]]
"""What takes a run's share of many cases; see conftest.py."""
WITHOUT_GIT = 20_260_101
"""The seed of a checkout that does not know its commit: there it is always the same tests' turn."""


@dataclass
class Run:
    """What seeds follow from; conftest.py says which test begins and what `--seed` was."""

    seed: int | None = None
    test: str = ""
    drawn: int = 0

    def begin(self, test: str) -> None:
        """From now on this test draws."""
        self.test, self.drawn = test, 0


RUN = Run()


@cache
def of_commit() -> int:
    """Give the seed that follows from the commit that is checked out."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return WITHOUT_GIT
    return int(asked.stdout[:8], 16) if asked.returncode == 0 else WITHOUT_GIT


def seeded(seed: int | None = None, *, of: str | None = None) -> Random:
    """Give a source of chance, another one at each call; hand in the seed that a failed test printed to see it again.

    `of` names what several tests share, whichever asks first.
    """
    if seed is None:
        run = _seed_of_run()
        place = of or f"{RUN.test} {RUN.drawn}"
        RUN.drawn += of is None
        seed = crc32(f"{run} {place}".encode())
    print(f"seed {seed}")  # noqa: T201  # pytest shows it with a failure
    return Random(seed)


def turn_of(name: str, *, turns: int) -> int:
    """Give which of so many turns, from 0 on, a name has, by the run's seed."""
    return crc32(f"{_seed_of_run()} {name}".encode()) % turns


def _seed_of_run() -> int:
    return of_commit() if RUN.seed is None else RUN.seed
