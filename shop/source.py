"""The shop's database as its application uses it: every action is one transaction, done once whatever fails."""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import psycopg
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential_jitter,
)

from deltaworks.errors import StackError
from shop.orders import Action, Line, Profile, Shop
from shop.transactions import is_done, write

_LOCK = 7_304_711  # one simulator per database; any number that nobody else uses
_IDENTITIES = {"customer_id": "customers", "product_id": "products", "order_id": "orders"}


class Source:
    """A connection that reconnects. Not for two threads.

    The advisory lock is more than courtesy: a new connection gets it only when the session before has ended, so a
    look-up after a lost answer sees whether the transaction was committed, and cannot be overtaken by it.
    """

    def __init__(self, dsn: str, *, stopping: threading.Event, patience_seconds: float = 120) -> None:
        """Connect; raises StackError if the database is away for `patience_seconds` or another simulator runs."""
        self._dsn, self._stopping, self._patience = dsn, stopping, patience_seconds
        self._connection: psycopg.Connection[Any] | None = None
        self._first = True
        self._retrying(self._connected)

    def __enter__(self) -> Self:
        """Return the open source."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection, which gives the lock back."""
        self._drop()

    def state(self) -> Shop:
        """Read what a plan has to know; the next ids lie beyond all that were ever given."""
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            customers = cursor.execute(
                "select customer_id, count(order_id), tier, age from customers left join orders using (customer_id)"
                " group by customer_id order by customer_id"
            ).fetchall()
            products = cursor.execute(
                "select product_id, price, quantity from products join stock using (product_id) order by product_id"
            ).fetchall()
            lines = cursor.execute(
                "select order_id, product_id, quantity, l.price from orders join order_lines l using (order_id)"
                " where status = 'placed' order by order_id, line_no"
            ).fetchall()
            following = {column: _following(cursor, column, table) for column, table in _IDENTITIES.items()}
        open_orders: dict[int, tuple[Line, ...]] = {}
        for order_id, product_id, quantity, price in lines:
            line = Line(product_id=product_id, quantity=quantity, price=price)
            open_orders[order_id] = (*open_orders.get(order_id, ()), line)
        return Shop(
            orders_of={customer_id: orders for customer_id, orders, _, _ in customers},
            profile_of={customer_id: Profile(tier=tier, age=age) for customer_id, _, tier, age in customers},
            price_of={product_id: price for product_id, price, _ in products},
            stock_of={product_id: quantity for product_id, _, quantity in products},
            open_orders=open_orders,
            next_customer_id=following["customer_id"],
            next_product_id=following["product_id"],
            next_order_id=following["order_id"],
        )

    def apply(self, action: Action) -> None:
        """Do the action once: if an answer is lost, look whether it was done before doing it again."""
        tries = 0

        def attempt() -> None:
            nonlocal tries
            tries += 1
            connection = self._connected()
            with connection.transaction(), connection.cursor() as cursor:
                if tries == 1 or not is_done(cursor, action):
                    write(cursor, action)

        self._retrying(attempt)

    def _retrying(self, attempt: Callable[[], object]) -> None:
        # InterfaceError: the connection was found closed; OperationalError: refused, shut down, cut while waiting
        lost = (psycopg.OperationalError, psycopg.InterfaceError)
        retrying = Retrying(
            retry=retry_if_exception_type(lost),
            wait=wait_exponential_jitter(multiplier=0.1, max=2),  # a Postgres restart takes about a second
            stop=stop_after_delay(self._patience) | stop_when_event_set(self._stopping),
            sleep=sleep_using_event(self._stopping),
            before_sleep=self._lost,
            reraise=True,
        )
        try:
            retrying(attempt)
        except lost as error:
            self._drop()
            finding = str(error).strip().splitlines()[-1] if str(error) else type(error).__name__
            raise StackError(self._place(), f"no answer ({finding})", 'Run "deltaworks status"') from None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = psycopg.connect(self._dsn, application_name="shop.simulate", connect_timeout=5)
            try:
                connection.execute("set lock_timeout = '5s'; set timezone = 'UTC'")
                connection.execute("select pg_advisory_lock(%s)", (_LOCK,))
                connection.commit()
            except psycopg.errors.LockNotAvailable:
                connection.close()
                if self._first:
                    raise StackError(
                        self._place(), "another simulator is at work in this database", "Stop it, or wait for its end"
                    ) from None
                raise
            except BaseException:
                connection.close()
                raise
            self._connection, self._first = connection, False
        return self._connection

    def _lost(self, _: RetryCallState) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _place(self) -> str:
        parts: Mapping[str, Any] = psycopg.conninfo.conninfo_to_dict(self._dsn)
        return f"Postgres {parts.get('host')}:{parts.get('port')}/{parts.get('dbname')}"  # never the password


def _following(cursor: psycopg.Cursor[Any], column: str, table: str) -> int:
    """One more than the highest id ever given: the highest row may have been deleted, the sequence remembers."""
    query = psycopg.sql.SQL(
        "select greatest((select max({column}) from {table}),"
        " (select last_value from pg_sequences where schemaname = 'public' and sequencename = {sequence}), 0)"
    ).format(
        column=psycopg.sql.Identifier(column),
        table=psycopg.sql.Identifier(table),
        sequence=psycopg.sql.Literal(f"{table}_{column}_seq"),
    )
    found = cursor.execute(query).fetchone()
    return int(found[0]) + 1 if found else 1
