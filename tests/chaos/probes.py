"""Probes: a page view and an order like no other, and how long it takes until gold has both.

Each is alone in its row of gold, a page that nobody else looks at and a day on which nobody else orders, so reading
that row tells that this very view or order has arrived. To the shop's check they are rows like all others.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from types import TracebackType
from typing import Self

import psycopg

from deltaworks.analyst import connect
from deltaworks.errors import QueryError
from deltaworks.settings import Settings
from shop.topic import PageViewTopic

_POLL_SECONDS = 0.5  # each look costs what a query costs, and the drivers need the machine
_VISITOR = 0  # the simulator's begin at 1
# Negative ids, because the simulator gives those above zero; cancelled and free, so that no revenue changes.
_NEXT = """
    select least(min(order_id), 0) - 1, least(min((placed_at at time zone 'UTC')::date), date '2000-01-01') - 1
    from orders"""
_CUSTOMER = """
    insert into customers (customer_id, name, email, country) values (-1, 'Probe', 'probe@example.com', 'NL')
    on conflict do nothing"""
_ORDER = """
    insert into orders (order_id, customer_id, status, amount, placed_at, updated_at)
    values (%s, -1, 'cancelled', 0, %s::date::timestamp at time zone 'UTC', now())"""


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """Seconds from the beginning until the view and the order were in gold; None: not within the bound."""

    view_seconds: float | None
    order_seconds: float | None

    @property
    def seconds(self) -> float | None:
        """Until both were."""
        if self.view_seconds is None or self.order_seconds is None:
            return None
        return max(self.view_seconds, self.order_seconds)


class Probes:
    """Sends probes and reads gold as an analyst does. `run` tells the probes of one run from those of others."""

    def __init__(self, settings: Settings, *, run: str, patience_seconds: float) -> None:
        """Connect to the broker; a view that it does not take within the patience is an error of the run."""
        self._settings, self._run, self._count = settings, run, 0
        self._topic = PageViewTopic(settings.kafka, stopping=threading.Event(), patience_seconds=patience_seconds)
        self._lake = connect(settings.lake)

    def __enter__(self) -> Self:
        """Return the open probes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Deliver what was sent, and leave."""
        self._lake.close()
        self._topic.__exit__(kind, error, trace)

    def fresh(self, *, since: float, seconds_max: float, meanwhile: Callable[[], None] = lambda: None) -> Fresh:
        """Send a view and an order now, wait until both are in gold; `since` is on the monotonic clock.

        The order is tried until the database takes it. `meanwhile` is called again and again.
        """
        page, day = self._send_view(), None
        view = order = None
        while (view is None or order is None) and time.monotonic() - since < seconds_max:
            meanwhile()
            self._topic.serve()
            day = day or self._place_order()
            if view is None and self._in_gold(f"page_views_per_minute where page = '{page}'"):
                view = time.monotonic() - since
            if order is None and day and self._in_gold(f"daily_orders where day = date '{day}'"):
                order = time.monotonic() - since
            time.sleep(_POLL_SECONDS)
        return Fresh(view_seconds=view, order_seconds=order)

    def has_rows(self) -> bool:
        """Whether both tables of gold have rows, whoever sent them."""
        return self._in_gold("page_views_per_minute") and self._in_gold("daily_orders")

    def _send_view(self) -> str:
        self._count += 1
        page = f"/probe/{self._run}/{self._count}"
        view = {
            "event_id": f"probe-{self._run}-{self._count}",
            "event_time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "user_id": _VISITOR,
            "session_id": f"probe-{self._run}",
            "page": page,
            "referrer": None,
        }
        self._topic.send(str(_VISITOR).encode(), json.dumps(view).encode())
        return page

    def _place_order(self) -> date | None:
        """Place an order on a day of its own; None while the database is away.

        If the answer to the commit is lost, the next try places another order: both are the shop's, one is waited for.
        """
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(self._settings.source_dsn("shop"), connect_timeout=2) as connection,
        ):
            found = connection.execute(_NEXT).fetchone()
            assert found is not None
            number, day = found
            connection.execute(_CUSTOMER)
            connection.execute(_ORDER, (number, day))
            connection.commit()
            return date.fromisoformat(str(day))
        return None

    def _in_gold(self, rows: str) -> bool:
        with suppress(QueryError):  # no such table yet
            return bool(self._lake.sql(f"select 1 from gold.{rows} limit 1").rows)
        return False
