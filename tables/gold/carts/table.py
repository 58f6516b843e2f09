"""Carts as they stand, folded from their events since they last began. One row per cart."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads="silver.cart_events",
    kept_as=view(keys=("cart_id",)),
    columns=(
        Column("cart_id", "string", null=False, doc="The cart."),
        Column("user_id", "bigint", null=False, doc="Whose cart it is."),
        Column("products", "bigint", null=False, doc="Different products in it."),
        Column("pieces", "bigint", null=False, doc="Pieces in it."),
        Column("lines", "string", null=False, doc="Pieces by product id, as a JSON object."),
        Column("opened_at", "timestamp", null=False, doc="Time of its first event, UTC."),
        Column("changed_at", "timestamp", null=False, doc="Time of its last event, UTC."),
        Column("checked_out_at", "timestamp", doc="When it was checked out, UTC; null while it is open."),
    ),
    event_time="changed_at",
    subject="user_id",
    owner="sales",
)
