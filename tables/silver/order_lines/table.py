"""Lines of the orders. One row per order and line."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="shop",
    reads=debezium("bronze.shop_changes", table="public.order_lines"),
    kept_as=latest(keys=("order_id", "line_no")),
    columns=(
        Column("order_id", "bigint", null=False, doc="The order it is of."),
        Column("line_no", "int", null=False, doc="Its place in the order, from 1."),
        Column("product_id", "bigint", null=False, doc="What was ordered."),
        Column("quantity", "int", null=False, doc="Pieces."),
        Column("price", "decimal(12,2)", null=False, doc="Price of one piece when it was ordered, in euros."),
    ),
    owner="sales",
)
