"""The page views of the shop's visitors, well-formed and not: pure, the same for the same arguments.

A run of the simulator is a sequence of positions 0, 1, 2 ... View n of run r has the event id "r-n", so runs with
different names never share an event id. Times are microseconds since the start of the run.
"""

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from random import Random
from typing import Literal, NamedTuple

from shop.clock import MINUTE, SECOND, clock, microseconds
from shop.faults import (
    COPY_DISTANCE_MAX,
    DISORDER_US,
    LATE_US,
    NO_OBJECT,
    Faults,
    Spoiler,
    not_utf8,
    replaced,
    without,
)

# SECOND and Faults belong to what `page_views` takes and gives: who calls it finds them here
__all__ = ["SECOND", "SPOILERS", "Faults", "Kind", "PageView", "page_views", "session_id", "spoil"]

Kind = Literal["view", "out_of_order", "late", "copy", "malformed"]

_PAGES = (("/", 20), ("/search", 15), ("/cart", 8), ("/checkout", 4), ("/account", 3))
_PRODUCT_WEIGHT = 50  # of 100: half of the views are of products, the first product most often
_REFERRERS = ("null", "null", '"https://search.example/"', '"https://social.example/post/7"', '"https://mail.example/"')
_SESSION_US = 30 * MINUTE


class PageView(NamedTuple):
    """One message of topic page_views. A named tuple: two million are made in a backlog."""

    due_us: int
    kind: Kind
    key: bytes
    value: bytes


def page_views(
    *, random: Random, run: str, start: datetime, rate: float, users: int, products: int, faults: Faults
) -> Iterator[PageView]:
    """Yield messages for ever, one position per 1/rate seconds, ordered by the time they are due.

    `users` and `products` are numbered from 1. Each copy follows its original, at the time of the position it is
    sent with, and has the same bytes.
    """
    chance, pages, time = random.random, _weighted_pages(products), clock(start)
    start_us = microseconds(start)
    late_below = faults.malformed + faults.late
    disorder_below = late_below + faults.out_of_order
    copies: list[tuple[int, int, bytes, bytes]] = []
    n = 0
    while True:
        due_us = int(n * SECOND / rate)
        while copies and copies[0][0] <= n:
            _, _, key, value = heappop(copies)
            yield PageView(due_us, "copy", key, value)
        user = 1 + int(users * chance() * chance())  # the product of two chances: low numbers visit most
        roll, event_us = chance(), due_us
        kind: Kind = "view"
        if roll < disorder_below:
            kind = "malformed" if roll < faults.malformed else "late" if roll < late_below else "out_of_order"
            low, high = LATE_US if kind == "late" else DISORDER_US
            event_us -= 0 if kind == "malformed" else low + int((high - low) * chance())
        key = b"%d" % user
        value = (
            f'{{"event_id":"{run}-{n}","event_time":"{time(event_us)}","user_id":{user},'
            f'"session_id":"{session_id(run, user, start_us + due_us)}",'
            f'"page":"{pages[int(chance() * 1000)]}","referrer":{_REFERRERS[int(chance() * 5)]}}}'
        ).encode()
        if kind == "malformed":
            value = spoil(value, random=random)
        elif chance() < faults.duplicates:
            heappush(copies, (n + 1 + int(chance() * COPY_DISTANCE_MAX), n, key, value))
        yield PageView(due_us, kind, key, value)
        n += 1


def spoil(value: bytes, *, random: Random) -> bytes:
    """Turn the bytes of a well-formed page view into ones that no reader may accept."""
    return random.choice(SPOILERS)(value)


SPOILERS: tuple[Spoiler, ...] = (
    *NO_OBJECT,
    not_utf8("page"),
    replaced("user_id", "seventeen"),
    replaced("user_id", 17.5),
    replaced("user_id", None),
    replaced("page", {"path": "/"}),
    replaced("event_id", None),
    replaced("event_time", "yesterday"),
    without("event_id"),
    without("event_time"),
    without("user_id"),
    without("page"),
)


def session_id(run: str, user: int, moment_us: int) -> str:
    """Name the visit of a user at a moment, in microseconds since 1970: half an hour by the clock."""
    return f"{run}-{user}-{moment_us // _SESSION_US}"


def _weighted_pages(products: int) -> list[str]:
    """A thousand paths, so that an even choice among them is a weighted one."""
    fixed = [path for path, weight in _PAGES for _ in range(weight * 10)]
    shares = [1 / number for number in range(1, products + 1)]
    scale = _PRODUCT_WEIGHT * 10 / sum(shares)
    shop = [f"/products/{n}" for n, share in enumerate(shares, 1) for _ in range(max(1, round(share * scale)))]
    return (fixed + shop + ["/products/1"] * 1000)[:1000]
