"""What the simulator plans for the shop's database: pure, possible, and over several days."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random

from shop.orders import (
    Action,
    AddCustomer,
    AddProduct,
    CancelOrder,
    ChangeCustomer,
    PayOrder,
    PlaceOrder,
    Profile,
    RemoveCustomer,
    Restock,
    Shop,
    ShopSize,
    actions,
)

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def planned(count: int, *, seed: int = 1, shop: Shop | None = None, size: ShopSize | None = None) -> list[Action]:
    """The first actions of a plan with two orders a second."""
    plan = actions(random=Random(seed), shop=shop or Shop(), start=START, order_rate=2.0, size=size or ShopSize())
    return list(islice(plan, count))


def test_the_same_seed_gives_the_same_actions_and_another_seed_others() -> None:
    """Ids, times, prices and fates follow from the arguments alone."""
    first, again, other = planned(3_000), planned(3_000), planned(3_000, seed=2)

    assert len(first) == 3_000
    assert first == again
    assert first != other


def test_an_empty_shop_gets_stock_then_customers_then_a_history_over_days() -> None:
    """Products with stock come first; orders lie on at least three days before anything is live."""
    done = planned(1_500, size=ShopSize(customers=30, products=8, history_days=3, history_orders=200))
    history = [action for action in done if isinstance(action, PlaceOrder) and action.due_us < 0]

    assert [type(action) for action in done[:8]] == [AddProduct] * 8
    assert [type(action) for action in done[8:38]] == [AddCustomer] * 30
    assert len(history) == 200
    assert len({order.at.date() for order in history}) >= 3
    assert all(START - timedelta(days=3) <= order.at < START for order in history)


def test_actions_come_in_order_of_time() -> None:
    """Times relative to the start rise, and `at` says the same as an absolute time."""
    done = planned(3_000)

    due = [action.due_us for action in done]
    assert due == sorted(due)
    assert all(action.at == START + timedelta(microseconds=action.due_us) for action in done)


def test_only_what_is_possible_is_planned() -> None:
    """Stock never falls below nothing, orders are settled once, and only customers without orders leave."""
    stock: dict[int, int] = {}
    placed: dict[int, PlaceOrder] = {}
    customers: Counter[int] = Counter()
    kinds: Counter[type] = Counter()

    for action in planned(20_000):
        kinds[type(action)] += 1
        match action:
            case AddProduct():
                stock[action.product_id] = action.quantity
            case Restock():
                assert stock[action.product_id] == action.before
                stock[action.product_id] = action.after
            case AddCustomer():
                assert action.customer_id not in customers
                customers[action.customer_id] = 0
            case RemoveCustomer():
                assert customers.pop(action.customer_id) == 0
            case ChangeCustomer():
                assert action.customer_id in customers
            case PlaceOrder():
                assert action.order_id not in placed
                assert action.customer_id in customers
                assert action.amount == sum(line.price * line.quantity for line in action.lines) > 0
                customers[action.customer_id] += 1
                placed[action.order_id] = action
                assert len({line.product_id for line in action.lines}) == len(action.lines)
                for line in action.lines:
                    stock[line.product_id] -= line.quantity
            case PayOrder():
                del placed[action.order_id]
            case CancelOrder():
                for line in placed.pop(action.order_id).lines:
                    stock[line.product_id] += line.quantity
            case _:
                pass
        assert min(stock.values()) >= 0

    assert len(kinds) == 9, f"of nine kinds of actions only {kinds}"
    assert kinds[PayOrder] > kinds[CancelOrder] > 100


def test_customers_become_premium_and_older_one_year_at_a_time() -> None:
    """Everybody begins as basic and some tell no age; a change keeps both, upgrades, or adds a year; none goes back."""
    profiles: dict[int, Profile] = {}
    seen: Counter[str] = Counter()

    for action in planned(20_000):
        if isinstance(action, AddCustomer):
            profile = action.profile
            assert profile.tier == "basic"
            assert profile.age is None or 18 <= profile.age <= 90
            seen["age untold"] += profile.age is None
        elif isinstance(action, ChangeCustomer):
            before, profile = profiles[action.customer_id], action.profile
            assert not (before.tier == "premium" and profile.tier == "basic")
            if before.age is None or profile.age is None:
                assert before.age is profile.age is None
            else:
                assert profile.age - before.age in {0, 1}
                assert profile.age <= 90
                seen["a year older"] += profile.age > before.age
            seen["upgraded"] += profile.tier > before.tier
            seen["as before"] += profile == before
        else:
            continue
        profiles[action.customer_id] = profile

    assert len(profiles) > 500
    assert min(seen[what] for what in ("age untold", "a year older", "upgraded", "as before")) > 20, seen


def test_a_shop_that_is_there_is_gone_on_with() -> None:
    """A second run adds no products and no history, takes ids beyond those given, and settles what was left open."""
    shop = Shop()
    before = planned(1_000, shop=shop)
    open_before = set(shop.open_orders)
    first_ids = {action.order_id for action in before if isinstance(action, PlaceOrder)}

    after = planned(1_000, shop=shop, seed=2)

    assert open_before
    assert not any(isinstance(action, AddProduct) for action in after)
    assert all(action.due_us >= 0 for action in after)
    assert min(action.order_id for action in after if isinstance(action, PlaceOrder)) > max(first_ids)
    settled = {action.order_id for action in after if isinstance(action, PayOrder | CancelOrder)}
    assert len(open_before & settled) > len(open_before) / 2
