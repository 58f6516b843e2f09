"""What was ordered, with order and product beside it. One row per order, line and product; the base of other views."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads=("silver.order_lines", "silver.orders", "silver.products"),
    kept_as=view(keys=("order_id", "line_no", "product_id")),
    columns=(
        Column("order_id", "bigint", null=False, doc="The order."),
        Column("line_no", "int", null=False, doc="The line's place in it."),
        Column("product_id", "bigint", null=False, doc="What was ordered."),
        Column("customer_id", "bigint", null=False, doc="Who ordered."),
        Column("status", "string", null=False, doc="placed, paid or cancelled."),
        Column("placed_at", "timestamp", null=False, doc="When the order was placed, UTC."),
        Column("product", "string", doc="The product's name today; null if it is not sold any more."),
        Column("category", "string", doc="The product's category today."),
        Column("quantity", "int", null=False, doc="Pieces."),
        Column(
            "value", "decimal(18,2)", null=False, doc="Pieces times the price at which they were ordered, in euros."
        ),
    ),
    event_time="placed_at",
    subject="customer_id",
    owner="sales",
)
