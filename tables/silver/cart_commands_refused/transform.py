"""Cart events to refusals."""

from pyspark.sql import DataFrame


def transform(cart_events: DataFrame) -> DataFrame:
    """Those that were refused."""
    return cart_events.where("refused is not null").drop("quantity", "since")


def keys_from(cart_events: DataFrame) -> DataFrame:
    """The command itself."""
    return cart_events.select("cart_id", "given_at", "command_id")
