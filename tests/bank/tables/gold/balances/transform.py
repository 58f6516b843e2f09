"""Transfers to balances."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(transfers: DataFrame) -> DataFrame:
    """Both sides of each transfer, added up per account."""
    taken = transfers.select(F.col("taker").alias("account"), F.col("amount"))
    given = transfers.select(F.col("giver").alias("account"), (-F.col("amount")).alias("amount"))
    return (
        taken.unionByName(given)
        .groupBy("account")
        .agg(F.sum("amount").cast("decimal(18,2)").alias("balance"), F.count("*").alias("transfers"))
    )


def keys_from(transfers: DataFrame) -> DataFrame:
    """The two accounts of each changed transfer."""
    givers = transfers.select(F.col("giver").alias("account"))
    return givers.unionByName(transfers.select(F.col("taker").alias("account")))
