"""Chance in tests: another seed in each run, and shown when a test fails."""

from random import Random, SystemRandom


def seeded(seed: int | None = None) -> Random:
    """Give a source of chance; hand in the seed that a failed test printed to see the failure again."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {seed}")  # noqa: T201  # pytest shows it with a failure
    return Random(seed)
