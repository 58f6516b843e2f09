"""What the shop knows of each customer. One row per customer who is there; a copy answers look-ups in milliseconds."""

from deltaworks.words import Column, Table, postgres, view

TABLE = Table(
    app="shop",
    reads=("silver.customers", "silver.orders", "gold.order_items", "silver.product_clicks"),
    kept_as=view(keys=("customer_id",)),
    columns=(
        Column("customer_id", "bigint", null=False, doc="The customer."),
        Column("name", "string", null=False, pii=True, doc="Her name today."),
        Column("tier", "string", doc="basic or premium."),
        Column("orders", "bigint", null=False, doc="Orders that are not cancelled."),
        Column("value", "decimal(18,2)", null=False, doc="Amount of the paid ones, in euros."),
        Column(
            "favourite_category", "string", doc="Of which she bought the most pieces; the first by name of several."
        ),
        Column("last_seen_at", "timestamp", doc="Her last order or click, UTC."),
    ),
    serves=postgres(),
    subject="customer_id",
    owner="sales",
)
