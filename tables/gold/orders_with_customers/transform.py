"""Orders joined with customers."""

from pyspark.sql import DataFrame


def transform(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Put the current state of its customer beside each order."""
    current = customers.where("is_current").select("customer_id", "name", "email", "country", "tier")
    placed = orders.select("customer_id", "order_id", "status", "amount", "placed_at")
    return placed.join(current, "customer_id", "left")


def keys_from(orders: DataFrame | None = None, customers: DataFrame | None = None) -> DataFrame:
    """An order touches itself, a customer all her orders."""
    if orders is not None:
        return orders.select("customer_id", "order_id")
    assert customers is not None
    return customers.select("customer_id")
