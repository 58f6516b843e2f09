"""Orders as the shop last reported them. One row per order."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="shop",
    reads=debezium("bronze.shop_changes", table="public.orders"),
    kept_as=latest(keys=("order_id",)),
    columns=(
        Column("order_id", "bigint", null=False, doc="Assigned by the shop."),
        Column("customer_id", "bigint", null=False, doc="Who ordered."),
        Column("status", "string", null=False, doc="placed, paid or cancelled."),
        Column("amount", "decimal(12,2)", null=False, doc="Sum of the order's lines, in euros."),
        Column("placed_at", "timestamp", null=False, doc="When the shop says it happened, UTC."),
        Column("updated_at", "timestamp", null=False, doc="When the row last changed in the shop, UTC."),
    ),
    event_time="placed_at",
    subject="customer_id",
    owner="sales",
)
