"""What is left of each product. One row per product."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="shop",
    reads=debezium("bronze.shop_changes", table="public.stock"),
    kept_as=latest(keys=("product_id",)),
    columns=(
        Column("product_id", "bigint", null=False, doc="Assigned by the shop."),
        Column("quantity", "int", null=False, doc="Pieces that can be sold."),
        Column("updated_at", "timestamp", null=False, doc="When the row last changed in the shop, UTC."),
    ),
    owner="warehouse",
)
