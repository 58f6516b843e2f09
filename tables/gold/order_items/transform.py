"""Order lines, each with its order and its product."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(order_lines: DataFrame, orders: DataFrame, products: DataFrame) -> DataFrame:
    """Join by key; a line is there as soon as its order is."""
    of_orders = orders.select("order_id", "customer_id", "status", "placed_at")
    of_products = products.select("product_id", F.col("name").alias("product"), "category")
    joined = order_lines.join(of_orders, "order_id").join(of_products, "product_id", "left")
    value = (F.col("quantity") * F.col("price")).cast("decimal(18,2)").alias("value")
    return joined.select(
        *("order_id", "line_no", "product_id", "customer_id", "status", "placed_at", "product", "category", "quantity"),
        value,
    )


def keys_from(
    order_lines: DataFrame | None = None, orders: DataFrame | None = None, products: DataFrame | None = None
) -> DataFrame:
    """A line touches itself, an order all its lines, a product all lines that name it."""
    if order_lines is not None:
        return order_lines.select("order_id", "line_no", "product_id")
    if orders is not None:
        return orders.select("order_id")
    assert products is not None
    return products.select("product_id")
