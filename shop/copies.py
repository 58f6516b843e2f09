"""Copies beside the lake, held against what the check expects: tables in the serving database, topics.

They share no code with the engine's outlets.
"""

from collections.abc import Mapping

import duckdb

from deltaworks.settings import Settings
from shop.comparison import Comparison, compare, count, quoted
from shop.evidence import TopicLog, copy_postgres, known_to_postgres

SERVED: Mapping[str, Mapping[str, str]] = {
    "gold.customer_profiles": {
        "customer_id": "bigint",
        "name": "varchar",
        "tier": "varchar",
        "orders": "bigint",
        "value": "decimal(18, 2)",
        "favourite_category": "varchar",
        "last_seen_at": "timestamptz",
    },
    "gold.product_search": {
        "product_id": "bigint",
        "name": "varchar",
        "category": "varchar",
        "price": "decimal(12, 2)",
        "in_stock": "bigint",
        "sold": "bigint",
    },
}
"""Tables of the serving database with their columns; the first is the key."""
_PRODUCTS = """
    with newest as (
        select decode(value)::json as row from kafka.products_changelog
        qualify row_number() over (partition by "partition", key order by "offset" desc) = 1
    )
    select (row ->> 'product_id')::bigint as product_id, row ->> 'name' as name, row ->> 'category' as category,
           (row ->> 'price')::decimal(12, 2) as price, (row ->> 'updated_at')::timestamptz as updated_at
    from newest where row is not null
"""
# A message that was sent again has the id that it had. An order that was told and went since is right too; that it
# was there once is known from the changes of the database.
_CONFIRMED = """
    with told as (
        select distinct id, (decode(value)::json ->> 'order_id')::bigint as order_id from kafka.order_confirmations
    ), reported as (
        select try(decode(value)::json) as change from kafka.shop_changes
    ), gone as (
        select unnest([change ->> '$.before.order_id', change ->> '$.after.order_id'])::bigint as order_id
        from reported where change ->> '$.source.table' = 'orders'
        except select order_id from gold.order_confirmations
    )
    select order_id from told anti join gone using (order_id)
"""
_FOLDED = {
    "topic products_changelog": ("select * from silver.products", _PRODUCTS, "product_id"),
    "topic order_confirmations": ("select order_id from gold.order_confirmations", _CONFIRMED, "order_id"),
}
"""Comparisons of topics: what is expected, what the messages come to, the key."""
COPIES = (*(f"postgres {name}" for name in SERVED), *_FOLDED)


class Copies:
    """What was read of them last. The database has the topic `shop.changes`, and what is expected of the tables."""

    def __init__(self, database: duckdb.DuckDBPyConnection, settings: Settings) -> None:
        """Find the topics; raises StackError."""
        self._database, self._settings = database, settings
        database.execute("create schema served")
        self._products = TopicLog(
            database, bootstrap=settings.kafka, topic="products_changelog", table="kafka.products_changelog"
        )
        self._confirmations = TopicLog(
            database, bootstrap=settings.kafka, topic="order_confirmations", table="kafka.order_confirmations",
            headers=("id",),
        )  # fmt: skip
        self._there: list[str] = []

    def close(self) -> None:
        """Leave the broker."""
        self._products.close()
        self._confirmations.close()

    def read(self) -> None:
        """Read the topics and the serving database up to now; raises StackError."""
        for log in (self._products, self._confirmations):
            for _ in log.read():
                pass
        dsn = self._settings.serving_dsn("reader")
        self._there = known_to_postgres(dsn=dsn, names=SERVED)  # a copy is made with its first rows
        tables = {
            _served(name): (f"select {quoted(list(SERVED[name]))} from {name}", SERVED[name])  # noqa: S608  # our own names
            for name in self._there
        }
        copy_postgres(self._database, dsn=dsn, tables=tables)

    def compare(self) -> list[Comparison]:
        """Compare what was read with what is expected."""
        return [*map(self._compare_served, SERVED), *map(self._compare_topic, _FOLDED)]

    def _compare_served(self, name: str) -> Comparison:
        if name not in self._there:
            rows = count(self._database, name)
            return Comparison(name=f"postgres {name}", expected=rows, found=None, differences=("no such copy",))
        key = next(iter(SERVED[name]))
        return compare(self._database, name=f"postgres {name}", expected=name, found=_served(name), keys=(key,))

    def _compare_topic(self, name: str) -> Comparison:
        expected, found, key = _FOLDED[name]
        self._database.execute(f"create or replace table served.expected as {expected}")
        self._database.execute(f"create or replace table served.found as {found}")
        if name.endswith("order_confirmations") and any(self._confirmations.begins.values()):
            # retention took messages out of the topic: of those orders nothing is known
            self._database.execute("delete from served.expected where order_id not in (from served.found)")
        return compare(self._database, name=name, expected="served.expected", found="served.found", keys=(key,))


def _served(name: str) -> str:
    return name.replace("gold.", "served.")
