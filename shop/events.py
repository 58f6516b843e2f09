"""The shop's other events (searches, clicks, advertisements, purchases, requests, carts) at a steady rate.

Pure, the same for the same arguments. Times are microseconds since the start of the run.
"""

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from shop.clock import SECOND
from shop.faults import COPY_DISTANCE_MAX, Faults
from shop.visits import TOPICS, Kind, Message, Visitors

__all__ = ["TOPICS", "Event", "events"]


class Event(NamedTuple):
    """One message of one of `TOPICS`."""

    due_us: int
    kind: Kind
    topic: str
    key: bytes
    value: bytes


def events(
    *, random: Random, run: str, start: datetime, rate: float, users: int, products: int, faults: Faults
) -> Iterator[Event]:
    """Yield messages for ever, one position per 1/rate seconds, ordered by the time they are due.

    A position is taken by what is to be sent by then, of any story; if nothing is, a new story begins. Each copy
    follows its original, at the time of the position it is sent with, and has the same bytes.
    """
    visitors = Visitors(random=random, run=run, start=start, users=users, products=products, faults=faults)
    waiting: list[Message] = []
    copies: list[tuple[int, int, Message]] = []
    n = 0
    while True:
        due_us = int(n * SECOND / rate)
        while copies and copies[0][0] <= n:
            _, _, copied = heappop(copies)
            yield Event(due_us, "copy", copied.topic, copied.key, copied.value)
        if not waiting or waiting[0].send_us > due_us:
            for message in visitors.story(due_us):
                heappush(waiting, message)
        sent = heappop(waiting)
        if sent.kind != "malformed" and random.random() < faults.duplicates:
            heappush(copies, (n + 1 + int(random.random() * COPY_DISTANCE_MAX), n, sent))
        yield Event(due_us, sent.kind, sent.topic, sent.key, sent.value)
        n += 1
