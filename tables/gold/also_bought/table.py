"""What is bought together. One row per product and other product that some order holds both of."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads="gold.order_items",
    kept_as=view(keys=("product_id", "other_id")),
    columns=(
        Column("product_id", "bigint", null=False, doc="Who looks at this one ..."),
        Column("other_id", "bigint", null=False, doc="... may want this one too."),
        Column("orders", "bigint", null=False, doc="Orders with both that are not cancelled."),
        Column("last_at", "timestamp", null=False, doc="When the last of them was placed, UTC."),
    ),
    owner="sales",
)
