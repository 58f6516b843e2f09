"""Customers as the shop last reported them. One row per customer."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="shop",
    reads=debezium("bronze.shop_changes", table="public.customers"),
    kept_as=latest(keys=("customer_id",)),
    columns=(
        Column("customer_id", "bigint", null=False, doc="Assigned by the shop."),
        Column("name", "string", null=False, pii=True, doc="As the customer gave it."),
        Column("email", "string", pii=True, doc="Where confirmations go."),
        Column("country", "string", doc="ISO 3166 code, two letters."),
        Column("created_at", "timestamp", null=False, doc="When the account was opened, UTC."),
        Column("updated_at", "timestamp", null=False, doc="When the row last changed in the shop, UTC."),
    ),
    subject="customer_id",
    owner="sales",
    keep_days=3650,
)
