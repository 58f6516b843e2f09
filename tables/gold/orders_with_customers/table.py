"""Orders with the customer as she is today. One row per order; a customer who changes changes all her orders here."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads=("silver.orders", "silver.customers"),
    kept_as=view(keys=("customer_id", "order_id")),
    columns=(
        Column("customer_id", "bigint", null=False, doc="Who ordered."),
        Column("order_id", "bigint", null=False, doc="The order."),
        Column("name", "string", pii=True, doc="The customer's name today; null if she has left."),
        Column("email", "string", pii=True, doc="Where confirmations go today."),
        Column("country", "string", doc="Where she lives today."),
        Column("tier", "string", doc="What she is today: basic or premium."),
        Column("status", "string", null=False, doc="placed, paid or cancelled."),
        Column("amount", "decimal(12,2)", null=False, doc="Sum of the order, in euros."),
        Column("placed_at", "timestamp", null=False, doc="When the order was placed, UTC."),
    ),
    event_time="placed_at",
    subject="customer_id",
    owner="sales",
)
