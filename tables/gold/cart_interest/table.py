"""What visitors put into carts and take out again, per day and product: another view of the same events."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads="silver.cart_events",
    kept_as=view(keys=("day", "product_id")),
    columns=(
        Column("day", "date", null=False, doc="Day, UTC."),
        Column("product_id", "bigint", null=False, doc="The product."),
        Column("added", "bigint", null=False, doc="How often it was added."),
        Column("removed", "bigint", null=False, doc="How often it was removed."),
        Column("carts", "bigint", null=False, doc="Carts that touched it."),
    ),
    event_time="day",
    owner="sales",
)
