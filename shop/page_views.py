"""The page views of the shop's visitors, well-formed and not: pure, the same for the same arguments.

A run of the simulator is a sequence of positions 0, 1, 2 ... View n of run r has the event id "r-n", so runs with
different names never share an event id. Times are microseconds since the start of the run.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Literal, NamedTuple

SECOND = 1_000_000
MINUTE = 60 * SECOND
# Out of order means: well inside the ten minutes that the windows wait. Late means: well beyond them.
DISORDER_US = (1 * SECOND, 30 * SECOND)
LATE_US = (11 * MINUTE, 120 * MINUTE)
COPY_DISTANCE_MAX = 50  # a copy follows its original after at most this many positions

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


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares (0 to 1) of positions that carry a fault.

    A position is out of order, late or malformed, never two of them; one that is not malformed may be copied as well.
    """

    duplicates: float = 0.0
    out_of_order: float = 0.0
    late: float = 0.0
    malformed: float = 0.0

    def __post_init__(self) -> None:
        """Refuse shares that cannot be; raises ValueError."""
        one_of = self.out_of_order + self.late + self.malformed
        if min(self.duplicates, self.out_of_order, self.late, self.malformed) < 0 or self.duplicates > 1 or one_of > 1:
            raise ValueError("shares lie between 0 and 1, and out of order, late and malformed add up to 1 at most")


def page_views(
    *, random: Random, run: str, start: datetime, rate: float, users: int, products: int, faults: Faults
) -> Iterator[PageView]:
    """Yield messages for ever, one position per 1/rate seconds, ordered by the time they are due.

    `users` and `products` are numbered from 1. Each copy follows its original, at the time of the position it is
    sent with, and has the same bytes.
    """
    chance, pages, clock = random.random, _weighted_pages(products), _clock(start)
    start_us = _microseconds(start)
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
            f'{{"event_id":"{run}-{n}","event_time":"{clock(event_us)}","user_id":{user},'
            f'"session_id":"{run}-{user}-{(start_us + due_us) // _SESSION_US}",'
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


def _without(field: str) -> Callable[[bytes], bytes]:
    def spoiler(value: bytes) -> bytes:
        return json.dumps({name: kept for name, kept in json.loads(value).items() if name != field}).encode()

    return spoiler


def _with(field: str, wrong: object) -> Callable[[bytes], bytes]:
    def spoiler(value: bytes) -> bytes:
        return json.dumps(json.loads(value) | {field: wrong}).encode()

    return spoiler


SPOILERS: tuple[Callable[[bytes], bytes], ...] = (
    lambda value: value[: len(value) // 2],  # truncated
    lambda value: b"GET /products/12 HTTP/1.1",  # not JSON  # noqa: ARG005  # every fault takes the value
    lambda value: b"",  # noqa: ARG005  # every fault takes the value
    lambda value: b"[" + value + b"]",  # JSON, but no object
    lambda value: value.replace(b'"page":"', b'"page":"\xff\xfe'),  # not UTF-8
    _with("user_id", "seventeen"),
    _with("user_id", 17.5),
    _with("user_id", None),
    _with("page", {"path": "/"}),
    _with("event_id", None),
    _with("event_time", "yesterday"),
    _without("event_id"),
    _without("event_time"),
    _without("user_id"),
    _without("page"),
)


def _weighted_pages(products: int) -> list[str]:
    """A thousand paths, so that an even choice among them is a weighted one."""
    fixed = [path for path, weight in _PAGES for _ in range(weight * 10)]
    shares = [1 / number for number in range(1, products + 1)]
    scale = _PRODUCT_WEIGHT * 10 / sum(shares)
    shop = [f"/products/{n}" for n, share in enumerate(shares, 1) for _ in range(max(1, round(share * scale)))]
    return (fixed + shop + ["/products/1"] * 1000)[:1000]


def _microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _clock(start: datetime) -> Callable[[int], str]:
    """A function from microseconds since start to ISO 8601 text; it remembers the last seconds, which repeat."""
    seconds: dict[int, str] = {}
    start_us = _microseconds(start)

    def text(since_us: int) -> str:
        second, rest = divmod(start_us + since_us, SECOND)
        prefix = seconds.get(second)
        if prefix is None:
            if len(seconds) > 10_000:  # bounds the memory of a simulator that runs for days
                seconds.clear()
            prefix = seconds[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{prefix}.{rest:06d}Z"

    return text
