"""Stock, products and orders to stock levels.

Nothing is added to or taken from what stood here: each row is what its inputs say, so a change that is delivered twice
counts once.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(stock: DataFrame, products: DataFrame, order_items: DataFrame) -> DataFrame:
    """Put what was ordered beside what is left."""
    placed, paid = F.col("status") == "placed", F.col("status") == "paid"
    ordered = order_items.groupBy("product_id").agg(
        F.sum(F.when(placed, F.col("quantity"))).alias("reserved"), F.sum(F.when(paid, F.col("quantity"))).alias("sold")
    )
    names = products.select("product_id", F.col("name").alias("product"))
    joined = names.join(stock.select("product_id", "quantity"), "product_id").join(ordered, "product_id", "left")
    return joined.select(
        "product_id",
        "product",
        F.col("quantity").cast("bigint").alias("in_stock"),
        *(F.coalesce(F.col(name), F.lit(0)).cast("bigint").alias(name) for name in ("reserved", "sold")),
        (F.col("quantity") < 20).alias("low"),
    )


def keys_from(
    stock: DataFrame | None = None, products: DataFrame | None = None, order_items: DataFrame | None = None
) -> DataFrame:
    """The product of a changed row, whatever it is of."""
    changed = next(rows for rows in (stock, products, order_items) if rows is not None)
    return changed.select("product_id")
