"""Products, stock and what was sold to what a search shows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(products: DataFrame, stock: DataFrame, order_items: DataFrame) -> DataFrame:
    """Put what is left and what was sold beside each product."""
    left = stock.select("product_id", F.col("quantity").cast("bigint").alias("in_stock"))
    sold = order_items.where("status = 'paid'").groupBy("product_id").agg(F.sum("quantity").alias("sold"))
    shown = products.select("product_id", "name", "category", "price")
    return shown.join(left, "product_id", "left").join(sold, "product_id", "left").fillna(0, ["in_stock", "sold"])


def keys_from(
    products: DataFrame | None = None, stock: DataFrame | None = None, order_items: DataFrame | None = None
) -> DataFrame:
    """The product of a changed row, whatever it is of."""
    changed = next(rows for rows in (products, stock, order_items) if rows is not None)
    return changed.select("product_id")
