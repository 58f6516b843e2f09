"""What is left of each product and what is on its way out. One row per product of the shop."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads=("silver.stock", "silver.products", "gold.order_items"),
    kept_as=view(keys=("product_id",)),
    columns=(
        Column("product_id", "bigint", null=False, doc="The product."),
        Column("product", "string", null=False, doc="Its name today."),
        Column("in_stock", "bigint", null=False, doc="Pieces that can be sold."),
        Column("reserved", "bigint", null=False, doc="Pieces in orders that are placed and not paid yet."),
        Column("sold", "bigint", null=False, doc="Pieces in paid orders."),
        Column("low", "boolean", null=False, doc="Whether fewer than twenty can be sold: time to order more."),
    ),
    owner="warehouse",
)
