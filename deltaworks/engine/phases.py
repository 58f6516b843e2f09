"""How long a turn is in each of its phases: it reads, parses, computes, commits.

Who measures gets a stopwatch; the code below says which phase it is in. Where nobody measures, that costs a look at a
variable of the thread and changes nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

Phase = Literal["read", "parse", "compute", "commit", "other"]
"""Read files, change feeds, snapshots, neighbours; bytes to typed rows; the transform; the commit; all else."""
PHASES: tuple[Phase, ...] = get_args(Phase)
Clock = Callable[[], float]


class Stopwatch:
    """Seconds of one turn by phase, each second in one of them, and how its transform was computed."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        """Run from now on."""
        self.seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self.rows: int | None = None
        """New rows that the turn took; None where there were none to take."""
        self.way: Literal["direct", "ordinary", "none"] = "none"
        """By a kept plan, as Spark computes any query, or there was nothing to be computed by a transform."""
        self.why: str | None = None
        """Why the ordinary way; beside a transform that went directly, what of the table did not."""
        self._clock, self._phase, self._since = clock, PHASES[-1], clock()

    def change(self, phase: Phase) -> Phase:
        """Be in another phase from now on; the one of before."""
        now, before = self._clock(), self._phase
        self.seconds[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    def leave_out(self) -> None:
        """What has passed since the phase changed last was another's turn."""
        self._since = self._clock()


_running: ContextVar[Stopwatch | None] = ContextVar("running", default=None)
"""Of this thread: others begin without."""


@contextmanager
def measured(clock: Clock = time.perf_counter) -> Iterator[Stopwatch]:
    """Measure what happens meanwhile on this thread; a turn inside another one is no part of that."""
    outer, watch = _running.get(), Stopwatch(clock)
    if outer is not None:
        outer.change(outer.change("other"))
    token = _running.set(watch)
    try:
        yield watch
    finally:
        _running.reset(token)
        watch.change("other")
        if outer is not None:
            outer.leave_out()


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Say what the turn is doing meanwhile; an inner phase is no part of the outer one. A decorator too."""
    watch = _running.get()
    if watch is None:
        yield
        return
    before = watch.change(name)
    try:
        yield
    finally:
        watch.change(before)


def went_directly() -> None:
    """Say that a kept plan has computed the turn's transform."""
    watch = _running.get()
    if watch is not None and watch.way == "none":
        watch.way = "direct"


def went_ordinarily(why: str, *, part: str = "") -> None:
    """Say why the turn's transform is computed in Spark's ordinary way, or a part of it that has this name.

    What is said first counts, and of the transform itself more than of a part.
    """
    watch = _running.get()
    if watch is None or watch.way == "ordinary":
        return
    if part:
        watch.why = watch.why or f"{part}: {why}"
    else:
        watch.way, watch.why = "ordinary", why
