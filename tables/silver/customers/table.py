"""Customers as they are and as they were. One row per customer and state, with the time in which it held."""

from deltaworks.words import Column, Table, debezium, history

TABLE = Table(
    app="shop",
    reads=debezium("bronze.shop_changes", table="public.customers"),
    kept_as=history(keys=("customer_id",)),
    columns=(
        Column("customer_id", "bigint", null=False, doc="Assigned by the shop."),
        Column("name", "string", null=False, pii=True, doc="As the customer gave it."),
        Column("email", "string", pii=True, doc="Where confirmations go."),
        Column("country", "string", doc="ISO 3166 code, two letters."),
        Column("tier", "string", doc="basic or premium."),
        Column("age", "int", pii=True, doc="In years, if the customer told it."),
        Column("created_at", "timestamp", null=False, doc="When the account was opened, UTC."),
        Column("updated_at", "timestamp", null=False, doc="When the row last changed in the shop, UTC."),
        Column("arrived_at", "timestamp", wire="arrival", doc="When this state came here, UTC; null in older rows."),
    ),
    subject="customer_id",
    owner="sales",
)
