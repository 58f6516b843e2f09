"""What each product has sold. One row per product that was ever ordered."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads="gold.order_items",
    kept_as=view(keys=("product_id",)),
    columns=(
        Column("product_id", "bigint", null=False, doc="The product."),
        Column("product", "string", doc="Its name today; null if it is not sold any more."),
        Column("category", "string", doc="Its category today."),
        Column("orders", "bigint", null=False, doc="Orders that name it and are not cancelled."),
        Column("pieces", "bigint", null=False, doc="Pieces in these."),
        Column("revenue", "decimal(18,2)", null=False, doc="Their value in paid orders, in euros."),
    ),
    owner="sales",
)
