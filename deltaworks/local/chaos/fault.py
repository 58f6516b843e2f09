"""The words of the chaos kit: a fault, and the scene that it is done in."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from deltaworks.control import Store
from deltaworks.errors import StackError
from deltaworks.settings import Settings

POLL_SECONDS = 0.2
Say = Callable[[str], None]
Lost = Mapping[str, int]
"""Per topic the offsets that were taken away before they were read: what the ledger must show, no more and no less.
0: the topic has begun anew, and nothing of it is shown as gone any more."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A running stack and what a fault is aimed at: an app's driver, and a topic that the app reads."""

    settings: Settings
    store: Store
    chance: Random
    app: str
    topic: str
    read_up_to: Callable[[str], Mapping[int, int]]
    """Next offset per partition of a topic, by the ledger."""
    say: Say
    """Told what is done, in one line each."""

    def seconds(self, least: float, most: float) -> float:
        """Draw for how long."""
        return round(self.chance.uniform(least, most), 1)

    def wait(self, seconds: float) -> None:
        """Let the fault last."""
        time.sleep(seconds)

    def until(self, true: Callable[[], bool], what: str, *, seconds_max: float = 120) -> None:
        """Wait for what must follow from the fault; raises StackError if it does not."""
        deadline = time.monotonic() + seconds_max
        while not true():
            if time.monotonic() > deadline:
                raise StackError("chaos", f"not within {seconds_max:g} s: {what}", 'Run "deltaworks status"')
            time.sleep(POLL_SECONDS)


def chance_of(what: str, seed: int) -> Random:
    """What a seed draws for one thing, of a fault by its name: the same by `deltaworks chaos run` as in the drill."""
    return Random(f"{what} {seed}")  # noqa: S311  # a drill that can be repeated, no secret


def _nothing(_: Scene) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong. `inflict` does it, lets it last, undoes it, and gives the offsets that it took away.

    Where a person has to repair, `inflict` waits until the product names the damage, then does what it prints.
    """

    name: str
    does: str
    undone: str
    holds: str
    inflict: Callable[[Scene], Lost]
    destroys: bool = False
    """Rows are lost, tables set aside or files of the project changed: only done when this is said to be wanted."""
    missing: Callable[[Scene], str] = field(default=_nothing)
    """Why it cannot be done here; empty if it can."""
