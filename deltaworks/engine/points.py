"""Crash points: the steps of a micro-batch have names, and a process can be told to die at one of them.

A point is `<table>.<act>.<step>`, such as `silver.orders.batch.after-commit`: the act is the kind of the ledger entry
that is being committed (`entry.Kind`), a log checkpoint, the trimming of a log or the settling of a position; the
step is where in it the process stands. Two points lie next to each other where nothing on disk changes between them.

Nothing happens at a point unless somebody listens: a test, or the setting `fail_at`.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Step = Literal["before-commit", "before-empty-commit", "after-commit", "before-write", "after-write", "before-delete"]
"""Before the commit and behind it, before the handle knows of it; `empty` is the entry of a batch that changed nothing,
which Spark or a merge did not commit; `write` is a log checkpoint's or a segment's, `delete` a log file's."""
Listener = Callable[[str], None]
_listeners: list[Listener] = []


def reached(table: str, act: str, step: Step) -> None:
    """Say where this process stands."""
    for listener in _listeners:
        listener(f"{table}.{act}.{step}")


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` with the name of each point that is reached meanwhile; what it raises ends the work there."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def die_at(place: str) -> None:
    """From now on, kill this process without a farewell at the point `<point>` or, the n-th time, `<point>:<n>`."""
    point, _, times = place.partition(":")
    left = int(times or 1)

    def die(reached_point: str) -> None:
        nonlocal left
        left -= reached_point == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _listeners.append(die)
