"""Products as visitors search for them. One row per product; a copy with a full-text index answers the searches."""

from deltaworks.words import Column, Table, postgres, view

TABLE = Table(
    app="shop",
    reads=("silver.products", "silver.stock", "gold.order_items"),
    kept_as=view(keys=("product_id",)),
    columns=(
        Column("product_id", "bigint", null=False, doc="The product."),
        Column("name", "string", null=False, doc="Its name today."),
        Column("category", "string", null=False, doc="Where it stands in the shop."),
        Column("price", "decimal(12,2)", null=False, doc="Price of one piece today, in euros."),
        Column("in_stock", "bigint", null=False, doc="Pieces that can be sold; none where no stock is known."),
        Column("sold", "bigint", null=False, doc="Pieces in paid orders: what sells may be shown first."),
    ),
    serves=postgres(search=("name", "category"), language="english"),
    owner="sales",
)
