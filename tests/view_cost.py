"""What a view costs as its inputs grow: a turn in which a few orders change, over tables of different sizes.

A view computes the touched keys again from all of its inputs, so a turn has to find their rows among all others.
Measured is `gold.orders_with_customers`, a join; beside it the same turns of its inputs alone.

    .venv/spark/bin/python -m tests.view_cost
"""

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from bench.program import cpu_seconds_of
from bench.stand import run
from pyspark.sql import SparkSession

from deltaworks.cli.show import listing
from deltaworks.engine.session import open_session
from deltaworks.settings import AppSettings, Settings
from shop.part import FIRST, part_of_shop
from tests.flows import START, Log, Owner, Record
from tests.shop_rows import change, customer, order

VIEW = "gold.orders_with_customers"
_SILVER = ("silver.orders", "silver.customers")
_PER_BATCH = 20_000
_ORDERS_EACH = 10
"""Orders per customer, and orders that change in a turn."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """CPU seconds per turn, the median of some."""

    orders: int
    inputs: float
    with_view: float

    def told(self) -> dict[str, object]:
        """One line of the answer."""
        return {
            "orders": self.orders,
            "inputs alone, CPU s": round(self.inputs, 2),
            "with the view, CPU s": round(self.with_view, 2),
            "the view's own, CPU s": round(self.with_view - self.inputs, 2),
        }


def measure(spark: SparkSession, folder: Path, *, orders: int, turns: int) -> Measured:
    """Fill a lake and change a few orders in each turn, with the view and without it in turn."""
    settings = Settings.load(part_of_shop(folder / "project", *FIRST, VIEW), environment={}, data=folder)
    log, lsn = Log(), 0
    owner = Owner(spark, settings, "shop", only=(*_SILVER, VIEW))
    for first in range(0, orders, _PER_BATCH):
        numbers = range(first, min(first + _PER_BATCH, orders))
        records = [*_customers(numbers, lsn), *_orders(numbers, lsn, status="placed")]
        lsn += len(records)
        log.send(records)
        owner.take(log.batch())
    spent: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * turns + 2):
        whole = turn % 2 == 0
        owner.only = (*_SILVER, VIEW) if whole else _SILVER
        owner.start()
        owner.turn()
        numbers = range(turn * _ORDERS_EACH % orders, turn * _ORDERS_EACH % orders + _ORDERS_EACH)
        records = list(_orders(numbers, lsn, status="paid" if turn % 4 < 2 else "placed"))
        lsn += len(records)
        log.send(records)
        with _counted(spent[whole]):
            owner.take(log.batch())
    # the first of each kind warms up
    return Measured(
        orders=orders,
        inputs=statistics.median(spent[False][1:]),
        with_view=statistics.median(spent[True][1:]),
    )


def _customers(numbers: range, lsn: int) -> Iterator[Record]:
    for at, number in enumerate(numbers):
        if number % _ORDERS_EACH == 0:
            one = customer(number // _ORDERS_EACH, f"n{number}")
            yield change("c", one, lsn=lsn + at + 1, table="customers", at=START + timedelta(milliseconds=number))


def _orders(numbers: range, lsn: int, *, status: str) -> Iterator[Record]:
    for at, number in enumerate(numbers):
        row = order(number % 1_000, status=status) | {"order_id": number, "customer_id": number // _ORDERS_EACH}
        yield change("u", row, lsn=lsn + len(numbers) + at + 1)


@contextmanager
def _counted(spent: list[float]) -> Iterator[None]:
    before = cpu_seconds_of(os.getsid(0))
    yield
    spent.append(cpu_seconds_of(os.getsid(0)) - before)


def main(
    orders: Annotated[list[int], typer.Option(min=100, help="Orders in the lake; may be repeated.")] = [  # noqa: B006  # typer takes a list, and changes none
        1_000, 10_000, 100_000,
    ],
    turns: Annotated[int, typer.Option(min=1, help="Measured turns of each kind.")] = 9,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:  # fmt: skip
    """Measure what a view costs as its inputs grow."""

    def measured() -> bool:
        with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
            settings = Settings.load(part_of_shop(Path(folder) / "p", *FIRST, VIEW), environment={}, data=Path(folder))
            spark = open_session(name="views", settings=settings, app=AppSettings(), brief=True)
            found = [measure(spark, Path(folder) / str(n), orders=n, turns=turns).told() for n in orders]
            spark.stop()
        listing(found, title="a turn in which ten orders change", as_json=as_json)
        return True

    raise typer.Exit(run(measured))


if __name__ == "__main__":
    typer.run(main)
