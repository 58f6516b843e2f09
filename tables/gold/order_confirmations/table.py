"""Orders to be confirmed to their buyers, each published once. One row per order whose customer has an address.

Whatever became of the order since; name and address are those of today, the message has those of then.
"""

from deltaworks.words import Column, Table, events, view

TABLE = Table(
    app="shop",
    reads="gold.orders_with_customers",
    kept_as=view(keys=("order_id",)),
    columns=(
        Column("order_id", "bigint", null=False, doc="The order."),
        Column("customer_id", "bigint", null=False, doc="Who placed it."),
        Column("name", "string", null=False, pii=True, doc="Her name."),
        Column("email", "string", null=False, pii=True, doc="Where the confirmation goes."),
        Column("amount", "decimal(12,2)", null=False, doc="Sum of the order, in euros."),
        Column("placed_at", "timestamp", null=False, doc="When the order was placed, UTC."),
    ),
    event_time="placed_at",
    publishes=events("order_confirmations", key=("order_id",)),
    subject="customer_id",
    owner="sales",
)
