"""Orders to their confirmations."""

from pyspark.sql import DataFrame


def transform(orders_with_customers: DataFrame) -> DataFrame:
    """Take the orders that can be confirmed to somebody: who has left has neither name nor address."""
    return orders_with_customers.where("name is not null and email is not null").select(
        "order_id", "customer_id", "name", "email", "amount", "placed_at"
    )


def keys_from(orders_with_customers: DataFrame) -> DataFrame:
    """The order of a changed row."""
    return orders_with_customers.select("order_id")
