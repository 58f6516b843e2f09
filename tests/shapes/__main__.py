"""More shapes, and more work on them, than `bin/test stack` has time for.

.venv/spark/bin/python -m tests.shapes --shapes 40 --seed 7
"""

from random import Random, SystemRandom
from typing import Annotated

import typer

from deltaworks.cli.show import out
from tests.chaos.changes import source_and_broker
from tests.shapes.drawn import drawn
from tests.shapes.shape import ALL_KEYED, shapes
from tests.shapes.worked import timed, work


def main(
    count: Annotated[int, typer.Option("--shapes", min=len(ALL_KEYED), help="Tables of the source.")] = 40,
    transactions: Annotated[int, typer.Option(min=30, help="Transactions of the workload.")] = 3000,
    seed: Annotated[int | None, typer.Option(help="Decides what is drawn; default: by chance.")] = None,
) -> None:
    """Draw, work, kill, compare. Exit code 1 if the lake is not what the source is."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    chance = Random(seed)
    made = shapes(chance, count)
    with source_and_broker(drawn(made)) as settings:
        out.print(f"in {settings.data}")
        say = timed(lambda text: out.print(text, markup=False, soft_wrap=True))
        found = work(settings, made, chance=chance, transactions=transactions, pause=0.05, say=say)
        for finding in found:
            out.print(finding, markup=False, soft_wrap=True)
        out.print("The lake is what the source is." if not found else "It did not hold.")
        if found:
            raise typer.Exit(1)  # here, so that the scratch folder stays


if __name__ == "__main__":
    typer.run(main)
