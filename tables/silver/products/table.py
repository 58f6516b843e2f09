"""Products as the shop sells them today. One row per product."""

from deltaworks.words import Column, Table, changelog, debezium, latest

TABLE = Table(
    app="shop",
    reads=debezium("bronze.shop_changes", table="public.products"),
    kept_as=latest(keys=("product_id",)),
    columns=(
        Column("product_id", "bigint", null=False, doc="Assigned by the shop."),
        Column("name", "string", null=False, doc="As it is shown."),
        Column("category", "string", null=False, doc="Where it stands in the shop."),
        Column("price", "decimal(12,2)", null=False, doc="Price of one piece today, in euros."),
        Column("updated_at", "timestamp", null=False, doc="When the row last changed in the shop, UTC."),
    ),
    publishes=changelog("products_changelog"),
    owner="sales",
)
