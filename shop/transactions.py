"""The SQL of each action of the shop, and how to see whether it was done."""

from typing import Any

from psycopg import Cursor
from psycopg.sql import SQL, Composable, Identifier

from deltaworks.errors import StackError
from shop.orders import (
    Action,
    AddCustomer,
    AddProduct,
    CancelOrder,
    ChangeCustomer,
    ChangePrice,
    PayOrder,
    PlaceOrder,
    RemoveCustomer,
    Restock,
)

_Cursor = Cursor[tuple[Any, ...]]


def is_done(cursor: _Cursor, action: Action) -> bool:
    """Is the effect of the action there? No for actions that may simply be repeated."""
    match action:
        case AddProduct():
            query, values = "select from products where product_id = %s", [action.product_id]
        case AddCustomer():
            query, values = "select from customers where customer_id = %s", [action.customer_id]
        case PlaceOrder():
            query, values = "select from orders where order_id = %s", [action.order_id]
        case PayOrder() | CancelOrder():
            query, values = "select from orders where order_id = %s and status <> 'placed'", [action.order_id]
        case Restock():
            query, values = (
                "select from stock where product_id = %s and quantity = %s",
                [action.product_id, action.after],
            )
        case RemoveCustomer():
            query, values = (
                "select where not exists (select from customers where customer_id = %s)",
                [action.customer_id],
            )
        case _:  # new prices and addresses
            return False
    return cursor.execute(query, values).fetchone() is not None


def write(cursor: _Cursor, action: Action) -> None:
    """Do the action in the transaction that is open; raises StackError if the row is not as the simulator left it.

    Times never go back: a run may be given a start before the last change.
    """
    match action:
        case AddProduct():
            _add_product(cursor, action)
        case ChangePrice():
            _one(
                cursor,
                "update products set price = %s, updated_at = greatest(updated_at, %s) where product_id = %s",
                (action.price, action.at, action.product_id),
            )
        case Restock():
            _one(
                cursor,
                "update stock set quantity = %s, updated_at = greatest(updated_at, %s)"
                " where product_id = %s and quantity = %s",
                (action.after, action.at, action.product_id, action.before),
            )
        case AddCustomer():
            _insert(
                cursor,
                "customers",
                customer_id=action.customer_id,
                name=action.name,
                email=action.email,
                country=action.country,
                tier=action.profile.tier,
                age=action.profile.age,
                created_at=action.at,
                updated_at=action.at,
            )
            _given(cursor, "customers", "customer_id", action.customer_id)
        case ChangeCustomer():
            _one(
                cursor,
                "update customers set email = %s, country = %s, tier = %s, age = %s,"
                " updated_at = greatest(updated_at, %s) where customer_id = %s",
                (
                    action.email,
                    action.country,
                    action.profile.tier,
                    action.profile.age,
                    action.at,
                    action.customer_id,
                ),
            )
        case RemoveCustomer():
            _one(cursor, "delete from customers where customer_id = %s", (action.customer_id,))
        case PlaceOrder():
            _place(cursor, action)
        case PayOrder():
            _settle(cursor, action, "paid")
        case CancelOrder():
            _settle(cursor, action, "cancelled")
            _give_back(cursor, action)


def _add_product(cursor: _Cursor, action: AddProduct) -> None:
    _insert(
        cursor,
        "products",
        product_id=action.product_id,
        name=action.name,
        category=action.category,
        price=action.price,
        updated_at=action.at,
    )
    _insert(cursor, "stock", product_id=action.product_id, quantity=action.quantity, updated_at=action.at)
    _given(cursor, "products", "product_id", action.product_id)


def _place(cursor: _Cursor, order: PlaceOrder) -> None:
    _insert(
        cursor,
        "orders",
        order_id=order.order_id,
        customer_id=order.customer_id,
        status="placed",
        amount=order.amount,
        placed_at=order.at,
        updated_at=order.at,
    )
    for line_no, line in enumerate(order.lines, 1):
        _insert(
            cursor,
            "order_lines",
            order_id=order.order_id,
            line_no=line_no,
            product_id=line.product_id,
            quantity=line.quantity,
            price=line.price,
        )
        _one(
            cursor,
            "update stock set quantity = quantity - %s, updated_at = greatest(updated_at, %s) where product_id = %s",
            (line.quantity, order.at, line.product_id),
        )
    _given(cursor, "orders", "order_id", order.order_id)


def _settle(cursor: _Cursor, action: PayOrder | CancelOrder, status: str) -> None:
    _one(
        cursor,
        "update orders set status = %s, updated_at = greatest(updated_at, %s)"
        " where order_id = %s and status = 'placed'",
        (status, action.at, action.order_id),
    )


def _give_back(cursor: _Cursor, action: CancelOrder) -> None:
    cursor.execute(
        "update stock set quantity = stock.quantity + line.quantity, updated_at = greatest(stock.updated_at, %s)"
        " from order_lines line where line.order_id = %s and line.product_id = stock.product_id",
        (action.at, action.order_id),  # an order names a product once
    )


def _insert(cursor: _Cursor, table: str, **values: object) -> None:
    columns: list[Composable] = [Identifier(name) for name in values]
    query = SQL("insert into {} ({}) values ({})").format(
        Identifier(table), SQL(", ").join(columns), SQL(", ").join(SQL("%s") for _ in values)
    )
    cursor.execute(query, tuple(values.values()))


def _given(cursor: _Cursor, table: str, column: str, value: int) -> None:
    """Tell the sequence that an id is taken, so that it is never given again, not even after the row was deleted."""
    cursor.execute("select setval(pg_get_serial_sequence(%s, %s), %s)", (table, column, value))


def _one(cursor: _Cursor, query: str, values: tuple[object, ...]) -> None:
    cursor.execute(query, values)
    if cursor.rowcount != 1:
        raise StackError(
            "database shop",
            f"{cursor.rowcount} rows instead of one for: {query.split(' where ', maxsplit=1)[0]}",
            "Somebody else changed the shop: start the simulator anew, it reads the state first",
        )
