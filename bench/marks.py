"""Marked events, sent from outside on a schedule of their own, whether or not anybody keeps up (an open loop).

A mark is told from all other rows by a text: a page that nobody else looks at, a name that no other customer has.
"""

import json
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Protocol

import psycopg

from deltaworks.errors import StackError
from shop.topic import PageViewTopic

PAGE = "/mark/"
NAME = "Mark "
_VISITORS = 100  # as many as the simulator has
_BEYOND = 10**9
"""Ids of the marked customers and orders lie beyond all that a simulator gives."""


class Sender(Protocol):
    """Sends marked events of one kind."""

    def send(self, number: int, due: datetime) -> None:
        """Send one and wait until it is taken; raises StackError if it is not."""
        ...


class PageViews:
    """Views of pages that nobody else looks at, sent to Kafka."""

    def __init__(self, topic: PageViewTopic, *, random: Random) -> None:
        """Take the topic and the chance that chooses the visitor."""
        self._topic, self._random = topic, random

    def send(self, number: int, due: datetime) -> None:
        """One view. The time in it is when it was due: a sender that stalls hides no age."""
        user = self._random.randint(1, _VISITORS)
        view = {
            "event_id": f"mark-{number}",
            "event_time": due.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "user_id": user,
            "session_id": f"mark-{number}",
            "page": f"{PAGE}{number}",
            "referrer": None,
        }
        self._topic.send(str(user).encode(), json.dumps(view).encode())
        self._topic.flush()


class Customers:
    """Customers who take another name in the shop's database. Each has an order, and none is the simulator's."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]], *, count: int) -> None:
        """Take a connection of the shop's role that commits each statement, and how many customers take turns.

        A name that is written over before anybody saw it is a mark that is lost: let them be more than the marks that
        may be under way.
        """
        self._connection, self._count = connection, count

    def register(self) -> None:
        """Have them in the shop, one paid order each. The simulator fills an empty shop only: it must have begun."""
        names = {"first": _BEYOND, "last": _BEYOND + self._count - 1}
        with self._connection.transaction():
            self._connection.execute(
                "insert into customers (customer_id, name, email, country)"
                " select id, 'Marked customer', 'customer.' || id || '@example.com', 'NL'"
                " from generate_series(%(first)s::bigint, %(last)s) as id",
                names,
            )
            self._connection.execute(
                "insert into orders (order_id, customer_id, status, amount, placed_at, updated_at)"
                " select id, id, 'paid', 0, now(), now() from generate_series(%(first)s::bigint, %(last)s) as id",
                names,
            )

    def send(self, number: int, due: datetime) -> None:
        """One change; its time never goes back behind that of the change before."""
        change = "update customers set name = %s, updated_at = greatest(updated_at, %s) where customer_id = %s"
        try:
            self._connection.execute(change, (f"{NAME}{number}", due, _BEYOND + number % self._count))
        except psycopg.Error as error:
            finding = f"does not take a change ({type(error).__name__})"
            raise StackError("the shop's database", finding, "Run again with --keep and read its log") from None


class Marker:
    """Sends one kind of marked events at the times that are planned, and keeps when each was due."""

    def __init__(self, sender: Sender, *, prefix: str) -> None:
        """Plan nothing yet."""
        self.due: dict[str, float] = {}
        """Each mark's text, and when it was due on the monotonic clock."""
        self.late_seconds_max = 0.0
        self._sender, self._prefix = sender, prefix
        self._planned: queue.SimpleQueue[float] = queue.SimpleQueue()

    def plan(self, times: Iterable[float]) -> None:
        """Send one at each of these times of the monotonic clock, which rise and follow all that were planned."""
        for due in times:
            self._planned.put(due)

    def run(self, stopping: threading.Event) -> None:
        """Send until stopped."""
        for number, due in enumerate(self._times(stopping)):
            now = time.monotonic()
            self.late_seconds_max = max(self.late_seconds_max, now - due)
            self.due[f"{self._prefix}{number}"] = due
            self._sender.send(number, datetime.fromtimestamp(time.time() - (now - due), UTC))

    def _times(self, stopping: threading.Event) -> Iterator[float]:
        """Yield each planned time when it has come."""
        while not stopping.is_set():
            try:
                due = self._planned.get(timeout=0.1)
            except queue.Empty:
                continue
            if not stopping.wait(max(0.0, due - time.monotonic())):
                yield due

    def between(self, begin: float, end: float) -> dict[str, float]:
        """The marks that were due in this time."""
        return {mark: due for mark, due in self.due.copy().items() if begin <= due < end}


def even(begin: float, *, seconds: float, count: int, random: Random) -> list[float]:
    """Times, one by chance in each of `count` equal parts: no beat with whatever else happens at fixed intervals."""
    part = seconds / count
    return [begin + (number + random.random()) * part for number in range(count)]
