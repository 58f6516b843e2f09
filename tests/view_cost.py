"""A turn of the shop's views over inputs of different sizes, in which the same rows change.

    .venv/spark/bin/python -m tests.view_cost

A view computes the keys again that changed rows touch. Measured is how long the views are at that in one turn, those
that are made from the shop's database, when ten orders, their lines, a customer and a product change.
"""

import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from bench.stand import run
from pyspark.sql import SparkSession

from deltaworks.cli.show import listing
from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings
from deltaworks.words.keeping import View
from tests.flows import START, Log, Owner, Record
from tests.shop_rows import change_of

INPUTS = ("silver.orders", "silver.order_lines", "silver.customers", "silver.products", "silver.stock")
_PER_BATCH = 20_000
_CHANGED = 10
"""Orders that change in a turn; each customer and each product is of so many orders."""
_WARM_UP = 4


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds that each view takes in a turn, the median of some, over a lake of so many orders."""

    orders: int
    seconds: Mapping[str, float]


def measure(spark: SparkSession, folder: Path, *, orders: int, turns: int) -> Measured:
    """Fill a lake, then change the same number of rows in each turn."""
    settings = Settings.load(ROOT, environment={}, data=folder)
    owner = Owner(spark, settings, "shop")
    views = _views(owner)
    owner.only = (*INPUTS, *views)
    owner.start()
    log, numbered = Log(), _Numbered()
    for first in range(0, orders, _PER_BATCH // 4):
        log.send(numbered.rows(range(first, min(first + _PER_BATCH // 4, orders)), op="c"))
        owner.take(log.batch())
    found: dict[str, list[float]] = {view: [] for view in views}
    for turn in range(turns + _WARM_UP):
        first = turn * _CHANGED % orders
        log.send(numbered.rows(range(first, first + _CHANGED), op="u"))
        owner.flow.turns.forget()
        owner.take(log.batch())
        for table, seconds in owner.flow.turns.seconds().items():
            if table in found and turn >= _WARM_UP:
                found[table].append(seconds)
    return Measured(orders=orders, seconds={view: statistics.median(took) for view, took in found.items() if took})


def _views(owner: Owner) -> tuple[str, ...]:
    """The views that are made from the inputs alone, by whatever way."""
    known = set(INPUTS)
    for declared in owner.catalog.app("shop"):
        if isinstance(declared.table.kept_as, View) and set(declared.inputs) <= known:
            known.add(declared.name)
    return tuple(sorted(known - set(INPUTS)))


class _Numbered:
    """Changes of the shop's database as Debezium sends them, each with the next number of its log."""

    def __init__(self) -> None:
        self._lsn = 0

    def rows(self, numbers: range, *, op: str) -> Iterator[Record]:
        """Orders of these numbers with two lines each; every tenth brings its customer, its product and the stock."""
        for number in numbers:
            owner = number // _CHANGED
            if number % _CHANGED == 0:
                yield self._change(op, "customers", _customer(owner, f"n{self._lsn}"))
                yield self._change(op, "products", _product(owner, f"p{self._lsn}"))
                yield self._change(op, "stock", _stock(owner, self._lsn % 1_000))
            yield self._change(op, "orders", _order(number, owner, "paid" if self._lsn % 2 else "placed"))
            for line in (1, 2):
                yield self._change(op, "order_lines", _line(number, line, owner, self._lsn % 9 + 1))

    def _change(self, op: str, table: str, row: dict[str, Any]) -> Record:
        self._lsn += 1
        return change_of(op, row, lsn=self._lsn, table=table, at=START + timedelta(milliseconds=self._lsn))


def _customer(number: int, name: str) -> dict[str, Any]:
    return {
        "customer_id": number, "name": name, "email": None, "country": "DE", "tier": "basic", "age": None,
        "created_at": _at(0), "updated_at": _at(0),
    }  # fmt: skip


def _product(number: int, name: str) -> dict[str, Any]:
    return {"product_id": number, "name": name, "category": "tools", "price": "2.50", "updated_at": _at(0)}


def _stock(number: int, quantity: int) -> dict[str, Any]:
    return {"product_id": number, "quantity": quantity, "updated_at": _at(0)}


def _order(number: int, customer: int, status: str) -> dict[str, Any]:
    """An order an hour: with more orders there are more days."""
    at = _at(number)
    return {
        "order_id": number, "customer_id": customer, "status": status, "amount": "10.00", "placed_at": at,
        "updated_at": at,
    }  # fmt: skip


def _line(order: int, line: int, product: int, quantity: int) -> dict[str, Any]:
    return {"order_id": order, "line_no": line, "product_id": product, "quantity": quantity, "price": "2.50"}


def _at(hours: int) -> str:
    return (START + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def compared(small: Measured, large: Measured) -> list[dict[str, object]]:
    """A line for each view, and one for all."""
    lines = [(view, 1_000 * seconds, 1_000 * large.seconds[view]) for view, seconds in small.seconds.items()]
    lines.append(("all", sum(one for _, one, _ in lines), sum(other for _, _, other in lines)))
    return [
        {"view": view, "ms": round(one, 1), "ms, large": round(other, 1), "times": round(other / one, 2)}
        for view, one, other in lines
    ]


def main(
    orders: Annotated[int, typer.Option(min=100, help="Orders in the smaller lake.")] = 300,
    times: Annotated[int, typer.Option(min=2, help="How much larger the other one is.")] = 100,
    turns: Annotated[int, typer.Option(min=1, help="Measured turns over each.")] = 15,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure what a turn of views costs as their inputs grow; judges nothing."""

    def measured() -> bool:
        with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
            settings = Settings.load(ROOT, environment={}, data=Path(folder))
            spark = open_session(name="views", settings=settings, app=AppSettings(), few_rows=True)
            small, large = (
                measure(spark, Path(folder) / str(many), orders=many, turns=turns) for many in (orders, orders * times)
            )
            spark.stop()
        title = f"a turn of the shop's views over {orders:,} and {orders * times:,} orders"
        listing(compared(small, large), title=title, as_json=as_json)
        return True

    raise typer.Exit(run(measured))


if __name__ == "__main__":
    typer.run(main)
