"""What the shop's customers and staff do in its database: pure, the same for the same arguments.

The state of the shop when the run starts is an argument: a second run goes on with the ids and the stock that it finds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush
from itertools import chain
from random import Random
from typing import Literal

from shop.clock import MINUTE, SECOND

_PAID, _CANCELLED = 0.80, 0.12  # shares of orders; the rest stays open until the next run
_SETTLED_AFTER_US = (2 * SECOND, 30 * SECOND)  # live
_SETTLED_AFTER_HISTORY_US = (2 * MINUTE, 120 * MINUTE)
_UPGRADED, _BIRTHDAY = 0.25, 0.25  # shares of changed customers
_AGE_TOLD, _AGES = 0.8, (18, 90)  # share of customers; years
_NEW_CUSTOMER, _CHANGED_CUSTOMER, _REMOVED_CUSTOMER, _NEW_PRICE = 0.10, 0.08, 0.03, 0.03  # chances per order
_LINES_MAX, _PIECES_MAX = 4, 3
_STOCK_FULL, _STOCK_LOW = 200, 20  # a product below the second is filled up to the first
_DAY_US = 24 * 60 * MINUTE

_FIRST = ("Ada", "Bo", "Chloé", "Dmitri", "Esra", "Femi", "Grace", "Håkon", "Inês", "Jürgen", "Łucja", "美咲")
_LAST = ("Abe", "Brandt", "Costa", "Dupont", "Eze", "Friis", "García", "Horák", "Ionescu", "Jansen", "O'Neill", "王")
_COUNTRIES = ("DE", "DK", "ES", "FR", "JP", "NG", "NL", "PL", "PT", "US")
_CATEGORIES = ("books", "garden", "kitchen", "music", "toys")
_NOUNS = ("lamp", "kettle", "novel", "spade", "drum", "puzzle", "mug", "atlas")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of an order; the price is that of one piece."""

    product_id: int
    quantity: int
    price: Decimal


@dataclass(frozen=True, kw_only=True)
class _Done:
    due_us: int  # microseconds since the start of the run; negative in the history
    at: datetime


@dataclass(frozen=True, kw_only=True)
class AddProduct(_Done):
    """A new product and its stock."""

    product_id: int
    name: str
    category: str
    price: Decimal
    quantity: int


@dataclass(frozen=True, kw_only=True)
class ChangePrice(_Done):
    """A product costs something else from now on."""

    product_id: int
    price: Decimal


@dataclass(frozen=True, kw_only=True)
class Restock(_Done):
    """A product's stock is filled up. Both quantities are named, so that it is not done twice."""

    product_id: int
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What the next change of a customer depends on; the age is in years, None if she did not tell it."""

    tier: Literal["basic", "premium"] = "basic"
    age: int | None = None


@dataclass(frozen=True, kw_only=True)
class AddCustomer(_Done):
    """Somebody registers."""

    customer_id: int
    name: str
    email: str
    country: str
    profile: Profile


@dataclass(frozen=True, kw_only=True)
class ChangeCustomer(_Done):
    """A customer has another address and lives in another country; she may be premium now, or a year older."""

    customer_id: int
    email: str
    country: str
    profile: Profile


@dataclass(frozen=True, kw_only=True)
class RemoveCustomer(_Done):
    """A customer who never ordered leaves."""

    customer_id: int


@dataclass(frozen=True, kw_only=True)
class PlaceOrder(_Done):
    """An order, its lines and what it takes from the stock: one transaction."""

    order_id: int
    customer_id: int
    lines: tuple[Line, ...]

    @property
    def amount(self) -> Decimal:
        """Sum over the lines."""
        return sum((line.quantity * line.price for line in self.lines), Decimal(0))


@dataclass(frozen=True, kw_only=True)
class PayOrder(_Done):
    """A placed order is paid."""

    order_id: int


@dataclass(frozen=True, kw_only=True)
class CancelOrder(_Done):
    """A placed order is cancelled and its pieces go back into the stock: one transaction."""

    order_id: int


Change = AddProduct | ChangePrice | Restock | AddCustomer | ChangeCustomer | RemoveCustomer
Action = Change | PlaceOrder | PayOrder | CancelOrder


@dataclass(kw_only=True)
class Shop:
    """The state that decides what can happen next; kept up to date by the plan as it yields."""

    orders_of: dict[int, int] = field(default_factory=dict)  # customer id -> number of orders
    profile_of: dict[int, Profile] = field(default_factory=dict)
    price_of: dict[int, Decimal] = field(default_factory=dict)
    stock_of: dict[int, int] = field(default_factory=dict)
    open_orders: dict[int, tuple[Line, ...]] = field(default_factory=dict)
    next_customer_id: int = 1
    next_product_id: int = 1
    next_order_id: int = 1

    def take(self, action: Action) -> None:
        """Do to this state what the action does to the database."""
        match action:
            case AddProduct() | ChangePrice() | Restock():
                self._take_product(action)
            case AddCustomer() | ChangeCustomer() | RemoveCustomer():
                self._take_customer(action)
            case PlaceOrder():
                self._place(action)
            case PayOrder():
                del self.open_orders[action.order_id]
            case CancelOrder():
                for line in self.open_orders.pop(action.order_id):
                    self.stock_of[line.product_id] += line.quantity

    def _take_customer(self, action: AddCustomer | ChangeCustomer | RemoveCustomer) -> None:
        if isinstance(action, RemoveCustomer):
            del self.orders_of[action.customer_id], self.profile_of[action.customer_id]
            return
        self.profile_of[action.customer_id] = action.profile
        if isinstance(action, AddCustomer):
            self.orders_of[action.customer_id] = 0
            self.next_customer_id = action.customer_id + 1

    def _take_product(self, action: AddProduct | ChangePrice | Restock) -> None:
        if isinstance(action, AddProduct):
            self.stock_of[action.product_id] = action.quantity
            self.next_product_id = action.product_id + 1
        if isinstance(action, Restock):
            self.stock_of[action.product_id] = action.after
        else:
            self.price_of[action.product_id] = action.price

    def _place(self, order: PlaceOrder) -> None:
        self.orders_of[order.customer_id] += 1
        self.open_orders[order.order_id] = order.lines
        self.next_order_id = order.order_id + 1
        for line in order.lines:
            self.stock_of[line.product_id] -= line.quantity


@dataclass(frozen=True, kw_only=True)
class ShopSize:
    """How large a shop is on its first day. A shop that has products or customers already is left as it is."""

    customers: int = 100
    products: int = 20
    history_days: float = 3.0
    history_orders: int = 300


def actions(*, random: Random, shop: Shop, start: datetime, order_rate: float, size: ShopSize) -> Iterator[Action]:
    """Yield what happens, in order of time: first day and history of an empty shop, then `order_rate` orders a second.

    Ends only if `order_rate` is 0. `shop` is changed along the way.
    """
    plan = _Plan(random=random, shop=shop, start=start)
    history: list[int] = []
    if shop.next_order_id == 1 and size.history_orders:
        span_us = int(size.history_days * _DAY_US)
        history = sorted(-random.randrange(span_us) - 1 for _ in range(size.history_orders)) if span_us else []
    yield from plan.first_day(int(-size.history_days * _DAY_US), size)
    for order_id in shop.open_orders:  # those that the run before left open
        plan.settle_later(order_id, 0)
    for due_us in chain(history, _live(random, order_rate)):
        yield from plan.settle(due_us)
        yield from plan.around(due_us)
        yield from plan.order(due_us)
    yield from plan.settle(_SETTLED_AFTER_HISTORY_US[1])


def _live(random: Random, order_rate: float) -> Iterator[int]:
    due = 0.0
    while order_rate > 0:
        due += random.expovariate(order_rate)
        yield int(due * SECOND)


class _Plan:
    """Draws one action after the other."""

    def __init__(self, *, random: Random, shop: Shop, start: datetime) -> None:
        self._random, self._shop, self._start = random, shop, start
        self._settlements: list[tuple[int, int]] = []  # due, order id

    def first_day(self, due_us: int, size: ShopSize) -> Iterator[Action]:
        """Stock before customers, customers before orders."""
        for _ in range(0 if self._shop.price_of else size.products):
            yield self._did(self._add_product(due_us))
        for _ in range(0 if self._shop.orders_of else size.customers):
            yield self._did(self._add_customer(due_us))

    def settle(self, until_us: int) -> Iterator[Action]:
        """Pay or cancel the orders whose time has come."""
        while self._settlements and self._settlements[0][0] <= until_us:
            due_us, order_id = heappop(self._settlements)
            roll, at = self._random.random(), self._at(due_us)
            if roll < _PAID:
                yield self._did(PayOrder(due_us=due_us, at=at, order_id=order_id))
            elif roll < _PAID + _CANCELLED:
                yield self._did(CancelOrder(due_us=due_us, at=at, order_id=order_id))

    def settle_later(self, order_id: int, placed_us: int) -> None:
        """Note when an order's fate is to be decided."""
        after = self._random.randint(*(_SETTLED_AFTER_HISTORY_US if placed_us < 0 else _SETTLED_AFTER_US))
        heappush(self._settlements, (placed_us + after, order_id))

    def around(self, due_us: int) -> Iterator[Action]:
        """What happens beside the orders: customers come, move and leave, prices change."""
        random, at = self._random, self._at(due_us)
        if random.random() < _NEW_CUSTOMER or not self._shop.orders_of:
            yield self._did(self._add_customer(due_us))
        if random.random() < _CHANGED_CUSTOMER:
            yield self._did(self._change_customer(due_us))
        without = [customer for customer, orders in self._shop.orders_of.items() if orders == 0]
        if random.random() < _REMOVED_CUSTOMER and without and len(self._shop.orders_of) > 1:
            yield self._did(RemoveCustomer(due_us=due_us, at=at, customer_id=random.choice(without)))
        if random.random() < _NEW_PRICE and self._shop.price_of:
            product_id = random.choice(tuple(self._shop.price_of))
            yield self._did(ChangePrice(due_us=due_us, at=at, product_id=product_id, price=self._price()))

    def order(self, due_us: int) -> Iterator[Action]:
        """One order, after the stock that it needs was filled up."""
        random, shop, at = self._random, self._shop, self._at(due_us)
        if not shop.price_of:
            return
        products = random.sample(tuple(shop.price_of), min(random.randint(1, _LINES_MAX), len(shop.price_of)))
        for product_id in products:
            before = shop.stock_of[product_id]
            if before < _STOCK_LOW:
                restock = Restock(due_us=due_us, at=at, product_id=product_id, before=before, after=_STOCK_FULL)
                yield self._did(restock)
        lines = tuple(
            Line(product_id=product_id, quantity=random.randint(1, _PIECES_MAX), price=shop.price_of[product_id])
            for product_id in products
        )
        order_id, customer_id = shop.next_order_id, random.choice(tuple(shop.orders_of))
        placed = PlaceOrder(due_us=due_us, at=at, order_id=order_id, customer_id=customer_id, lines=lines)
        self.settle_later(placed.order_id, due_us)
        yield self._did(placed)

    def _add_product(self, due_us: int) -> AddProduct:
        product_id, random = self._shop.next_product_id, self._random
        return AddProduct(
            due_us=due_us,
            at=self._at(due_us),
            product_id=product_id,
            name=f"{random.choice(_NOUNS)} {product_id}",
            category=random.choice(_CATEGORIES),
            price=self._price(),
            quantity=_STOCK_FULL,
        )

    def _add_customer(self, due_us: int) -> AddCustomer:
        customer_id, random = self._shop.next_customer_id, self._random
        return AddCustomer(
            due_us=due_us,
            at=self._at(due_us),
            customer_id=customer_id,
            name=f"{random.choice(_FIRST)} {random.choice(_LAST)}",
            email=f"customer.{random.randrange(10**8):08d}@example.com",
            country=random.choice(_COUNTRIES),
            profile=Profile(age=random.randint(*_AGES) if random.random() < _AGE_TOLD else None),
        )

    def _change_customer(self, due_us: int) -> ChangeCustomer:
        drawn, random = self._add_customer(due_us), self._random
        changed = random.choice(tuple(self._shop.orders_of))
        before = self._shop.profile_of[changed]
        older = before.age is not None and before.age < _AGES[1] and random.random() < _BIRTHDAY
        return ChangeCustomer(
            due_us=due_us,
            at=drawn.at,
            customer_id=changed,
            email=drawn.email,
            country=drawn.country,
            profile=Profile(
                tier="premium" if random.random() < _UPGRADED else before.tier,
                age=before.age + 1 if older and before.age is not None else before.age,
            ),
        )

    def _price(self) -> Decimal:
        return Decimal(self._random.randint(99, 29_999)).scaleb(-2)

    def _at(self, due_us: int) -> datetime:
        return self._start + timedelta(microseconds=due_us)

    def _did(self, action: Action) -> Action:
        self._shop.take(action)
        return action
